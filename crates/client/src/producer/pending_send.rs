//! One send from its queue choice to its outcome, through its retries (Apache `sendDefaultImpl`).
//!
//! ```text
//! route -> queue -> frame -> connection -> answer -> stored           -> done
//!   ^                                        |     -> refused for good -> done
//!   +-------- another attempt, in time <-----+     -> try elsewhere
//! ```
//! All attempts share one time budget. What certainly was not stored for a reason that passes (no connection, a busy
//! broker) is tried again until that budget is used up, after a pause when there is no other broker; what may have been
//! stored, or was refused, is tried `retries` times more. A send to a chosen queue never goes to another. Where a topic
//! has several brokers, an attempt gets its share of what is left, so that one silent broker cannot use up the time of
//! all (apache/rocketmq#8990). An attempt that left and was not answered makes the outcome unknown: a later success
//! says `may_be_duplicate`, a later failure `may_exist`.

use crate::error::{Attempt, ClientError, SendFailure};
use crate::producer::back_pressure::Permit;
use crate::producer::outgoing::{OutgoingMessage, Target};
use crate::producer::result::{SendCallback, SendResult, SendStatus};
use crate::producer::shared::Shared;
use crate::producer::trace::SentMessage;
use crate::session::routes::{RouteResult, TopicRoute};
use bytes::Bytes;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::send::{SendMessageRequestHeader, SendMessageResponseHeader};
use pyrmq_remoting::header::{Head, HeadWriter};
use pyrmq_remoting::message::{DURABILITY, Durability};
use pyrmq_remoting::net::{NetError, OutboundRequest, ResponseHandler, Retry};
use pyrmq_remoting::{Command, WireError, clock};
use pyrmq_routing::route::PublishedQueue;
use pyrmq_routing::select;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WHAT: &str = "a send";

/// Whether the sender waits for the disk, as every message says it and as one that asks for memory does.
const WAIT_TRUE: &str = "WAIT\u{1}true\u{2}";
const WAIT_FALSE: &str = "WAIT\u{1}false\u{2}";

/// What Apache's brokers say of a batch over their `maxMessageSize`, as an exception's text.
const SIZE_EXCEEDED: &str = "size exceeded";

/// Failed attempts that are told of: the first and the last ones.
const MAX_RECORDED_ATTEMPTS: usize = 8;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// With less time than this left no further attempt is made: it would hardly be answered, and make the outcome unknown.
const LEAST_LEFT: Duration = Duration::from_millis(20);

/// Of these, what says that the message was not stored, and passes by itself.
const TRANSIENT_CODES: [i32; 3] = [
    response::SYSTEM_BUSY,
    response::SERVICE_NOT_AVAILABLE,
    response::GO_AWAY,
];

/// Gets the outcome of an accumulated frame, and its permit back.
pub(crate) type BatchCallback = Box<dyn FnOnce(Result<SendResult, ClientError>, Permit) + Send>;

/// What gets the outcome.
pub(crate) enum Done {
    /// The caller of one send.
    Sender(SendCallback),
    /// The accumulator. It splits a batch of several that is refused for what is in it, so that is not its end.
    Accumulator(BatchCallback),
}

/// A send under way. Always boxed: it travels through callbacks.
pub(crate) struct PendingSend {
    shared: Arc<Shared>,
    outgoing: OutgoingMessage,
    permit: Permit,
    done: Done,
    started: Instant,
    timeout: Duration,
    attempts: u32,
    // Attempts that count against `retries`: all but those that certainly changed nothing.
    counted_attempts: u32,
    last: Option<ClientError>,
    may_exist: bool,
    // Of an earlier attempt: stored, but not flushed or replicated in time. It holds where no later attempt does
    // better.
    stored: Option<Box<SendResult>>,
    // Where the last attempt went, and by which route while it is written.
    queue: Option<PublishedQueue>,
    route: Option<Arc<TopicRoute>>,
    attempt_started: Instant,
    // Empty, without memory of its own, until an attempt fails.
    failed_attempts: Vec<Attempt>,
}

/// What an attempt came to.
enum Verdict {
    Stored(SendResult),
    /// Worth another attempt; true: the message may have been stored by this one.
    Retryable(ClientError, bool),
    /// The same for one that did store it, though not as safely as it was asked to.
    StoredBelowLevel(ClientError, SendResult),
    Refused(ClientError, bool),
}

impl OutboundRequest for PendingSend {
    fn address(&self) -> &str {
        self.queue.as_ref().map_or("", |queue| &queue.address)
    }

