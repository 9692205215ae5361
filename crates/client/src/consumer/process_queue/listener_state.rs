//! The messages of a queue that listeners have, and those that they can get now.

use crate::consumer::options::Order;
use crate::consumer::process_queue::in_flight::InFlight;
use crate::consumer::process_queue::key_order::KeyOrder;
use crate::consumer::process_queue::{Messages, ProcessQueue};
use pyrmq_remoting::clock;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of messages of a queue in flight if keys keep their order: so far ahead of a slow key are messages of
/// other keys handed out.
const MAX_KEYED_IN_FLIGHT: usize = 4096;
/// A lock counts this long after the broker gave it (Apache `REBALANCE_LOCK_MAX_LIVE_TIME`); brokers keep it for 60 s.
const LOCK_TIME: Duration = Duration::from_secs(30);

/// What listeners have of a queue.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a state of its own: any of them may hold together"
)]
pub(crate) struct ListenerState {
    /// Messages that were handed out and are not finished.
    pub(crate) in_flight: InFlight,
    /// The group gave the queue to another member: it is given back once its listeners have finished.
    pub(crate) is_leaving: bool,
    // The time limit for giving it back runs.
    leaves_in_time: bool,
    // In flight, and to be handed out before anything else.
    again: VecDeque<Messages>,
    keys: KeyOrder<Messages>,
    // With `Order::Queue`: a listener has messages of the queue, or it pauses after a failure.
    is_taken: bool,
    // Time since the machine was booted: a lock expires while the machine is suspended, too.
    locked_at: Option<Duration>,
    // Since when the broker has refused the lock, and whether that was reported.
    refused: Option<(Instant, bool)>,
    /// Every member reads the queue, so there is no lock to wait for.
    pub(crate) is_shared: bool,
    /// When a listener last finished a message of it.
    pub(crate) finished_at: Option<Instant>,
}

impl ListenerState {
    /// Forgets messages that were handed out; a lock stays.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            locked_at: self.locked_at,
            is_shared: self.is_shared,
            finished_at: self.finished_at,
            ..Self::default()
        };
    }

    /// When the lock that the broker gave was requested (`clock::since_boot`); `None`: it gave none.
    pub(crate) fn set_lock(&mut self, requested_at: Option<Duration>) {
        self.locked_at = requested_at;
        if requested_at.is_some() {
            self.refused = None;
        }
    }

    /// Records that another client has the lock. True once, when it has had it for this time.
    pub(crate) fn waits_long_for_lock(&mut self, limit: Duration) -> bool {
        let (since, is_reported) = self.refused.get_or_insert_with(|| (Instant::now(), false));
        let is_new = !*is_reported && since.elapsed() >= limit;
        *is_reported |= is_new;
        is_new
    }

    /// True while this consumer may trust its lock.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_shared || self.lock_age().is_some_and(|age| age < LOCK_TIME)
    }

    /// Time since the lock was requested.
    pub(crate) fn lock_age(&self) -> Option<Duration> {
        self.locked_at.map(|at| clock::since_boot().saturating_sub(at))
    }

    /// True while a listener has messages of this queue, or it pauses after a failure.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// True once for each time that the queue begins to leave.
    pub(crate) fn begin_leaving(&mut self) -> bool {
        let before = std::mem::replace(&mut self.leaves_in_time, self.is_leaving);
        self.is_leaving && !before
    }

    /// Number of messages that calls have now, without those that wait for their key or for another listener.
    fn in_hand(&self) -> usize {
        let again: usize = self.again.iter().map(Messages::len).sum();
        self.in_flight.len().saturating_sub(again + self.keys.waiting())
    }

    /// Records that no listener has messages of this queue any more (for `Order::Queue`).
    pub(crate) fn release(&mut self) {
        self.is_taken = false;
    }

    /// Gives messages in flight to the next listener, before all others.
    pub(crate) fn put_back(&mut self, messages: Messages) {
        self.again.push_front(messages);
    }

    /// True while the first of these messages is in flight.
    pub(crate) fn has_in_flight(&self, message: &Messages) -> bool {
        let offset = message.chunk.offset(message.first);
        offset.is_some_and(|offset| self.in_flight.contains(offset))
    }

    fn take_again(&mut self, max: usize) -> Option<Messages> {
        let mut first = self.again.pop_front()?;
        if first.len() > max {
            let mut rest = first.clone();
            rest.first += max;
            first.end = rest.first;
            self.again.push_front(rest);
        }
        Some(first)
    }

    /// Messages that were given back, if a later one of the queue is finished. A consumer that ends hands out only
    /// these: otherwise the later ones would be delivered again.
    fn take_gap(&mut self, max: usize) -> Option<Messages> {
        let below = self.in_flight.highest_finished()?;
        let is_below = |one: &Messages, index| one.chunk.offset(index).is_some_and(|offset| offset < below);
        let at = self.again.iter().position(|one| is_below(one, one.first))?;
        let mut first = self.again.remove(at)?;
        let until = first.end.min(first.first.saturating_add(max));
        let end = (first.first..until).find(|index| !is_below(&first, *index));
        let end = end.unwrap_or(until);
        if end < first.end {
            let mut rest = first.clone();
            rest.first = end;
            first.end = end;
            self.again.insert(at, rest);
        }
        Some(first)
    }

    /// Copies small waiting messages out of their answers: otherwise each would keep its whole answer, up to 4 MiB, in
    /// memory.
    pub(crate) fn detach_waiting(&mut self) {
        for messages in self.again.iter_mut().chain(self.keys.waiting_mut()) {
            messages.detach();
        }
    }

    fn put_in_flight(&mut self, messages: &Messages) {
        for index in messages.first..messages.end {
            let bytes = messages.chunk.record_bytes(index).map_or(0, <[u8]>::len);
            self.in_flight
                .hand_out(messages.chunk.offset(index).unwrap_or(-1), bytes);
        }
    }
}

