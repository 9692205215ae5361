//! Pops that wait for messages, and notifications, which only say that a pop would find something: 200054.

use crate::error::Refusal;
use crate::long_polling;
use crate::pop::hold::HeldPop;
use crate::processor::pop::admission::{admit, filter};
use crate::processor::pop::take::Pop;
use crate::processor::pop::{pop_offset, retry_topics};
use crate::tables::subscription::MessageFilter;
use crate::tables::topics::Topic;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{NotificationRequestHeader, NotificationResponseHeader};
use pyrmq_remoting::net::Reply;
use pyrmq_remoting::{Command, clock};

/// Whether a pop keeps the order of a queue.
#[derive(Clone, Copy)]
pub(super) enum QueueOrder<'a> {
    Any,
    /// The pop does not see closed queues, unless this attempt closed them.
    Of(Option<&'a str>),
}

impl<'a> QueueOrder<'a> {
    pub(super) fn new(is_ordered: bool, attempt_id: Option<&'a str>) -> Self {
        if is_ordered {
            Self::Of(attempt_id)
        } else {
            Self::Any
        }
    }
}

/// When a pop would find messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Availability {
    Now,
    /// When the first closed queue that has some opens by itself, in ms.
    From(i64),
    None,
}

/// What becomes of a request.
pub(super) enum Outcome {
    Answer(Box<Command>),
    Hold(Box<Wait>),
}

impl Outcome {
    pub(super) fn answer(command: Command) -> Self {
        Self::Answer(Box::new(command))
    }
}

/// What a request waits for.
pub(super) struct Wait {
    pub(super) topic: String,
    pub(super) group: String,
    pub(super) queue_id: i32,
    pub(super) is_ordered: bool,
    pub(super) attempt_id: Option<String>,
    pub(super) filter: MessageFilter,
    pub(super) deadline_ms: i64,
    pub(super) wake_ms: i64,
    /// Whether all queues were looked at. Those that were not may have messages.
    pub(super) is_complete: bool,
    /// The answer when too many wait.
    pub(super) full: Command,
}

/// When a request that waits is tried again at the latest, if a queue opens at this time of day.
pub(super) fn wake_ms(opens_at: Option<i64>, deadline_ms: i64) -> i64 {
    let opens_ms = opens_at.map(|opens_at| {
        let left_ms = opens_at.saturating_sub(clock::now_ms());
        long_polling::now_ms().saturating_add(left_ms)
    });
    opens_ms.into_iter().fold(deadline_ms, i64::min)
}

impl Pop {
    pub(super) fn hold(&self, wait: Wait, request: Command, reply: Reply) {
        let held = &self.context.pops.held;
        let (topic, group, queue_id) = (wait.topic.clone(), wait.group.clone(), wait.queue_id);
        let retry_topics = retry_topics(&self.context, &topic, &group);
        let pop = HeldPop {
            request,
            reply,
            topic: wait.topic,
            group: wait.group,
            queue_id,
            retry_topics: retry_topics.into_iter().map(|(name, _)| name).collect(),
            filter: wait.filter,
            deadline_ms: wait.deadline_ms,
            wake_ms: wait.wake_ms,
        };
        if let Err(pop) = held.insert(pop) {
            let (from, why) = (pop.reply.peer().remote(), "too many pops wait for messages");
            self.context
                .requests
                .refused(&pop.request, from, response::POLLING_FULL, why);
            pop.reply.send(wait.full);
            return;
        }
        // Messages may have arrived between the read and the wait.
        if wait.is_complete
            && let Some(known) = self.context.topics.get(&topic)
            && self.messages(
                &known,
                &group,
                queue_id,
                QueueOrder::new(wait.is_ordered, wait.attempt_id.as_deref()),
            ) == Availability::Now
        {
            held.notify(&topic, &group, queue_id);
        }
    }

    /// 200054: whether a pop would find messages.
    pub(super) fn notice(&self, request: &Command, deadline_ms: Option<i64>) -> Result<Outcome, Refusal> {
        let header = NotificationRequestHeader::decode(&request.fields)?;
        let context = &self.context;
        let (topic, _) = admit(
            context,
            "peeking",
            header.topic,
            header.consumer_group,
            header.queue_id,
        )?;
        // Refuses a filter that cannot be read, before a message is found too.
        let filter = filter(context, header.topic, header.exp, header.exp_type)?;
        let order = QueueOrder::new(header.order == Some(true), header.attempt_id);
        let answer = |has_msg, polling_full| {
            Command::response(response::SUCCESS).with_header(&NotificationResponseHeader {
                has_msg,
                polling_full,
            })
        };
        let messages = self.messages(&topic, header.consumer_group, header.queue_id, order);
        if messages == Availability::Now {
            return Ok(Outcome::answer(answer(true, false)));
        }
        let now_ms = long_polling::now_ms();
        let deadline_ms = deadline_ms.unwrap_or_else(|| long_polling::deadline_ms(now_ms, header.poll_time));
        if header.poll_time <= 0 || deadline_ms <= now_ms || context.pops.held.is_closed() {
            return Ok(Outcome::answer(answer(false, false)));
        }
        Ok(Outcome::Hold(Box::new(Wait {
            topic: header.topic.to_owned(),
            group: header.consumer_group.to_owned(),
            queue_id: header.queue_id,
            is_ordered: header.order == Some(true),
            attempt_id: header.attempt_id.map(str::to_owned),
            filter,
            deadline_ms,
            wake_ms: match messages {
                Availability::From(opens_at) => wake_ms(Some(opens_at), deadline_ms),
                Availability::Now | Availability::None => deadline_ms,
            },
            is_complete: true,
            full: answer(false, true),
        })))
    }

    /// Looks for messages after the group's offsets.
    fn messages(&self, topic: &Topic, group: &str, queue_id: i32, order: QueueOrder<'_>) -> Availability {
        let context = &self.context;
        let mut opens_at = None;
        let mut has = |name: &str, queue_id: i32| {
            let end = context.store.max_offset(name, queue_id);
            if end <= pop_offset(context, name, group, queue_id, 0) {
                return false;
            }
            let queue = (name, group, queue_id);
            match order {
                QueueOrder::Of(attempt) if context.pops.orders.blocks(queue, attempt) => {
                    let opens = context.pops.orders.opens_at(queue);
                    opens_at = opens_at.into_iter().chain(opens).min();
                    false
                }
                _ => true,
            }
        };
        let name = topic.topic_name.as_str();
        let mut queues = if queue_id < 0 {
            0..topic.read_queue_nums
        } else {
            queue_id..queue_id + 1
        };
        if queues.any(|queue_id| has(name, queue_id)) {
            return Availability::Now;
        }
        let retries = retry_topics(context, name, group);
        let is_retried = matches!(order, QueueOrder::Any)
            && retries.iter().any(|(name, _)| {
                let topic = context.topics.get(name);
                topic.is_some_and(|topic| (0..topic.read_queue_nums).any(|queue_id| has(name, queue_id)))
            });
        match opens_at {
            _ if is_retried => Availability::Now,
            Some(opens_at) => Availability::From(opens_at),
            None => Availability::None,
        }
    }
}
