//! What a consumer with listeners asks for, and what they have.
//!
//! ```text
//! target -> pop, held by the broker -> ready -> taken by a listener -> acknowledged, or hidden until its next delivery
//!                                        |______ renewed while they wait and while they are at work
//! ```
//! Messages wait here only as far as listeners take them within a second: other members have those that wait longer.

use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::state::{MAX_MESSAGES, Pop, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that wait at most, however quick listeners are.
const MOST_READY: usize = 1024;
/// The time for which messages may wait.
const READY_TIME: Duration = Duration::from_secs(1);

/// A message that a listener has.
#[derive(Debug, Clone)]
pub(crate) struct HandedOut {
    pub(crate) number: u64,
    pub(crate) message: Popped,
}

/// The pops that are sent without a call of `receive`.
#[derive(Debug)]
pub(crate) struct Standing {
    invisible: Duration,
    hold: Duration,
    /// Messages that listeners have, by number.
    in_hand: BTreeMap<u64, Arc<Receipt>>,
    next: u64,
    counted_from: Option<Instant>,
    taken: usize,
    taken_before: usize,
}

impl Standing {
    pub(crate) fn new(invisible: Duration, hold: Duration) -> Self {
        Self {
            invisible,
            hold,
            in_hand: BTreeMap::new(),
            next: 0,
            counted_from: None,
            taken: 0,
            taken_before: 0,
        }
    }

    pub(crate) fn invisible(&self) -> Duration {
        self.invisible
    }

    /// How many messages may wait: as many as listeners took in the last second.
    fn most_ready(&mut self, now: Instant) -> usize {
        let from = *self.counted_from.get_or_insert(now);
        let passed = now.saturating_duration_since(from);
        if passed >= READY_TIME {
            self.taken_before = if passed < READY_TIME * 2 { self.taken } else { 0 };
            self.taken = 0;
            self.counted_from = Some(now);
        }
        self.taken.max(self.taken_before).clamp(MAX_MESSAGES, MOST_READY)
    }

    fn hand_out(&mut self, message: Popped) -> HandedOut {
        self.next += 1;
        self.taken += 1;
        self.in_hand.insert(self.next, message.receipt.clone());
        HandedOut {
            number: self.next,
            message,
        }
    }

    /// A listener has finished a message. False: it had finished it before.
    pub(crate) fn finish(&mut self, number: u64) -> bool {
        self.in_hand.remove(&number).is_some()
    }

    /// Messages that listeners have of a broker's topic.
    pub(crate) fn count_of(&self, topic: &str, broker: &str) -> usize {
        let receipts = self.in_hand.values();
        receipts
            .filter(|receipt| &*receipt.topic == topic && &*receipt.broker == broker)
            .count()
    }
}

impl State {
    /// The pops to send for listeners.
    pub(crate) fn plan_standing(&mut self, now: Instant) -> Vec<Pop> {
        let mut pops = Vec::new();
        let ready: usize = self.ready.iter().map(|batch| batch.messages.len()).sum();
        let Some(standing) = self.standing.as_mut().filter(|_| !self.is_closed) else {
            return pops;
        };
        let (invisible, hold) = (standing.invisible, standing.hold);
        if ready >= standing.most_ready(now) {
            return pops;
        }
        while let Some(target) = self.next_idle() {
            let attempt = self.begin(&target, now, hold);
            pops.push(Pop {
                target,
                max: MAX_MESSAGES,
                invisible,
                hold,
                probe_of: None,
                attempt,
            });
        }
        pops
    }

    /// Up to `max` messages of one queue for a listener.
    pub(crate) fn hand_out(&mut self, max: usize, now: Instant) -> Vec<HandedOut> {
        let mut taken: Vec<HandedOut> = Vec::new();
        let Some(standing) = self.standing.as_mut().filter(|_| !self.is_closed) else {
            return taken;
        };
        while taken.len() < max
            && let Some(batch) = self.ready.front_mut()
        {
            let Some(message) = batch.messages.pop_front() else {
                self.ready.pop_front();
                continue;
            };
            if message.receipt.until() <= now {
                // It comes again by itself.
                continue;
            }
            let last = taken.last().map(|last| &last.message.chunk.queue);
            if last.is_some_and(|queue| *queue != message.chunk.queue) {
                batch.messages.push_front(message);
                break;
            }
            taken.push(standing.hand_out(message));
        }
        if self.ready.front().is_some_and(|batch| batch.messages.is_empty()) {
            self.ready.pop_front();
        }
        taken
    }

    /// The receipts of messages that wait or are at work, and whose time is half over.
    pub(crate) fn to_renew(&self, now: Instant) -> Vec<Arc<Receipt>> {
        let Some(standing) = &self.standing else {
            return Vec::new();
        };
        let waiting = self.ready.iter().flat_map(|batch| &batch.messages);
        let all = waiting
            .map(|message| &message.receipt)
            .chain(standing.in_hand.values());
        let half = standing.invisible / 2;
        all.filter(|receipt| (now..now + half).contains(&receipt.until()))
            .cloned()
            .collect()
    }
}
