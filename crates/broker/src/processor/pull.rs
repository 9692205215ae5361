//! Pulls: 11 and 361 (Apache `PullMessageProcessor`, `DefaultPullMessageResultHandler`).
//!
//! ```text
//! header in one pass -> group, topic, queue, filter (in this order) -> store -> found: the bytes as stored
//!                                                                           -> at the end of the queue: held, once
//! ```
//! Answered on the connection's task as long as memory has the data; what needs the disk by threads of their own
//! (`cold_read_pool.rs`). `nextBeginOffset` is set in every answer of the store: a client that is told to pull again
//! would loop without it.

use crate::admission;
use crate::context::State;
use crate::error::Refusal;
use crate::long_polling::Held;
use crate::processor::cold_read_pool::ColdReadPool;
use crate::tables::subscription::{Subscription, Tags};
use bytes::Bytes;
use pyrmq_remoting::body::TopicConfig;
use pyrmq_remoting::body::{ConsumeType, SubscriptionGroupConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::PullMessageRequestHeader;
use pyrmq_remoting::names::SYSTEM_GROUP_PREFIX;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, Fields, clock};
use pyrmq_store::{Get, GetStatus, Got, TagFilter};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// sysFlag bits of a pull (Apache `PullSysFlag`).
const COMMITS: i32 = 0x1;
const MAY_WAIT: i32 = 0x2;
const HAS_SUBSCRIPTION: i32 = 0x4;

/// What kind of closed door a refusal means (Apache `ForbiddenType`).
const FORBIDDEN_BROKER: &str = "1";
const FORBIDDEN_GROUP: &str = "2";
const FORBIDDEN_TOPIC: &str = "3";
const FORBIDDEN_BROADCASTING: &str = "4";
const FORBIDDEN_SUBSCRIPTION: &str = "5";

/// Groups of RocketMQ's own tools that may always pull (Apache `MixAll.isSysConsumerGroupPullMessage`).
const TOOL_GROUPS: [&str; 11] = [
    "DEFAULT_CONSUMER",
    "TOOLS_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
    "CID_SYS_RMQ_TRANS",
];

/// A pull this many messages or more from its queue's end may need the disk.
const OLD: i64 = 4096;

/// Answers pulls.
#[derive(Debug)]
pub(crate) struct Pull {
    state: Arc<State>,
    cold_reads: Arc<ColdReadPool>,
}

/// What is done about a read from the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// This thread waits for it. How long that takes decides about the next pulls where the system cannot say what is
    /// in memory.
    OnTask,
    /// It is left to the pool.
    OnPool,
}

/// A pull that passed every check, and what the store has for it.
type Inspected<'a> = (PullMessageRequestHeader<'a>, Admitted, Got);

/// A pull that passed every check.
struct Admitted {
    topic: Arc<TopicConfig>,
    group: Arc<SubscriptionGroupConfig>,
    tags: Tags,
    /// The answer is a reset of the group's offset: what it commits beside is older.
    reset: bool,
}

impl Processor for Pull {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        let disk = if self.state.store.knows_cached() {
            Disk::OnPool
        } else if self.cold_reads.is_needed(clock::now_ms()) && self.is_old(&request) {
            return self.read_on_pool(request, reply);
        } else {
            Disk::OnTask
        };
        if let Some((request, reply)) = self.answer(request, reply, true, disk) {
            self.read_on_pool(request, reply);
        }
    }
}

impl Pull {
    pub(crate) fn new(state: Arc<State>) -> Self {
        let cold_reads = Arc::default();
        Self { state, cold_reads }
    }

    /// Has a thread of the pool answer.
    fn read_on_pool(&self, request: Command, reply: Reply) {
        let answerer = || {
            let (state, cold_reads) = (Arc::downgrade(&self.state), self.cold_reads.clone());
            move |(request, reply)| {
                // A broker that is gone answers nobody.
                if let Some(state) = state.upgrade() {
                    let cold_reads = cold_reads.clone();
                    Self { state, cold_reads }.answer(request, reply, true, Disk::OnTask);
                }
            }
        };
        if let Some((request, reply)) = self.cold_reads.submit((request, reply), answerer) {
            self.answer(request, reply, true, Disk::OnTask);
        }
    }