    fn write_head(&self, opaque: i32, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (Some(queue), Some(route)) = (&self.queue, &self.route) else {
            return Ok(());
        };
        let properties = self.shared.properties(&self.outgoing);
        let header = self.shared.header(&self.outgoing, &properties, queue);
        let start = Head {
            code: code_of(&self.outgoing),
            opaque,
            ..Head::default()
        };
        let shared = if let Some(shared) = route.shared_fields.get() {
            shared
        } else {
            let mut first = HeadWriter::new(out, start);
            header.write_shared(&mut first);
            let shared = first.into_fields()?;
            route.shared_fields.get_or_init(|| shared)
        };
        let mut head = HeadWriter::new(out, start);
        head.fields(shared);
        header.write_own(&mut head);
        if let Some(level) = self.shared.options.durability {
            head.text(DURABILITY, level.name());
        }
        head.finish(self.outgoing.body.len())
    }

    fn body(&self) -> &Bytes {
        &self.outgoing.body
    }

    fn on_queued(&mut self) {
        self.route = None;
    }
}

impl ResponseHandler for PendingSend {
    fn on_response(mut self: Box<Self>, outcome: Result<Command, NetError>) {
        // It has one from its first attempt on.
        if let Some(queue) = self.queue.take() {
            self.handle_response(queue, outcome);
        }
    }
}

