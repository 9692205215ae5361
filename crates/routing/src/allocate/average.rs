//! Allocates equal numbers of queues (Apache `AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`).

use std::ops::Range;

/// `AVG`: contiguous blocks. `client` is the client's index among `clients` sorted ids. Returns a range of the sorted
/// `queues`.
pub fn average(queues: usize, clients: usize, client: usize) -> Range<usize> {
    if client >= clients {
        return 0..0;
    }
    let (share, rest) = (queues / clients, queues % clients);
    // The first `rest` clients have one more.
    let start = client * share + client.min(rest);
    let length = share + usize::from(client < rest);
    start..start + length
}

/// `AVG_BY_CIRCLE`: one queue in turn to each client. Returns the indexes of the client's queues.
pub fn average_by_circle(queues: usize, clients: usize, client: usize) -> impl Iterator<Item = usize> {
    let places = if client < clients { client..queues } else { 0..0 };
    places.step_by(clients.max(1))
}
