//! Which consumer of a group reads which queue (Apache `org.apache.rocketmq.client.consumer.rebalance`).
//!
//! Every client computes this on its own from the same two sorted lists, and Java clients and ours share a group. So
//! the rules must match Apache's exactly. Queues are indexes into the list. `CONFIG` has no rule: the configured list
//! is the answer.

mod average;
mod hash;
mod nearby;
mod room;

pub use average::{average, average_by_circle};
pub use hash::consistent_hash;
pub use nearby::{Share, nearby};
pub use room::machine_room;

use std::cmp::Ordering;
use thiserror::Error;

/// The strategy's name in Apache's rebalancing and in monitoring.
pub const AVERAGE: &str = "AVG";
/// The strategy's name in Apache's rebalancing and in monitoring.
pub const AVERAGE_BY_CIRCLE: &str = "AVG_BY_CIRCLE";
/// The strategy's name in Apache's rebalancing and in monitoring.
pub const CONSISTENT_HASH: &str = "CONSISTENT_HASH";
/// The strategy's name in Apache's rebalancing and in monitoring.
pub const MACHINE_ROOM: &str = "MACHINE_ROOM";
/// Prefix of the name of the strategy that `nearby` uses inside a room.
pub const MACHINE_ROOM_NEARBY: &str = "MACHINE_ROOM_NEARBY";
/// The strategy's name in Apache's rebalancing and in monitoring.
pub const CONFIG: &str = "CONFIG";

/// A queue as the consistent hash needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatedQueue<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The broker's name.
    pub broker: &'a str,
    /// The queue's number.
    pub queue_id: i32,
}

/// Why queues cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// A client without an id.
    #[error("the client id is empty: pass the id under which the group lists this client")]
    NoClient,
    /// There are no queues.
    #[error("there are no queues to allocate: pass the queues of the topic's route")]
    NoQueues,
    /// There are no clients.
    #[error("there are no client ids to allocate queues to: pass the ids of all members of the group")]
    NoClients,
    /// A queue or client without a machine room.
    #[error("{what} is in no machine room: the function that tells the room must give a name for each")]
    NoRoom {
        /// The queue or client.
        what: String,
    },
    /// A ring without nodes, or one that takes too much memory.
    #[error(
        "{virtual_nodes} virtual nodes a client: allowed are 1 to {MAX_VIRTUAL_NODES}, Apache's default is 10"
    )]
    VirtualNodes {
        /// The number.
        virtual_nodes: usize,
    },
}

/// Maximum number of virtual nodes of a client on the ring of the consistent hash.
pub const MAX_VIRTUAL_NODES: usize = 10_000;

/// Returns the index of a client in the group, after the checks that all strategies but `CONFIG` make. `None`: the
/// client is not in the list and gets nothing, because the group does not know it yet.
///
/// # Errors
/// A list or the client's id is empty.
pub fn check<Id: AsRef<str>>(
    client: &str,
    queues: usize,
    clients: &[Id],
) -> Result<Option<usize>, AllocateError> {
    if client.is_empty() {
        return Err(AllocateError::NoClient);
    }
    if queues == 0 {
        return Err(AllocateError::NoQueues);
    }
    if clients.is_empty() {
        return Err(AllocateError::NoClients);
    }
    Ok(clients.iter().position(|id| id.as_ref() == client))
}

/// Sorts client ids as Apache does, removes duplicates, and returns the index of `own`.
pub fn place<'a>(ids: &mut Vec<&'a str>, own: &'a str) -> Option<usize> {
    ids.sort_unstable_by(|left, right| java_order(left, right));
    ids.dedup();
    ids.iter().position(|id| *id == own)
}

/// Compares strings by UTF-16 unit, as Java does.
fn java_order(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}
