//! The producer: takes messages and returns outcomes (Apache `DefaultMQProducerImpl`).
//!
//! A send costs no task and no thread: it is queued on its broker's connection, and the answer's callback continues it
//! (`pending_send.rs`). A sender acquires capacity first (back pressure).

pub mod accumulator;
pub mod back_pressure;
pub mod batch;
mod end_transaction;
pub mod options;
pub mod outgoing;
pub(crate) mod pending_send;
pub(crate) mod prober;
mod queue_choice;
mod result;
mod send_request;
pub mod send_waiter;
mod shared;
pub mod trace;
pub mod transaction;
mod verdict;

use crate::error::{ClientError, SendFailure};
use crate::producer::back_pressure::{BackPressure, BorrowedPermit, Candidates, Permit};
use crate::producer::batch::COMMON_PROPERTIES;
use crate::producer::options::ProducerOptions;
use crate::producer::outgoing::{EncodedBody, OutgoingMessage, Target, TargetRef};
use crate::producer::pending_send::{BatchCallback, Done, PendingSend};
pub use crate::producer::result::{SendCallback, SendOutcome, SendResult, SendStatus};
use crate::producer::shared::ProducerShared;
pub use crate::producer::shared::ProducerStats;
use crate::producer::trace::Traces;
use crate::session::connections::Role;
use crate::session::heartbeat::Heartbeat;
use crate::session::identity;
use crate::session::membership::Membership;
use crate::session::name_servers::NameServers;
use crate::session::routes::{AutoCreate, Routes};
use crate::session::topic_name::check_topic;
use bytes::Bytes;
use pyrmq_remoting::message::compress;
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::net::{ProcessorTable, Shutdown, Tracker};
use pyrmq_remoting::sync::lock;
use pyrmq_routing::fault::LatencyFaultTolerance;
use pyrmq_routing::route::PublishedQueue;
use pyrmq_routing::select;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Time for the traces that are left at the end.
const TRACE_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Sends messages. Shared by any number of threads.
#[derive(Debug)]
pub struct Producer {
    pub(crate) shared: Arc<ProducerShared>,
    // Runs the end, which waits for the tasks of the producer's own tracker.
    ending: Tracker,
    // Held while the end is begun: a second call finds it there.
    is_ending: Mutex<bool>,
}

impl Producer {
    /// Connects to nothing yet: the first send asks for its route.
    pub fn new(handle: &Handle, options: ProducerOptions) -> Result<Self, ClientError> {
        Self::with_table(handle, options, ProcessorTable::new())
    }

    /// A producer whose `table` answers what brokers ask of producers. It connects to nothing yet.
    pub fn with_table(
        handle: &Handle,
        mut options: ProducerOptions,
        table: ProcessorTable,
    ) -> Result<Self, ClientError> {
        options.validate()?;
        options.client.group = options.client.wrap(&options.client.group).into_owned();
        let membership = Membership::producer(&options.client);
        let role = Role::Producer(membership.client_id.clone());
        let client = options.client.connect(handle, table, role)?;
        let tracker = Tracker::new(handle.clone());
        let create = AutoCreate {
            topic: options.create_topic_key.clone(),
            queues: options.default_queues,
        };
        let name_servers = NameServers::new(client.clone(), &options.client);
        let faults = Arc::new(LatencyFaultTolerance::new(options.fault_schedule.clone()));
        let routes = Routes::new(name_servers, Some(create), tracker.clone(), faults.clone());
        let heartbeat = Heartbeat::new(client.clone(), routes.clone(), membership, &options.client);
        let shared = ProducerShared {
            back_pressure: BackPressure::new(options.max_in_flight, options.max_in_flight_bytes),
            ids: identity::unique_ids(),
            faults,
            stats: ProducerStats::default(),
            traces: options
                .trace_topic
                .as_deref()
                .map(|topic| Arc::new(Traces::new(topic))),
            options,
            client,
            routes,
            tracker,
            born: Instant::now(),
            heartbeat,
            closed: AtomicBool::new(false),
            shutdown: Shutdown::new(),
        };
        let shared = Arc::new(shared);
        spawn_tasks(&shared);
        Ok(Self {
            shared,
            ending: Tracker::new(handle.clone()),
            is_ending: Mutex::new(false),
        })
    }

    /// A topic by the name that brokers know.
    pub fn topic(&self, name: &str) -> Arc<str> {
        self.shared.options.client.wrap(name).into()
    }

    /// The settings.
    pub fn options(&self) -> &ProducerOptions {
        &self.shared.options
    }

    /// The topics' routes.
    pub fn routes(&self) -> &Routes {
        &self.shared.routes
    }

    /// Back pressure: acquire capacity before [`Self::send`].
    pub fn back_pressure(&self) -> &Arc<BackPressure> {
        &self.shared.back_pressure
    }

