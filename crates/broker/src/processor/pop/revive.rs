//! Brings messages back whose time is over (Apache `PopReviveService`).
//!
//! ```text
//! revive topic   pop check points (leave the timer 1 s before their messages are due), acknowledgements (when due)
//! read           pop check points and acknowledgements meet in memory
//! due            once the timer has delivered everything of that moment: what is not acknowledged goes to the retry topic
//! commit         offset of the last pop check point before which all are done, as Apache's brokers commit and read it
//! ```
//! A message that cannot be stored now is tried again; its pop check point stays until then. After a kill pop check
//! points from the committed offset on are read again: what [`BroughtBack`] knows does not come back a second time.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::message::properties;
use crate::pop::pop_check_point::{ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG, LOG_END, Taken, revive_topic};
use crate::pop::{MAX_MESSAGES, ReviveProgress, message_at};
use crate::processor::pop::brought_back::{BroughtBack, mark_of};
use crate::processor::pop::count::count_back;
use crate::processor::pop::retry::{is_wanted, put_retry, retry_topic_of};
use pyrmq_remoting::body::{AckMsg, BatchAckMsg, Body, PopCheckPoint};
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::names::REVIVE_GROUP;
use pyrmq_remoting::{WireError, clock};
use pyrmq_store::{GetMessage, GetStatus, StoreError, TagFilter};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Messages of the revive topic read at once, and their bytes.
const READ_COUNT: usize = 256;
const READ_BYTES: usize = 1 << 20;
/// How long the thread sleeps while nothing is due.
const IDLE_INTERVAL: Duration = Duration::from_mins(1);
/// How often it looks while something is.
const DUE_INTERVAL: Duration = Duration::from_millis(20);
/// How long it waits after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// What an acknowledgement names of its pop check point.
type CheckPointKey = (String, String, i32, i64, i64);

/// The pop check points of one queue that are not done.
#[derive(Debug)]
struct ReviveQueue {
    id: i32,
    /// The first offset that was not read.
    next: i64,
    /// By offset.
    pending: BTreeMap<i64, Pending>,
    by_key: HashMap<CheckPointKey, i64>,
    committed: Option<i64>,
}

#[derive(Debug)]
struct Pending {
    point: PopCheckPoint,
    key: CheckPointKey,
    /// Bits of the messages that are done or brought back.
    done: u32,
    /// Messages that were acknowledged when their time was over.
    late: u64,
    /// The end of the commit log when they were handed out; Apache's pop check points do not have it.
    log_end: Option<i64>,
}

/// Brings messages back until the broker stops; runs on a thread of its own. Pop check points from a time on may have
/// been done before the last stop (`unfinished_since`).
pub(crate) fn revive(context: &BrokerContext, unfinished_since: Option<i64>) {
    if !context.options.store.timer.enable {
        return;
    }
    let mut earlier = unfinished_since
        .map(|since_ms| BroughtBack::read(context, since_ms))
        .unwrap_or_default();
    let topic = revive_topic(&context.options.broker_cluster_name);
    let queues = super::revive_queues(context);
    let mut queues: Vec<ReviveQueue> = (0..queues)
        .map(|id| ReviveQueue::new(context, &topic, id))
        .collect();
    loop {
        let mut wait = IDLE_INTERVAL;
        // The timer may deliver pop check points from before a kill once more until then.
        let is_over = !earlier.is_empty() && context.timers.has_delivered(&context.store, earlier.until_ms());
        for queue in &mut queues {
            if let Err(refusal) = queue.pass(context, &topic, &earlier) {
                tracing::warn!(
                    queue = queue.id,
                    reason = refusal.remark,
                    "messages that were not acknowledged cannot be brought back, will try again"
                );
                wait = wait.min(FAILURE_PAUSE);
            }
            wait = wait.min(queue.wait(context));
        }
        let progress = queues.iter().map(ReviveQueue::progress).collect();
        context.pops.set_revive_progress(progress);
        if is_over && queues.iter().all(|queue| queue.is_done_until(earlier.until_ms())) {
            earlier = BroughtBack::default();
        }
        if !context.pops.revive_wakeup.sleep(wait) {
            return;
        }
    }
}

impl ReviveQueue {
    fn new(context: &BrokerContext, topic: &str, id: i32) -> Self {
        let committed = context.offsets.get(REVIVE_GROUP, topic, id);
        Self {
            id,
            // Apache commits the offset of the last pop check point that is done.
            next: committed.map_or(0, |committed| committed.saturating_add(1)),
            pending: BTreeMap::new(),
            by_key: HashMap::new(),
            committed,
        }
    }

    fn pass(&mut self, context: &BrokerContext, topic: &str, earlier: &BroughtBack) -> Result<(), Refusal> {
        // What was delivered before this pass is read by it.
        let due = self.due(context);
        self.read(context, topic)
            .map_err(|error| Refusal::of_put(&error))?;
        let mut failed = Ok(());
        for offset in due {
            let Some(pending) = self.pending.get_mut(&offset) else {
                continue;
            };
            match pending.bring_back(context, earlier) {
                Ok(()) => self.forget(offset),
                Err(error) => failed = Err(error),
            }
        }
        self.commit(context, topic);
        failed
    }

