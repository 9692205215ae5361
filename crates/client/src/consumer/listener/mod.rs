//! Passes messages to listeners, and handles their outcomes (Apache `ConsumeMessageConcurrentlyService`,
//! `ConsumeMessageOrderlyService`).
//!
//! ```text
//!           take_work            finish
//! buffered ----------> in flight ------> done: commits may go up to it
//!     ^                   |  |---------> handed back to the broker: delivered again through the retry topic, then done
//!     |___________________|  |---------> tried again here after a pause (orderly, keyed)
//!        given to another listener
//! ```
//! A queue that is given back, or read from another offset, gets a new generation; outcomes of the old one are ignored.

mod unhandled;

use crate::consumer::failure_counts::FailureCounts;
use crate::consumer::listener::unhandled::{Unhandled, requeue};
use crate::consumer::options::Order;
use crate::consumer::pop::listener_demand::HandedOut;
use crate::consumer::pop::listening::PopListener;
use crate::consumer::process_queue::{Messages, ProcessQueue, QueueKey};
use crate::consumer::puller::Puller;
use crate::consumer::shared::{ConsumerShared, ConsumerState};
use crate::error::ClientError;
use pyrmq_remoting::sync::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub use crate::consumer::failure_counts::Failure;

/// Messages of one queue that a listener has.
#[derive(Debug)]
pub struct Work {
    /// The messages, in the order of their offsets.
    pub parts: Vec<Messages>,
    queue: Arc<QueueKey>,
    pub(crate) generation: u64,
    /// If they were popped: the messages with their receipts, otherwise empty.
    popped: Vec<HandedOut>,
    // When it was handed out, or a part of it was finished last.
    since: Mutex<Instant>,
}

impl Work {
    /// The work for messages of one queue that were popped.
    fn of_popped(popped: Vec<HandedOut>) -> Option<Self> {
        let queue = popped.first()?.message.chunk.queue.clone();
        let part = |one: &HandedOut| Messages {
            chunk: one.message.chunk.clone(),
            first: one.message.index,
            end: one.message.index + 1,
            tries: one.message.tries,
            refusals: 0,
        };
        Some(Self {
            parts: popped.iter().map(part).collect(),
            queue,
            generation: 0,
            popped,
            since: Mutex::new(Instant::now()),
        })
    }

    /// Time since a part of it was finished last.
    fn lap(&self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut *lock(&self.since), now)
    }

    /// The queue that they are from.
    pub fn queue(&self) -> &Arc<QueueKey> {
        &self.queue
    }

    /// The messages with these indexes, one by one.
    fn messages(&self, indexes: Range<usize>) -> impl Iterator<Item = (Messages, usize)> {
        let each = self
            .parts
            .iter()
            .flat_map(|part| (0..part.len()).map(|at| part.one(at)));
        let numbered = each.zip(0..);
        numbered.skip(indexes.start).take(indexes.len())
    }
}

impl Puller {
    /// Takes up to `max` messages of one queue for a listener; `None` when there are none now.
    ///
    /// # Errors
    /// The consumer is closed.
    pub fn take_work(&self, max: usize) -> Result<Option<Work>, ClientError> {
        let shared = &self.shared;
        let order = shared.options.order;
        let is_pop_turn = shared.has_popped() && !shared.is_pop_turn.fetch_xor(true, Ordering::Relaxed);
        if is_pop_turn && let Some(work) = self.take_popped(max) {
            return Ok(Some(work));
        }
        let mut state = shared.state();
        if state.closed {
            return Err(ClientError::Closed { what: "consumer" });
        }
        let work = state.take_work(max, order);
        let has_ready = state.has_ready();
        drop(state);
        if has_ready || shared.has_popped() {
            // Listeners are woken one at a time: each wakes the next.
            shared.unlock_and_wake(shared.state());
        }
        if let Some(work) = &work {
            shared.pull(&work.queue);
        }
        Ok(work.or_else(|| self.take_popped(max)))
    }

    fn take_popped(&self, max: usize) -> Option<Work> {
        let pops = self.shared.pops.as_ref()?;
        Work::of_popped(pops.take(max))
    }

    /// Whether listeners may continue with these messages: the queue is still this consumer's, was not moved, and is
    /// locked if the order requires it.
    pub fn holds(&self, work: &Work) -> bool {
        if let Some(pops) = self.shared.pops.as_ref().filter(|_| !work.popped.is_empty()) {
            return pops.holds(&work.popped);
        }
        let mut state = self.shared.state();
        let is_open = !state.closed && !state.is_draining;
        let order = self.shared.options.order;
        let queue = state.queue(&work.queue, work.generation);
        is_open
            && queue.is_some_and(|queue| {
                !queue.listeners.is_leaving && (order != Order::Queue || queue.listeners.is_locked())
            })
    }

