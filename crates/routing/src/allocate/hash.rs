//! Allocates queues on a hash ring (Apache `AllocateMessageQueueConsistentHash`, `ConsistentHashRouter`).
//!
//! Each client is on the ring at the hashes of `id-0`, `id-1`, ...; a queue belongs to the first client at or after its
//! own hash. The hash is the first four bytes of MD5. When a client joins or leaves, only its own queues move.

use super::{AllocateError, AllocatedQueue, MAX_VIRTUAL_NODES};
use std::collections::{BTreeMap, HashSet};

/// `CONSISTENT_HASH`: returns the indexes of the client's queues. Apache's default is 10 virtual nodes.
///
/// # Errors
/// No virtual nodes, so that no queue would be read, or more than `MAX_VIRTUAL_NODES`.
pub fn consistent_hash<Id: AsRef<str>>(
    queues: &[AllocatedQueue<'_>],
    clients: &[Id],
    client: &str,
    virtual_nodes: usize,
) -> Result<Vec<usize>, AllocateError> {
    if !(1..=MAX_VIRTUAL_NODES).contains(&virtual_nodes) {
        return Err(AllocateError::VirtualNodes { virtual_nodes });
    }
    let ring = ring(clients, virtual_nodes);
    let owner = |queue: &AllocatedQueue<'_>| {
        let hash = hash(&format!(
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            queue.topic, queue.broker, queue.queue_id
        ));
        let next = ring.range(hash..).next();
        next.or_else(|| ring.first_key_value()).map(|(_, owner)| *owner)
    };
    let places = queues.iter().enumerate();
    let mine = places.filter(|(_, queue)| owner(queue) == Some(client));
    Ok(mine.map(|(place, _)| place).collect())
}

/// Builds the ring. If two nodes have the same hash, the later one replaces the earlier, as in Apache's map.
fn ring<Id: AsRef<str>>(clients: &[Id], virtual_nodes: usize) -> BTreeMap<u32, &str> {
    let mut ring = BTreeMap::new();
    let mut seen = HashSet::new();
    for client in clients {
        let client = client.as_ref();
        // A client that is listed twice has twice the nodes.
        let before = if seen.insert(client) {
            0
        } else {
            ring.values().filter(|owner| **owner == client).count()
        };
        for node in before..before + virtual_nodes {
            ring.insert(hash(&format!("{client}-{node}")), client);
        }
    }
    ring
}

fn hash(key: &str) -> u32 {
    let [first, second, third, fourth, ..] = md5::compute(key).0;
    u32::from_be_bytes([first, second, third, fourth])
}
