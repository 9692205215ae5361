//! The messages of a queue that listeners have, and how far the queue may be committed.
//!
//! ```text
//! offsets   ...|lowest     handed out, some finished      |next to hand out
//!              commit here
//! ```
//! Listeners finish in any order. A commit says that everything below it is done, so it stays at the lowest message
//! that is not finished (Apache `ProcessQueue#removeMessage`).

use std::collections::VecDeque;

#[derive(Debug)]
struct InFlightMessage {
    offset: i64,
    bytes: usize,
    is_finished: bool,
}

/// Messages that were handed out, in the order of their offsets.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    entries: VecDeque<InFlightMessage>,
    unfinished: usize,
    bytes: usize,
}

impl InFlight {
    /// Adds a message. Offsets come in rising order.
    pub(crate) fn hand_out(&mut self, offset: i64, bytes: usize) {
        debug_assert!(
            self.entries.back().is_none_or(|last| last.offset < offset),
            "offsets rise"
        );
        self.entries.push_back(InFlightMessage {
            offset,
            bytes,
            is_finished: false,
        });
        self.unfinished += 1;
        self.bytes += bytes;
    }

    /// True while a message is not finished.
    pub(crate) fn contains(&self, offset: i64) -> bool {
        let found = self.entries.binary_search_by_key(&offset, |entry| entry.offset);
        let entry = found.ok().and_then(|index| self.entries.get(index));
        entry.is_some_and(|entry| !entry.is_finished)
    }

    /// Removes a message. False if it is not in flight because it was finished before.
    pub(crate) fn finish(&mut self, offset: i64) -> bool {
        let Ok(index) = self.entries.binary_search_by_key(&offset, |entry| entry.offset) else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.is_finished) else {
            return false;
        };
        entry.is_finished = true;
        self.unfinished -= 1;
        self.bytes -= entry.bytes;
        while self.entries.front().is_some_and(|entry| entry.is_finished) {
            self.entries.pop_front();
        }
        true
    }

    /// The lowest offset that is not finished; `None` when all are.
    pub(crate) fn lowest(&self) -> Option<i64> {
        self.entries.front().map(|entry| entry.offset)
    }

    /// The highest offset that is finished while an earlier one is not: what is below it is delivered again together
    /// with it.
    pub(crate) fn highest_finished(&self) -> Option<i64> {
        let finished = self.entries.iter().rev().find(|entry| entry.is_finished);
        finished.map(|entry| entry.offset)
    }

    /// Messages that are not finished.
    pub(crate) fn len(&self) -> usize {
        self.unfinished
    }

    /// Number of messages from the first unfinished one on.
    pub(crate) fn span(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the messages that are not finished.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::InFlight;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_commit_stays_at_the_lowest_message_that_is_not_finished() {
        let mut handed = InFlight::default();
        for offset in [3, 5, 9] {
            handed.hand_out(offset, 100);
        }
        assert_eq!(handed.highest_finished(), None);
        assert!(handed.finish(5));
        assert_eq!(handed.highest_finished(), Some(5));
        assert_eq!((handed.lowest(), handed.len(), handed.bytes()), (Some(3), 2, 200));
        assert!(handed.finish(3));
        assert_eq!(handed.lowest(), Some(9));
        assert!(handed.finish(9));
        assert_eq!((handed.lowest(), handed.len(), handed.bytes()), (None, 0, 0));
    }

    #[test]
    fn a_message_is_finished_once() {
        let mut handed = InFlight::default();
        handed.hand_out(3, 1);
        handed.hand_out(4, 1);
        assert!(handed.finish(4));
        assert!(!handed.finish(4));
        assert!(!handed.finish(7), "it was never handed out");
        assert_eq!(handed.len(), 1);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(gaps in prop::collection::vec(1_i64..5, 1..60), order in any::<prop::sample::Index>(), turns in 0_usize..80) {
            let mut handed = InFlight::default();
            let mut model = BTreeSet::new();
            let mut offset = 0;
            for gap in &gaps {
                offset += gap;
                handed.hand_out(offset, 7);
                model.insert(offset);
            }
            let all: Vec<i64> = model.iter().copied().collect();
            for turn in 0..turns {
                let chosen = all.get((order.index(all.len()) + turn * 7) % all.len()).copied().unwrap_or(0);
                prop_assert_eq!(handed.finish(chosen), model.remove(&chosen));
                prop_assert_eq!(handed.lowest(), model.first().copied());
                prop_assert_eq!((handed.len(), handed.bytes()), (model.len(), model.len() * 7));
            }
        }
    }
}
