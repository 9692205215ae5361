//! The messages that ordered groups have of queues (Apache `ConsumerOrderInfoManager`,
//! `config/consumerOrderInfo.json`).
//!
//! A queue is closed for its group while a message that was handed out is neither done nor visible again. The group's
//! offset stays at the first message that is not done, so the next pop begins there. The file is written soon after a
//! change; what it lacks after a kill is handed out again, in order.
//!
//! A reset, and the deletion of topic or group, leave an entry without messages: handles from before it mean nothing
//! any more. Apache's brokers take such an entry for an open queue.

use crate::error::BrokerError;
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::{ConsumerOrderInfoWrapper, OrderInfo};
use pyrmq_remoting::clock;
use pyrmq_remoting::sync::lock;
use pyrmq_store::StoreError;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// After this time without a pop, the state of an open queue is forgotten, in ms (Apache `CLEAN_SPAN_FROM_LAST`, also
/// of closed ones).
const STATE_TTL_MS: i64 = 24 * 3_600_000;

/// Effect of acknowledging a message of an ordered group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderedAck {
    /// The group's offset becomes this one.
    Advance(i64),
    /// The messages were handed out again since, or the offset was reset: nothing changes.
    Outdated,
    /// The group does not have this message.
    Unknown,
    /// There is no entry: a kill may have lost it.
    Lost,
}

/// A pop of an ordered group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedPop<'a> {
    pub(crate) topic: &'a str,
    pub(crate) group: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) attempt_id: Option<&'a str>,
    pub(crate) pop_time: i64,
    pub(crate) invisible_time: i64,
}

/// The queues of all ordered groups.
#[derive(Debug)]
pub(crate) struct Orders {
    // Guards the table. Held for a look-up or a copy, never over I/O.
    table: Mutex<ConsumerOrderInfoWrapper>,
    changed: AtomicBool,
    // Guards that an older text is not written over a newer one.
    file: Mutex<ConfigFile>,
}

