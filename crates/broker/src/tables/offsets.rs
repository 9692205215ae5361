//! How far each consumer group has read each queue (Apache `ConsumerOffsetManager`, `config/consumerOffset.json`).
//!
//! Kept in memory by group, topic and queue; written as `"topic@group": {queue: offset}` every few seconds and at stop.
//! A reset offset is kept until the group's next pull of the queue takes it.
//!
//! After a kill, pop check points move offsets ahead (`processor/pop/recover.rs`). So that they do not undo what an
//! operator did, the position of the commit log at each reset, copy or deletion is kept for a minute, also in the file
//! (`popCutoffs`, ours; Apache ignores it): pop check points before it do not count.

use pyrmq_remoting::sync::lock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Offsets by queue.
pub type Queues = BTreeMap<i32, i64>;
type Table = HashMap<String, HashMap<String, Queues>>;

/// How long a change of offsets is remembered. Pop check points are read from a second before the file was written.
const CHANGE_TTL: Duration = Duration::from_mins(1);

/// An offset that was ahead of its queue and was moved back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Move {
    /// `topic@group` and the queue, or a delay level.
    pub(crate) whose: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl fmt::Display for Move {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} from {} to {}", self.whose, self.from, self.to)
    }
}

/// The offsets of every group.
#[derive(Debug, Default)]
pub struct Offsets {
    // Guards group -> topic -> queue -> offset; held for a look-up, never during I/O.
    table: Mutex<Table>,
    // Guards the pending resets, also as group -> topic -> queue -> offset.
    resets: Mutex<Table>,
    reset_count: AtomicUsize,
    changed: AtomicBool,
    // Guards the end of the commit log at the last change of an operator, by group and topic; the topic is empty for a
    // group that was deleted.
    cutoffs: Mutex<BTreeMap<(String, String), Cutoff>>,
}

#[derive(Debug, Clone, Copy)]
struct Cutoff {
    position: i64,
    since: Instant,
}

impl Offsets {
    /// Commits an offset.
    pub fn commit(&self, group: &str, topic: &str, queue: i32, offset: i64) {
        put(&mut lock(&self.table), group, topic, queue, offset);
        self.changed.store(true, Ordering::Release);
    }

    /// The committed offset.
    pub fn get(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        find(&lock(&self.table), group, topic)?.get(&queue).copied()
    }

    /// Every committed offset of a group on a topic.
    pub fn of_topic(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        find(&lock(&self.table), group, topic)
            .cloned()
            .unwrap_or_default()
    }

