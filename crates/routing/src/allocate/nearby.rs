//! Allocates queues to the clients of their own machine room first (Apache `AllocateMachineRoomNearby`).

use super::{AllocateError, java_order};
use std::collections::{BTreeMap, HashSet};

/// Queues and the clients that share them by the inner strategy, as indexes into the two lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Indexes of the queues.
    pub queues: Vec<usize>,
    /// Indexes of the clients.
    pub clients: Vec<usize>,
}

/// A room's name in Java's order.
#[derive(PartialEq, Eq)]
struct Room<'a>(&'a str);

impl Ord for Room<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        java_order(self.0, other.0)
    }
}

impl PartialOrd for Room<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// `MACHINE_ROOM_NEARBY`: returns the shares of the client at index `client`. The queues of its own room come first,
/// shared with the clients there; then the queues of each room without a client, shared with all clients. The inner
/// strategy allocates each share.
///
/// # Errors
/// A queue or client is in no room.
pub fn nearby<Name: AsRef<str>>(
    queue_rooms: &[Name],
    client_rooms: &[Name],
    client: usize,
) -> Result<Vec<Share>, AllocateError> {
    let mut queues: BTreeMap<Room<'_>, Vec<usize>> = BTreeMap::new();
    for (place, room) in queue_rooms.iter().enumerate() {
        let room = named(room.as_ref(), "queue", place)?;
        queues.entry(Room(room)).or_default().push(place);
    }
    let mut inhabited = HashSet::new();
    for (place, room) in client_rooms.iter().enumerate() {
        inhabited.insert(named(room.as_ref(), "client", place)?);
    }
    let Some(own) = client_rooms.get(client).map(AsRef::as_ref) else {
        return Ok(Vec::new());
    };
    let mut shares = Vec::new();
    if let Some(queues) = queues.remove(&Room(own)) {
        let rooms = client_rooms.iter().enumerate();
        let neighbours = rooms.filter(|(_, room)| room.as_ref() == own);
        shares.push(Share {
            queues,
            clients: neighbours.map(|(place, _)| place).collect(),
        });
    }
    for (room, queues) in queues {
        if !inhabited.contains(room.0) {
            shares.push(Share {
                queues,
                clients: (0..client_rooms.len()).collect(),
            });
        }
    }
    Ok(shares)
}

fn named<'a>(room: &'a str, what: &str, place: usize) -> Result<&'a str, AllocateError> {
    if room.is_empty() {
        let what = format!("the {what} at place {place}");
        return Err(AllocateError::NoRoom { what });
    }
    Ok(room)
}
