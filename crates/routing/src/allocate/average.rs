//! Equal numbers of queues (Apache `AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`).

use std::ops::Range;

/// `AVG`: blocks of neighbours. `client` is one's place among `clients` sorted ids; the answer is a range of the
/// sorted `queues`.
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

/// `AVG_BY_CIRCLE`: one queue in turn to each client. The answer is the places of one's queues.
pub fn average_by_circle(queues: usize, clients: usize, client: usize) -> impl Iterator<Item = usize> {
    let places = if client < clients { client..queues } else { 0..0 };
    places.step_by(clients.max(1))
}
