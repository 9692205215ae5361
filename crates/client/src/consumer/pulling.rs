//! The pull of each queue: always one in flight while there is room for its answer.

use crate::consumer::options::OutOfRange;
use crate::consumer::process_queue::{Chunk, ProcessQueue, QueueKey};
use crate::consumer::requests::is_transient;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader, sys_flag};
use pyrmq_remoting::message::inner_batch;
use pyrmq_remoting::net::NetError;
use pyrmq_remoting::sync::lock;
use pyrmq_routing::route::MASTER_ID;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WHAT: &str = "a pull";
/// The request's wait beyond what the broker may hold it.
const ANSWER_TIME: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(3);
/// A broker that answers "nothing there" sooner than this does not hold pulls, so it is pulled less often.
const MIN_HOLD: Duration = Duration::from_millis(5);
/// Bodies below this are copied. They are slices of a buffer that a connection reads several answers into, of up to
/// 256 KiB, which each slice keeps alive. Longer ones have a buffer of their own.
const COPIED_BELOW: usize = 64 * 1024;

impl ConsumerShared {
    /// Sends the queue's next pull if it wants one.
    pub(crate) fn pull(self: &Arc<Self>, key: &Arc<QueueKey>) {
        let mut state = self.state();
        let share = state.share(&self.options);
        let Some(queue) = state.queues.get_mut(key) else {
            return;
        };
        let (true, Some(offset)) = (queue.wants_pull(share), queue.next_pull) else {
            return;
        };
        queue.pull_is_scheduled = true;
        queue.pulled_at = Some(Instant::now());
        let (generation, subscription) = (queue.generation, queue.subscription.clone());
        let replica = queue.replica;
        let is_suspect = queue.is_suspect();
        drop(state);
        let Some((replica, address)) = self
            .routes
            .cached(&key.topic)
            .and_then(|topic| topic.reader_at(&key.broker, replica))
        else {
            self.routes.mark_stale(&key.topic);
            return self.pull_later(key.clone(), generation);
        };
        let suspend = self.options.suspend;
        let header = PullMessageRequestHeader {
            consumer_group: &self.options.client.group,
            topic: &key.topic,
            queue_id: key.queue_id,
            queue_offset: offset,
            max_msg_nums: if is_suspect {
                1
            } else {
                share.answer_messages(self.options.batch)
            },
            sys_flag: sys_flag::SUSPEND | sys_flag::SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_millis: i64::try_from(suspend.as_millis()).unwrap_or(i64::MAX),
            subscription: Some(&subscription.expression),
            sub_version: subscription.version,
            expression_type: Some(subscription.expression_type()),
            max_msg_bytes: i32::try_from(share.answer_bytes()).ok(),
            broker_name: Some(&key.broker),
            ..PullMessageRequestHeader::default()
        };
        let command = Command::request(request::PULL_MESSAGE).with_header(&header);
        let (shared, key) = (self.clone(), key.clone());
        let sent = SentPull {
            address: address.clone(),
            is_slave: replica != MASTER_ID,
            at: Instant::now(),
        };
        self.client
            .request_with(&address, command, suspend + ANSWER_TIME, move |outcome| {
                shared.pulled(&key, generation, &sent, outcome);
            });
    }

    fn pulled(
        self: &Arc<Self>,
        key: &Arc<QueueKey>,
        generation: u64,
        sent: &SentPull,
        outcome: Result<Command, NetError>,
    ) {
        let SentPull {
            address,
            is_slave,
            at,
        } = sent;
        let outcome = outcome
            .map_err(|source| ClientError::net(WHAT, address.to_owned(), source))
            .and_then(|answer| PullAnswer::read(address, answer));
        let next_generation = self.next_generation();
        let mut state = self.state();
        let Some(queue) = state.queue(key, generation) else {
            return;
        };
        queue.pull_is_scheduled = false;
        let pull_offset = queue.next_pull.unwrap_or(0);
        let outcome = outcome.and_then(|answer| {
            if *is_slave {
                answer.checked_of_slave(address, pull_offset)
            } else {
                answer.checked(key, pull_offset, self.options.out_of_range)
            }
        });
        // A replica that fails is not asked again before the master suggests it: it may not have the topic yet.
        queue.replica = outcome.as_ref().map_or(MASTER_ID, |answer| answer.replica);
        let answered = outcome.as_ref().ok().map(|answer| answer.next_offset);
        if let Ok(answer) = &outcome {
            queue.end = Some(answer.last);
        }
        let chunk = outcome.and_then(|answer| {
            if answer.code == response::PULL_OFFSET_MOVED {
                answer.move_to_offset(queue, next_generation);
            }
            answer.into_chunk(queue, address)
        });
        match chunk {
            Ok(chunk) => {
                queue.failures = 0;
                let moved = queue.generation != generation || queue.next_pull != Some(chunk.next_offset);
                let generation = queue.generation;
                let messages = chunk.len();
                if queue.arrive(chunk) {
                    lock(&self.counted).pulled(&key.topic, messages, at.elapsed());
                    state.make_ready(key);
                    self.unlock_and_wake(state);
                } else {
                    drop(state);
                }
                if moved || at.elapsed() >= MIN_HOLD {
                    self.pull(key);
                } else {
                    self.pull_later(key.clone(), generation);
                }
            }
            Err(error) => {
                queue.failures += 1;
                queue.is_commit_in_doubt |= matches!(error, ClientError::Net { .. });
                if let Some(next_offset) = answered {
                    let generation = queue.generation;
                    let passed_over = queue.refuse_answer(next_offset);
                    drop(state);
                    return self.unreadable(key, generation, passed_over, &error);
                }
                drop(state);
                self.failed(key, generation, error, *is_slave);
            }
        }
    }

