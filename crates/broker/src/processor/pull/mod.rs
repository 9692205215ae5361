//! Pulls: 11 and 361 (Apache `PullMessageProcessor`, `DefaultPullMessageResultHandler`).
//!
//! ```text
//! header in one pass -> group, topic, queue, filter (in this order) -> store -> found: the bytes as stored
//!                                                                           -> at the end of the queue: held
//! ```
//! A held pull is read again when messages arrive. If its filter matches none of them, it is held again, from the
//! offset after them, and its consumer never learns of them.
//!
//! A pull is answered on the connection's task while the data is in memory, otherwise by a thread of
//! `cold_read_pool.rs`. Every response from the store sets `nextBeginOffset`: without it, a client that has to pull
//! again would loop.

mod admission;
mod cold_read_pool;

pub(crate) use cold_read_pool::ColdReadPool;

use crate::admission::open_to_commits;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::long_polling::{self, Held, deadline_ms};
use admission::AdmittedPull;
use bytes::Bytes;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader, sys_flag};
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, Fields, clock};
use pyrmq_routing::route::MASTER_ID;
use pyrmq_store::{GetMessage, GetMessageResult, GetStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A pull more than this many messages before its queue's end may need the disk: they may have left the page cache.
pub(crate) const COLD_AFTER_MESSAGES: i64 = 4096;

/// Serves pulls.
#[derive(Debug)]
pub(crate) struct Pull {
    context: Arc<BrokerContext>,
    cold_reads: Arc<ColdReadPool>,
}

/// Which thread reads data for a pull that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOn {
    /// The calling thread, which waits for the disk. Where the system cannot say what is cached, the time that this
    /// took decides about the next pulls.
    Task,
    /// A thread of the pool.
    Pool,
}

/// Whether the pull was read before.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// The pull has not been read before.
    First,
    /// The pull was held, and resumes at an offset with a deadline.
    Resumed { from_offset: i64, deadline_ms: i64 },
}

impl Pass {
    /// The first offset that the pull wants.
    fn offset_of(self, header: &PullMessageRequestHeader<'_>) -> i64 {
        match self {
            Self::First => header.queue_offset,
            Self::Resumed { from_offset, .. } => from_offset,
        }
    }
}

/// A pull that passed all checks, and the store's result for it.
struct PullResult<'a> {
    header: PullMessageRequestHeader<'a>,
    admitted: AdmittedPull,
    got: GetMessageResult,
}

impl Processor for Pull {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        let read_on = if self.context.store.knows_cached() {
            ReadOn::Pool
        } else if self.cold_reads.is_needed(clock::now_ms()) && self.is_far_behind(&request) {
            return self.read_on_pool(request, reply);
        } else {
            ReadOn::Task
        };
        if let Some((request, reply)) = self.answer(request, reply, Pass::First, read_on) {
            self.read_on_pool(request, reply);
        }
    }
}