    /// The pop check points whose acknowledgements have all left the timer.
    fn due(&self, context: &BrokerContext) -> Vec<i64> {
        let mut all: Vec<(i64, i64)> = (self.pending.iter())
            .map(|(offset, pending)| (pending.due_ms(), *offset))
            .collect();
        all.sort_unstable();
        let timer = context.options.store.timer;
        let mut delivered_to = i64::MIN;
        let is_delivered = |(due_ms, _): &(i64, i64)| {
            if *due_ms > delivered_to && context.timers.has_delivered(&context.store, *due_ms) {
                delivered_to = timer.floor_ms(due_ms - 1) + timer.precision_ms;
            }
            *due_ms <= delivered_to
        };
        let due = all.into_iter().take_while(is_delivered);
        due.map(|(_, offset)| offset).collect()
    }

    fn forget(&mut self, offset: i64) {
        let key = self.pending.remove(&offset).map(|pending| pending.key);
        if let Some(key) = key.filter(|key| self.by_key.get(key) == Some(&offset)) {
            self.by_key.remove(&key);
        }
    }

    /// Takes in what the queue has.
    fn read(&mut self, context: &BrokerContext, topic: &str) -> Result<(), StoreError> {
        loop {
            let got = context.store.get(&GetMessage {
                topic,
                queue_id: self.id,
                offset: self.next,
                max_count: READ_COUNT,
                max_bytes: READ_BYTES,
                tags: TagFilter::All,
            })?;
            match got.status {
                GetStatus::Found => {}
                GetStatus::OffsetTooSmall | GetStatus::OffsetFoundNull | GetStatus::MessageWasRemoving
                    if got.next_offset > self.next =>
                {
                    tracing::warn!(
                        queue = self.id,
                        from = self.next,
                        to = got.next_offset,
                        "the commit log dropped pop check points that were not read: their messages do not come back"
                    );
                    self.next = got.next_offset;
                    continue;
                }
                _ => return Ok(()),
            }
            for record in record::records(&got.body) {
                let taken = record.and_then(|record| self.read_record(&record));
                if let Err(error) = taken {
                    tracing::error!(queue = self.id, %error, "passed over a message of the revive topic that cannot be read");
                }
            }
            self.next = got.next_offset;
        }
    }

    fn read_record(&mut self, record: &Record<'_>) -> Result<(), WireError> {
        match record.properties.get(properties::names::TAGS) {
            Some(CHECK_POINT_TAG) => self.add_check_point(record),
            Some(ACK_TAG) => {
                let ack = AckMsg::decode(record.body)?;
                let key = (ack.topic, ack.group, ack.queue_id, ack.start_offset, ack.pop_time);
                self.acknowledge(key, &[ack.ack_offset], record.born_timestamp_ms);
                Ok(())
            }
            Some(BATCH_ACK_TAG) => {
                let ack = BatchAckMsg::decode(record.body)?;
                let key = (ack.topic, ack.group, ack.queue_id, ack.start_offset, ack.pop_time);
                self.acknowledge(key, &ack.ack_offsets, record.born_timestamp_ms);
                Ok(())
            }
            other => {
                tracing::error!(
                    queue = self.id,
                    tag = other,
                    "passed over a message of the revive topic with an unknown tag"
                );
                Ok(())
            }
        }
    }

    fn add_check_point(&mut self, record: &Record<'_>) -> Result<(), WireError> {
        let mut point = PopCheckPoint::decode(record.body)?;
        let topic = point.topic.take().ok_or(WireError::MissingField("t"))?;
        let group = point.group.take().ok_or(WireError::MissingField("c"))?;
        let key = (topic, group, point.queue_id, point.start_offset, point.pop_time);
        if self.by_key.contains_key(&key) {
            // The timer may deliver a message twice after a kill.
            return Ok(());
        }
        let done = point.bit_map.cast_unsigned();
        let log_end = record.properties.get(LOG_END).and_then(|end| end.parse().ok());
        self.by_key.insert(key.clone(), record.queue_offset);
        let pending = Pending {
            point,
            key,
            done,
            late: 0,
            log_end,
        };
        self.pending.insert(record.queue_offset, pending);
        Ok(())
    }

    fn acknowledge(
        &mut self,
        (topic, group, queue_id, start, pop_time): (Option<String>, Option<String>, i32, i64, i64),
        offsets: &[i64],
        at_ms: i64,
    ) {
        let (Some(topic), Some(group)) = (topic, group) else {
            return;
        };
        // Without a pop check point the messages came back already, or the handle was none of ours.
        let Some(at) = self.by_key.get(&(topic, group, queue_id, start, pop_time)) else {
            return;
        };
        if let Some(pending) = self.pending.get_mut(at) {
            for offset in offsets {
                pending.acknowledge(*offset, at_ms);
            }
        }
    }