    /// The brokers that a message may go to, for [`BackPressure::try_acquire_at`]. Empty if there is only one broker,
    /// if the route is not known yet, and for a message that may go to several brokers while no window is narrow or
    /// full.
    pub fn candidates(&self, topic: &str, target: TargetRef<'_>) -> Candidates {
        let shared = &self.shared;
        if !shared.routes.has_several_brokers() {
            return Candidates::default();
        }
        shared.back_pressure.share_among_brokers();
        let is_free = matches!(target, TargetRef::Any) && !shared.back_pressure.is_guarded();
        if is_free && !shared.routes.has_topic_on_one_broker() {
            return Candidates::default();
        }
        let Some(route) = shared.routes.cached(&shared.options.client.wrap(topic)) else {
            return Candidates::default();
        };
        let queues = &route.published.queues;
        let queue = match target {
            TargetRef::Any if is_free && route.has_several_brokers() => return Candidates::default(),
            TargetRef::Any => return Candidates::all(route.brokers.clone()),
            TargetRef::Hash(hash) => {
                select::by_number(i64::from(hash), queues.len()).and_then(|at| queues.get(at))
            }
            TargetRef::Queue(broker, id) => queues
                .iter()
                .find(|queue| queue.queue_id == id && (broker.is_empty() || *queue.broker == *broker)),
        };
        queue.map_or_else(Candidates::default, |queue| {
            Candidates::only(&route.brokers, &queue.broker)
        })
    }

    /// The generator of unique ids.
    pub fn ids(&self) -> &UniqueIds {
        &self.shared.ids
    }

    /// Brokers that were slow or failed: name, latency in ms, how long it is still avoided in ms, and false if it must
    /// first answer a probe.
    pub fn brokers(&self) -> Vec<(String, u64, u64, bool)> {
        let now = self.shared.clock_ms(Instant::now());
        let known = self.shared.faults.all().into_iter();
        known
            .map(|(name, fault)| {
                let left = u64::try_from(fault.until_ms.saturating_sub(now)).unwrap_or(0);
                (name, fault.latency_ms, left, fault.reachable)
            })
            .collect()
    }

    /// The counters.
    pub fn stats(&self) -> &ProducerStats {
        &self.shared.stats
    }

    /// Checks topic and size, and compresses a large body.
    pub fn prepare(
        &self,
        topic: &Arc<str>,
        body: Bytes,
        properties: String,
        message_id: String,
        flag: i32,
        target: Target,
    ) -> Result<OutgoingMessage, ClientError> {
        check_topic(topic)?;
        self.check_size(topic, body.len())?;
        let charged_bytes = body.len() + properties.len().saturating_sub(COMMON_PROPERTIES);
        let (body, sys_flag) = match self.encode_body(&body) {
            Some(encoded) => (encoded.body, encoded.flags),
            None => (body, 0),
        };
        Ok(OutgoingMessage {
            topic: topic.clone(),
            body,
            charged_bytes,
            properties,
            message_id,
            flag,
            sys_flag,
            target,
            batch: None,
            reply: false,
        })
    }

    /// Refuses an empty body, and one over the limit.
    pub fn check_size(&self, topic: &str, size: usize) -> Result<(), ClientError> {
        let limit = self.shared.options.max_message_bytes;
        if size == 0 {
            return Err(ClientError::EmptyBody {
                topic: topic.to_owned(),
            });
        }
        if size > limit {
            return Err(ClientError::BodyTooLarge {
                topic: topic.to_owned(),
                size,
                limit,
            });
        }
        Ok(())
    }

    /// Compresses a body that is large enough to be sent in its own frame; `None` if it is not. Compressing a large
    /// body takes milliseconds, so call this before any lock is taken.
    pub fn encode_body(&self, body: &[u8]) -> Option<EncodedBody> {
        let setting = self.shared.options.compression.as_ref()?;
        if body.len() < setting.over_bytes {
            return None;
        }
        Some(match compress::compress(setting.codec, setting.level, body) {
            Ok(smaller) if smaller.len() < body.len() => EncodedBody {
                body: Bytes::from(smaller),
                flags: setting.codec.flags(),
            },
            _ => EncodedBody {
                body: Bytes::copy_from_slice(body),
                flags: 0,
            },
        })
    }

    /// Whether [`Self::encode_body`] has something to do.
    pub fn is_compressible(&self, size: usize) -> bool {
        let setting = self.shared.options.compression.as_ref();
        setting.is_some_and(|setting| size >= setting.over_bytes)
    }