impl Orders {
    pub(crate) fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        Ok(Self {
            table: Mutex::new(file.read("table")?.unwrap_or_default()),
            changed: AtomicBool::new(false),
            file: Mutex::new(file),
        })
    }

    fn table(&self) -> MutexGuard<'_, ConsumerOrderInfoWrapper> {
        lock(&self.table)
    }

    fn with<T>(
        &self,
        (topic, group, queue_id): (&str, &str, i32),
        read: impl FnOnce(&mut OrderInfo) -> T,
    ) -> Option<T> {
        let mut wrapper = self.table();
        let queues = wrapper.table.get_mut(&key(topic, group))?;
        let order = queues.get_mut(&queue_id)?;
        follow_clock(order, clock::now_ms());
        Some(read(order))
    }

    /// Whether the queue is closed for a pop of this attempt.
    pub(crate) fn blocks(&self, queue: (&str, &str, i32), attempt_id: Option<&str>) -> bool {
        let now_ms = clock::now_ms();
        self.with(queue, |order| {
            let is_repeated = order.attempt_id.is_some() && order.attempt_id.as_deref() == attempt_id;
            !is_repeated && visible_at(order, now_ms).is_some()
        })
        .unwrap_or(false)
    }

    /// When the queue opens by itself, ms since the epoch; `None` for an open one.
    pub(crate) fn opens_at(&self, queue: (&str, &str, i32)) -> Option<i64> {
        let now_ms = clock::now_ms();
        self.with(queue, |order| visible_at(order, now_ms)).flatten()
    }

    /// Records that messages were handed out. Appends to `counts`, in Apache's form, how often each was handed out
    /// before.
    pub(crate) fn update(&self, pop: &OrderedPop<'_>, source: &str, offsets: &[i64], counts: &mut String) {
        let first = offsets.first().copied().unwrap_or(0);
        let distances = offsets.iter().skip(1).map(|offset| offset - first);
        let mut order = OrderInfo {
            attempt_id: pop.attempt_id.map(str::to_owned),
            done_bits: 0,
            invisible_time: Some(pop.invisible_time),
            last_consume_ms: clock::now_ms(),
            offsets: std::iter::once(first).chain(distances).collect(),
            consumed_counts: None,
            visible_at: None,
            pop_time: pop.pop_time,
        };
        let mut wrapper = self.table();
        let queues = wrapper.table.entry(key(pop.topic, pop.group)).or_default();
        if let Some(former) = queues.get(&pop.queue_id) {
            order.consumed_counts = Some(consumed_counts(former, &order));
        }
        let mut least = i32::MAX;
        let known = order.consumed_counts.iter().flatten();
        for (offset, count) in known {
            separate(counts);
            // Writing into a String cannot fail.
            write!(counts, "{source} qo{}%{offset} {count}", pop.queue_id).unwrap_or_default();
            least = least.min(*count);
        }
        if order.consumed_counts.as_ref().map_or(0, BTreeMap::len) != offsets.len() {
            // Some messages are handed out for the first time.
            least = 0;
        }
        // Clients before 5.0 search for the queue.
        separate(counts);
        write!(counts, "{source} {} {least}", pop.queue_id).unwrap_or_default();
        queues.insert(pop.queue_id, order);
        drop(wrapper);
        self.changed.store(true, Ordering::Release);
    }

    /// A message is done.
    pub(crate) fn acknowledge(&self, queue: (&str, &str, i32), offset: i64, pop_time: i64) -> OrderedAck {
        let acknowledged = self.with(queue, |order| {
            if order.offsets.is_empty() {
                let is_newer = order.pop_time < pop_time;
                return if is_newer {
                    OrderedAck::Lost
                } else {
                    OrderedAck::Outdated
                };
            }
            if order.pop_time != pop_time {
                return OrderedAck::Outdated;
            }
            let Some(at) = offsets_of(order).position(|known| known == offset) else {
                return OrderedAck::Unknown;
            };
            order.done_bits |= 1_i64.checked_shl(u32::try_from(at).unwrap_or(64)).unwrap_or(0);
            order.last_consume_ms = clock::now_ms();
            OrderedAck::Advance(next_offset(order))
        });
        self.changed.store(true, Ordering::Release);
        acknowledged.unwrap_or(OrderedAck::Lost)
    }

    /// Changes the time until which a message is hidden. False: the group no longer has it.
    pub(crate) fn hide_until(
        &self,
        queue: (&str, &str, i32),
        offset: i64,
        pop_time: i64,
        visible_at: i64,
    ) -> bool {
        let changed = self.with(queue, |order| {
            let is_known = order.pop_time == pop_time && offsets_of(order).any(|known| known == offset);
            if is_known {
                let times = order.visible_at.get_or_insert_default();
                times.insert(offset, visible_at);
                order.last_consume_ms = clock::now_ms();
            }
            is_known
        });
        self.changed.store(true, Ordering::Release);
        changed.unwrap_or(false)
    }

    /// Opens a queue: its offset was reset.
    pub(crate) fn clear(&self, (topic, group, queue_id): (&str, &str, i32)) {
        let mut wrapper = self.table();
        let queues = wrapper.table.entry(key(topic, group)).or_default();
        queues.insert(queue_id, closed());
        drop(wrapper);
        self.changed.store(true, Ordering::Release);
    }

    /// Clears the queues of deleted topics or groups.
    pub(crate) fn close(&self, is_deleted: impl Fn(&str, &str) -> bool) {
        let mut wrapper = self.table();
        let rows = wrapper.table.iter_mut().filter(|(key, _)| {
            key.split_once('@')
                .is_some_and(|(topic, group)| is_deleted(topic, group))
        });
        let orders = rows.flat_map(|(_, queues)| queues.values_mut());
        for order in orders.filter(|order| !order.offsets.is_empty()) {
            *order = closed();
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Removes messages from groups if their queues no longer have them, because the log lost them. `end` gives the end
    /// of a topic's queue, `None` if there is no such queue. Returns the queues that lost some.
    ///
    /// New messages will have the offsets of the lost ones: handles of these must not acknowledge them.
    pub(crate) fn cut(&self, end: impl Fn(&str, i32) -> Option<i64>) -> Vec<String> {
        let mut shortened = Vec::new();
        let mut wrapper = self.table();
        for (key, queues) in &mut wrapper.table {
            let topic = key.split_once('@').map_or(key.as_str(), |(topic, _)| topic);
            for (queue_id, order) in queues {
                let end = end(topic, *queue_id).unwrap_or(0);
                let kept = offsets_of(order).take_while(|offset| *offset < end).count();
                if kept == order.offsets.len() {
                    continue;
                }
                shortened.push(format!("{key} queue {queue_id}"));
                if kept == 0 {
                    *order = closed();
                    continue;
                }
                order.offsets.truncate(kept);
                if let Some(times) = &mut order.visible_at {
                    times.retain(|offset, _| *offset < end);
                }
                if let Some(counts) = &mut order.consumed_counts {
                    counts.retain(|offset, _| *offset < end);
                }
            }
        }
        drop(wrapper);
        self.changed.fetch_or(!shortened.is_empty(), Ordering::AcqRel);
        shortened
    }

    /// The next offset of each group that popped or acknowledged something since `since_ms`: topic, group, queue and
    /// offset.
    pub(crate) fn progress_since(&self, since_ms: i64) -> Vec<(String, String, i32, i64)> {
        let wrapper = self.table();
        let mut progress = Vec::new();
        for (key, queues) in &wrapper.table {
            let Some((topic, group)) = key.split_once('@') else {
                continue;
            };
            let recent = queues
                .iter()
                .filter(|(_, order)| !order.offsets.is_empty() && order.last_consume_ms >= since_ms);
            let rows = recent
                .map(|(queue_id, order)| (topic.to_owned(), group.to_owned(), *queue_id, next_offset(order)));
            progress.extend(rows);
        }
        progress
    }

    /// Whether something changed since the file was written.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Marks the state as changed again, after a failed write.
    pub(crate) fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Writes the file if something changed. `exists`: whether there is such a topic and group.
    pub(crate) fn persist(&self, exists: impl Fn(&str, &str) -> bool) -> Result<(), StoreError> {
        let file = lock(&self.file);
        if !self.changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.close(|topic, group| !exists(topic, group));
        let now_ms = clock::now_ms();
        let oldest_ms = now_ms - STATE_TTL_MS;
        let body = {
            let mut wrapper = self.table();
            for queues in wrapper.table.values_mut() {
                queues.retain(|_, order| {
                    order.last_consume_ms >= oldest_ms || visible_at(order, now_ms).is_some()
                });
            }
            wrapper.table.retain(|_, queues| !queues.is_empty());
            wrapper.clone()
        };
        let written = file.save(&body);
        self.changed.fetch_or(written.is_err(), Ordering::AcqRel);
        written
    }
}

/// An entry without messages.
fn closed() -> OrderInfo {
    let now_ms = clock::now_ms();
    OrderInfo {
        pop_time: now_ms,
        last_consume_ms: now_ms,
        ..OrderInfo::default()
    }
}

fn key(topic: &str, group: &str) -> String {
    [topic, "@", group].concat()
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push(';');
    }
}