    /// Continues after an answer that cannot be parsed: its messages are requested one by one.
    fn unreadable(
        self: &Arc<Self>,
        key: &Arc<QueueKey>,
        generation: u64,
        passed_over: Option<i64>,
        error: &ClientError,
    ) {
        if let Some(offset) = passed_over {
            tracing::error!(%key, offset, %error, "message cannot be read: skipped");
            self.counts.add_unreadable();
            return self.pull(key);
        }
        tracing::warn!(%key, %error, "answer cannot be taken apart: its messages are pulled one by one");
        self.pull_later(key.clone(), generation);
    }

    /// Tries again later. The next poll raises errors that are not temporary.
    fn failed(self: &Arc<Self>, key: &Arc<QueueKey>, generation: u64, error: ClientError, is_slave: bool) {
        tracing::warn!(%key, %error, is_slave, "pull failed");
        let passing = match &error {
            _ if is_slave => true,
            ClientError::Net { .. } => true,
            ClientError::Refused { code, .. } => is_transient(*code),
            _ => false,
        };
        if !is_slave
            && matches!(&error, ClientError::Refused { code, .. } if *code == response::TOPIC_NOT_EXIST)
            && let Some(queue) = self.state().queue(key, generation)
        {
            queue.is_gone = true;
        }
        self.routes.mark_stale(&key.topic);
        if !passing {
            self.fail(error);
        }
        self.pull_later(key.clone(), generation);
    }

    /// Pulls again after a while; longer after each failure.
    pub(crate) fn pull_later(self: &Arc<Self>, key: Arc<QueueKey>, generation: u64) {
        let shared = self.clone();
        let failures = {
            let mut state = self.state();
            let Some(queue) = state.queue(&key, generation) else {
                return;
            };
            queue.pull_is_scheduled = true;
            queue.failures
        };
        let pause = MAX_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(failures.min(8)));
        self.tracker.spawn(async move {
            if shared.shutdown.sleep_or_stop(pause).await {
                return;
            }
            {
                let mut state = shared.state();
                let Some(queue) = state.queue(&key, generation) else {
                    return;
                };
                queue.pull_is_scheduled = false;
                if !queue.is_gone {
                    drop(state);
                    return shared.pull(&key);
                }
            }
            shared.start_over(&key, generation).await;
        });
    }

    /// Starts over in a queue whose topic the broker did not know: a topic that is created again has new offsets, so
    /// the old position would skip its first messages.
    pub(crate) async fn start_over(self: &Arc<Self>, key: &Arc<QueueKey>, generation: u64) {
        // A slave may know neither the new topic nor what the group has committed in it.
        let masters = self.offsets.of_masters();
        let committed = if self.options.is_broadcasting {
            Ok(None)
        } else {
            masters.committed(key).await
        };
        let begin = match committed {
            Ok(Some(offset)) => Ok(offset),
            Ok(None) => masters.first(key).await,
            Err(error) => Err(error),
        };
        let next_generation = self.next_generation();
        {
            let mut state = self.state();
            let Some(queue) = state.queue(key, generation) else {
                return;
            };
            // What was fetched of the old one is handed out first.
            if let Ok(begin) = begin
                && !queue.has_messages()
            {
                let failures = queue.failures;
                // Outcomes of the old topic's messages are not the new one's.
                queue.restart(begin, next_generation);
                // The old position says nothing about the new queue.
                (queue.failures, queue.committed) = (failures, -1);
            } else {
                drop(state);
                return self.pull_later(key.clone(), generation);
            }
        }
        self.pull(key);
    }
}

/// The replica that a pull was sent to, and when.
struct SentPull {
    address: String,
    is_slave: bool,
    at: Instant,
}

/// What a broker answered to a pull.
struct PullAnswer {
    code: i32,
    next_offset: i64,
    /// The queue has messages from here ...
    first: i64,
    /// ... and the next gets this offset.
    last: i64,
    /// The replica to ask next.
    replica: i64,
    /// Records.
    body: Bytes,
}