    /// Sends one message or batch. `permit` is for `max(items, 1)` messages and their charged bytes; it is dropped
    /// before `done` is called. Sends of one thread to one queue go out in the order of the calls.
    pub fn send(
        &self,
        outgoing: OutgoingMessage,
        permit: BorrowedPermit<'_>,
        timeout: Duration,
        done: SendCallback,
    ) {
        let now = Instant::now();
        let (permit, done) = (permit.into_owned(), Done::Sender(done));
        let pending_send = PendingSend::new(self.shared.clone(), outgoing, permit, (now, timeout), done);
        if self.shared.closed.load(Ordering::Acquire) {
            return pending_send.fail(ClientError::Closed { what: "producer" }, false);
        }
        pending_send.start(now);
    }

    /// Sends what was accumulated since `since`, also while the producer closes.
    pub(crate) fn launch(
        &self,
        outgoing: OutgoingMessage,
        permit: Permit,
        (since, timeout): (Instant, Duration),
        done: BatchCallback,
    ) {
        let done = Done::Accumulator(done);
        let pending_send = PendingSend::new(self.shared.clone(), outgoing, permit, (since, timeout), done);
        pending_send.start(Instant::now());
    }

    /// What a task that serves this producer needs: the tracker that it runs under, and what ends it.
    pub(crate) fn tasks(&self) -> (Tracker, Shutdown) {
        (self.shared.tracker.clone(), self.shared.shutdown.clone())
    }

    /// Traces that were dropped because too many waited.
    pub fn dropped_traces(&self) -> u64 {
        self.shared.traces.as_ref().map_or(0, |traces| traces.dropped())
    }

    pub(crate) fn count_failed(&self, messages: u64) {
        self.shared.stats.failed.fetch_add(messages, Ordering::Relaxed);
    }

    /// Sends without an answer: `Ok` means queued; whether the message arrives is not known. Waits for an unknown route
    /// as long as a send may take.
    pub async fn send_oneway(&self, outgoing: OutgoingMessage) -> Result<(), ClientError> {
        let queue = self.oneway_queue(&outgoing).await?;
        let command = self.shared.command(&outgoing, &queue);
        self.shared
            .client
            .oneway(&queue.address, command)
            .map_err(|source| ClientError::net("a oneway send", queue.address.to_string(), source))
    }

    async fn oneway_queue(&self, outgoing: &OutgoingMessage) -> Result<PublishedQueue, ClientError> {
        let (shared, began) = (&self.shared, Instant::now());
        let unsent = |last| {
            let topic = shared.options.client.unwrap_name(&outgoing.topic);
            let failure = SendFailure::unsent(topic, outgoing.message_id.clone(), began, last);
            ClientError::NotConfirmed {
                failure: Arc::new(failure),
                item: None,
            }
        };
        let time = shared.options.send_timeout;
        let route = shared.routes.get_within(&outgoing.topic, time).await;
        let route = route.map_err(unsent)?;
        let queue = shared.queue_for(&route, outgoing, None, began);
        let queue = queue.inspect_err(|_| shared.routes.suspect_missing(&outgoing.topic, &route));
        queue.map_err(unsent)
    }

    /// Takes no more messages. Those in flight continue: wait until there are none, then call [`Self::shut`].
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }

    /// Unregisters from the brokers and ends every connection. Sends in flight fail. Once begun it continues without
    /// its caller; a later call waits for it.
    pub async fn shut(&self) {
        self.close();
        self.begin_end();
        self.ending.idle().await;
    }

    fn begin_end(&self) {
        let mut is_ending = lock(&self.is_ending);
        if std::mem::replace(&mut *is_ending, true) {
            return;
        }
        let shared = self.shared.clone();
        self.ending.spawn(async move {
            // An unreachable broker must not delay the end.
            drop(tokio::time::timeout(TRACE_FLUSH_TIMEOUT, shared.send_traces()).await);
            shared.shutdown.stop();
            shared.routes.close();
            shared.heartbeat.end().await;
            shared.client.close().await;
            shared.tracker.wait(Duration::from_secs(1)).await;
        });
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if *lock(&self.is_ending) {
            return;
        }
        self.shared.closed.store(true, Ordering::Release);
        self.shared.shutdown.stop();
        self.shared.routes.close();
        self.shared.client.shut();
    }
}

/// Starts a producer's periodic tasks: routes, heartbeats, and probes and traces where they are on.
fn spawn_tasks(shared: &Arc<ProducerShared>) {
    let (tracker, client) = (&shared.tracker, &shared.options.client);
    let routes = shared.routes.clone();
    tracker.spawn(routes.keep_fresh(client.route_interval, client.route_idle, shared.shutdown.clone()));
    let heartbeat = shared.heartbeat.clone();
    tracker.spawn(heartbeat.keep_alive(client.heartbeat_interval, shared.shutdown.clone()));
    if shared.options.latency_fault && shared.options.detect {
        tracker.spawn(prober::run(Arc::downgrade(shared)));
    }
    if shared.traces.is_some() {
        tracker.spawn(trace::run(Arc::downgrade(shared)));
    }
}
