//! The messages that a consumer with listeners requests, and those that its listeners have.
//!
//! ```text
//! target -> pop, held by the broker -> ready -> taken by a listener -> acknowledged, or hidden until its next delivery
//!                                  |     |______ renewed while they wait and while they are at work
//!                                  |____________ given back when no listener was free in time
//! ```
//! A member requests as many messages as it has free listeners, and more if calls are quick. Messages that wait longer
//! than expected are given back for other members: a listener that hangs must not hide messages that no listener has
//! begun.

use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::state::{MAX_MESSAGES, Pop, PopState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of waiting messages, however quick listeners are.
const MAX_READY: usize = 1024;
/// The time for which messages may wait, or half of their invisible time.
const READY_TIME: Duration = Duration::from_secs(1);
/// The part of a second's quick messages that may wait: half, so that they are taken in time.
const READY_PART: usize = 2;

/// A message that a listener has.
#[derive(Debug, Clone)]
pub(crate) struct HandedOut {
    pub(crate) number: u64,
    pub(crate) message: Popped,
}

/// A message that a listener has not finished.
#[derive(Debug)]
struct MessageInHand {
    receipt: Arc<Receipt>,
    bytes: usize,
    /// The number of the work that it was handed out with.
    work: u64,
    since: Instant,
}

/// The pops that are sent without a call of `receive`.
#[derive(Debug)]
pub(crate) struct ListenerDemand {
    invisible: Duration,
    hold: Duration,
    /// Listeners that can be called at the same time.
    listeners: usize,
    /// Messages that listeners have, by number.
    in_hand: BTreeMap<u64, MessageInHand>,
    /// How many of them each listener has.
    works: BTreeMap<u64, usize>,
    next: u64,
    /// Messages that a listener requested last.
    requested: usize,
    /// Messages were given back since a listener last requested some: none is free.
    is_stuck: bool,
    counted_from: Option<Instant>,
    /// Messages of this second and of the one before whose calls were quick: as many may wait for the next ones.
    fast: usize,
    fast_before: usize,
}

impl ListenerDemand {
    pub(crate) fn new(invisible: Duration, hold: Duration, listeners: usize) -> Self {
        Self {
            invisible,
            hold,
            listeners: listeners.max(1),
            in_hand: BTreeMap::new(),
            works: BTreeMap::new(),
            next: 0,
            requested: 1,
            is_stuck: false,
            counted_from: None,
            fast: 0,
            fast_before: 0,
        }
    }

    pub(crate) fn invisible(&self) -> Duration {
        self.invisible
    }

    /// How many messages may wait: those for free listeners, and those that quick calls will have taken in time.
    fn max_ready(&mut self, now: Instant) -> usize {
        if self.is_stuck {
            return 0;
        }
        self.count_until(now);
        let fast = self.fast.max(self.fast_before) / READY_PART;
        let free = self.listeners.saturating_sub(self.works.len());
        fast.max(free * self.requested).min(MAX_READY)
    }

    fn count_until(&mut self, now: Instant) {
        let from = *self.counted_from.get_or_insert(now);
        let passed = now.saturating_duration_since(from);
        if passed >= READY_TIME {
            self.fast_before = if passed < READY_TIME * 2 { self.fast } else { 0 };
            self.fast = 0;
            self.counted_from = Some(now);
        }
    }

    /// Records that a listener is free and requests up to `max` messages.
    pub(crate) fn set_requested(&mut self, max: usize) {
        self.is_stuck = false;
        self.requested = max.clamp(1, MAX_MESSAGES);
    }

    /// The time for which messages may wait.
    fn ready_time(&self) -> Duration {
        READY_TIME.min(self.invisible / 2)
    }

    fn hand_out(&mut self, message: Popped, work: u64, now: Instant) -> HandedOut {
        self.next += 1;
        *self.works.entry(work).or_default() += 1;
        let in_hand = MessageInHand {
            receipt: message.receipt.clone(),
            bytes: message.bytes(),
            work,
            since: now,
        };
        self.in_hand.insert(self.next, in_hand);
        HandedOut {
            number: self.next,
            message,
        }
    }

    /// A listener has finished a message. False: it had finished it before.
    pub(crate) fn finish(&mut self, number: u64, now: Instant) -> bool {
        let Some(finished) = self.in_hand.remove(&number) else {
            return false;
        };
        if let Some(left) = self.works.get_mut(&finished.work) {
            *left -= 1;
            if *left == 0 {
                self.works.remove(&finished.work);
            }
        }
        if now.saturating_duration_since(finished.since) < READY_TIME {
            self.count_until(now);
            self.fast += 1;
        }
        true
    }

    /// Messages that listeners have of a broker's topic, and their bytes.
    pub(crate) fn in_hand_of(&self, topic: &str, broker: &str) -> (usize, usize) {
        let each = self.in_hand.values();
        let own = each.filter(|one| &*one.receipt.topic == topic && &*one.receipt.broker == broker);
        own.fold((0, 0), |(messages, bytes), one| (messages + 1, bytes + one.bytes))
    }
}

impl PopState {
    /// The pops to send for listeners.
    pub(crate) fn plan_for_listeners(&mut self, now: Instant) -> Vec<Pop> {
        let mut pops = Vec::new();
        let ready: usize = self.ready.iter().map(|batch| batch.messages.len()).sum();
        let Some(demand) = self.demand.as_mut().filter(|_| !self.is_closed) else {
            return pops;
        };
        let (invisible, hold) = (demand.invisible, demand.hold);
        let most = demand.max_ready(now);
        let wanted = most.saturating_sub(ready);
        let targets = self.targets.len().max(1);
        // A pop for each message that listeners take would cost as much as a pop of 32.
        let min_wanted = (most / 2).clamp(1, MAX_MESSAGES * targets);
        if wanted < min_wanted {
            return pops;
        }
        // Each target may return as many as are wanted of all.
        let max = wanted.div_ceil(targets).min(MAX_MESSAGES);
        self.pop_idle(&mut pops, now, (max, invisible, hold));
        pops
    }

    /// Up to `max` messages of one queue for a listener.
    pub(crate) fn hand_out(&mut self, max: usize, now: Instant) -> Vec<HandedOut> {
        let mut taken: Vec<HandedOut> = Vec::new();
        let Some(demand) = self.demand.as_mut().filter(|_| !self.is_closed) else {
            return taken;
        };
        demand.set_requested(max);
        let work = demand.next + 1;
        while taken.len() < max
            && let Some(batch) = self.ready.front_mut()
        {
            let Some(message) = batch.messages.pop_front() else {
                self.ready.pop_front();
                continue;
            };
            if message.receipt.until() <= now {
                // It is delivered again by itself.
                continue;
            }
            let last = taken.last().map(|last| &last.message.chunk.queue);
            if last.is_some_and(|queue| *queue != message.chunk.queue) {
                batch.messages.push_front(message);
                break;
            }
            taken.push(demand.hand_out(message, work, now));
        }
        if self.ready.front().is_some_and(|batch| batch.messages.is_empty()) {
            self.ready.pop_front();
        }
        taken
    }

    /// Takes the messages for which no listener was free in time.
    pub(crate) fn take_waiting(&mut self, now: Instant) -> Vec<Popped> {
        let Some(demand) = &mut self.demand else {
            return Vec::new();
        };
        let limit = demand.ready_time();
        let mut late = Vec::new();
        self.ready.retain_mut(|batch| {
            let is_kept = now.saturating_duration_since(batch.arrived) < limit;
            if !is_kept {
                late.extend(batch.messages.drain(..));
            }
            is_kept
        });
        demand.is_stuck |= !late.is_empty();
        late
    }

    /// The receipts of messages that wait or are being handled, and whose time is half over.
    pub(crate) fn to_renew(&self, now: Instant) -> Vec<Arc<Receipt>> {
        let Some(demand) = &self.demand else {
            return Vec::new();
        };
        let waiting = self.ready.iter().flat_map(|batch| &batch.messages);
        let all = waiting
            .map(|message| &message.receipt)
            .chain(demand.in_hand.values().map(|one| &one.receipt));
        let half = demand.invisible / 2;
        all.filter(|receipt| (now..now + half).contains(&receipt.until()))
            .cloned()
            .collect()
    }
}
