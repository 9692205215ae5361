//! Which queue the next message goes to (Apache `TopicPublishInfo.selectOneMessageQueue`, `MQFaultStrategy`,
//! `SelectMessageQueueByHash`).

use crate::fault::{Health, Healths, LatencyFaultTolerance, OnBroker};
use pyrmq_remoting::message::java_hash;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Selects the queues of one topic in turn. Threads may share it; each call advances it by one.
#[derive(Debug, Default)]
pub struct QueueSelector {
    next: AtomicUsize,
}

impl QueueSelector {
    /// Creates a selector that starts at index `start`. Use a random one, so that clients do not move in step.
    pub fn new(start: usize) -> Self {
        Self {
            next: AtomicUsize::new(start),
        }
    }

    /// Returns the next queue that passes. It checks each queue once, even while other threads select. Two threads that
    /// select at the same moment may get the same queue, which costs less than an atomic increment for every selection.
    pub fn select_where<'a, Q>(&self, queues: &'a [Q], mut pass: impl FnMut(&'a Q) -> bool) -> Option<&'a Q> {
        self.select_place(queues, |_, queue| pass(queue))
    }

    fn select_place<'a, Q>(
        &self,
        queues: &'a [Q],
        mut pass: impl FnMut(usize, &'a Q) -> bool,
    ) -> Option<&'a Q> {
        let next = self.next.load(Ordering::Relaxed);
        // The index stays below the count, so the usual case needs no division.
        let mut at = if next < queues.len() {
            next
        } else {
            next.checked_rem(queues.len())?
        };
        for _ in queues {
            let (place, queue) = (at, queues.get(at)?);
            at = if at + 1 == queues.len() { 0 } else { at + 1 };
            if pass(place, queue) {
                self.next.store(at, Ordering::Relaxed);
                return Some(queue);
            }
        }
        None
    }

    /// Returns the next queue that is not on `last_broker`, where an attempt failed; any queue if all are there.
    pub fn select<'a, Q: OnBroker>(&self, queues: &'a [Q], last_broker: Option<&str>) -> Option<&'a Q> {
        let Some(last) = last_broker else {
            return self.select_where(queues, |_| true);
        };
        self.select_where(queues, |queue| queue.broker() != last)
            .or_else(|| self.select_where(queues, |_| true))
    }

    /// Selects like [`Self::select`], but avoids slow brokers: first a queue of an available broker, then of a
    /// reachable one, neither on `last_broker`, then any. Brokers are looked up by name.
    pub fn select_available<'a, Q: OnBroker>(
        &self,
        queues: &'a [Q],
        last_broker: Option<&str>,
        faults: &LatencyFaultTolerance,
        now_ms: i64,
    ) -> Option<&'a Q> {
        let known = faults.snapshot();
        let other = |queue: &Q| Some(queue.broker()) != last_broker;
        let (other, known) = (&other, &known);
        self.select_where(queues, |queue| {
            other(queue) && known.is_available(queue.broker(), now_ms)
        })
        .or_else(|| self.select_where(queues, |queue| other(queue) && known.is_reachable(queue.broker())))
        .or_else(|| self.select_where(queues, |_| true))
    }

    /// Selects like [`Self::select_available`], without a lock or a look-up: `healths` belong to these queues.
    pub fn select_healthy<'a, Q: OnBroker>(
        &self,
        queues: &'a [Q],
        healths: &Healths,
        last_broker: Option<&str>,
        now_ms: i64,
    ) -> Option<&'a Q> {
        let available = |place: usize| {
            healths
                .get(place)
                .is_none_or(|health| health.is_available(now_ms))
        };
        let reachable = |place: usize| healths.get(place).is_none_or(Health::is_reachable);
        let chosen = match last_broker {
            None => self
                .select_place(queues, |place, _| available(place))
                .or_else(|| self.select_place(queues, |place, _| reachable(place))),
            Some(last) => self
                .select_place(queues, |place, queue| available(place) && queue.broker() != last)
                .or_else(|| {
                    self.select_place(queues, |place, queue| reachable(place) && queue.broker() != last)
                }),
        };
        chosen.or_else(|| self.select_where(queues, |_| true))
    }
}

/// Returns the index of a key among `count` queues, as Apache's hash selector computes it; `None` without queues.
pub fn by_hash(key: &str, count: usize) -> Option<usize> {
    by_number(java_hash::hash(key).into(), count)
}

/// Returns the index of a number (a Java `Integer` key, a random number) among `count` queues; `None` without queues.
pub fn by_number(number: i64, count: usize) -> Option<usize> {
    let count = i64::try_from(count).ok().filter(|count| *count > 0)?;
    // Java's remainder has the sign of the number; Apache takes its magnitude.
    usize::try_from((number % count).abs()).ok()
}