impl PendingSend {
    /// A send whose time began at `started`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        outgoing: OutgoingMessage,
        permit: Permit,
        (started, timeout): (Instant, Duration),
        done: Done,
    ) -> Box<Self> {
        Box::new(Self {
            shared,
            outgoing,
            permit,
            done,
            started,
            timeout,
            attempts: 0,
            counted_attempts: 0,
            last: None,
            may_exist: false,
            stored: None,
            queue: None,
            route: None,
            attempt_started: started,
            failed_attempts: Vec::new(),
        })
    }

    fn can_be_split(&self) -> bool {
        matches!(self.done, Done::Accumulator(_)) && self.outgoing.items > 1
    }

    /// Goes out at once when the route is known, else as soon as it is.
    pub(crate) fn start(self: Box<Self>, now: Instant) {
        if let Some(route) = self.shared.routes.cached(&self.outgoing.topic) {
            return self.dispatch(Ok(route), now);
        }
        let (shared, topic) = (self.shared.clone(), self.outgoing.topic.clone());
        let by = self.started + self.timeout;
        shared
            .routes
            .with_route(&topic, by, move |known| self.dispatch(known, Instant::now()));
    }

    fn dispatch(mut self: Box<Self>, known: RouteResult, now: Instant) {
        self.attempt_started = now;
        let waited = self.attempt_started.saturating_duration_since(self.started);
        let left = self.timeout.saturating_sub(waited);
        let route = match known {
            Ok(route) => route,
            Err(error) => return self.fail(error, false),
        };
        if left.is_zero() {
            let late = ClientError::net(
                "waiting for its turn",
                "",
                NetError::Timeout {
                    address: "what is before it in its queue".to_owned(),
                    timeout: self.timeout,
                    sent: false,
                },
            );
            let last = self.last.take().unwrap_or(late);
            return self.fail(last, true);
        }
        let last = self.queue.as_ref().map(|queue| &*queue.broker);
        let queue = match self.shared.queue_for(&route, &self.outgoing, last, now) {
            Ok(queue) => queue,
            Err(error) => {
                self.shared.routes.suspect_missing(&self.outgoing.topic, &route);
                return self.fail(error, false);
            }
        };
        self.permit.dispatch(&queue.broker);
        self.attempts += 1;
        let wait = self.attempt_timeout(left, &route);
        self.shared.stats.frames.fetch_add(1, Ordering::Relaxed);
        if self.outgoing.items > 0 {
            self.shared.stats.batches.fetch_add(1, Ordering::Relaxed);
            let items = u64::from(self.outgoing.items);
            self.shared.stats.batched.fetch_add(items, Ordering::Relaxed);
        }
        (self.queue, self.route) = (Some(queue), Some(route));
        let client = self.shared.client.clone();
        client.send(self, (now, wait));
    }

    /// The time of this attempt: all that is left for the last one, or where there is no other broker to go to.
    fn attempt_timeout(&self, left: Duration, route: &TopicRoute) -> Duration {
        let after_this = self.max_attempts().saturating_sub(self.attempts);
        if route.has_several_brokers() && matches!(self.outgoing.target, Target::Any) {
            left / (after_this + 1)
        } else {
            left
        }
    }

    /// Messages that it counts for.
    fn items(&self) -> usize {
        self.outgoing.items.max(1) as usize
    }

    fn max_attempts(&self) -> u32 {
        self.shared.options.retries + 1
    }

    /// The queue was chosen by the caller: no other may be tried.
    fn is_bound(&self) -> bool {
        !matches!(self.outgoing.target, Target::Any)
    }

    fn handle_response(mut self: Box<Self>, queue: PublishedQueue, outcome: Result<Command, NetError>) {
        let whole = queue;
        let queue = &whole;
        let region = self.region(&outcome);
        let verdict = self.classify(queue, outcome);
        self.update_latency(queue, &verdict);
        match &verdict {
            Verdict::Stored(_) => {}
            Verdict::StoredBelowLevel(error, _) => self.record_attempt(queue, error, true),
            Verdict::Retryable(error, may_exist) | Verdict::Refused(error, may_exist) => {
                self.record_attempt(queue, error, *may_exist);
                if let Some(stored) = &mut self.stored {
                    stored.may_be_duplicate |= may_exist;
                }
            }
        }
        match verdict {
            Verdict::Stored(mut result) => {
                result.failed_attempts = std::mem::take(&mut self.failed_attempts);
                result.message_id = std::mem::take(&mut self.outgoing.message_id);
                if let Some(region) = region {
                    self.trace(queue, &result, &region);
                }
                self.finish(Ok(result));
            }
            Verdict::StoredBelowLevel(error, result) => {
                self.stored = Some(Box::new(result));
                self.queue = Some(whole);
                self.retry(error, true);
            }
            Verdict::Refused(error, may_exist) => {
                self.may_exist |= may_exist;
                self.queue = Some(whole);
                self.fail(error, false);
            }
            Verdict::Retryable(error, may_exist) => {
                self.queue = Some(whole);
                self.retry(error, may_exist);
            }
        }
    }

    /// Where the broker says it is, when this producer traces and the broker wants traces.
    fn region(&self, outcome: &Result<Command, NetError>) -> Option<String> {
        self.shared.traces.as_ref()?;
        let fields = &outcome.as_ref().ok()?.fields;
        let wanted = fields.get("TRACE_ON") != Some("false");
        fields.get("MSG_REGION").filter(|_| wanted).map(str::to_owned)
    }

    fn trace(&self, queue: &PublishedQueue, result: &SendResult, region: &str) {
        let took = self.started.elapsed();
        let Some(traces) = &self.shared.traces else { return };
        traces.note(&SentMessage {
            outgoing: &self.outgoing,
            result,
            region,
            names: &self.shared.options.client,
            address: &queue.address,
            began_ms: clock::now_ms() - i64::try_from(took.as_millis()).unwrap_or(0),
            took,
        });
    }

    /// Keeps what became of an attempt, for the error's or the result's text.
    fn record_attempt(&mut self, queue: &PublishedQueue, error: &ClientError, may_exist: bool) {
        if self.failed_attempts.len() == MAX_RECORDED_ATTEMPTS {
            self.failed_attempts.remove(1);
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.failed_attempts.push(Attempt {
            number: self.attempts,
            broker: queue.broker.clone(),
            queue_id: queue.queue_id,
            began_ms: millis(self.attempt_started.saturating_duration_since(self.started)),
            took_ms: millis(self.attempt_started.elapsed()),
            cause: error.to_string(),
            may_exist,
        });
    }

    /// Another attempt, if there is time and a reason to hope.
    fn retry(mut self: Box<Self>, error: ClientError, may_exist: bool) {
        self.may_exist |= may_exist;
        let transient = !may_exist
            && match &error {
                ClientError::Net { .. } => true,
                ClientError::Answer { code, .. } => TRANSIENT_CODES.contains(code),
                _ => false,
            };
        self.counted_attempts += u32::from(!transient);
        let left = self.timeout.saturating_sub(self.started.elapsed());
        let is_final = self.counted_attempts >= self.max_attempts() || self.shared.options.retries == 0 || (self.is_bound() && !transient)
            // A half that may be stored must not be stored again elsewhere: both could be committed.
            || (self.may_exist && self.outgoing.is_half());
        if left < LEAST_LEFT || is_final {
            return self.fail(error, left.is_zero() || !is_final);
        }
        tracing::debug!(topic = &*self.outgoing.topic, broker = self.queue.as_ref().map(|queue| &*queue.broker), %error, "send is tried again");
        self.last = Some(error);
        let has_no_other = self.is_bound() || self.has_one_broker();
        if !has_no_other {
            self.permit.on_response();
        }
        self.shared.stats.retries.fetch_add(1, Ordering::Relaxed);
        if !transient || !(has_no_other || self.attempts > 2) {
            return self.start(Instant::now());
        }
        let pause = MAX_PAUSE
            .min(FIRST_PAUSE * 2_u32.saturating_pow(self.attempts - 1))
            .min(left / 2)
            .min(left.saturating_sub(LEAST_LEFT));
        let tracker = self.shared.tracker.clone();
        tracker.spawn(async move {
            tokio::time::sleep(pause).await;
            self.start(Instant::now());
        });
    }

    fn has_one_broker(&self) -> bool {
        let route = self.shared.routes.cached(&self.outgoing.topic);
        route.is_none_or(|route| {
            let queues = &route.published.queues;
            queues.iter().all(|queue| {
                self.queue
                    .as_ref()
                    .is_some_and(|last| last.broker == queue.broker)
            })
        })
    }

    fn classify(&self, queue: &PublishedQueue, outcome: Result<Command, NetError>) -> Verdict {
        let answer = match outcome {
            Ok(answer) => answer,
            Err(source) => {
                let retry = source.retry();
                let error = ClientError::net(WHAT, queue.address.to_string(), source);
                return match retry {
                    Retry::Temporary => Verdict::Retryable(error, false),
                    Retry::UnknownOutcome => Verdict::Retryable(error, true),
                    Retry::Permanent => Verdict::Refused(error, false),
                };
            }
        };
        let Some(status) = SendStatus::from_code(answer.code) else {
            // A broker that says where the message lies has it in its log, whatever failed then (an fsync).
            let may_exist = answer.fields.get("queueOffset").is_some();
            let error = ClientError::answer(WHAT, &queue.address, answer.code, answer.remark);
            let is_worth_it = !(self.can_be_split() && is_illegal(&error));
            return if is_worth_it && self.shared.options.retry_codes.contains(&answer.code) {
                Verdict::Retryable(error, may_exist)
            } else {
                Verdict::Refused(error, may_exist)
            };
        };
        match self.result(queue, status, &answer) {
            // What is bound to its queue, and a half, must not be stored a second time.
            Ok(result)
                if status != SendStatus::Ok
                    && self.shared.options.retry_not_stored_ok
                    && !(self.is_bound() || self.outgoing.is_half())
                    && self.attempts < self.max_attempts()
                    && self.started.elapsed() < self.timeout =>
            {
                let error = ClientError::answer(WHAT, &queue.address, answer.code, answer.remark);
                Verdict::StoredBelowLevel(error, result)
            }
            Ok(result) => Verdict::Stored(result),
            Err(error) => Verdict::Refused(error, true),
        }
    }

    fn result(
        &self,
        queue: &PublishedQueue,
        status: SendStatus,
        answer: &Command,
    ) -> Result<SendResult, ClientError> {
        let header =
            SendMessageResponseHeader::decode(&answer.fields).map_err(|source| ClientError::Answered {
                what: WHAT,
                address: queue.address.to_string(),
                source,
            })?;
        Ok(SendResult {
            status,
            topic: self.shared.options.client.unwrap_name(&self.outgoing.topic),
            broker: queue.broker.clone(),
            queue_id: header.queue_id,
            queue_offset: header.queue_offset,
            // Moved here when the send ends.
            message_id: String::new(),
            offset_message_id: header.msg_id.to_owned(),
            transaction_id: header.transaction_id.map(str::to_owned),
            recall_handle: header.recall_handle.map(str::to_owned),
            attempts: self.attempts,
            durability: self
                .shared
                .options
                .durability
                .and_then(|_| Durability::of_name(answer.fields.get(DURABILITY)?)),
            may_be_duplicate: self.may_exist,
            failed_attempts: Vec::new(),
        })
    }

    /// Tells the fault table and the routes what this attempt shows.
    fn update_latency(&self, queue: &PublishedQueue, verdict: &Verdict) {
        let (isolate, stale) = match verdict {
            Verdict::Stored(_) | Verdict::StoredBelowLevel(..) => (false, false),
            Verdict::Retryable(error, _) | Verdict::Refused(error, _) => match error {
                // A full queue of our own says nothing of the broker.
                ClientError::Net { source, .. } if matches!(**source, NetError::Busy { .. }) => {
                    (false, false)
                }
                ClientError::Net { .. } => (true, true),
                ClientError::Answer { code, .. } => {
                    let moved = matches!(
                        *code,
                        response::TOPIC_NOT_EXIST | response::NO_PERMISSION | response::SERVICE_NOT_AVAILABLE
                    );
                    let is_weak = self.shared.options.retry_codes.contains(code) && !is_illegal(error);
                    (is_weak, moved)
                }
                _ => (false, false),
            },
        };
        if let Verdict::Retryable(ClientError::Answer { code, .. }, _) = verdict
            && *code == response::SYSTEM_BUSY
        {
            self.shared
                .back_pressure
                .shrink_window(&queue.broker, Instant::now());
        }
        if isolate && stale {
            self.shared.back_pressure.reset_allowance(&queue.broker);
        }
        if self.shared.options.latency_fault {
            let now = Instant::now();
            let latency = now.saturating_duration_since(self.attempt_started);
            self.shared.observe(&queue.broker, latency, isolate, now);
        }
        if stale {
            self.shared.routes.mark_stale(&self.outgoing.topic);
        }
    }

    /// Ends without a better result, and says all that is known.
    pub(crate) fn fail(mut self: Box<Self>, last: ClientError, in_time: bool) {
        if let Some(mut stored) = self.stored.take() {
            stored.failed_attempts = std::mem::take(&mut self.failed_attempts);
            stored.message_id = std::mem::take(&mut self.outgoing.message_id);
            stored.attempts = self.attempts;
            return self.finish(Ok(*stored));
        }
        let queue = self.queue.take();
        let failure = SendFailure {
            topic: self.shared.options.client.unwrap_name(&self.outgoing.topic),
            message_ids: std::mem::take(&mut self.outgoing.message_id),
            items: self.outgoing.items,
            broker: queue.as_ref().map(|queue| queue.broker.clone()),
            queue_id: queue.as_ref().map(|queue| queue.queue_id),
            attempts: self.attempts,
            elapsed_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            may_exist: self.may_exist,
            in_time,
            failed_attempts: std::mem::take(&mut self.failed_attempts),
            last,
        };
        self.finish(Err(ClientError::NotConfirmed {
            failure: Arc::new(failure),
            item: None,
        }));
    }

    fn finish(self: Box<Self>, outcome: Result<SendResult, ClientError>) {
        let is_split = self.can_be_split() && outcome.as_ref().is_err_and(is_illegal);
        if !is_split {
            self.count(&outcome);
        }
        let Self { permit, done, .. } = *self;
        match done {
            Done::Sender(done) => {
                drop(permit);
                done(outcome);
            }
            Done::Accumulator(done) => done(outcome, permit),
        }
    }

    fn count(&self, outcome: &Result<SendResult, ClientError>) {
        let messages = self.items();
        if let Ok(result) = outcome {
            self.shared.back_pressure.confirm(&result.broker, messages);
        }
        let counter = match outcome {
            Ok(_) => &self.shared.stats.confirmed,
            Err(_) => &self.shared.stats.failed,
        };
        counter.fetch_add(messages as u64, Ordering::Relaxed);
    }
}

