//! Messages that leave together (Apache `ProduceAccumulator`): of one topic without a wish, or of one queue.
//!
//! ```text
//! push -> partition queue of its topic, or of its topic and queue -> open batch
//!           full -------------------------------------------> leaves
//!           its oldest message has waited `linger` ---------> leaves
//!           a caller waits for one of its messages, and
//!           nothing of its partition queue is in flight ----> leaves: a lone message at once, and under load each
//!                                                             batch is what came while the one before was away
//! The partition queue of one broker's queue has one frame in flight at a time: order holds, whatever is tried again.
//! ```
//! A message costs one lock, a copy of its bytes and no allocation; a batch costs one send. The timer sleeps while
//! nothing is open. A message of a hash whose topic is not known yet waits until the route says which queue
//! (`await_route.rs`); one whose queue leaves the route while it waits follows its hash (`reroute.rs`).

mod await_route;
mod partition;
mod reroute;
mod split;

use crate::ClientError;
use crate::producer::batch::{self, Batch, COMMON_PROPERTIES, IdText};
use crate::producer::outgoing::{EncodedBody, OutgoingMessage, check_topic};
use crate::producer::pending_send::is_illegal;
use crate::producer::{Producer, SendResult};
use await_route::AwaitingRoute;
use bytes::{Bytes, BytesMut};
use partition::{LazyNow, OpenBatch, PartitionKey, PartitionQueue, ReadyBatch};
use pyrmq_remoting::WireError;
use pyrmq_remoting::clock;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::net::Shutdown;
use pyrmq_routing::route::TopicPublishInfo;
use reroute::Rerouted;
use split::Parts;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Memory that small bodies share, and what is small.
const SHARED_BYTES: usize = 16 * 1024;
const LARGE_BODY: usize = 2 * 1024;
/// Names of idle topics and their queues that are kept, beside those that are used now.
const IDLE_KEPT: usize = 1024;
/// The timer sends batches that are old enough. In case it is late, every 32nd message sends them, too.
const AGE_CHECK_EVERY: u32 = 32;

/// When a batch is full, and how long it may be kept open.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for company. Zero: messages that name no queue leave each by itself.
    pub linger: Duration,
    /// Bytes of a batch.
    pub bytes: usize,
    /// Messages of a batch.
    pub messages: u32,
}

/// Where a message shall go.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// Anywhere.
    Any,
    /// The queue of this hash.
    Hash(i32),
    /// This queue: broker name (empty: any that has it) and number.
    Queue(&'a str, i32),
}

/// How a call of many messages has them gathered: with others of the same wish only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// Bytes of a batch.
    pub bytes: usize,
    /// Topics of batches keep each batch as one record.
    pub inner: bool,
    /// Time for each batch.
    pub timeout: Duration,
}

/// A message to be sent. Capacity was acquired for one message of [`Item::charged_bytes`] bytes.
#[derive(Debug)]
pub struct Item<'a, T> {
    /// Topic.
    pub topic: &'a str,
    /// Body.
    pub body: &'a [u8],
    /// The body as it is sent, if the caller has compressed it already by [`Producer::encode_body`].
    pub encoded: Option<EncodedBody>,
    /// Its own properties in wire form.
    pub extra: &'a str,
    /// The user's flag.
    pub flag: i32,
    /// Where it goes.
    pub destination: Destination<'a>,
    /// Somebody waits for it: it does not linger while its partition is idle.
    pub eager: bool,
    /// Brokers refuse it in a batch (a delayed message).
    pub alone: bool,
    /// A time of its own; such a message travels alone.
    pub timeout: Option<Duration>,
    /// It is one of many of a call. Such a message travels in a batch, uncompressed, whatever its size.
    pub batch: Option<BatchSettings>,
    /// Comes back with the outcome. A message without one is only counted, and logged when it fails.
    pub completion: Option<T>,
}

impl<T> Item<'_, T> {
    /// Bytes that it takes of the in-flight limit.
    pub fn charged_bytes(&self) -> usize {
        self.body.len() + self.extra.len()
    }

    /// Its time, from when it came.
    fn time(&self, usual: Duration) -> Duration {
        let batch = self.batch.map(|batch| batch.timeout);
        self.timeout.or(batch).unwrap_or(usual)
    }

    fn hash(&self) -> Option<i32> {
        match self.destination {
            Destination::Hash(hash) => Some(hash),
            Destination::Any | Destination::Queue(..) => None,
        }
    }
}