    /// Records the outcomes of the messages with these indexes in the work: those that `failed` does not name are done.
    /// Messages that were finished before are skipped.
    pub fn finish(&self, work: &Work, indexes: Range<usize>, failed: &[(usize, Failure)]) {
        self.shared.finish(work, indexes, failed);
    }

    /// The assigned queues, each with the offset that a commit would name, and the messages that listeners have. Those
    /// that are popped have no offset, and -1 for every queue of a broker.
    pub fn progress(&self) -> Vec<(Arc<QueueKey>, i64, usize)> {
        // Before the lock: pops are never locked under it.
        let popped = self.shared.pops.as_ref().map(PopListener::progress);
        let state = self.shared.state();
        let queues = state.queues.values();
        let pulled = queues.map(|queue| (queue.key.clone(), queue.done, queue.listeners.in_flight.len()));
        let popped = popped.into_iter().flatten();
        pulled
            .chain(popped.map(|(key, in_hand, _)| (key, -1, in_hand)))
            .collect()
    }

    /// Counters of messages that listeners did not handle.
    pub fn failures(&self) -> FailureCounts {
        self.shared.counts.read()
    }

    /// True once this consumer ends, and hands out only what a clean end needs.
    pub fn is_draining(&self) -> bool {
        self.shared.state().is_draining
    }