    /// Commits the offset behind which nothing is pending.
    fn commit(&mut self, context: &BrokerContext, topic: &str) {
        let done = self.pending.keys().next().map_or(self.next, |first| *first) - 1;
        if done >= 0 && self.committed.is_none_or(|committed| committed < done) {
            context.offsets.commit(REVIVE_GROUP, topic, self.id, done);
            self.committed = Some(done);
        }
    }

    /// Whether nothing is pending that was due at or before a time.
    fn is_done_until(&self, until_ms: i64) -> bool {
        self.pending.values().all(|pending| pending.due_ms() > until_ms)
    }

    fn first_due_ms(&self) -> Option<i64> {
        self.pending.values().map(Pending::due_ms).min()
    }

    fn progress(&self) -> ReviveProgress {
        ReviveProgress {
            queue_id: self.id,
            next: self.next,
            pending: self.pending.len(),
            first_due_ms: self.first_due_ms(),
        }
    }

    /// How long there is nothing to do.
    fn wait(&self, context: &BrokerContext) -> Duration {
        let Some(due_ms) = self.first_due_ms() else {
            return IDLE_INTERVAL;
        };
        let timer = context.options.store.timer;
        let step_end_ms = timer.floor_ms(due_ms - 1) + timer.precision_ms;
        let left_ms = step_end_ms - clock::now_ms();
        Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)).clamp(DUE_INTERVAL, IDLE_INTERVAL)
    }
}

impl Pending {
    fn due_ms(&self) -> i64 {
        self.point.pop_time.saturating_add(self.point.invisible_time)
    }

    /// Indexes and offsets of the messages. Pop check points of brokers before 5.0 have consecutive offsets.
    fn messages(&self) -> Vec<(u32, i64)> {
        let start = self.point.start_offset;
        let offsets: Vec<i64> = match &self.point.offset_differences {
            Some(distances) if !distances.is_empty() => distances
                .iter()
                .map(|distance| start.saturating_add(i64::from(*distance)))
                .collect(),
            _ => (0..i64::from(self.point.count.min(MAX_MESSAGES)))
                .map(|at| start.saturating_add(at))
                .collect(),
        };
        (0..u32::BITS).zip(offsets).collect()
    }

    fn acknowledge(&mut self, offset: i64, at_ms: i64) {
        let found = self.messages().into_iter().find(|(_, known)| *known == offset);
        match found {
            Some((index, _)) => {
                let is_new = self.done & 1 << index == 0;
                self.late += u64::from(is_new && at_ms >= self.due_ms());
                self.done |= 1 << index;
            }
            None => {
                tracing::warn!(offset, key = ?self.key, "an acknowledgement names a message that its pop did not hand out");
            }
        }
    }

    /// Stores every message that is not done in the retry topic.
    fn bring_back(&mut self, context: &BrokerContext, earlier: &BroughtBack) -> Result<(), Refusal> {
        let (topic, group) = (self.key.0.clone(), self.key.1.clone());
        if !is_wanted(context, &topic, &group) {
            tracing::warn!(
                topic,
                group,
                "messages that were not acknowledged do not come back: their topic or group was deleted"
            );
            return Ok(());
        }
        for (at, offset) in self.messages() {
            if self.done & 1 << at != 0 {
                continue;
            }
            self.bring_back_one(context, earlier, (&topic, &group), offset)?;
            self.done |= 1 << at;
            count_back(context, &self.taken(&topic, &group), 1);
        }
        count_back(context, &self.taken(&topic, &group), self.late);
        Ok(())
    }

    fn taken<'a>(&self, topic: &'a str, group: &'a str) -> Taken<'a> {
        Taken {
            topic,
            group,
            queue_id: self.point.queue_id,
            broker_name: "",
            start_offset: self.point.start_offset,
            pop_time: self.point.pop_time,
            invisible_time: self.point.invisible_time,
        }
    }

    fn bring_back_one(
        &self,
        context: &BrokerContext,
        earlier: &BroughtBack,
        (topic, group): (&str, &str),
        offset: i64,
    ) -> Result<(), Refusal> {
        let stored = message_at(&context.store, topic, self.point.queue_id, offset, |record| {
            if self.log_end.is_none_or(|end| record.physical_offset < end) {
                let retry_topic = retry_topic_of(context, topic, group);
                if earlier.has(&retry_topic, mark_of(record), (self.due_ms(), self.log_end)) {
                    return Ok(());
                }
                return put_retry(context, &self.point, (&retry_topic, group), record);
            }
            tracing::warn!(
                topic,
                group,
                queue = self.point.queue_id,
                offset,
                "a message that was not acknowledged does not come back: its topic was deleted and made again"
            );
            Ok(())
        });
        let stored = stored.map_err(|error| Refusal::of_put(&error))?;
        stored.unwrap_or_else(|| {
            tracing::warn!(
                topic,
                group,
                queue = self.point.queue_id,
                offset,
                "a message that was not acknowledged is not in the commit log any more"
            );
            Ok(())
        })
    }
}