impl ProcessQueue {
    /// True while calls have messages of the queue, or it pauses after a failure.
    pub(crate) fn is_at_work(&self, order: Order) -> bool {
        match order {
            Order::Queue => self.listeners.is_taken(),
            Order::None | Order::Key => self.listeners.in_hand() > 0,
        }
    }

    /// True when there are messages for listeners now.
    pub(crate) fn can_hand_out(&self, order: Order) -> bool {
        let listeners = &self.listeners;
        if listeners.is_leaving {
            return false;
        }
        match order {
            Order::None => {
                let is_near = listeners.in_flight.span() < self.max_span;
                (is_near && self.has_messages()) || !listeners.again.is_empty()
            }
            Order::Queue => {
                let is_free = !listeners.is_taken && listeners.is_locked();
                is_free && (self.has_messages() || !listeners.again.is_empty())
            }
            Order::Key => {
                let is_near = listeners.in_flight.len() < MAX_KEYED_IN_FLIGHT
                    && listeners.in_flight.span() < self.max_span;
                (is_near && self.has_messages()) || !listeners.again.is_empty()
            }
        }
    }

    /// Gives a listener up to `max` messages, which are in flight until they are finished.
    pub(crate) fn hand_out(&mut self, max: usize, order: Order) -> Vec<Messages> {
        let mut parts = Vec::new();
        if !self.can_hand_out(order) {
            return parts;
        }
        self.listeners.is_taken = true;
        let mut left = max;
        while left > 0
            && let Some(messages) = self.listeners.take_again(left)
        {
            left -= messages.len();
            parts.push(messages);
        }
        if order == Order::Key {
            self.hand_out_free_keys(left, &mut parts);
        } else if parts.is_empty() {
            self.hand_out_next(max.min(self.span_left(order)), &mut parts);
        }
        parts
    }

    /// Gives a listener the next messages of the queue, from several answers if one has too few: a consumer that keeps
    /// up gets answers of one message.
    fn hand_out_next(&mut self, max: usize, parts: &mut Vec<Messages>) {
        let mut left = max;
        while left > 0
            && let Some(messages) = self.deliver(left)
        {
            left -= messages.len();
            self.listeners.put_in_flight(&messages);
            parts.push(messages);
        }
    }

    /// How many messages may be handed out before the span is used up. In a queue that keeps its order no message is
    /// done after an unfinished one.
    fn span_left(&self, order: Order) -> usize {
        if order == Order::Queue {
            return usize::MAX;
        }
        self.max_span.saturating_sub(self.listeners.in_flight.span())
    }

    /// Gives a listener what a consumer that ends must not leave undone (see [`ListenerState::take_gap`]).
    pub(crate) fn hand_out_gap(&mut self, max: usize, order: Order) -> Option<Messages> {
        // In a queue that keeps its order no message is done after an unfinished one.
        (order != Order::Queue)
            .then(|| self.listeners.take_gap(max))
            .flatten()
    }

    fn hand_out_free_keys(&mut self, max: usize, parts: &mut Vec<Messages>) {
        let mut left = max;
        while left > 0
            && self.listeners.in_flight.len() < MAX_KEYED_IN_FLIGHT
            && self.listeners.in_flight.span() < self.max_span
            && let Some(message) = self.deliver(1)
        {
            self.listeners.put_in_flight(&message);
            let free = match message.sharding_key() {
                Some(key) => self.listeners.keys.offer(&key, message),
                None => Some(message),
            };
            if let Some(message) = free {
                left -= 1;
                parts.push(message);
            }
        }
    }

    /// Records that a listener has finished a message. Commits go up to the first unfinished one.
    pub(crate) fn finish(&mut self, message: &Messages, order: Order) {
        let offset = message.chunk.offset(message.first).unwrap_or(-1);
        if !self.listeners.in_flight.finish(offset) {
            return;
        }
        self.done = self.listeners.in_flight.lowest().unwrap_or(self.delivered);
        if order == Order::Key
            && let Some(key) = message.sharding_key()
            && let Some(next) = self.listeners.keys.finish(&key)
        {
            self.listeners.again.push_back(next);
        }
    }
}