/// Which request a message is sent by.
fn code_of(outgoing: &OutgoingMessage) -> i32 {
    if outgoing.reply {
        request::SEND_REPLY_MESSAGE_V2
    } else if outgoing.items > 0 {
        request::SEND_BATCH_MESSAGE
    } else {
        request::SEND_MESSAGE_V2
    }
}

/// A broker has refused a frame for what is in it, and it is stored nowhere: of a batch a part may still be stored.
pub(crate) fn is_illegal(error: &ClientError) -> bool {
    match error {
        ClientError::Answer { code, remark, .. } => {
            *code == response::MESSAGE_ILLEGAL
                || (*code == response::SYSTEM_ERROR && remark.contains(SIZE_EXCEEDED))
        }
        ClientError::NotConfirmed { failure, .. } => {
            !failure.may_exist && !failure.in_time && is_illegal(&failure.last)
        }
        _ => false,
    }
}

/// Where a broker takes sends apart from pulls (Apache `MixAll.brokerVIPChannel`).
fn fast_port(address: &Arc<str>) -> Arc<str> {
    let fast = address.rsplit_once(':').and_then(|(host, port)| {
        let port = port.parse::<u16>().ok()?.checked_sub(2)?;
        Some(format!("{host}:{port}").into())
    });
    fast.unwrap_or_else(|| address.clone())
}