/// The offsets of the messages, in order.
fn offsets_of(order: &OrderInfo) -> impl Iterator<Item = i64> {
    let first = order.offsets.first().copied().unwrap_or(0);
    let distances = order.offsets.iter().skip(1);
    let others = distances.map(move |distance| first.saturating_add(*distance));
    (!order.offsets.is_empty())
        .then_some(first)
        .into_iter()
        .chain(others)
}

/// The offsets of the messages that are not done.
fn open_offsets(order: &OrderInfo) -> impl Iterator<Item = i64> {
    let bits = order.done_bits;
    let numbered = offsets_of(order).zip(0_u32..);
    numbered
        .filter(move |(_, at)| bits & 1_i64.checked_shl(*at).unwrap_or(0) == 0)
        .map(|(offset, _)| offset)
}

/// Moves the times of the messages if the clock was set back, so that the queue does not stay closed for as long as
/// that.
fn follow_clock(order: &mut OrderInfo, now_ms: i64) {
    let back_ms = order.last_consume_ms.saturating_sub(now_ms);
    if back_ms <= 0 {
        return;
    }
    let usual = usual_time(order);
    let known = order.visible_at.take().unwrap_or_default();
    let times = offsets_of(order).map(|offset| {
        let time = known.get(&offset).copied().unwrap_or(usual);
        (offset, time.saturating_sub(back_ms))
    });
    order.visible_at = Some(times.collect());
    order.last_consume_ms = now_ms;
}

/// When the messages are visible again whose time was not changed.
fn usual_time(order: &OrderInfo) -> i64 {
    order.pop_time.saturating_add(order.invisible_time.unwrap_or(0))
}

