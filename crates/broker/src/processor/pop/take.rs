//! Pops: 200050.
//!
//! ```text
//! retry topic or queues first (one in five pops) -> each queue under its lock: read, pop check point, offset
//!   -> found: the bytes as stored; a retry is encoded again, under the topic that was asked for and with its handle
//!   -> nothing: held until messages arrive
//! ```
//! The pop check point is in the log before the offset moves, and offsets are written to their file after a flush of
//! the log: whatever is lost in a crash, no message is skipped.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::long_polling;
use crate::pop::order::OrderedPop;
use crate::pop::pop_check_point::Taken;
use crate::processor::pop::admission::AdmittedPop;
use crate::processor::pop::count::count_pop;
use crate::processor::pop::read::read_in;
use crate::processor::pop::result::{PopResult, as_original};
use crate::processor::pop::wait::{Outcome, Wait, wake_ms};
use crate::processor::pop::{Pass, pop_offset, retry_topics, revive_log};
use crate::tables::topics::Topic;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::{PopMessageRequestHeader, PopMessageResponseHeader};
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{GetMessage, GetMessageResult, GetStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a pop that was held waits until it tries a queue again that another pop has had for too long, in ms.
const TRY_AGAIN_MS: i64 = 100;

/// Answers pops and notifications.
#[derive(Debug)]
pub(crate) struct Pop {
    pub(super) context: Arc<BrokerContext>,
}

impl Processor for Pop {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        self.answer(request, reply, Pass::First);
    }
}