impl PullAnswer {
    fn read(address: &str, answer: Command) -> Result<Self, ClientError> {
        match answer.code {
            response::SUCCESS
            | response::PULL_NOT_FOUND
            | response::PULL_RETRY_IMMEDIATELY
            | response::PULL_OFFSET_MOVED => {}
            code => return Err(ClientError::refused(WHAT, address, code, answer.remark)),
        }
        let header = PullMessageResponseHeader::decode(&answer.fields).map_err(|source| {
            let address = address.to_owned();
            ClientError::UnreadableAnswer {
                what: WHAT,
                address,
                source,
            }
        })?;
        let body = answer.body.filter(|_| answer.code == response::SUCCESS);
        Ok(Self {
            code: answer.code,
            next_offset: header.next_begin_offset,
            first: header.min_offset,
            last: header.max_offset,
            replica: header.suggest_which_broker_id,
            body: body.unwrap_or_default(),
        })
    }

    /// Applies the policy for a position that the broker does not have. A broker also moves positions that it has, if
    /// an administrator has reset the group; that is followed.
    fn checked(mut self, key: &QueueKey, pull_offset: i64, policy: OutOfRange) -> Result<Self, ClientError> {
        if self.code != response::PULL_OFFSET_MOVED {
            self.next_offset = self.next_offset.max(pull_offset);
            return Ok(self);
        }
        if (self.first..=self.last).contains(&pull_offset) {
            return Ok(self);
        }
        match policy {
            OutOfRange::Nearest => {}
            OutOfRange::First => self.next_offset = self.first,
            OutOfRange::Last => self.next_offset = self.last,
            OutOfRange::Error => {
                return Err(ClientError::OutOfRange {
                    topic: key.topic.to_string(),
                    broker: key.broker.to_string(),
                    queue_id: key.queue_id,
                    offset: pull_offset,
                    held: (self.first, self.last),
                });
            }
        }
        Ok(self)
    }

    /// Checks a slave's answer like [`Self::checked`]. Only the master knows where a queue begins and ends: a slave may
    /// have only its newest part, and may lag behind.
    fn checked_of_slave(mut self, address: &str, pull_offset: i64) -> Result<Self, ClientError> {
        if self.code == response::PULL_OFFSET_MOVED {
            let remark =
                format!("the slave does not have offset {pull_offset}: it is requested from the master");
            return Err(ClientError::refused(WHAT, address, self.code, Some(remark)));
        }
        self.next_offset = if self.first > pull_offset {
            pull_offset
        } else {
            self.next_offset.max(pull_offset)
        };
        Ok(self)
    }

    /// Moves the queue to the offset that the broker names: an administrator has reset the group, or the messages are
    /// gone. The fetched messages no longer come next.
    fn move_to_offset(&self, queue: &mut ProcessQueue, generation: u64) {
        let (key, next_offset) = (&queue.key, self.next_offset);
        let pull_offset = queue.next_pull.unwrap_or(0);
        tracing::warn!(%key, pull_offset, next_offset, first = self.first, last = self.last, "offset moved");
        queue.restart(next_offset, generation);
        // The broker's position is another one now, too.
        queue.committed = -1;
    }

    /// Finds the records that `queue` wants.
    fn into_chunk(self, queue: &ProcessQueue, address: &str) -> Result<Chunk, ClientError> {
        let body = if self.body.len() < COPIED_BELOW {
            Bytes::copy_from_slice(&self.body)
        } else {
            self.body
        };
        inner_batch::unwrapped(body, queue.next_pull.unwrap_or(0))
            .and_then(|body| Chunk::new(queue.key.clone(), body, self.next_offset, &queue.subscription))
            .map_err(|source| ClientError::UnreadableAnswer {
                what: WHAT,
                address: address.to_owned(),
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{COPIED_BELOW, PullAnswer};
    use crate::consumer::process_queue::{ProcessQueue, QueueKey};
    use crate::session::membership::Subscription;
    use bytes::Bytes;
    use pyrmq_remoting::codes::response;
    use pyrmq_testkit::new_record;
    use std::sync::Arc;

    #[test]
    fn a_short_answer_does_not_keep_the_buffer_that_it_was_read_into() {
        let key = QueueKey {
            topic: "orders".into(),
            broker: "b".into(),
            queue_id: 0,
        };
        let subscription = Arc::new(Subscription::tags_of("*", 0));
        let queue = ProcessQueue::new(Arc::new(key), subscription, 1);
        let mut records = Vec::new();
        new_record("orders", 0, 0).encode(&mut records).unwrap();
        let one = records.len();
        let many = COPIED_BELOW.div_ceil(one);
        let mut buffer = records.repeat(many);
        buffer.resize(256 * 1024, 0);
        for (count, is_copied) in [(1, true), (many - 1, true), (many, false)] {
            let whole = Bytes::from(buffer.clone());
            let answer = PullAnswer {
                code: response::SUCCESS,
                next_offset: 1,
                first: 0,
                last: 1,
                replica: 0,
                body: whole.slice(..one * count),
            };
            let chunk = answer.into_chunk(&queue, "b:1").unwrap();
            assert_eq!((chunk.len(), whole.is_unique()), (count, is_copied));
        }
    }
}
