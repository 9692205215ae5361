//! Statistics of a consumer that pops: messages received and done, waiting, and in the callers' hands.

use crate::consumer::pop::answer::PopAnswer;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::simple::{PopShared, SimpleConsumer};
use crate::consumer::pop::state::{Pop, PopState};
use crate::consumer::process_queue::{QueueKey, QueueState};
use crate::consumer::rates::Rates;
use crate::error::ClientError;
use pyrmq_remoting::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Counts of what happened to messages, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PopCounts {
    /// Messages that were acknowledged.
    pub done: u64,
    /// Messages that the application gave back.
    pub given_back: u64,
    /// Messages that were tried too often, and are dead letters.
    pub dead: u64,
    /// How often the time of messages was renewed.
    pub renewed: u64,
    /// Messages that callers have now: neither acknowledged nor given back, while their time lasts.
    pub in_flight: usize,
}

impl SimpleConsumer {
    /// What was received and acknowledged lately.
    pub fn rates(&self) -> Rates {
        lock(&self.shared.counted).of_all()
    }

    /// What became of messages.
    pub fn counts(&self) -> PopCounts {
        let failures = self.shared.counts.read();
        PopCounts {
            done: self.done.load(Ordering::Relaxed),
            given_back: failures.later,
            dead: failures.dead,
            renewed: self.shared.renewed.load(Ordering::Relaxed),
            in_flight: self.shared.in_hand.count(Instant::now()),
        }
    }

    /// The state of each topic on each broker. No member owns its queues: the id is -1, and there is no position.
    pub fn queue_states(&self) -> Vec<QueueState> {
        let targets = self.shared.target_states().into_iter();
        targets.map(|(target, _)| target).collect()
    }

    pub(super) fn count_done(&self, receipts: &[Arc<Receipt>], outcomes: &[Result<(), ClientError>]) {
        let now = Instant::now();
        let mut topics: BTreeMap<&Arc<str>, (usize, Duration)> = BTreeMap::new();
        let done = receipts
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| outcome.is_ok());
        for (receipt, _) in done {
            let (messages, time) = topics.entry(&receipt.topic).or_default();
            *messages += 1;
            *time += receipt.age(now);
        }
        let mut counted = lock(&self.shared.counted);
        for (topic, (messages, time)) in topics {
            counted.finished(topic, messages, 0, time);
            self.done.fetch_add(messages as u64, Ordering::Relaxed);
        }
    }
}

impl PopShared {
    pub(super) fn count_received(&self, pop: &Pop, found: &PopAnswer, time: Duration) {
        if !found.messages.is_empty() {
            lock(&self.counted).pulled(&pop.target.topic, found.messages.len(), time);
        }
    }

    /// The state of each target, and when it was popped last, ms. All messages of a topic on one broker count for its
    /// first queue.
    pub(crate) fn target_states(&self) -> Vec<(QueueState, i64)> {
        let now = Instant::now();
        let state = self.state();
        let waiting = state.waiting();
        let mut seen = BTreeSet::new();
        let mut rows = Vec::with_capacity(state.targets.len());
        for (target, target_state) in &state.targets {
            let source = (&*target.topic, &*target.broker);
            let is_first = seen.insert(source);
            let (messages, bytes) = waiting
                .get(&source)
                .filter(|_| is_first)
                .copied()
                .unwrap_or_default();
            let (in_flight, at_work) = match &state.demand {
                _ if !is_first => (0, 0),
                Some(demand) => demand.in_hand_of(source.0, source.1),
                // The application has them, and may have dropped them.
                None => (self.in_hand.count_of(source.0, source.1, now), 0),
            };
            let key = QueueKey {
                topic: target.topic.clone(),
                broker: target.broker.clone(),
                queue_id: target.queue_id,
            };
            let row = QueueState {
                key: Arc::new(key),
                position: -1,
                lag: None,
                waiting: messages,
                bytes: bytes + at_work,
                in_flight,
            };
            rows.push((row, target_state.last_pop_ms));
        }
        rows
    }
}

impl PopState {
    /// Messages that wait to be handed out, and their bytes, by topic and broker.
    fn waiting(&self) -> BTreeMap<(&str, &str), (usize, usize)> {
        let successors = self.successors.iter().map(|successors| &successors.batch);
        let batches = self.ready.iter().chain(successors);
        let mut waiting: BTreeMap<_, (usize, usize)> = BTreeMap::new();
        for message in batches.flat_map(|batch| &batch.messages) {
            let source = (&*message.receipt.topic, &*message.receipt.broker);
            let (messages, bytes) = waiting.entry(source).or_default();
            *messages += 1;
            *bytes += message.bytes();
        }
        waiting
    }
}
