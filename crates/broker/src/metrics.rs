//! The values for the metrics port: all counters and states of the broker at one moment, by topic and by consumer
//! group.
//!
//! Only the store times of the oldest waiting messages are read from the disk, and only for the requested groups: a
//! scrape must not cost more than what it shows.

use crate::context::BrokerContext;
use crate::pop::pop_check_point::revive_topic;
use crate::processor::topic::ends;
use crate::stats::traffic::GroupTotals;
use crate::tables::topics::Topic;
use pyrmq_remoting::clock;
use pyrmq_remoting::names::{SCHEDULE_TOPIC, TRANSACTION_GROUP};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// The values of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetrics {
    /// The topic's name.
    pub topic: String,
    /// Whether the topic is one of the broker's own.
    pub is_system: bool,
    /// Messages stored since the start.
    pub messages_in: u64,
    /// Bytes of those messages.
    pub bytes_in: u64,
    /// First and next offset of each queue.
    pub queues: Vec<(i64, i64)>,
}

/// The values of a consumer group on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMetrics {
    /// The group's name.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// What was counted since the start.
    pub totals: GroupTotals,
    /// Messages stored but not consumed, by queue.
    pub lag: Vec<i64>,
    /// Messages sent to consumers but not consumed, over all queues. Popped ones count since the start.
    pub in_flight: i64,
}

/// Reads every topic.
pub fn topics(context: &BrokerContext) -> Vec<TopicMetrics> {
    let (topics, _) = context.topics.all();
    let metrics = topics.iter().map(|topic| {
        let name = &topic.topic_name;
        let (messages_in, bytes_in) = topic.traffic.put_totals();
        TopicMetrics {
            topic: name.clone(),
            is_system: context.topics.is_system(name),
            messages_in,
            bytes_in,
            queues: (0..topic.queue_nums())
                .map(|queue_id| ends(context, name, queue_id))
                .collect(),
        }
    });
    metrics.collect()
}

/// Reads every group on every topic for which it has committed offsets or from which it has pulled since the start.
pub fn groups(context: &BrokerContext) -> Vec<GroupMetrics> {
    let mut committed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in context.offsets.rows().into_keys() {
        if let Some((topic, group)) = key.split_once('@') {
            let groups = committed.entry(topic.to_owned()).or_default();
            groups.insert(group.to_owned());
        }
    }
    let (topics, _) = context.topics.all();
    let mut metrics = Vec::new();
    for topic in &topics {
        let mut groups = committed.remove(&topic.topic_name).unwrap_or_default();
        groups.extend(topic.traffic.groups());
        groups.remove(TRANSACTION_GROUP);
        metrics.extend(groups.into_iter().map(|group| on_topic(context, group, topic)));
    }
    metrics
}

fn on_topic(context: &BrokerContext, group: String, topic: &Topic) -> GroupMetrics {
    let name = &topic.topic_name;
    let committed = context.offsets.of_topic(&group, name);
    let traffic = topic.traffic.group(&group);
    let mut lag = Vec::new();
    let mut in_flight = 0;
    for queue_id in 0..topic.queue_nums() {
        let (min, max) = ends(context, name, queue_id);
        let consumed = committed.get(&queue_id).copied();
        // Without a commit, all messages of the queue wait.
        lag.push((max - consumed.unwrap_or(min).max(min)).max(0));
        let pulled = traffic.as_ref().and_then(|traffic| traffic.pulled_to(queue_id));
        if let (Some(pulled), Some(consumed)) = (pulled, consumed) {
            in_flight += (pulled - consumed).max(0);
        }
        // A pop moves the offset at once.
        let popped = traffic.as_ref().map_or(0, |traffic| traffic.popped(queue_id));
        in_flight += i64::try_from(popped).unwrap_or(i64::MAX);
    }
    GroupMetrics {
        totals: traffic.map(|traffic| traffic.totals()).unwrap_or_default(),
        group,
        topic: name.clone(),
        lag,
        in_flight,
    }
}