/// What became of one frame. Its completions still hold capacity: whoever delivers them releases it.
#[derive(Debug)]
pub struct BatchOutcome<T> {
    /// Place in the frame and completion, of those messages that have one.
    pub completions: Vec<(u32, T)>,
    /// The frame was a batch.
    pub batch: bool,
    /// The frame's outcome.
    pub outcome: Result<Arc<SendResult>, ClientError>,
}

/// Takes a finished frame, on the connection's task: it must not block.
pub type Sink<T> = Box<dyn Fn(BatchOutcome<T>) + Send + Sync>;

struct State<T> {
    partitions: NameMap<PartitionKey, PartitionQueue<T>>,
    /// The names of the topics that were used; a partition's key is made of them.
    topics: NameMap<Arc<str>, PartitionKey>,
    awaiting_route: HashMap<Arc<str>, Vec<AwaitingRoute<T>>>,
    last_awaiting: u64,
    /// The queues by which hashes were last read.
    routes: HashMap<Arc<str>, Arc<TopicPublishInfo>>,
    /// Partitions that wait to be uncorked.
    corked: Vec<PartitionKey>,
    /// Bodies that travel alone are copied into this, one behind the other.
    bodies: BytesMut,
    /// The timer is awake.
    ticking: bool,
    closed: bool,
}

impl<T> State<T> {
    /// Forgets the queues of topics that have no partition any more, now and then.
    fn forget_idle_routes(&mut self) {
        if self.routes.len() > IDLE_KEPT + 2 * self.partitions.len() {
            let used: HashSet<&Arc<str>> = self.partitions.keys().map(PartitionKey::topic).collect();
            self.routes.retain(|topic, _| used.contains(topic));
        }
    }

    /// Forgets a partition where nothing waits and nothing is on its way. Whoever needs it again makes it again.
    fn forget_if_idle(&mut self, key: &PartitionKey) {
        if self.partitions.get(key).is_some_and(PartitionQueue::is_idle) {
            self.partitions.remove(key);
        }
    }
}

/// What a frame in flight needs when its response comes.
struct InFlightBatch<T> {
    completions: Vec<(u32, T)>,
    hashes: Vec<i32>,
    /// Messages in it; 0: a single one, no batch.
    items: u32,
    /// Of a batch of several.
    body: Bytes,
    bytes: usize,
    /// Bytes that it takes of the in-flight limit.
    charged_bytes: usize,
    since: Instant,
    timeout: Duration,
    settings: Option<BatchSettings>,
    parts: Option<Arc<Parts>>,
}

/// Gathers messages for one producer.
pub struct Accumulator<T> {
    producer: Arc<Producer>,
    limits: Limits,
    ids: IdText,
    sink: Sink<T>,
    /// Bytes that a batch may have: less once a broker has refused that many.
    longest: AtomicUsize,
    // Guards everything that has not left yet.
    state: Mutex<State<T>>,
    opened: Arc<Notify>,
}