    /// From now on hands out only messages that were given back while later ones of their queue are done; then waits
    /// until messages that are being handed back have reached their brokers. False if the time passed first.
    pub async fn drain(&self, time: Duration) -> bool {
        {
            let mut state = self.shared.state();
            state.is_draining = true;
            self.shared.arrived.notify_all();
        }
        if let Some(pops) = &self.shared.pops {
            pops.drain();
        }
        let by = Instant::now() + time;
        loop {
            if self.shared.counts.handing_back.load(Ordering::Relaxed) == 0 {
                return true;
            }
            if Instant::now() >= by || self.shared.shutdown.is_stopped() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl ConsumerState {
    fn take_work(&mut self, max: usize, order: Order) -> Option<Work> {
        if self.is_draining {
            return self.take_gap(max, order);
        }
        while let Some(key) = self.next_ready() {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            let parts = queue.hand_out(max, order);
            let generation = queue.generation;
            if queue.can_hand_out(order) {
                self.make_ready(&key);
            }
            if !parts.is_empty() {
                let queue = key;
                return Some(Work {
                    parts,
                    queue,
                    generation,
                    popped: Vec::new(),
                    since: Mutex::new(Instant::now()),
                });
            }
        }
        None
    }

    /// Takes what a consumer that ends must not leave undone.
    fn take_gap(&mut self, max: usize, order: Order) -> Option<Work> {
        self.queues.values_mut().find_map(|queue| {
            let part = queue.hand_out_gap(max, order)?;
            Some(Work {
                parts: vec![part],
                queue: queue.key.clone(),
                generation: queue.generation,
                popped: Vec::new(),
                since: Mutex::new(Instant::now()),
            })
        })
    }
}

impl ConsumerShared {
    fn finish(self: &Arc<Self>, work: &Work, indexes: Range<usize>, failed: &[(usize, Failure)]) {
        let order = self.options.order;
        let failed: BTreeMap<usize, Failure> = failed.iter().copied().collect();
        self.count(work, &indexes, &failed);
        if let Some(pops) = self.pops.as_ref().filter(|_| !work.popped.is_empty()) {
            return pops.finish(&work.popped, indexes, &failed);
        }
        let (key, generation) = (&work.queue, work.generation);
        let mut left = Unhandled::default();
        let mut state = self.state();
        let Some(queue) = state.queue(key, generation) else {
            tracing::debug!(%key, "outcome ignored: the queue was given back or moved");
            return;
        };
        if order == Order::Queue && !queue.listeners.is_locked() {
            tracing::warn!(%key, "outcome ignored: the lock of the queue was lost meanwhile");
            let is_leaving = queue.listeners.is_leaving;
            queue.restart(-1, self.next_generation());
            queue.next_pull = None;
            queue.listeners.is_leaving = is_leaving;
            drop(state);
            if is_leaving {
                self.give_back(key);
            }
            return;
        }
        queue.listeners.finished_at = Some(Instant::now());
        for (message, index) in work.messages(indexes) {
            match failed.get(&index) {
                None => queue.finish(&message, order),
                Some(failure) if queue.listeners.has_in_flight(&message) => {
                    if !self.sort(&mut left, message.clone(), *failure) {
                        queue.finish(&message, order);
                    }
                }
                Some(_) => {}
            }
        }
        requeue(queue, order, &mut left);
        self.after_finish(state, key);
        if order == Order::Queue {
            self.settle_in_order(work, left);
        } else {
            self.settle(work, left);
        }
    }

    fn count(&self, work: &Work, indexes: &Range<usize>, failed: &BTreeMap<usize, Failure>) {
        let named = failed.range(indexes.clone());
        let untouched = named
            .clone()
            .filter(|(_, failure)| **failure == Failure::Untouched);
        let (untouched, named) = (untouched.count(), named.count());
        if indexes.len() > untouched {
            let (done, failed) = (indexes.len() - named, named - untouched);
            lock(&self.counted).finished(&work.queue.topic, done, failed, work.lap());
        }
    }

    /// Changes a queue, unless it was given back or moved, and wakes a listener if there is something for it.
    pub(crate) fn with_queue(
        self: &Arc<Self>,
        key: &Arc<QueueKey>,
        generation: u64,
        change: impl FnOnce(&mut ProcessQueue, Order),
    ) {
        let order = self.options.order;
        let mut state = self.state();
        let Some(queue) = state.queue(key, generation) else {
            return;
        };
        change(queue, order);
        self.after_finish(state, key);
    }

    /// A listener has finished something of a queue: wakes another if there is more, fetches more, or gives the queue
    /// back if the group has waited for it.
    fn after_finish(self: &Arc<Self>, mut state: MutexGuard<'_, ConsumerState>, key: &Arc<QueueKey>) {
        let order = self.options.order;
        let queue = state.queues.get(key);
        let is_gone = queue.is_some_and(|queue| queue.listeners.is_leaving && !queue.is_at_work(order));
        if queue.is_some_and(|queue| queue.can_hand_out(order)) {
            state.make_ready(key);
            self.unlock_and_wake(state);
        } else {
            drop(state);
        }
        if is_gone {
            self.give_back(key);
        } else {
            self.pull(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::consumer::options::{Order, PullerOptions, Start};
    use crate::consumer::process_queue::{Chunk, Messages, ProcessQueue, QueueKey};
    use crate::consumer::puller::Puller;
    use crate::session::membership::Subscription;
    use bytes::Bytes;
    use pyrmq_remoting::clock;
    use pyrmq_testkit::new_record;
    use std::ops::Range;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::runtime::Runtime;

    fn records(offsets: Range<i64>) -> Bytes {
        let mut bytes = Vec::new();
        for offset in offsets {
            new_record("orders", 0, offset).encode(&mut bytes).unwrap();
        }
        Bytes::from(bytes)
    }

    /// A consumer that has one queue, with the messages of these answers, and connects to nothing.
    fn puller_with(runtime: &Runtime, order: Order, answers: &[Range<i64>]) -> (Puller, Arc<QueueKey>) {
        let mut options = PullerOptions::new(vec!["127.0.0.1:1".to_owned()], "group");
        options.is_listening = true;
        options.order = order;
        let puller = Puller::new(runtime.handle(), options, Start::First).unwrap();
        // None of its tasks asks for locks or queues.
        puller.shared.shutdown.stop();
        let key = Arc::new(QueueKey {
            topic: "orders".into(),
            broker: "b".into(),
            queue_id: 0,
        });
        let subscription = Arc::new(Subscription::tags_of("*", 0));
        let mut queue = ProcessQueue::new(key.clone(), subscription.clone(), 1);
        queue.restart(0, 1);
        for offsets in answers {
            let chunk = Chunk::new(key.clone(), records(offsets.clone()), offsets.end, &subscription);
            queue.arrive(chunk.unwrap());
        }
        puller.shared.state().queues.insert(key.clone(), queue);
        puller.shared.state().make_ready(&key);
        (puller, key)
    }

    #[test]
    fn a_list_has_messages_of_several_answers() {
        let runtime = Runtime::new().unwrap();
        let (puller, _) = puller_with(&runtime, Order::None, &[0..1, 1..4, 4..9]);
        let lists = [(); 3].map(|()| puller.take_work(5).unwrap());
        let sizes = lists.map(|work| work.map(|work| work.parts.iter().map(Messages::len).collect()));
        assert_eq!(sizes, [Some(vec![1, 3, 1]), Some(vec![4]), None]);
    }

    #[test]
    fn no_call_begins_and_no_outcome_counts_once_a_lock_is_30_s_old() {
        let runtime = Runtime::new().unwrap();
        let (puller, key) = puller_with(&runtime, Order::Queue, &[0..1, 1..3]);
        let age_lock = |seconds| {
            let requested_at = clock::since_boot().checked_sub(Duration::from_secs(seconds));
            let mut state = puller.shared.state();
            state
                .queues
                .get_mut(&key)
                .unwrap()
                .listeners
                .set_lock(requested_at);
            state.make_ready(&key);
        };
        age_lock(30);
        assert!(puller.take_work(1).unwrap().is_none());
        age_lock(28);
        let work = puller.take_work(1).unwrap().unwrap();
        assert!(puller.holds(&work));
        age_lock(30);
        assert!(!puller.holds(&work), "of a list no further call begins");
        puller.finish(&work, 0..1, &[]);
        let state = puller.shared.state();
        let queue = &state.queues[&key];
        assert_eq!(
            (queue.done, queue.next_pull),
            (-1, None),
            "it begins at the committed offset"
        );
    }
}