/// The age in ms of the oldest message that waits for a group on a topic; 0 if none waits.
pub fn lag_ms(context: &BrokerContext, group: &str, topic: &str) -> i64 {
    let Some(topic) = context.topics.get(topic) else {
        return 0;
    };
    let name = &topic.topic_name;
    let committed = context.offsets.of_topic(group, name);
    let waits = (0..topic.queue_nums()).filter_map(|queue_id| {
        let (min, max) = ends(context, name, queue_id);
        let next = committed.get(&queue_id).copied().unwrap_or(min).max(min);
        // Retention may be deleting the message right now; then it does not count.
        let stored = (next < max).then(|| context.store.store_time(name, queue_id, next).ok().flatten());
        stored.flatten()
    });
    waits.min().map_or(0, |oldest| (clock::now_ms() - oldest).max(0))
}

/// Connected consumers by group.
pub fn consumers(context: &BrokerContext) -> Vec<(String, usize)> {
    let names = context.groups.names().into_iter();
    let connected = names.filter_map(|group| {
        let members = context
            .clients
            .consumers(&group, |consumers| consumers.members.len())?;
        Some((group, members))
    });
    connected.collect()
}

/// Counters of the whole broker since its start, by name.
pub fn counters(context: &BrokerContext) -> Vec<(&'static str, u64)> {
    let stats = &context.stats;
    let store = context.store.stats();
    let busy = context.store.health().busy;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    vec![
        ("messages_in", load(&stats.put)),
        ("bytes_in", load(&stats.put_bytes)),
        ("messages_out", load(&stats.sent)),
        ("bytes_out", load(&stats.sent_bytes)),
        ("puts_failed", load(&stats.put_failed)),
        ("pulls_found", load(&stats.pull_found)),
        ("pulls_missed", load(&stats.pull_missed)),
        ("sent_back", load(&stats.sent_back)),
        ("dead_letters", load(&stats.dead)),
        ("subscription_conflicts", load(&stats.subscription_conflicts)),
        ("panics", load(&stats.panics)),
        ("log_writes", store.writes),
        ("keys_indexed", store.keys_indexed),
        ("files_deleted", store.files_deleted),
        ("busy_held", busy.held),
        ("busy_waited", busy.waited),
        ("busy_overload", busy.overload),
    ]
}

/// The lag of reviving popped messages, by queue of the revive topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviveMetrics {
    /// The queue.
    pub queue_id: i32,
    /// Pop check points and acknowledgements that were not read yet, and pop check points that are not done.
    pub behind: i64,
    /// How long ago the first message that was not brought back was due, in ms.
    pub late_ms: i64,
}

/// Reads the progress of every queue of the revive topic.
pub fn revive(context: &BrokerContext) -> Vec<ReviveMetrics> {
    let topic = revive_topic(&context.options.broker_cluster_name);
    let now_ms = clock::now_ms();
    let queues = context.pops.revive_progress().into_iter();
    let metrics = queues.map(|queue| {
        let unread = (context.store.max_offset(&topic, queue.queue_id) - queue.next).max(0);
        let pending = i64::try_from(queue.pending).unwrap_or(i64::MAX);
        ReviveMetrics {
            queue_id: queue.queue_id,
            behind: unread.saturating_add(pending),
            late_ms: queue.first_due_ms.map_or(0, |due_ms| (now_ms - due_ms).max(0)),
        }
    });
    metrics.collect()
}

/// Messages that the broker itself still holds, by name: a drained broker has none.
pub fn held(context: &BrokerContext) -> Vec<(&'static str, i64)> {
    let delivered = context.delays.offsets();
    let delayed = (1..=context.delays.levels().count()).map(|level| {
        let (min, max) = ends(context, SCHEDULE_TOPIC, level - 1);
        (max - delivered.get(&level).copied().unwrap_or(0).max(min)).max(0)
    });
    let [timer_late_s, timer_unread, timer_waiting] = context.timers.metrics(&context.store);
    vec![
        ("delayed", delayed.sum()),
        ("timer", timer_unread + timer_waiting),
        ("timer_late_seconds", timer_late_s),
        (
            "half",
            i64::try_from(context.transactions.open()).unwrap_or(i64::MAX),
        ),
    ]
}
