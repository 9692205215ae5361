//! Which consumer of a group reads which queue (Apache `AllocateMessageQueueAveragely`,
//! `AllocateMessageQueueAveragelyByCircle`).
//!
//! Every client computes this for itself from the same two sorted lists, so the rules must be Apache's to the letter:
//! clients of both kinds share one group. Each queue goes to exactly one client; a client that is not in the list
//! gets nothing.

use std::ops::Range;

/// The strategy's name in Apache's rebalancing and in monitoring.
pub const AVERAGE: &str = "AVG";
/// The strategy's name in Apache's rebalancing and in monitoring.
pub const AVERAGE_BY_CIRCLE: &str = "AVG_BY_CIRCLE";

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

/// Sorts and deduplicates client ids as Apache does, and finds one's own place.
pub fn place<'a>(ids: &mut Vec<&'a str>, own: &'a str) -> Option<usize> {
    // Java compares strings by UTF-16 unit.
    ids.sort_unstable_by(|left, right| left.encode_utf16().cmp(right.encode_utf16()));
    ids.dedup();
    ids.iter().position(|id| *id == own)
}
