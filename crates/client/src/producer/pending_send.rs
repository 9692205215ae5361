//! One send from its queue choice to its outcome, through its retries (Apache `sendDefaultImpl`).
//!
//! ```text
//! route -> queue -> frame -> connection -> answer -> stored           -> done
//!   ^                                        |     -> refused for good -> done
//!   +-------- another attempt, in time <-----+     -> try elsewhere
//! ``` All attempts share one time budget. A message that was certainly not stored, for a temporary reason (no
//! connection, a busy broker), is tried again until that budget is used up, after a pause if there is no other broker.
//! One that may have been stored, or was refused, is tried `retries` more times. A send to a chosen queue never goes to
//! another. Where a topic has several brokers, an attempt gets its share of what is left, so that one silent broker
//! cannot use up the time of all (apache/rocketmq#8990). An attempt that left and was not answered makes the outcome
//! unknown: a later success says `may_be_duplicate`, a later failure `may_exist`.

use crate::error::{Attempt, ClientError, SendFailure};
use crate::producer::back_pressure::Permit;
use crate::producer::outgoing::{OutgoingMessage, Target};
use crate::producer::result::{SendCallback, SendOutcome, SendResult};
use crate::producer::shared::ProducerShared;
use crate::producer::trace::SentMessage;
use crate::producer::verdict::{Verdict, is_illegal, is_missing_queue};
use crate::session::routes::{RouteResult, TopicRoute};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::net::{NetError, call_after};
use pyrmq_remoting::sync::Completion;
use pyrmq_remoting::{Command, clock};
use pyrmq_routing::route::PublishedQueue;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Failed attempts that an error lists: the first and the last ones.
const MAX_RECORDED_ATTEMPTS: usize = 8;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// With less time left than this, no further attempt is made: it would hardly be answered, and would make the outcome
/// unknown.
const MIN_TIME_LEFT: Duration = Duration::from_millis(20);

/// Codes of temporary refusals, after which the message is certainly not stored.
const TRANSIENT_CODES: [i32; 3] = [
    response::SYSTEM_BUSY,
    response::SERVICE_NOT_AVAILABLE,
    response::GO_AWAY,
];

/// Gets the outcome of an accumulated frame, and its permit back.
pub(crate) type BatchCallback = Box<dyn Completion<(SendOutcome, Permit)>>;

/// Where the outcome goes.
pub(crate) enum Done {
    /// The caller of one send.
    Sender(SendCallback),
    /// The accumulator. It splits a batch that is refused for its content, so that refusal is not the end.
    Accumulator(BatchCallback),
}

/// A send under way. Always boxed: it travels through callbacks.
pub(crate) struct PendingSend {
    pub(super) shared: Arc<ProducerShared>,
    pub(super) outgoing: OutgoingMessage,
    permit: Permit,
    done: Done,
    pub(super) started: Instant,
    pub(super) timeout: Duration,
    pub(super) attempts: u32,
    // Attempts that count against `retries`: all but those that certainly changed nothing.
    counted_attempts: u32,
    last: Option<ClientError>,
    pub(super) may_exist: bool,
    // The result of an earlier attempt that was stored, but not flushed or replicated in time. It is the outcome if no
    // later attempt does better.
    stored: Option<Box<SendResult>>,
    // Where the last attempt went, and by which route while it is written.
    pub(super) queue: Option<PublishedQueue>,
    pub(super) route: Option<Arc<TopicRoute>>,
    pub(super) attempt_started: Instant,
    // Empty, without memory of its own, until an attempt fails.
    failed_attempts: Vec<Attempt>,
}

impl Completion<Result<Command, NetError>> for PendingSend {
    fn complete(mut self: Box<Self>, outcome: Result<Command, NetError>) {
        if let Some(hook) = self.shared.client.hook() {
            let took = self.attempt_started.elapsed();
            call_after(&**hook, self.outgoing.request_code(), &outcome, took);
        }
        // It is set from the first attempt on.
        if let Some(queue) = self.queue.take() {
            self.handle_response(queue, outcome);
        }
    }
}