impl Pull {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        let cold_reads = Arc::default();
        Self { context, cold_reads }
    }

    /// Hands a pull to a thread of the pool.
    fn read_on_pool(&self, request: Command, reply: Reply) {
        let (context, cold_reads) = (Arc::downgrade(&self.context), self.cold_reads.clone());
        let job = move || {
            // A dropped broker answers no more.
            if let Some(context) = context.upgrade() {
                Self { context, cold_reads }.answer(request, reply, Pass::First, ReadOn::Task);
            }
        };
        if let Some(job) = self.cold_reads.submit(Box::new(job)) {
            job();
        }
    }

    /// Whether a pull is more than [`COLD_AFTER_MESSAGES`] behind its queue's end.
    fn is_far_behind(&self, request: &Command) -> bool {
        PullMessageRequestHeader::decode(&request.fields).is_ok_and(|header| {
            let end = self.context.store.max_offset(header.topic, header.queue_id);
            end.saturating_sub(header.queue_offset) > COLD_AFTER_MESSAGES
        })
    }

    /// Reads again for a held pull: it is answered, or held again until its deadline if no message matches.
    pub(crate) fn resume(&self, held: Held) {
        if let Some(refusal) = self.context.check_again(&held.request, held.reply.peer()) {
            held.reply.send(refusal);
            return;
        }
        let pass = Pass::Resumed {
            from_offset: held.from_offset,
            deadline_ms: held.deadline_ms,
        };
        self.answer(held.request, held.reply, pass, ReadOn::Task);
    }

    /// Answers or holds a pull. Returns it if it needs the disk and `read_on` leaves that to the pool.
    fn answer(
        &self,
        request: Command,
        reply: Reply,
        pass: Pass,
        read_on: ReadOn,
    ) -> Option<(Command, Reply)> {
        let found = match self.inspect(&request, &reply, pass, read_on) {
            Ok(Some(found)) => found,
            Ok(None) => return Some((request, reply)),
            Err(refusal) => {
                self.context.refuse(&request, reply, refusal);
                return None;
            }
        };
        let PullResult {
            header,
            admitted,
            got,
        } = found;
        let offset = pass.offset_of(&header);
        let code = code_of(got.status, offset);
        let hold = match pass {
            Pass::First => {
                self.commit(&header, &admitted);
                let may_wait = code == response::PULL_NOT_FOUND && header.sys_flag & sys_flag::SUSPEND != 0;
                may_wait.then(|| (offset, deadline_ms(long_polling::now_ms(), self.wait_ms(&header))))
            }
            Pass::Resumed { deadline_ms, .. } => {
                let may_wait =
                    got.status == GetStatus::NoMatchedMessage && long_polling::now_ms() < deadline_ms;
                may_wait.then_some((got.next_offset, deadline_ms))
            }
        };
        let Some((from_offset, deadline_ms)) = hold else {
            reply.send(self.respond(code, &header, &admitted, got));
            return None;
        };
        let (topic, queue_id) = (admitted.topic.clone(), header.queue_id);
        let held = Held {
            from_offset,
            filter: admitted.filter,
            deadline_ms,
            request,
            reply,
        };
        self.hold(&topic.topic_name, queue_id, held);
        None
    }

    /// Logs a pull if it waited long for its turn or for the disk. One that was held waited for messages.
    fn log_slow(&self, request: &Command, reply: &Reply, pass: Pass, (began, read): (Instant, Duration)) {
        let waited = match pass {
            Pass::First => reply.waited(began),
            Pass::Resumed { .. } => Duration::ZERO,
        };
        let from = reply.peer().remote();
        self.context.requests.served(request, from, (waited, read));
    }

    /// Stores the offset that a pull commits along with its request.
    fn commit(&self, header: &PullMessageRequestHeader<'_>, admitted: &AdmittedPull) {
        let commits = header.sys_flag & sys_flag::COMMIT_OFFSET != 0 && header.commit_offset >= 0;
        if commits && !admitted.reset && open_to_commits(header.consumer_group).is_ok() {
            let (group, topic) = (header.consumer_group, &admitted.topic);
            self.context
                .commit(group, topic, header.queue_id, header.commit_offset);
        }
    }

    fn wait_ms(&self, header: &PullMessageRequestHeader<'_>) -> i64 {
        if self.context.live.long_polling_enable() {
            header.suspend_timeout_millis
        } else {
            self.context.live.short_polling_time_mills()
        }
    }

    /// Holds a pull until messages arrive after its offset.
    fn hold(&self, topic: &str, queue_id: i32, held: Held) {
        let from_offset = held.from_offset;
        if let Err(held) = self.context.long_polling.insert(topic, queue_id, held) {
            if self.context.long_polling.is_closed() {
                let now = Held {
                    deadline_ms: i64::MIN,
                    ..*held
                };
                return self.resume(now);
            }
            let text = "too many pulls wait for messages, pullThreadPoolQueueCapacity is reached";
            let refusal = Refusal::new(response::SYSTEM_BUSY, text);
            let Held { request, reply, .. } = *held;
            self.context.refuse(&request, reply, refusal);
            return;
        }
        let end = self.context.store.max_offset(topic, queue_id);
        if end > from_offset {
            self.context.long_polling.caught_up(topic, queue_id, end);
        }
    }

    /// The result of the first pull after its group's offset was reset: the group goes on there. `None`: it was not.
    fn take_reset(&self, header: &PullMessageRequestHeader<'_>) -> Option<GetMessageResult> {
        let context = &self.context;
        if !context.options.use_server_side_reset_offset {
            return None;
        }
        let (group, topic, queue_id) = (header.consumer_group, header.topic, header.queue_id);
        let offset = context.offsets.take_reset(group, topic, queue_id)?;
        Some(GetMessageResult {
            status: GetStatus::OffsetOverflowBadly,
            next_offset: offset,
            min_offset: context.store.min_offset(topic, queue_id),
            max_offset: context.store.max_offset(topic, queue_id),
            body: Bytes::new(),
            count: 0,
            behind_bytes: 0,
        })
    }

    /// Checks a pull and reads from the store for it. `None` if that needs the disk and `read_on` leaves it
    /// to the pool.
    fn inspect<'a>(
        &self,
        request: &'a Command,
        reply: &Reply,
        pass: Pass,
        read_on: ReadOn,
    ) -> Result<Option<PullResult<'a>>, Refusal> {
        let header = PullMessageRequestHeader::decode(&request.fields)?;
        let mut admitted = self.admit(&header, request.code)?;
        if self.context.live.reject_pull_consumer_enable() {
            self.admit_puller(header.consumer_group, reply.peer())?;
        }
        if let Some(got) = self.take_reset(&header) {
            admitted.reset = true;
            return Ok(Some(PullResult {
                header,
                admitted,
                got,
            }));
        }
        let context = &self.context;
        // The client's limits; the store applies its own as well.
        let count = header.max_msg_nums.max(1);
        // Apache's clients send the largest number if they set no limit.
        let bytes = header.max_msg_bytes.filter(|bytes| (1..i32::MAX).contains(bytes));
        let usual_bytes = context.store.live().usual_transfer_bytes();
        let get = GetMessage {
            topic: header.topic,
            queue_id: header.queue_id,
            offset: pass.offset_of(&header),
            max_count: usize::try_from(count).unwrap_or(1),
            max_bytes: bytes.map_or(usual_bytes, |bytes| usize::try_from(bytes).unwrap_or(1)),
            tags: admitted.filter.for_store(),
        };
        let got = match read_on {
            ReadOn::Pool => context.store.get_cached(&get),
            ReadOn::Task => {
                let begin = Instant::now();
                let got = context.store.get(&get).map(Some);
                let took = begin.elapsed();
                self.cold_reads.record_duration(took, clock::now_ms());
                self.log_slow(request, reply, pass, (begin, took));
                got
            }
        };
        let got = got.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(got.map(|got| PullResult {
            header,
            admitted,
            got,
        }))
    }

    fn respond(
        &self,
        code: i32,
        header: &PullMessageRequestHeader<'_>,
        admitted: &AdmittedPull,
        got: GetMessageResult,
    ) -> Command {
        let mut response = Command::response(code);
        // Takes memory that this thread keeps, so that the header allocates nothing.
        response.fields = Fields::with_capacity(8, 192);
        let mut response = response.with_header(&PullMessageResponseHeader {
            suggest_which_broker_id: MASTER_ID,
            next_begin_offset: got.next_offset,
            min_offset: got.min_offset,
            max_offset: got.max_offset,
            offset_delta: None,
            topic_sys_flag: Some(admitted.topic.topic_sys_flag),
            group_sys_flag: Some(admitted.group.group_sys_flag),
            forbidden_type: None,
        });
        let stats = &self.context.stats;
        if code == response::SUCCESS {
            let (count, bytes) = (got.count as u64, got.body.len() as u64);
            stats.count_sent(count, bytes);
            let traffic = admitted.topic.traffic.group_or_new(header.consumer_group);
            traffic.count_get(header.queue_id, count, bytes, got.next_offset);
            response.body = Some(got.body);
        } else {
            stats.pull_missed.fetch_add(1, Ordering::Relaxed);
            if code == response::PULL_OFFSET_MOVED {
                // Apache's words: operators search for them. Messages may have expired unread.
                tracing::warn!(
                    topic = header.topic,
                    group = header.consumer_group,
                    queue_id = header.queue_id,
                    request_offset = header.queue_offset,
                    new_offset = got.next_offset,
                    "PULL_OFFSET_MOVED:correction offset"
                );
            }
            response.remark = Some(words_of(got.status).to_owned());
        }
        response
    }
}

/// The response code, as in Apache's `PullMessageProcessor.composeResponseHeader`.
fn code_of(status: GetStatus, offset: i64) -> i32 {
    match status {
        GetStatus::Found => response::SUCCESS,
        GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => response::PULL_RETRY_IMMEDIATELY,
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue if offset != 0 => {
            response::PULL_OFFSET_MOVED
        }
        GetStatus::NoMatchedLogicQueue
        | GetStatus::NoMessageInQueue
        | GetStatus::OffsetFoundNull
        | GetStatus::OffsetOverflowOne => response::PULL_NOT_FOUND,
        GetStatus::OffsetOverflowBadly | GetStatus::OffsetTooSmall => response::PULL_OFFSET_MOVED,
    }
}

/// The name of Apache's `GetMessageStatus`, which the remark contains.
fn words_of(status: GetStatus) -> &'static str {
    match status {
        GetStatus::Found => "FOUND",
        GetStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        GetStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        GetStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        GetStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        GetStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        GetStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        GetStatus::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
        GetStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}
