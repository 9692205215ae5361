//! Which queue the next message goes to (Apache `TopicPublishInfo.selectOneMessageQueue`, `MQFaultStrategy`,
//! `SelectMessageQueueByHash`).

use crate::fault::{Health, Healths, LatencyFaultTolerance};
use pyrmq_remoting::message::java_hash;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Something that lies on a broker.
pub trait OnBroker {
    /// The broker's name.
    fn broker(&self) -> &str;
}

impl OnBroker for &str {
    fn broker(&self) -> &str {
        self
    }
}

/// Round robin over the queues of one topic. Shared by threads: each call moves one on.
#[derive(Debug, Default)]
pub struct QueueSelector {
    next: AtomicUsize,
}

impl QueueSelector {
    /// Starts at a place of the caller's choice: random, so that many clients do not march in step.
    pub fn new(start: usize) -> Self {
        Self {
            next: AtomicUsize::new(start),
        }
    }

    /// The next queue that passes. Looks at each queue once, also while other threads choose: two that choose in the
    /// same instant may take the same queue, which costs less than an atomic step for every choice.
    pub fn select_where<'a, Q>(&self, queues: &'a [Q], mut pass: impl FnMut(&'a Q) -> bool) -> Option<&'a Q> {
        self.select_place(queues, |_, queue| pass(queue))
    }

    fn select_place<'a, Q>(
        &self,
        queues: &'a [Q],
        mut pass: impl FnMut(usize, &'a Q) -> bool,
    ) -> Option<&'a Q> {
        let next = self.next.load(Ordering::Relaxed);
        // Kept below the count, so that the usual case divides nothing.
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

    /// The next queue that is not on the broker of the attempt that failed; any queue when all are.
    pub fn select<'a, Q: OnBroker>(&self, queues: &'a [Q], last_broker: Option<&str>) -> Option<&'a Q> {
        let Some(last) = last_broker else {
            return self.select_where(queues, |_| true);
        };
        self.select_where(queues, |queue| queue.broker() != last)
            .or_else(|| self.select_where(queues, |_| true))
    }

    /// As [`Self::select`], leaving out slow brokers: first a queue of an available broker, then of a reachable one,
    /// both not of the attempt that failed, then any. Brokers are looked up by name.
    pub fn select_available<'a, Q: OnBroker>(
        &self,
        queues: &'a [Q],
        last_broker: Option<&str>,
        faults: &LatencyFaultTolerance,
        now_ms: i64,
    ) -> Option<&'a Q> {
        let known = faults.look();
        let other = |queue: &Q| Some(queue.broker()) != last_broker;
        let (other, known) = (&other, &known);
        self.select_where(queues, |queue| {
            other(queue) && known.is_available(queue.broker(), now_ms)
        })
        .or_else(|| self.select_where(queues, |queue| other(queue) && known.is_reachable(queue.broker())))
        .or_else(|| self.select_where(queues, |_| true))
    }

    /// As [`Self::select_available`], without a lock or a look-up: `healths` are those of these queues.
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

/// The place of a key among `count` queues, as Apache's hash selector computes it. `None` without queues.
pub fn by_hash(key: &str, count: usize) -> Option<usize> {
    by_number(java_hash::hash(key).into(), count)
}

/// The place of a number (a Java `Integer` key, a random number) among `count` queues. `None` without queues.
pub fn by_number(number: i64, count: usize) -> Option<usize> {
    let count = i64::try_from(count).ok().filter(|count| *count > 0)?;
    // Java's remainder has the sign of the number; Apache takes its magnitude.
    usize::try_from((number % count).abs()).ok()
}
