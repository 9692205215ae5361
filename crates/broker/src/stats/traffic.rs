//! The traffic of one topic (Apache `BrokerStatsManager`): puts by topic, gets and send-backs by consumer group, gets
//! and the last pull by queue.
//!
//! A put costs three atomic additions; a pull with messages costs one look-up of its group and one short lock.

use crate::stats::windows::{Growth, Sample, Span, Windows, unsampled};
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::sync::{lock, read, write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// A counter of messages with its windows.
#[derive(Debug, Default, Clone)]
struct Counter {
    messages: u64,
    bytes: u64,
    calls: u64,
    /// Created with the first sample, since most counters never count.
    windows: Option<Box<Windows>>,
}

impl Counter {
    fn add(&mut self, messages: u64, bytes: u64) {
        self.messages += messages;
        self.bytes += bytes;
        self.calls += 1;
    }

    fn at(&self, now_ms: i64) -> Sample {
        Sample {
            at_ms: now_ms,
            messages: self.messages,
            bytes: self.bytes,
            calls: self.calls,
        }
    }

    fn sample(&mut self, now_ms: i64, due: &[Span]) {
        let now = self.at(now_ms);
        sample(&mut self.windows, now, due);
    }

    fn growth(&self, span: Span, now_ms: i64) -> Option<Growth> {
        growth(self.windows.as_deref(), span, self.at(now_ms))
    }
}

fn sample(windows: &mut Option<Box<Windows>>, now: Sample, due: &[Span]) {
    if now.calls == 0 {
        return;
    }
    let windows = windows.get_or_insert_default();
    for span in due {
        windows.push(*span, now);
    }
}

/// The growth of a counter; `None` if it never counted.
fn growth(windows: Option<&Windows>, span: Span, now: Sample) -> Option<Growth> {
    (now.calls > 0).then(|| windows.map_or_else(|| unsampled(span, now), |windows| windows.growth(span, now)))
}

/// The counters of a topic.
#[derive(Debug, Default)]
pub struct TopicTraffic {
    messages: AtomicU64,
    bytes: AtomicU64,
    calls: AtomicU64,
    // Guards the windows of puts; used by the sampler and by tools.
    windows: Mutex<Option<Box<Windows>>>,
    // Guards which groups have counters; pulls read it.
    groups: RwLock<NameMap<String, Arc<GroupTraffic>>>,
}

impl TopicTraffic {
    /// Counts a put.
    pub fn count_put(&self, messages: u64, bytes: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters of a consumer group, if it has any.
    pub fn group(&self, group: &str) -> Option<Arc<GroupTraffic>> {
        let groups = read(&self.groups);
        groups.get(group).cloned()
    }

    /// The counters of a consumer group, created if they are missing.
    pub fn group_or_new(&self, group: &str) -> Arc<GroupTraffic> {
        if let Some(known) = self.group(group) {
            return known;
        }
        let mut groups = write(&self.groups);
        groups.entry(group.to_owned()).or_default().clone()
    }

    /// Removes the counters of a deleted group.
    pub fn remove_group(&self, group: &str) {
        let mut groups = write(&self.groups);
        groups.remove(group);
    }

    /// Messages and bytes stored since the start.
    pub fn put_totals(&self) -> (u64, u64) {
        (
            self.messages.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// The groups that have counters.
    pub fn groups(&self) -> Vec<String> {
        let groups = read(&self.groups);
        groups.keys().cloned().collect()
    }

    /// What was stored in the span that ends now; `None` if nothing ever was.
    pub fn puts(&self, span: Span, now_ms: i64) -> Option<Growth> {
        growth(lock(&self.windows).as_deref(), span, self.put_sample(now_ms))
    }

    /// Takes the samples that are due.
    pub fn sample(&self, now_ms: i64, due: &[Span]) {
        sample(&mut lock(&self.windows), self.put_sample(now_ms), due);
        let groups = read(&self.groups);
        for group in groups.values() {
            group.sample(now_ms, due);
        }
    }

    fn put_sample(&self, now_ms: i64) -> Sample {
        Sample {
            at_ms: now_ms,
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}

/// The counters of a consumer group on a topic.
#[derive(Debug, Default)]
pub struct GroupTraffic {
    // Guards the counters; held only for additions.
    counters: Mutex<GroupCounters>,
}

/// What was counted for a group on a topic since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Messages sent to its consumers.
    pub messages_out: u64,
    /// Bytes of the messages sent to its consumers.
    pub bytes_out: u64,
    /// Messages that its consumers sent back for a retry.
    pub sent_back: u64,
    /// Messages that went to the dead-letter topic.
    pub dead_letters: u64,
}

#[derive(Debug, Default)]
struct GroupCounters {
    gets: Counter,
    send_backs: Counter,
    dead_letters: Counter,
    check_points: Counter,
    acks: Counter,
    queues: Vec<QueueCounters>,
}

#[derive(Debug, Default, Clone)]
struct QueueCounters {
    gets: Counter,
    /// Offset after the last pulled message; `None` before the first.
    pulled_to: Option<i64>,
    /// Messages popped and neither acknowledged nor brought back.
    popped: u64,
}

impl GroupCounters {
    /// The counters of a queue, created if they are missing.
    fn queue(&mut self, queue_id: i32) -> Option<&mut QueueCounters> {
        let at = usize::try_from(queue_id).ok()?;
        if at >= self.queues.len() {
            self.queues.resize(at + 1, QueueCounters::default());
        }
        self.queues.get_mut(at)
    }
}

impl GroupTraffic {
    /// Counts a pull with messages. `next_offset` is the one after the last of them.
    pub fn count_get(&self, queue_id: i32, messages: u64, bytes: u64, next_offset: i64) {
        let mut counters = lock(&self.counters);
        counters.gets.add(messages, bytes);
        if let Some(queue) = counters.queue(queue_id) {
            queue.gets.add(messages, bytes);
            queue.pulled_to = Some(next_offset);
        }
    }

    /// Counts messages that were popped as in flight.
    pub fn count_popped(&self, queue_id: i32, messages: u64) {
        if let Some(queue) = lock(&self.counters).queue(queue_id) {
            queue.popped += messages;
        }
    }

    /// Messages that were popped are acknowledged or came back.
    pub fn count_done(&self, queue_id: i32, messages: u64) {
        if let Some(queue) = lock(&self.counters).queue(queue_id) {
            queue.popped = queue.popped.saturating_sub(messages);
        }
    }

    /// Messages of a queue that were popped since the start and are neither acknowledged nor back.
    pub fn popped(&self, queue_id: i32) -> u64 {
        let counters = lock(&self.counters);
        let queue = usize::try_from(queue_id)
            .ok()
            .and_then(|at| counters.queues.get(at));
        queue.map_or(0, |queue| queue.popped)
    }

    /// Counts a pop check point.
    pub fn count_check_point(&self) {
        lock(&self.counters).check_points.add(1, 0);
    }

    /// Counts acknowledgements of popped messages.
    pub fn count_acks(&self, messages: u64) {
        lock(&self.counters).acks.add(messages, 0);
    }

    /// Counts a message that was sent back, for a retry or, with `dead`, for the dead-letter topic.
    pub fn count_send_back(&self, dead: bool, bytes: u64) {
        let mut counters = lock(&self.counters);
        if dead {
            counters.dead_letters.add(1, bytes);
        } else {
            counters.send_backs.add(1, bytes);
        }
    }

    /// What was counted since the start.
    pub fn totals(&self) -> GroupTotals {
        let counters = lock(&self.counters);
        GroupTotals {
            messages_out: counters.gets.messages,
            bytes_out: counters.gets.bytes,
            sent_back: counters.send_backs.messages,
            dead_letters: counters.dead_letters.messages,
        }
    }

    /// Offset after the last message that the group has pulled from a queue since the broker started.
    pub fn pulled_to(&self, queue_id: i32) -> Option<i64> {
        let at = usize::try_from(queue_id).ok()?;
        lock(&self.counters).queues.get(at)?.pulled_to
    }

    /// What was pulled in the span that ends now, from one queue or from all.
    pub fn gets(&self, queue_id: Option<i32>, span: Span, now_ms: i64) -> Option<Growth> {
        let counters = lock(&self.counters);
        match queue_id {
            None => counters.gets.growth(span, now_ms),
            Some(queue_id) => {
                let queue = counters.queues.get(usize::try_from(queue_id).ok()?)?;
                queue.gets.growth(span, now_ms)
            }
        }
    }

    /// What was sent back for a retry in the span that ends now.
    pub fn send_backs(&self, span: Span, now_ms: i64) -> Option<Growth> {
        lock(&self.counters).send_backs.growth(span, now_ms)
    }

    /// What went to the dead-letter topic in the span that ends now.
    pub fn dead_letters(&self, span: Span, now_ms: i64) -> Option<Growth> {
        lock(&self.counters).dead_letters.growth(span, now_ms)
    }

    /// Pop check points stored in the span that ends now.
    pub fn check_points(&self, span: Span, now_ms: i64) -> Option<Growth> {
        lock(&self.counters).check_points.growth(span, now_ms)
    }

    /// Messages acknowledged in the span that ends now.
    pub fn acks(&self, span: Span, now_ms: i64) -> Option<Growth> {
        lock(&self.counters).acks.growth(span, now_ms)
    }

    fn sample(&self, now_ms: i64, due: &[Span]) {
        let mut counters = lock(&self.counters);
        let GroupCounters {
            gets,
            send_backs,
            dead_letters,
            check_points,
            acks,
            queues,
        } = &mut *counters;
        let of_queues = queues.iter_mut().map(|queue| &mut queue.gets);
        let of_group = [gets, send_backs, dead_letters, check_points, acks];
        for counter in of_group.into_iter().chain(of_queues) {
            counter.sample(now_ms, due);
        }
    }
}