    /// The topics on which a group has offsets, sorted.
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        let mut topics: Vec<String> = lock(&self.table)
            .get(group)
            .map(|topics| topics.keys().cloned().collect())
            .unwrap_or_default();
        topics.sort_unstable();
        topics
    }

    /// The groups that have offsets on a topic, sorted.
    pub fn groups_of(&self, topic: &str) -> BTreeSet<String> {
        let table = lock(&self.table);
        let having = table.iter().filter(|(_, topics)| topics.contains_key(topic));
        having.map(|(group, _)| group.clone()).collect()
    }

    /// Gives a group another group's committed offsets on a topic, replacing its own. False: there are none.
    pub fn copy(&self, from: &str, to: &str, topic: &str) -> bool {
        let mut table = lock(&self.table);
        let Some(queues) = find(&table, from, topic).cloned() else {
            return false;
        };
        let topics = table.entry(to.to_owned()).or_default();
        topics.insert(topic.to_owned(), queues);
        drop(table);
        self.changed.store(true, Ordering::Release);
        true
    }

    /// Forgets one offset.
    pub fn remove(&self, group: &str, topic: &str, queue: i32) {
        let mut table = lock(&self.table);
        if let Some(queues) = table.get_mut(group).and_then(|topics| topics.get_mut(topic)) {
            queues.remove(&queue);
        }
        drop(table);
        self.changed.store(true, Ordering::Release);
    }

    /// The smallest committed offset of each queue of a topic among all groups except `without` (Apache
    /// `queryMinOffsetInAllGroup`).
    pub fn smallest(&self, topic: &str, without: &[&str]) -> Queues {
        let table = lock(&self.table);
        let mut smallest = Queues::new();
        let counted = table
            .iter()
            .filter(|(group, _)| !without.contains(&group.as_str()));
        for (queue, offset) in counted.filter_map(|(_, topics)| topics.get(topic)).flatten() {
            let least = smallest.entry(*queue).or_insert(*offset);
            *least = (*least).min(*offset);
        }
        smallest
    }

    /// Records that an operator changed a group's offsets on a topic when the commit log ended at this position. An
    /// empty topic stands for all.
    pub fn record_change(&self, group: &str, topic: &str, position: i64) {
        let cutoff = Cutoff {
            position,
            since: Instant::now(),
        };
        lock(&self.cutoffs).insert((group.to_owned(), topic.to_owned()), cutoff);
        self.changed.store(true, Ordering::Release);
    }

    /// The end of the commit log at an operator's last change of these offsets; -1 if there was none lately.
    pub fn changed_at(&self, group: &str, topic: &str) -> i64 {
        let cutoffs = lock(&self.cutoffs);
        let of = |topic: &str| cutoffs.get(&(group.to_owned(), topic.to_owned()));
        let found = of(topic).into_iter().chain(of(""));
        found.map(|cutoff| cutoff.position).max().unwrap_or(-1)
    }

    /// The changes of the last minute in the file's form: `topic@group` and the position.
    pub fn cutoff_rows(&self) -> BTreeMap<String, i64> {
        let mut cutoffs = lock(&self.cutoffs);
        cutoffs.retain(|_, cutoff| cutoff.since.elapsed() < CHANGE_TTL);
        let rows = cutoffs.iter();
        rows.map(|((group, topic), cutoff)| (format!("{topic}@{group}"), cutoff.position))
            .collect()
    }

    /// Adds changes from the file.
    pub fn load_cutoffs(&self, rows: impl IntoIterator<Item = (String, i64)>) {
        for (key, position) in rows {
            if let Some((topic, group)) = key.split_once('@') {
                self.record_change(group, topic, position);
            }
        }
    }

    /// Lowers each offset that is above the largest one that `limit` allows for its group, topic and queue, and forgets
    /// it where that is negative; `None` allows any. Returns what moved, sorted.
    pub(crate) fn lower(&self, limit: impl Fn(&str, &str, i32) -> Option<i64>) -> Vec<Move> {
        let mut moves = Vec::new();
        let mut table = lock(&self.table);
        for (group, topics) in &mut *table {
            for (topic, queues) in topics {
                queues.retain(|queue, offset| {
                    let Some(to) = limit(group, topic, *queue).filter(|limit| limit < offset) else {
                        return true;
                    };
                    let whose = format!("{topic}@{group} queue {queue}");
                    let from = std::mem::replace(offset, to);
                    moves.push(Move { whose, from, to });
                    to >= 0
                });
            }
        }
        drop(table);
        self.changed.fetch_or(!moves.is_empty(), Ordering::AcqRel);
        moves.sort_unstable();
        moves
    }

    /// Forgets a group.
    pub fn remove_group(&self, group: &str) {
        lock(&self.table).remove(group);
        self.change_resets(|resets| drop(resets.remove(group)));
        self.changed.store(true, Ordering::Release);
    }

    /// Removes a topic from every group, with the resets that wait for its pulls.
    pub fn remove_topic(&self, topic: &str) {
        self.change_resets(|resets| {
            for topics in resets.values_mut() {
                topics.remove(topic);
            }
            resets.retain(|_, topics| !topics.is_empty());
        });
        let mut table = lock(&self.table);
        let mut has_changed = false;
        for topics in table.values_mut() {
            has_changed |= topics.remove(topic).is_some();
        }
        table.retain(|_, topics| !topics.is_empty());
        drop(table);
        self.changed.fetch_or(has_changed, Ordering::AcqRel);
    }

    /// Commits an offset and keeps it for the group's next pull of the queue.
    pub fn reset(&self, group: &str, topic: &str, queue: i32, offset: i64) {
        self.change_resets(|resets| put(resets, group, topic, queue, offset));
        self.commit(group, topic, queue, offset);
    }

    fn change_resets(&self, change: impl FnOnce(&mut Table)) {
        let mut resets = lock(&self.resets);
        change(&mut resets);
        self.reset_count.store(count(&resets), Ordering::Release);
    }

    /// Whether a reset waits for the group's next pull of the queue.
    pub fn has_reset(&self, group: &str, topic: &str, queue: i32) -> bool {
        self.reset_count.load(Ordering::Acquire) > 0
            && find(&lock(&self.resets), group, topic).is_some_and(|queues| queues.contains_key(&queue))
    }

    /// Takes a pending reset. Costs one atomic load when there is none, which is nearly always the case.
    pub fn take_reset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        if self.reset_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut resets = lock(&self.resets);
        let offset = resets.get_mut(group)?.get_mut(topic)?.remove(&queue)?;
        self.reset_count.store(count(&resets), Ordering::Release);
        Some(offset)
    }

    /// Whether offsets changed since the previous call, so that the file must be written.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// Marks the offsets as changed again, after a failed write.
    pub fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// All offsets in the file's form: `topic@group` and the queues, sorted.
    pub fn rows(&self) -> BTreeMap<String, Queues> {
        let table = lock(&self.table);
        let mut rows = BTreeMap::new();
        for (group, topics) in &*table {
            for (topic, queues) in topics {
                rows.insert(format!("{topic}@{group}"), queues.clone());
            }
        }
        rows
    }

    /// Adds rows from the file. A key without `@` is invalid and skipped.
    pub fn load(&self, rows: impl IntoIterator<Item = (String, Queues)>) {
        let mut table = lock(&self.table);
        for (key, queues) in rows {
            if let Some((topic, group)) = key.split_once('@') {
                table
                    .entry(group.to_owned())
                    .or_default()
                    .insert(topic.to_owned(), queues);
            }
        }
    }
}

fn put(table: &mut Table, group: &str, topic: &str, queue: i32, offset: i64) {
    // Looked up by reference first, so that a commit for a known queue allocates nothing.
    if let Some(queues) = table.get_mut(group).and_then(|topics| topics.get_mut(topic)) {
        queues.insert(queue, offset);
        return;
    }
    let topics = table.entry(group.to_owned()).or_default();
    topics.entry(topic.to_owned()).or_default().insert(queue, offset);
}

fn find<'a>(table: &'a Table, group: &str, topic: &str) -> Option<&'a Queues> {
    table.get(group)?.get(topic)
}

fn count(table: &Table) -> usize {
    table.values().flat_map(HashMap::values).map(BTreeMap::len).sum()
}
