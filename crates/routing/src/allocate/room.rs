//! Allocates the queues of chosen machine rooms (Apache `AllocateMessageQueueByMachineRoom`).

/// `MACHINE_ROOM`: each client gets a block of the queues whose broker is in one of `rooms`, and the first clients one
/// more in turn. `brokers` has the broker name of each queue, `room@name`. The other queues are not read.
pub fn machine_room<Name: AsRef<str>, Room: AsRef<str>>(
    brokers: &[Name],
    rooms: &[Room],
    clients: usize,
    client: usize,
) -> Vec<usize> {
    if client >= clients {
        return Vec::new();
    }
    let is_near =
        |broker: &str| room(broker).is_some_and(|room| rooms.iter().any(|one| one.as_ref() == room));
    let places = brokers.iter().enumerate();
    let near: Vec<usize> = places
        .filter(|(_, broker)| is_near(broker.as_ref()))
        .map(|(place, _)| place)
        .collect();
    let (share, rest) = (near.len() / clients, near.len() % clients);
    let block = near.iter().skip(client * share).take(share);
    let more = near.get(share * clients + client).filter(|_| client < rest);
    block.chain(more).copied().collect()
}

/// Returns the text before the `@`. Java's `split` drops empty pieces at the end, so any number of `@` may follow.
fn room(broker: &str) -> Option<&str> {
    let (room, name) = broker.trim_end_matches('@').split_once('@')?;
    (!name.contains('@')).then_some(room)
}