impl PendingSend {
    /// A send whose timeout runs from `started`.
    pub(crate) fn new(
        shared: Arc<ProducerShared>,
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

    pub(super) fn can_be_split(&self) -> bool {
        matches!(self.done, Done::Accumulator(_)) && self.outgoing.messages() > 1
    }

    /// Sends at once if the route is known, otherwise as soon as it is.
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
            let timeout = self.timeout;
            let last = self.last.take().unwrap_or(ClientError::NotBegun { timeout });
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
        if self.outgoing.is_batch() {
            self.shared.stats.batches.fetch_add(1, Ordering::Relaxed);
            let messages = u64::from(self.outgoing.messages());
            self.shared.stats.batched.fetch_add(messages, Ordering::Relaxed);
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

    pub(super) fn max_attempts(&self) -> u32 {
        self.shared.options.retries + 1
    }

    /// The queue was chosen by the caller: no other may be tried.
    pub(super) fn is_bound(&self) -> bool {
        !matches!(self.outgoing.target, Target::Any)
    }

    fn handle_response(mut self: Box<Self>, sent_to: PublishedQueue, outcome: Result<Command, NetError>) {
        let region = self.region(&outcome);
        let verdict = self.classify(&sent_to, outcome);
        self.update_latency(&sent_to, &verdict);
        match &verdict {
            Verdict::Stored(_) => {}
            Verdict::StoredBelowLevel(error, _) => self.record_attempt(&sent_to, error, true),
            Verdict::Retryable(error, may_exist) | Verdict::Refused(error, may_exist) => {
                self.record_attempt(&sent_to, error, *may_exist);
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
                    self.trace(&sent_to, &result, &region);
                }
                self.finish(Ok(result));
            }
            Verdict::StoredBelowLevel(error, result) => {
                self.stored = Some(Box::new(result));
                self.queue = Some(sent_to);
                self.retry(error, true);
            }
            Verdict::Refused(error, may_exist) => {
                self.may_exist |= may_exist;
                self.queue = Some(sent_to);
                self.fail(error, false);
            }
            Verdict::Retryable(error, may_exist) => {
                self.queue = Some(sent_to);
                self.retry(error, may_exist);
            }
        }
    }

    /// The broker's region, if this producer traces and the broker wants traces.
    fn region(&self, outcome: &Result<Command, NetError>) -> Option<String> {
        self.shared.traces.as_ref()?;
        let fields = &outcome.as_ref().ok()?.fields;
        let wanted = fields.get(names::TRACE_ON) != Some("false");
        fields
            .get(names::MSG_REGION)
            .filter(|_| wanted)
            .map(str::to_owned)
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

    /// Records a failed attempt, for the text of the error or the result.
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

    /// Makes another attempt if there is time left and the error may be temporary.
    fn retry(mut self: Box<Self>, error: ClientError, may_exist: bool) {
        self.may_exist |= may_exist;
        let transient = !may_exist
            && match &error {
                ClientError::Net { .. } => true,
                ClientError::Refused { code, .. } => {
                    TRANSIENT_CODES.contains(code) || is_missing_queue(&error)
                }
                _ => false,
            };
        self.counted_attempts += u32::from(!transient);
        let left = self.timeout.saturating_sub(self.started.elapsed());
        let is_final = self.counted_attempts >= self.max_attempts() || self.shared.options.retries == 0 || (self.is_bound() && !transient)
            // A half that may be stored must not be stored again elsewhere: both could be committed.
            || (self.may_exist && self.outgoing.is_half());
        if left < MIN_TIME_LEFT || is_final {
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
            .min(left.saturating_sub(MIN_TIME_LEFT));
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

    /// Ends the send with what is known: an earlier result that was stored, or the error.
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
            batch: self.outgoing.batch,
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

    fn finish(self: Box<Self>, outcome: SendOutcome) {
        let is_split = self.can_be_split() && outcome.as_ref().is_err_and(is_illegal);
        if !is_split {
            self.count(&outcome);
        }
        let Self { permit, done, .. } = *self;
        match done {
            Done::Sender(done) => {
                drop(permit);
                done.complete(outcome);
            }
            Done::Accumulator(done) => done.complete((outcome, permit)),
        }
    }

    fn count(&self, outcome: &SendOutcome) {
        let messages = u64::from(self.outgoing.messages());
        if let Ok(result) = outcome {
            self.permit.confirm(&result.broker);
        }
        let counter = match outcome {
            Ok(_) => &self.shared.stats.confirmed,
            Err(_) => &self.shared.stats.failed,
        };
        counter.fetch_add(messages, Ordering::Relaxed);
    }
}