impl<T> std::fmt::Debug for Accumulator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accumulator")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Accumulator<T> {
    /// Starts the timer on the producer's runtime; it ends with the producer or the accumulator.
    pub fn new(producer: Arc<Producer>, limits: Limits, sink: Sink<T>) -> Arc<Self> {
        let bytes = limits.bytes.min(producer.options().max_message_bytes);
        let made = Arc::new(Self {
            longest: AtomicUsize::new(bytes),
            ids: IdText::new(producer.ids()),
            limits: Limits {
                bytes,
                messages: limits.messages.max(1),
                ..limits
            },
            sink,
            state: Mutex::new(State {
                partitions: NameMap::default(),
                topics: NameMap::default(),
                awaiting_route: HashMap::new(),
                last_awaiting: 0,
                routes: HashMap::new(),
                corked: Vec::new(),
                bodies: BytesMut::new(),
                ticking: false,
                closed: false,
            }),
            opened: Arc::default(),
            producer,
        });
        let (tracker, shutdown) = made.producer.tasks();
        let opened = made.opened.clone();
        tracker.spawn(tick(Arc::downgrade(&made), opened, shutdown));
        made
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message. After an error nothing was taken: the caller releases its capacity.
    pub fn push(self: &Arc<Self>, item: Item<'_, T>) -> Result<(), ClientError> {
        self.take(item, false).map(drop)
    }

    /// As [`Self::push`], for a caller that has more to push right now, such as the tasks of an event loop that run one
    /// after the other: what would leave at once, half empty, waits for [`Self::uncork`]. True: the caller must see to
    /// that.
    pub fn push_corked(self: &Arc<Self>, item: Item<'_, T>) -> Result<bool, ClientError> {
        self.take(item, true)
    }

    /// Sends what [`Self::push_corked`] held back.
    pub fn uncork(self: &Arc<Self>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let keys = std::mem::take(&mut state.corked);
        for key in &keys {
            if let Some(partition) = state.partitions.get_mut(key) {
                partition.corked = false;
            }
        }
        drop(guard);
        for key in keys {
            self.drain(&key);
        }
    }

    fn take(self: &Arc<Self>, mut item: Item<'_, T>, corked: bool) -> Result<bool, ClientError> {
        self.producer.check_size(item.topic, item.body.len())?;
        if COMMON_PROPERTIES + item.extra.len() > MAX_BYTES {
            return Err(ClientError::Properties {
                topic: item.topic.to_owned(),
                bytes: COMMON_PROPERTIES + item.extra.len(),
            });
        }
        // Before the lock: it takes long.
        if item.encoded.is_none() && item.batch.is_none() && self.producer.is_compressible(item.body.len()) {
            item.encoded = self.producer.encode_body(item.body);
        }
        let mut now = LazyNow::default();
        let mut guard = self.state();
        let state = &mut *guard;
        if state.closed {
            return Err(ClientError::Closed { what: "producer" });
        }
        let any = if let Some(any) = state.topics.get(item.topic) {
            any
        } else {
            check_topic(item.topic)?;
            let key = PartitionKey::Any(self.producer.topic(item.topic));
            if state.topics.len() > IDLE_KEPT + 2 * state.partitions.len() {
                // Only a place to look names up: what is used comes back.
                state.topics.clear();
            }
            state.topics.entry(item.topic.into()).or_insert(key)
        };
        let placed;
        let mut rerouted = Rerouted::default();
        let key = match item.destination {
            Destination::Any => any,
            Destination::Queue(broker, id) => {
                placed = PartitionKey::Queue(any.topic().clone(), broker.into(), id);
                &placed
            }
            Destination::Hash(hash) => {
                let topic = any.topic().clone();
                if let Some(found) = self.queue_of(state, &topic, hash, &mut rerouted)? {
                    placed = found;
                    &placed
                } else {
                    self.await_route(guard, &topic, hash, item, now.get());
                    return Ok(false);
                }
            }
        };
        let partition = match state.partitions.get_mut(key) {
            Some(partition) => partition,
            None => state.partitions.entry(key.clone()).or_default(),
        };
        let (ticking, eager, has_deadline) = (state.ticking, item.eager, item.timeout.is_some());
        let charged_bytes = item.charged_bytes();
        let put = self.put(
            &mut state.bodies,
            partition,
            key,
            (&mut item, charged_bytes),
            &mut now,
        );
        if let Err(error) = put {
            let key = key.clone();
            state.forget_if_idle(&key);
            return Err(error);
        }
        let place = partition.open.as_ref().map_or(0, |open| open.batch.len());
        let looked = place.is_multiple_of(AGE_CHECK_EVERY).then(|| now.get());
        let due = partition.is_due(key.is_ordered(), looked, self.limits.linger);
        let held = corked && due && partition.sealed.is_empty();
        let first = held && state.corked.is_empty();
        if held && !partition.corked {
            partition.corked = true;
            state.corked.push(key.clone());
        }
        let drain = (due && !held && !partition.draining).then(|| key.clone());
        // Nothing else would make it leave when it is neither eager nor full, or end when its partition is held up for
        // longer than it may wait.
        let held_up = !due && has_deadline;
        let wake = held_up || (!ticking && partition.open.is_some() && !(eager && due));
        state.ticking |= wake;
        drop(guard);
        if wake {
            self.opened.notify_one();
        }
        self.finish_reroute(rerouted);
        if let Some(key) = drain {
            self.drain(&key);
        }
        Ok(first)
    }

    /// The partition of a hash; `None` while the topic's messages await its route, or must.
    fn queue_of(
        &self,
        state: &mut State<T>,
        topic: &Arc<str>,
        hash: i32,
        rerouted: &mut Rerouted<T>,
    ) -> Result<Option<PartitionKey>, ClientError> {
        if state.awaiting_route.contains_key(topic) {
            return Ok(None);
        }
        let Some(route) = self.producer.routes().cached(topic) else {
            return Ok(None);
        };
        let key = await_route::partition_of_hash(topic, &route, hash);
        let key = key.inspect_err(|_| self.producer.routes().suspect_missing(topic, &route))?;
        self.reroute(state, topic, &route, rerouted);
        Ok(Some(key))
    }

    /// Adds a message to its partition, behind everything that is there.
    fn put(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (item, charged_bytes): (&mut Item<'_, T>, usize),
        now: &mut LazyNow,
    ) -> Result<(), ClientError> {
        let single = matches!(key, PartitionKey::Any(_)) && self.limits.linger.is_zero();
        if single || item.encoded.is_some() || item.alone || item.timeout.is_some() {
            self.put_alone(bodies, partition, key, (item, charged_bytes), now.get());
            return Ok(());
        }
        let properties = COMMON_PROPERTIES + item.extra.len();
        let hash = item.hash();
        let size = (item.body.len(), properties);
        let open = self.open(partition, key, size, hash.is_some(), item.batch, now);
        let place = open.batch.len();
        let id = self.ids.next_at(self.producer.ids(), open.since_ms);
        open.batch
            .push_with_id(item.body, item.extra, &id, item.flag)
            .map_err(unencodable)?;
        open.hashes.extend(hash);
        open.eager |= item.eager;
        if let Some(completion) = item.completion.take() {
            open.completions.push((place, completion));
        }
        Ok(())
    }

    /// The batch that takes one more message, whose body and properties have these lengths, by a hash or not.
    fn open<'a>(
        &self,
        partition: &'a mut PartitionQueue<T>,
        key: &PartitionKey,
        (body, properties): (usize, usize),
        has_hash: bool,
        settings: Option<BatchSettings>,
        now: &mut LazyNow,
    ) -> &'a mut OpenBatch<T> {
        let full = partition.open.as_ref().is_some_and(|open| {
            (settings.is_none() && open.batch.len() >= self.limits.messages)
                || open.settings != settings
                || !open.batch.fits(body, properties)
                || open.hashes.is_empty() == has_hash
        });
        if full {
            partition.seal();
        }
        partition.open.get_or_insert_with(|| OpenBatch {
            batch: self.new_batch(key, settings),
            settings,
            timeout: settings.map_or(self.producer.options().send_timeout, |settings| settings.timeout),
            completions: Vec::new(),
            hashes: Vec::new(),
            since: now.get(),
            since_ms: clock::now_ms(),
            eager: false,
        })
    }

    fn new_batch(&self, key: &PartitionKey, settings: Option<BatchSettings>) -> Batch {
        let longest = self.longest.load(Ordering::Relaxed);
        let bytes = match settings {
            // A broker that has refused a length would refuse it again.
            Some(settings) if longest == self.limits.bytes => settings.bytes,
            Some(settings) => settings.bytes.min(longest),
            None => longest,
        };
        let batch = Batch::new(key.topic().clone(), key.target(), bytes);
        if settings.is_some_and(|settings| settings.inner) {
            return batch.with_id(self.producer.ids().next(clock::now_ms()).to_string());
        }
        batch
    }

    fn put_alone(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (item, charged_bytes): (&mut Item<'_, T>, usize),
        now: Instant,
    ) {
        let id = self.ids.next(self.producer.ids());
        let id = std::str::from_utf8(&id).unwrap_or_default();
        let timeout = item.time(self.producer.options().send_timeout);
        let hashes = item.hash().into_iter().collect();
        let (body, sys_flag) = match item.encoded.take() {
            Some(encoded) => (encoded.body, encoded.flags),
            None => (copied(bodies, item.body), 0),
        };
        let outgoing = OutgoingMessage {
            topic: key.topic().clone(),
            body,
            charged_bytes,
            properties: batch::alone_properties(id, item.extra),
            message_id: id.to_owned(),
            flag: item.flag,
            sys_flag,
            target: key.target(),
            items: 0,
            reply: false,
        };
        partition.seal();
        partition.sealed.push_back(ReadyBatch {
            outgoing,
            hashes,
            completions: item
                .completion
                .take()
                .map(|completion| (0, completion))
                .into_iter()
                .collect(),
            since: now,
            timeout,
            settings: None,
            parts: None,
        });
    }

    /// Launches what may leave. Only one thread at a time works on a partition; the others leave their work to it.
    fn drain(self: &Arc<Self>, key: &PartitionKey) {
        let mut rerouted = Rerouted::default();
        let mut worked = false;
        loop {
            let mut guard = self.state();
            let state = &mut *guard;
            if key.is_ordered()
                && state.routes.contains_key(key.topic())
                && let Some(route) = self.producer.routes().cached(key.topic())
            {
                self.reroute(state, key.topic(), &route, &mut rerouted);
            }
            let Some(partition) = state.partitions.get_mut(key) else {
                break;
            };
            if worked {
                partition.draining = false;
            } else if partition.draining {
                break;
            }
            let next = partition.next(key.is_ordered(), Instant::now(), self.limits.linger);
            let Some(load) = next else {
                state.forget_if_idle(key);
                break;
            };
            (partition.draining, worked) = (true, true);
            drop(guard);
            self.launch(key.clone(), load);
        }
        self.finish_reroute(rerouted);
    }

    fn launch(self: &Arc<Self>, key: PartitionKey, load: ReadyBatch<T>) {
        let (outgoing, held_messages) = (load.outgoing, load.completions.len());
        let body = if outgoing.items > 1 {
            outgoing.body.clone()
        } else {
            Bytes::new()
        };
        let in_flight_batch = InFlightBatch {
            completions: load.completions,
            hashes: load.hashes,
            items: outgoing.items,
            body,
            bytes: outgoing.body.len(),
            charged_bytes: outgoing.charged_bytes,
            since: load.since,
            timeout: load.timeout,
            settings: load.settings,
            parts: load.parts,
        };
        let this = self.clone();
        let done = Box::new(move |outcome| this.on_outcome(&key, in_flight_batch, outcome));
        self.producer
            .launch(outgoing, load.since, load.timeout, held_messages, done);
    }

    fn on_outcome(
        self: &Arc<Self>,
        key: &PartitionKey,
        in_flight_batch: InFlightBatch<T>,
        outcome: Result<SendResult, ClientError>,
    ) {
        if let Err(error) = &outcome
            && in_flight_batch.items > 1
            && is_illegal(error)
        {
            let inner = in_flight_batch
                .settings
                .is_some_and(|settings| settings.inner)
                .then(|| self.producer.ids());
            if let Ok(halves) = split::halves(key, &in_flight_batch.body, inner) {
                tracing::debug!(topic = &**key.topic(), items = in_flight_batch.items, %error, "a refused batch is sent in halves");
                return self.split(key, in_flight_batch, halves);
            }
            self.producer.count_failed(u64::from(in_flight_batch.items));
            let with_completion = in_flight_batch.completions.len();
            let back_pressure = self.producer.back_pressure();
            back_pressure.release(
                in_flight_batch.items as usize - with_completion,
                in_flight_batch.charged_bytes,
            );
        }
        self.lower_batch_limit(&in_flight_batch, &outcome);
        let (items, completions) = (in_flight_batch.items, in_flight_batch.completions);
        if let Err(error) = &outcome
            && completions.len() < items.max(1) as usize
        {
            let count = items.max(1) as usize - completions.len();
            tracing::warn!(topic = &**key.topic(), count, %error, "messages without a callback were not confirmed");
        }
        let mut state = self.state();
        let mut more = false;
        if let Some(partition) = state.partitions.get_mut(key) {
            partition.in_flight = partition.in_flight.saturating_sub(1);
            if let Some(open) = &mut partition.open
                && key.is_ordered()
            {
                // What came while this one was away has waited long enough.
                open.eager = true;
            }
            more = !partition.draining
                && partition.is_due(key.is_ordered(), Some(Instant::now()), self.limits.linger);
        }
        state.forget_if_idle(key);
        drop(state);
        if !completions.is_empty() {
            (self.sink)(BatchOutcome {
                completions,
                batch: items > 0,
                outcome: outcome.map(Arc::new),
            });
        }
        if more {
            self.drain(key);
        }
    }

    /// Sends what has been gathered, without waiting for company or outcomes.
    pub fn flush(self: &Arc<Self>) {
        let mut state = self.state();
        let mut due = Vec::new();
        // They wait for a route; once that is known they leave at once, too.
        for awaiting_route in state.awaiting_route.values_mut().flatten() {
            awaiting_route.skip_linger();
        }
        for (key, partition) in &mut state.partitions {
            partition.seal();
            if !partition.sealed.is_empty() {
                due.push(key.clone());
            }
        }
        drop(state);
        for key in due {
            self.drain(&key);
        }
    }

    /// Topics and queues of which something waits or is on its way.
    pub fn partitions(&self) -> usize {
        self.state().partitions.len()
    }

    /// Takes nothing more; what was taken leaves at once.
    pub fn close(self: &Arc<Self>) {
        self.state().closed = true;
        self.flush();
    }

    /// Sends what has waited long enough; says when to look again, if something is still open.
    fn sweep(self: &Arc<Self>) -> Option<Instant> {
        let (now, linger) = (Instant::now(), self.limits.linger);
        let mut guard = self.state();
        let state = &mut *guard;
        let (mut due, mut again) = (Vec::new(), None);
        let mut late = Vec::new();
        for (key, partition) in &mut state.partitions {
            while let Some(load) = partition.take_expired(now) {
                late.push((key.clone(), load));
            }
            let next = partition.sealed.iter().map(ReadyBatch::expires_at).min();
            again = again
                .into_iter()
                .chain(next.filter(|_| partition.in_flight > 0))
                .min();
            let Some(open) = &mut partition.open else { continue };
            let ready_at = open.since + linger;
            if now < ready_at {
                again = Some(again.map_or(ready_at, |other: Instant| other.min(ready_at)));
            } else {
                // A partition of a queue that waits for an answer goes on by itself when that comes.
                open.eager |= key.is_ordered();
                due.push(key.clone());
            }
        }
        state.ticking = again.is_some();
        drop(guard);
        for (key, load) in late {
            // Its time is over: it fails without being dispatched.
            self.launch(key, load);
        }
        for key in due {
            self.drain(&key);
        }
        again
    }
}