    /// Whether a pull's messages may have left the page cache.
    fn is_old(&self, request: &Command) -> bool {
        PullMessageRequestHeader::decode(&request.fields).is_ok_and(|ask| is_far_behind(&self.state, &ask))
    }

    /// The second pass of a pull that waited: it always answers.
    pub(crate) fn resume(&self, held: Held) {
        self.answer(held.request, held.reply, false, Disk::OnTask);
    }

    /// Answers or holds a pull. Given back when it needs the disk and that is for others.
    fn answer(&self, request: Command, reply: Reply, may_hold: bool, disk: Disk) -> Option<(Command, Reply)> {
        let (ask, admitted, got) = match self.inspect(&request, reply.peer(), disk) {
            Ok(Some(found)) => found,
            Ok(None) => return Some((request, reply)),
            Err(refusal) => {
                reply.send(refusal.into_response());
                return None;
            }
        };
        let commits = ask.sys_flag & COMMITS != 0 && ask.commit_offset >= 0;
        if may_hold && commits && !admitted.reset && admission::open_to_commits(ask.consumer_group).is_ok() {
            self.state
                .offsets
                .commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset);
        }
        let code = code_of(got.status, ask.queue_offset);
        if code != response::PULL_NOT_FOUND || !may_hold || ask.sys_flag & MAY_WAIT == 0 {
            reply.send(self.respond(code, &admitted, got));
            return None;
        }
        let wait_ms = if self.state.live.long_polling_enable() {
            ask.suspend_timeout_millis
        } else {
            self.state.live.short_polling_time_mills()
        };
        let (queue_id, from_offset) = (ask.queue_id, ask.queue_offset);
        let held = Held {
            request,
            reply,
            from_offset,
            tags: admitted.tags,
            deadline_ms: clock::now_ms().saturating_add(wait_ms),
        };
        let topic = &admitted.topic.topic_name;
        if let Err(held) = self.state.long_polling.insert(topic, queue_id, held) {
            if self.state.long_polling.is_closed() {
                self.resume(*held);
                return None;
            }
            held.reply.send(Command::error(
                response::SYSTEM_BUSY,
                "too many pulls wait for messages, pullThreadPoolQueueCapacity is reached",
            ));
            return None;
        }
        let end = self.state.store.max_offset(topic, queue_id);
        if end > from_offset {
            self.state.long_polling.caught_up(topic, queue_id, end);
        }
        None
    }

    /// What a pull is answered with; `None` when it needs the disk and that is for others.
    fn inspect<'a>(
        &self,
        request: &'a Command,
        peer: &Peer,
        disk: Disk,
    ) -> Result<Option<Inspected<'a>>, Refusal> {
        let ask = PullMessageRequestHeader::decode(&request.fields)?;
        let mut admitted = self.admit(&ask, request.code)?;
        if self.state.live.reject_pull_consumer_enable() {
            self.admit_puller(ask.consumer_group, peer)?;
        }
        let state = &self.state;
        if state.options.use_server_side_reset_offset
            && let Some(offset) = state
                .offsets
                .take_reset(ask.consumer_group, ask.topic, ask.queue_id)
        {
            admitted.reset = true;
            let got = Got {
                status: GetStatus::OffsetOverflowBadly,
                next_offset: offset,
                min_offset: state.store.min_offset(ask.topic, ask.queue_id),
                max_offset: state.store.max_offset(ask.topic, ask.queue_id),
                body: Bytes::new(),
                count: 0,
                behind_bytes: 0,
            };
            return Ok(Some((ask, admitted, got)));
        }
        // The store has its own caps; these are the client's wishes.
        let count = ask.max_msg_nums.max(1);
        // Apache's clients say the largest number when they mean nothing.
        let bytes = ask.max_msg_bytes.filter(|bytes| (1..i32::MAX).contains(bytes));
        let usual_bytes = state.store.live().usual_transfer_bytes();
        let get = Get {
            topic: ask.topic,
            queue_id: ask.queue_id,
            offset: ask.queue_offset,
            max_count: usize::try_from(count).unwrap_or(1),
            max_bytes: bytes.map_or(usual_bytes, |bytes| usize::try_from(bytes).unwrap_or(1)),
            tags: match &admitted.tags {
                Tags::All => TagFilter::All,
                Tags::Codes(codes) => TagFilter::Codes(codes),
            },
        };
        let got = match disk {
            Disk::OnPool => state.store.get_cached(&get),
            Disk::OnTask => {
                let begin = Instant::now();
                let got = state.store.get(&get).map(Some);
                self.cold_reads.note(begin.elapsed(), clock::now_ms());
                got
            }
        };
        let got = got.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(got.map(|got| (ask, admitted, got)))
    }

    /// The checks in Apache's order: clients act on the first that fails.
    fn admit(&self, ask: &PullMessageRequestHeader<'_>, code: i32) -> Result<Admitted, Refusal> {
        let state = &self.state;
        let options = &state.options;
        if !admission::is_readable(state.live.broker_permission()) {
            return Err(forbidden(
                FORBIDDEN_BROKER,
                format!("the broker {} may not be read", options.broker_name),
            ));
        }
        if code == request::LITE_PULL_MESSAGE && !state.live.lite_pull_message_enable() {
            return Err(forbidden(
                FORBIDDEN_BROKER,
                "lite pull consumers are refused: litePullMessageEnable".to_owned(),
            ));
        }
        let group = state.group(ask.consumer_group)?;
        if !group.consume_enable {
            return Err(forbidden(
                FORBIDDEN_GROUP,
                format!("the group may not consume: {}", ask.consumer_group),
            ));
        }
        let Some(topic) = state.topics.get(ask.topic) else {
            return Err(Refusal::no_topic(ask.topic));
        };
        if !admission::is_readable(topic.perm) {
            return Err(forbidden(
                FORBIDDEN_TOPIC,
                format!("the topic may not be read: {}", ask.topic),
            ));
        }
        if ask.queue_id < 0 || ask.queue_id >= topic.read_queue_nums {
            return Err(Refusal::new(
                response::INVALID_PARAMETER,
                format!(
                    "queueId {} is out of range, the topic {} has {} read queues",
                    ask.queue_id, ask.topic, topic.read_queue_nums
                ),
            ));
        }
        let tags = self.filter(ask, &group)?;
        Ok(Admitted {
            topic,
            group,
            tags,
            reset: false,
        })
    }

    /// With `rejectPullConsumerEnable`, refuses a pull by a client that is no member of a group of push consumers. Such
    /// a broker passes over the heartbeats of pull consumers, so their groups have no members. RocketMQ's own tools may
    /// pull.
    fn admit_puller(&self, group: &str, peer: &Peer) -> Result<(), Refusal> {
        let is_pushed_to = self.state.clients.consumers(group, |consumers| {
            consumers.consume_mode.consume_type != ConsumeType::Actively
                || consumers.members.contains_key(&peer.id())
        });
        if is_pushed_to == Some(true)
            || TOOL_GROUPS.contains(&group)
            || group.starts_with(SYSTEM_GROUP_PREFIX)
        {
            return Ok(());
        }
        Err(Refusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist, or the pull consumer is rejected by server: rejectPullConsumerEnable",
        ))
    }

    fn filter(
        &self,
        ask: &PullMessageRequestHeader<'_>,
        group: &SubscriptionGroupConfig,
    ) -> Result<Tags, Refusal> {
        if ask.sys_flag & HAS_SUBSCRIPTION != 0 {
            let is_tag = ask
                .expression_type
                .is_none_or(|kind| kind.is_empty() || kind == "TAG");
            if is_tag && matches!(ask.subscription, None | Some("" | "*")) {
                return Ok(Tags::All);
            }
            let parsed =
                Subscription::parse(ask.topic, ask.subscription, ask.expression_type, ask.sub_version);
            let subscription = parsed.ok_or_else(|| {
                Refusal::new(
                    response::SUBSCRIPTION_PARSE_FAILED,
                    "the subscription names no tag",
                )
            })?;
            return tags_of(&subscription);
        }
        let known = self.state.clients.consumers(ask.consumer_group, |consumers| {
            (
                consumers.consume_mode.is_broadcasting(),
                consumers.subscriptions.get(ask.topic).cloned(),
            )
        });
        let Some((broadcasting, subscription)) = known else {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_EXIST,
                format!("nobody of the group {} is connected", ask.consumer_group),
            ));
        };
        if broadcasting && !group.consume_broadcast_enable {
            return Err(forbidden(
                FORBIDDEN_BROADCASTING,
                format!(
                    "the group may not consume by broadcasting: {}",
                    ask.consumer_group
                ),
            ));
        }
        if self.state.groups.is_forbidden(ask.consumer_group, ask.topic) {
            return Err(forbidden(
                FORBIDDEN_SUBSCRIPTION,
                format!(
                    "the consumer group[{}] is forbidden for topic[{}]",
                    ask.consumer_group, ask.topic
                ),
            ));
        }
        let Some(subscription) = subscription else {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_EXIST,
                format!(
                    "the group {} does not subscribe to {}",
                    ask.consumer_group, ask.topic
                ),
            ));
        };
        if subscription.version < ask.sub_version {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_LATEST,
                "the broker does not know the newest subscription yet",
            ));
        }
        tags_of(&subscription)
    }

    fn respond(&self, code: i32, admitted: &Admitted, got: Got) -> Command {
        let mut response = Command::response(code);
        let fields = &mut response.fields;
        *fields = Fields::with_capacity(6, 160);
        fields.push("suggestWhichBrokerId", "0");
        for (key, value) in [
            ("nextBeginOffset", got.next_offset),
            ("minOffset", got.min_offset),
            ("maxOffset", got.max_offset),
            ("topicSysFlag", i64::from(admitted.topic.topic_sys_flag)),
            ("groupSysFlag", i64::from(admitted.group.group_sys_flag)),
        ] {
            // Writing into a String cannot fail.
            fields.push_with(key, |out| write!(out, "{value}").unwrap_or_default());
        }
        let stats = &self.state.stats;
        if code == response::SUCCESS {
            stats.count_sent(got.count as u64, got.body.len() as u64);
            response.body = Some(got.body);
        } else {
            stats.pull_missed.fetch_add(1, Ordering::Relaxed);
            response.remark = Some(words_of(got.status).to_owned());
        }
        response
    }
}

fn is_far_behind(state: &State, ask: &PullMessageRequestHeader<'_>) -> bool {
    let end = state.store.max_offset(ask.topic, ask.queue_id);
    end.saturating_sub(ask.queue_offset) > OLD
}

fn tags_of(subscription: &Subscription) -> Result<Tags, Refusal> {
    if subscription.is_tag() {
        return Ok(subscription.filter.clone());
    }
    Err(Refusal::new(
        response::SYSTEM_ERROR,
        format!(
            "the broker does not filter by {}, only by TAG; enablePropertyFilter is off",
            subscription.expression_type
        ),
    ))
}

fn forbidden(kind: &'static str, remark: String) -> Refusal {
    Refusal {
        forbidden_type: Some(kind),
        ..Refusal::new(response::NO_PERMISSION, remark)
    }
}

/// Apache `PullMessageProcessor.composeResponseHeader`.
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

/// Apache `GetMessageStatus` names, which stand in the remark.
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