/// When the last message that is hidden now and not done is visible again.
fn visible_at(order: &OrderInfo, now_ms: i64) -> Option<i64> {
    let usual = usual_time(order);
    let times = open_offsets(order).map(|offset| {
        let own = order.visible_at.as_ref().and_then(|times| times.get(&offset));
        own.copied().unwrap_or(usual)
    });
    times.filter(|time| *time > now_ms).max()
}

/// The offset at which the group continues.
fn next_offset(order: &OrderInfo) -> i64 {
    let behind_all = || offsets_of(order).last().unwrap_or(0).saturating_add(1);
    open_offsets(order).next().unwrap_or_else(behind_all)
}

/// How often the messages of a pop were handed out before.
fn consumed_counts(former: &OrderInfo, order: &OrderInfo) -> BTreeMap<i64, i32> {
    let counts = former.consumed_counts.clone().unwrap_or_default();
    if former.attempt_id.is_some() && former.attempt_id == order.attempt_id {
        return counts;
    }
    let again = offsets_of(order).filter(|offset| offsets_of(former).any(|known| known == *offset));
    again
        .map(|offset| {
            (
                offset,
                counts.get(&offset).copied().unwrap_or(0).saturating_add(1),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_store::RealFs;
    use pyrmq_testkit::TempDir;
    use std::sync::Arc;

    const QUEUE: (&str, &str, i32) = ("T", "G", 0);
    const HIDDEN_MS: i64 = 60_000;
    const DAY_MS: i64 = 24 * 3_600_000;

    /// A queue of which two messages were handed out `age_ms` ago.
    fn popped(dir: &TempDir, age_ms: i64, invisible_ms: i64) -> Orders {
        let file = ConfigFile::new(Arc::new(RealFs), dir.path().join("orders"));
        let orders = Orders::load(file).unwrap();
        let pop_time = clock::now_ms() - age_ms;
        let order = OrderInfo {
            pop_time,
            last_consume_ms: pop_time,
            invisible_time: Some(invisible_ms),
            offsets: vec![5, 1],
            ..OrderInfo::default()
        };
        let queues = BTreeMap::from([(0, order)]);
        orders.table().table.insert(key("T", "G"), queues);
        orders
    }

    fn opens_in_ms(orders: &Orders) -> i64 {
        orders.opens_at(QUEUE).unwrap() - clock::now_ms()
    }

    #[test]
    fn a_queue_opens_in_time_although_the_clock_was_set_back() {
        let dir = TempDir::new().unwrap();
        let orders = popped(&dir, -DAY_MS, HIDDEN_MS);
        assert!(orders.blocks(QUEUE, None));
        assert!((1..=HIDDEN_MS).contains(&opens_in_ms(&orders)));
        let handle_time = orders.with(QUEUE, |order| order.pop_time).unwrap();
        // A time that is set from then on counts as it is.
        assert!(orders.hide_until(QUEUE, 5, handle_time, clock::now_ms() + 2 * HIDDEN_MS));
        assert!((HIDDEN_MS..=2 * HIDDEN_MS).contains(&opens_in_ms(&orders)));
        assert_eq!(orders.acknowledge(QUEUE, 5, handle_time), OrderedAck::Advance(6));
        assert!((1..=HIDDEN_MS).contains(&opens_in_ms(&orders)));
    }

    #[test]
    fn a_renewal_is_when_a_group_was_last_seen() {
        let dir = TempDir::new().unwrap();
        let orders = popped(&dir, DAY_MS, HIDDEN_MS);
        let pop_time = orders.with(QUEUE, |order| order.pop_time).unwrap();
        let now_ms = clock::now_ms();
        assert!(orders.hide_until(QUEUE, 5, pop_time, now_ms + HIDDEN_MS));
        // If the clock is set back now, the times of the messages follow it.
        assert!(orders.with(QUEUE, |order| order.last_consume_ms).unwrap() >= now_ms);
    }

    #[test]
    fn a_queue_that_is_closed_for_longer_than_a_day_is_not_forgotten() {
        for (invisible_ms, is_kept) in [(3 * DAY_MS, true), (HIDDEN_MS, false)] {
            let dir = TempDir::new().unwrap();
            let orders = popped(&dir, 2 * DAY_MS, invisible_ms);
            orders.set_changed();
            orders.persist(|_, _| true).unwrap();
            assert_eq!(orders.table().table.is_empty(), !is_kept);
        }
    }
}