fn unencodable(source: WireError) -> ClientError {
    ClientError::Answered {
        what: "a batch",
        address: String::new(),
        source,
    }
}

/// A copy of a body. Small ones share memory: an allocation each, made by one thread and freed by another, costs more
/// than the copy.
fn copied(bodies: &mut BytesMut, body: &[u8]) -> Bytes {
    if body.len() > LARGE_BODY {
        return Bytes::copy_from_slice(body);
    }
    if bodies.capacity() - bodies.len() < body.len() {
        *bodies = BytesMut::with_capacity(SHARED_BYTES);
    }
    bodies.extend_from_slice(body);
    bodies.split().freeze()
}

/// The timer: asleep until a batch is opened, then until the oldest has waited `linger`. It keeps nothing alive.
async fn tick<T: Send + 'static>(accumulator: Weak<Accumulator<T>>, opened: Arc<Notify>, shutdown: Shutdown) {
    loop {
        let Some(again) = accumulator.upgrade().map(|this| this.sweep()) else {
            return;
        };
        let Some(again) = again else {
            tokio::select! {
                () = opened.notified() => continue,
                () = shutdown.stopped() => return,
            }
        };
        let pause = again.saturating_duration_since(Instant::now());
        tokio::select! {
            // Something that is due earlier may have come.
            () = opened.notified() => {}
            stopped = shutdown.sleep_or_stop(pause) => if stopped {
                return;
            },
        }
    }
}

impl<T> Drop for Accumulator<T> {
    fn drop(&mut self) {
        // The timer sees that nobody is left.
        self.opened.notify_one();
    }
}