impl Shared {
    /// The queue that a message goes to.
    pub(crate) fn queue_for(
        &self,
        route: &TopicRoute,
        outgoing: &OutgoingMessage,
        last_broker: Option<&str>,
        now: Instant,
    ) -> Result<PublishedQueue, ClientError> {
        let chosen = self.choose(route, outgoing, last_broker, now)?;
        let mut queue = self.spread(route, outgoing, (chosen, last_broker), now).clone();
        if self.options.vip_channel {
            queue.address = fast_port(&queue.address);
        }
        Ok(queue)
    }

    /// The properties as they travel.
    fn properties<'a>(&self, outgoing: &'a OutgoingMessage) -> Cow<'a, str> {
        match self.options.durability {
            Some(Durability::Memory) => Cow::Owned(outgoing.properties.replacen(WAIT_TRUE, WAIT_FALSE, 1)),
            _ => Cow::Borrowed(&outgoing.properties),
        }
    }

    fn header<'a>(
        &'a self,
        outgoing: &'a OutgoingMessage,
        properties: &'a str,
        queue: &'a PublishedQueue,
    ) -> SendMessageRequestHeader<'a> {
        SendMessageRequestHeader {
            producer_group: &self.options.client.group,
            topic: &outgoing.topic,
            default_topic: &self.options.create_topic_key,
            default_topic_queue_nums: self.options.default_queues,
            queue_id: queue.queue_id,
            sys_flag: outgoing.sys_flag,
            born_timestamp: clock::now_ms(),
            flag: outgoing.flag,
            properties: Some(properties),
            reconsume_times: Some(0),
            unit_mode: self.options.unit_mode,
            max_reconsume_times: None,
            batch: outgoing.items > 0,
            broker_name: Some(&queue.broker),
        }
    }

    /// The frame's head, but for the number, and its body, as one command.
    pub(crate) fn command(&self, outgoing: &OutgoingMessage, queue: &PublishedQueue) -> Command {
        let properties = self.properties(outgoing);
        let header = self.header(outgoing, &properties, queue);
        let mut command = Command::request(code_of(outgoing)).with_header(&header);
        if let Some(level) = self.options.durability {
            command.fields.push(DURABILITY, level.name());
        }
        command.body = Some(outgoing.body.clone());
        command
    }

    fn choose<'a>(
        &self,
        route: &'a TopicRoute,
        outgoing: &OutgoingMessage,
        last_broker: Option<&str>,
        now: Instant,
    ) -> Result<&'a PublishedQueue, ClientError> {
        let queues = &route.published.queues;
        let chosen = match &outgoing.target {
            Target::Any if self.options.latency_fault => {
                let now_ms = self.clock_ms(now);
                route
                    .selector
                    .select_healthy(queues, &route.healths, last_broker, now_ms)
            }
            Target::Any => route.selector.select(queues, last_broker),
            Target::Hash(hash) => {
                select::by_number(i64::from(*hash), queues.len()).and_then(|at| queues.get(at))
            }
            Target::Queue { broker, id } => queues
                .iter()
                .find(|queue| queue.queue_id == *id && (broker.is_empty() || queue.broker == *broker)),
        };
        chosen.ok_or_else(|| route.no_queue(&outgoing.topic))
    }

    /// The chosen queue, or one of another broker where the chosen one's has too much of what is on its way.
    fn spread<'a>(
        &self,
        route: &'a TopicRoute,
        outgoing: &OutgoingMessage,
        (chosen, last_broker): (&'a PublishedQueue, Option<&str>),
        now: Instant,
    ) -> &'a PublishedQueue {
        if !matches!(outgoing.target, Target::Any) || !route.has_several_brokers() {
            return chosen;
        }
        let queues = &route.published.queues;
        let brokers = queues.iter().map(|queue| &queue.broker);
        let Some(least) = self.back_pressure.instead_of(&chosen.broker, brokers) else {
            return chosen;
        };
        let again = || self.choose(route, outgoing, last_broker, now).ok();
        let mut others = std::iter::repeat_with(again).take(queues.len()).flatten();
        others.find(|queue| queue.broker == *least).unwrap_or(chosen)
    }

    /// Notes in the fault table how an attempt went. A broker that failed waits for the detector, where there is one.
    fn observe(&self, broker: &str, latency: Duration, isolate: bool, now: Instant) {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let reachable = !(isolate && self.options.detect);
        self.faults
            .update(broker, latency_ms, isolate, reachable, self.clock_ms(now));
    }

    /// A clock that only goes forward, for the fault table.
    pub(crate) fn clock_ms(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.born).as_millis()).unwrap_or(i64::MAX)
    }
}