impl Pop {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context }
    }

    /// Looks again for a request that was held: it is answered, or held again until its deadline. Returns it if it
    /// needs the disk and the pass may not wait for that.
    pub(crate) fn resume(&self, request: Command, reply: Reply, pass: Pass) -> Option<(Command, Reply)> {
        if let Some(refusal) = self.context.check_again(&request, reply.peer()) {
            reply.send(refusal);
            return None;
        }
        self.answer(request, reply, pass)
    }

    fn answer(&self, request: Command, reply: Reply, pass: Pass) -> Option<(Command, Reply)> {
        let began = Instant::now();
        let outcome = if request.code == request::NOTIFICATION {
            self.notice(&request, pass.deadline_ms()).map(Some)
        } else {
            self.pop(&request, pass)
        };
        let Some(outcome) = outcome.transpose() else {
            return Some((request, reply));
        };
        let (waited, served) = reply.times(began);
        // One that was held waited for messages.
        let waited = pass.deadline_ms().map_or(waited, |_| Duration::ZERO);
        let from = reply.peer().remote();
        self.context.requests.served(&request, from, (waited, served));
        match outcome {
            Ok(Outcome::Answer(answer)) => reply.send(*answer),
            Err(refusal) => self.context.refuse(&request, reply, refusal),
            Ok(Outcome::Hold(wait)) => self.hold(*wait, request, reply),
        }
        None
    }

    /// `None`: there is nothing so far, and messages that are not in memory.
    fn pop(&self, request: &Command, pass: Pass) -> Result<Option<Outcome>, Refusal> {
        let header = PopMessageRequestHeader::decode(&request.fields)?;
        let admitted = AdmittedPop::new(&self.context, &header, pass)?;
        let result = self.take(&header, &admitted)?;
        if result.count == 0 && result.needs_disk {
            return Ok(None);
        }
        let deadline_ms = pass.deadline_ms();
        let (topic, group) = (header.topic, header.consumer_group);
        if result.count > 0 {
            if result.rest > 0 {
                self.context.pops.held.notify(topic, group, header.queue_id);
            }
            return Ok(Some(Outcome::answer(respond(
                response::SUCCESS,
                &header,
                &admitted,
                result,
            ))));
        }
        let now_ms = long_polling::now_ms();
        let deadline_ms = deadline_ms.unwrap_or_else(|| long_polling::deadline_ms(now_ms, header.poll_time));
        self.context.stats.pull_missed.fetch_add(1, Ordering::Relaxed);
        if header.poll_time <= 0 || deadline_ms <= now_ms || self.context.pops.held.is_closed() {
            let code = response::POLLING_TIMEOUT;
            return Ok(Some(Outcome::answer(respond(code, &header, &admitted, result))));
        }
        Ok(Some(Outcome::Hold(Box::new(Wait {
            topic: topic.to_owned(),
            group: group.to_owned(),
            queue_id: header.queue_id,
            is_ordered: header.order == Some(true),
            attempt_id: header.attempt_id.map(str::to_owned),
            filter: admitted.filter.clone(),
            deadline_ms,
            wake_ms: wake_ms(result.opens_at, deadline_ms),
            is_complete: !result.is_incomplete,
            full: respond(response::POLLING_FULL, &header, &admitted, result),
        }))))
    }

    /// Takes messages from the topic and its retry topic. Apache reads the retry topic first in one pop of five, else
    /// after the topic, so that neither starves.
    fn take(
        &self,
        header: &PopMessageRequestHeader<'_>,
        admitted: &AdmittedPop,
    ) -> Result<PopResult, Refusal> {
        let context = &self.context;
        let mut result = PopResult::default();
        let turn = context.pops.next_turn();
        let is_ordered = header.order == Some(true);
        let retries = if is_ordered {
            Vec::new()
        } else {
            retry_topics(context, header.topic, header.consumer_group)
        };
        let take_retries = |result: &mut PopResult| {
            // An answer has room for the offsets of one retry topic.
            let turned = usize::from(turn % 2 == 1 && retries.len() > 1);
            let wanted = retries.iter().cycle().skip(turned).take(retries.len());
            for (name, source) in wanted {
                let before = result.count;
                if let Some(topic) = context.topics.get(name) {
                    self.take_from_topic(header, admitted, &topic, *source, turn, result)?;
                }
                if result.count > before {
                    break;
                }
            }
            Ok::<(), Refusal>(())
        };
        let retries_first = i64::from(turn % 100) < i64::from(context.options.pop_from_retry_probability);
        if retries_first {
            take_retries(&mut result)?;
        }
        if header.queue_id < 0 {
            self.take_from_topic(
                header,
                admitted,
                &admitted.topic,
                PopSource::Topic,
                turn,
                &mut result,
            )?;
        } else {
            self.take_from_queue(
                header,
                admitted,
                (&admitted.topic, PopSource::Topic, header.queue_id),
                &mut result,
            )?;
        }
        if !retries_first {
            take_retries(&mut result)?;
        }
        Ok(result)
    }

    fn take_from_topic(
        &self,
        header: &PopMessageRequestHeader<'_>,
        admitted: &AdmittedPop,
        topic: &Topic,
        source: PopSource,
        turn: u32,
        result: &mut PopResult,
    ) -> Result<(), Refusal> {
        let queues = topic.read_queue_nums.max(0);
        let first = i32::try_from(turn & 0x7fff_ffff).unwrap_or(0);
        for at in 0..queues {
            let queue_id = (first % queues + at) % queues;
            self.take_from_queue(header, admitted, (topic, source, queue_id), result)?;
        }
        Ok(())
    }

    /// What was taken from other queues is handed out even if this one fails.
    fn take_from_queue(
        &self,
        header: &PopMessageRequestHeader<'_>,
        admitted: &AdmittedPop,
        queue: (&Topic, PopSource, i32),
        result: &mut PopResult,
    ) -> Result<(), Refusal> {
        match self.try_take_from_queue(header, admitted, queue, result) {
            Err(refusal) if result.count > 0 => {
                tracing::warn!(
                    topic = header.topic,
                    group = header.consumer_group,
                    queue = queue.2,
                    reason = refusal.remark,
                    "a pop passes over a queue"
                );
                Ok(())
            }
            taken => taken,
        }
    }

    fn try_take_from_queue(
        &self,
        header: &PopMessageRequestHeader<'_>,
        admitted: &AdmittedPop,
        (topic, source, queue_id): (&Topic, PopSource, i32),
        result: &mut PopResult,
    ) -> Result<(), Refusal> {
        let context = &self.context;
        let (name, group) = (topic.topic_name.as_str(), header.consumer_group);
        let queue = (name, group, queue_id);
        let _lock = if admitted.pass.deadline_ms().is_some() {
            let Some(lock) = context.pops.lock_if_short(name, group, queue_id) else {
                let again_at = clock::now_ms() + TRY_AGAIN_MS;
                result.opens_at = Some(result.opens_at.map_or(again_at, |at| at.min(again_at)));
                result.is_incomplete = true;
                return Ok(());
            };
            Some(lock)
        } else {
            context.pops.lock_within_limit(name, group, queue_id)?
        };
        let mut offset = pop_offset(context, name, group, queue_id, header.init_mode);
        if let Some(reset) = context.offsets.take_reset(group, name, queue_id) {
            context.pops.orders.clear(queue);
            offset = reset;
            context.commit(group, topic, queue_id, offset);
        } else if context.offsets.get(group, name, queue_id).is_none() {
            // The newest message of now is where the group begins, whether or not this pop gets as far.
            context.commit(group, topic, queue_id, offset);
        }
        let is_ordered = header.order == Some(true);
        if is_ordered && context.pops.orders.blocks(queue, header.attempt_id) {
            let opens_at = context.pops.orders.opens_at(queue);
            result.opens_at = result.opens_at.into_iter().chain(opens_at).min();
            return Ok(());
        }
        let room = usize::try_from(header.max_msg_nums)
            .unwrap_or(0)
            .saturating_sub(result.count);
        if room == 0 {
            result.rest += (context.store.max_offset(name, queue_id) - offset).max(0);
            return Ok(());
        }
        let Some(got) = self.read(admitted, queue, &mut offset, room)? else {
            result.needs_disk = true;
            result.rest += (context.store.max_offset(name, queue_id) - offset).max(0);
            return Ok(());
        };
        result.rest += (got.max_offset - got.next_offset).max(0);
        if got.status == GetStatus::Found {
            return self.hand_out(header, admitted, (topic, source, queue_id), offset, &got, result);
        }
        if matches!(
            got.status,
            GetStatus::NoMatchedMessage | GetStatus::OffsetFoundNull | GetStatus::MessageWasRemoving
        ) {
            context.commit(group, topic, queue_id, got.next_offset);
        }
        Ok(())
    }

    /// Reads at an offset, or where the queue begins when the offset is none of its own. `None`: that needs the disk,
    /// for which the pass may not wait.
    fn read(
        &self,
        admitted: &AdmittedPop,
        (topic, group, queue_id): (&str, &str, i32),
        offset: &mut i64,
        room: usize,
    ) -> Result<Option<GetMessageResult>, Refusal> {
        let context = &self.context;
        let mut get = GetMessage {
            topic,
            queue_id,
            offset: *offset,
            max_count: room,
            max_bytes: context.store.live().usual_transfer_bytes(),
            tags: admitted.filter.for_store(),
        };
        let Some(got) = read_in(admitted.pass, context, &get)? else {
            return Ok(None);
        };
        let is_elsewhere = matches!(
            got.status,
            GetStatus::OffsetTooSmall | GetStatus::OffsetOverflowBadly | GetStatus::OffsetFoundNull
        );
        if !is_elsewhere {
            return Ok(Some(got));
        }
        tracing::warn!(
            topic,
            group,
            queue_id,
            offset,
            next = got.next_offset,
            "a group's offset is not in the queue: its pops go on elsewhere"
        );
        *offset = got.next_offset;
        get.offset = got.next_offset;
        if let Some(topic) = context.topics.get(topic) {
            context.commit(group, &topic, queue_id, got.next_offset);
        }
        read_in(admitted.pass, context, &get)
    }

    /// Notes that messages are out, then adds them to the answer. Without that note they stay where they are.
    fn hand_out(
        &self,
        header: &PopMessageRequestHeader<'_>,
        admitted: &AdmittedPop,
        (topic, source, queue_id): (&Topic, PopSource, i32),
        start_offset: i64,
        got: &GetMessageResult,
        result: &mut PopResult,
    ) -> Result<(), Refusal> {
        let context = &self.context;
        let records: Vec<Record<'_>> = record::records(&got.body).collect::<Result<_, _>>()?;
        let offsets: Vec<i64> = records.iter().map(|record| record.queue_offset).collect();
        let (name, group) = (topic.topic_name.as_str(), header.consumer_group);
        let taken = Taken {
            topic: name,
            group,
            queue_id,
            broker_name: &context.options.broker_name,
            start_offset,
            pop_time: admitted.pop_time,
            invisible_time: header.invisible_time,
        };
        let part = match source {
            PopSource::Topic => got.body.clone(),
            _ => as_original(header.topic, &taken, admitted.revive_queue, source, &records)?,
        };
        if header.order == Some(true) {
            let pop = OrderedPop {
                topic: name,
                group,
                queue_id,
                attempt_id: header.attempt_id,
                pop_time: admitted.pop_time,
                invisible_time: header.invisible_time,
            };
            let counts = &mut result.order_counts;
            context
                .pops
                .orders
                .update(&pop, source.as_str(), &offsets, counts);
            context.commit(group, topic, queue_id, start_offset);
        } else {
            revive_log(context).put_check_point(admitted.revive_queue, &taken, &offsets)?;
            count_pop(context, (&admitted.topic, topic), &taken, offsets.len() as u64);
            context.commit(group, topic, queue_id, got.next_offset);
        }
        result.add(source, queue_id, start_offset, &offsets);
        context
            .stats
            .count_sent(offsets.len() as u64, got.body.len() as u64);
        let traffic = topic.traffic.group_or_new(group);
        traffic.count_get(
            queue_id,
            offsets.len() as u64,
            got.body.len() as u64,
            got.next_offset,
        );
        result.parts.push(part);
        Ok(())
    }
}

fn respond(
    code: i32,
    header: &PopMessageRequestHeader<'_>,
    admitted: &AdmittedPop,
    result: PopResult,
) -> Command {
    let is_ordered = header.order == Some(true);
    let mut answer = Command::response(code).with_header(&PopMessageResponseHeader {
        pop_time: admitted.pop_time,
        invisible_time: header.invisible_time,
        revive_qid: admitted.revive_queue,
        rest_num: result.rest,
        start_offset_info: Some(&result.start_offsets),
        msg_offset_info: Some(&result.offsets),
        order_count_info: is_ordered.then_some(&result.order_counts),
    });
    let remark = if result.count > 0 {
        "FOUND"
    } else {
        "NO_MESSAGE_IN_QUEUE"
    };
    answer.remark = Some(remark.to_owned());
    answer.body = result.into_body();
    answer
}
