//! Messages that leave together (Apache `ProduceAccumulator`): of one topic without a wish, or of one queue.
//!
//! ```text
//! push -> lane of its topic, or of its topic and queue -> open batch
//!           full -------------------------------------------> leaves
//!           its oldest message has waited `linger` ---------> leaves
//!           somebody waits for one of its messages, and
//!           nothing of its lane is on the way --------------> leaves: a lone message at once, and under load each
//!                                                             batch is what came while the one before was away
//!           a lane of a queue has one frame on its way at a time: order holds, whatever has to be tried again
//! ```
//! A message costs one lock, a copy of its bytes and no allocation; a batch costs one send. The timer sleeps while
//! nothing is open. A message of a hash whose topic is not known yet is parked until the route says which queue; one whose
//! queue leaves the route while it waits follows its hash (`follow.rs`).

mod follow;
mod lane;
mod park;
mod split;

use crate::ClientError;
use crate::batch::{self, Batch, COMMON_PROPERTIES, IdText};
use crate::draft::{Draft, Packed, check_topic};
use crate::flight::is_illegal;
use crate::producer::{Producer, SendResult};
use bytes::{Bytes, BytesMut};
use follow::Followed;
use lane::{Key, Lane, Load, Now, Open};
use park::Parked;
use pyrmq_remoting::WireError;
use pyrmq_remoting::clock;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::net::Shutdown;
use pyrmq_routing::route::TopicPublishInfo;
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
/// The timer makes batches leave that are old enough. Should it be late, so does every so manieth message.
const LOOK_EVERY: u32 = 32;

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
pub enum Place<'a> {
    /// Anywhere.
    Any,
    /// The queue of this hash.
    Hash(i32),
    /// This queue: broker name (empty: any that has it) and number.
    Queue(&'a str, i32),
}

/// How a call of many messages has them gathered: with others of the same wish only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnBatch {
    /// Bytes of a batch.
    pub bytes: usize,
    /// Topics of batches keep each batch as one record.
    pub inner: bool,
    /// Time for each batch.
    pub timeout: Duration,
}

/// A message to be sent. It has come in through the producer's gate as one message with [`Item::counted`] bytes.
#[derive(Debug)]
pub struct Item<'a, T> {
    /// Topic.
    pub topic: &'a str,
    /// Body.
    pub body: &'a [u8],
    /// The same as it travels, by [`Producer::pack`], from a caller who has made that already.
    pub packed: Option<Packed>,
    /// Its own properties in wire form.
    pub extra: &'a str,
    /// The user's flag.
    pub flag: i32,
    /// Where it goes.
    pub place: Place<'a>,
    /// Somebody waits for it: it does not linger while its lane is idle.
    pub eager: bool,
    /// Brokers refuse it in a batch (a delayed message).
    pub alone: bool,
    /// A time of its own; such a message travels alone.
    pub timeout: Option<Duration>,
    /// It is one of many of a call. Such a message travels in a batch, uncompressed, whatever its size.
    pub batch: Option<OwnBatch>,
    /// Comes back with the outcome. A message without one is only counted, and logged when it fails.
    pub ticket: Option<T>,
}

impl<T> Item<'_, T> {
    /// Bytes that it counts for at the gate.
    pub fn counted(&self) -> usize {
        self.body.len() + self.extra.len()
    }

    /// Its time, from when it came.
    fn time(&self, usual: Duration) -> Duration {
        let batch = self.batch.map(|batch| batch.timeout);
        self.timeout.or(batch).unwrap_or(usual)
    }

    fn hash(&self) -> Option<i32> {
        match self.place {
            Place::Hash(hash) => Some(hash),
            Place::Any | Place::Queue(..) => None,
        }
    }
}

/// What became of one frame. Its tickets still count at the gate: who hands them on leaves for them.
#[derive(Debug)]
pub struct Landed<T> {
    /// Place in the frame and ticket, of those messages that have one.
    pub tickets: Vec<(u32, T)>,
    /// The frame was a batch.
    pub batch: bool,
    /// The frame's outcome.
    pub outcome: Result<Arc<SendResult>, ClientError>,
}

/// Takes what has landed, from the connection's task: it must not block.
pub type Sink<T> = Box<dyn Fn(Landed<T>) + Send + Sync>;

struct State<T> {
    lanes: NameMap<Key, Lane<T>>,
    /// The names of the topics that were used; a lane's key is made of them.
    topics: NameMap<Arc<str>, Key>,
    parked: HashMap<Arc<str>, Vec<Parked<T>>>,
    last_parked: u64,
    /// The queues by which hashes were last read.
    routes: HashMap<Arc<str>, Arc<TopicPublishInfo>>,
    /// Lanes that wait to be uncorked.
    corked: Vec<Key>,
    /// Bodies that travel alone are copied into this, one behind the other.
    bodies: BytesMut,
    /// The timer is awake.
    ticking: bool,
    closed: bool,
}

impl<T> State<T> {
    /// Forgets the queues of topics that have no lane any more, now and then.
    fn forget_idle_routes(&mut self) {
        if self.routes.len() > IDLE_KEPT + 2 * self.lanes.len() {
            let used: HashSet<&Arc<str>> = self.lanes.keys().map(Key::topic).collect();
            self.routes.retain(|topic, _| used.contains(topic));
        }
    }

    /// Forgets a lane where nothing waits and nothing is on its way. Whoever needs it again makes it again.
    fn forget_if_idle(&mut self, key: &Key) {
        if self.lanes.get(key).is_some_and(Lane::is_idle) {
            self.lanes.remove(key);
        }
    }
}

/// What landing needs of a frame that is on its way.
struct Away<T> {
    tickets: Vec<(u32, T)>,
    hashes: Vec<i32>,
    /// Messages in it; 0: a single one, no batch.
    items: u32,
    /// Of a batch of several.
    body: Bytes,
    bytes: usize,
    /// Bytes that it counts for at the gate.
    counted: usize,
    since: Instant,
    timeout: Duration,
    own: Option<OwnBatch>,
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
                lanes: NameMap::default(),
                topics: NameMap::default(),
                parked: HashMap::new(),
                last_parked: 0,
                routes: HashMap::new(),
                corked: Vec::new(),
                bodies: BytesMut::new(),
                ticking: false,
                closed: false,
            }),
            opened: Arc::default(),
            producer,
        });
        let (tracker, shutdown) = made.producer.life();
        let opened = made.opened.clone();
        tracker.spawn(tick(Arc::downgrade(&made), opened, shutdown));
        made
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message. After an error nothing was taken: the caller leaves the gate again.
    pub fn push(self: &Arc<Self>, item: Item<'_, T>) -> Result<(), ClientError> {
        self.take(item, false).map(drop)
    }

    /// The same for one who has more to push right now, such as the tasks of an event loop that run one after the
    /// other: what would leave at once, half empty, waits for [`Self::uncork`]. True: the caller must see to that.
    pub fn push_corked(self: &Arc<Self>, item: Item<'_, T>) -> Result<bool, ClientError> {
        self.take(item, true)
    }

    /// Sends what [`Self::push_corked`] held back.
    pub fn uncork(self: &Arc<Self>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let keys = std::mem::take(&mut state.corked);
        for key in &keys {
            if let Some(lane) = state.lanes.get_mut(key) {
                lane.corked = false;
            }
        }
        drop(guard);
        for key in keys {
            self.pump(&key);
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
        if item.packed.is_none() && item.batch.is_none() && self.producer.is_packed(item.body.len()) {
            item.packed = self.producer.pack(item.body);
        }
        let mut now = Now::default();
        let mut guard = self.state();
        let state = &mut *guard;
        if state.closed {
            return Err(ClientError::Closed { what: "producer" });
        }
        let any = if let Some(any) = state.topics.get(item.topic) {
            any
        } else {
            check_topic(item.topic)?;
            let key = Key::Any(self.producer.topic(item.topic));
            if state.topics.len() > IDLE_KEPT + 2 * state.lanes.len() {
                // Only a place to look names up: what is used comes back.
                state.topics.clear();
            }
            state.topics.entry(item.topic.into()).or_insert(key)
        };
        let placed;
        let mut followed = Followed::default();
        let key = match item.place {
            Place::Any => any,
            Place::Queue(broker, id) => {
                placed = Key::Queue(any.topic().clone(), broker.into(), id);
                &placed
            }
            Place::Hash(hash) => {
                let topic = any.topic().clone();
                if let Some(found) = self.queue_of(state, &topic, hash, &mut followed)? {
                    placed = found;
                    &placed
                } else {
                    self.park(guard, &topic, hash, item, now.get());
                    return Ok(false);
                }
            }
        };
        let lane = match state.lanes.get_mut(key) {
            Some(lane) => lane,
            None => state.lanes.entry(key.clone()).or_default(),
        };
        let (ticking, eager, hurried) = (state.ticking, item.eager, item.timeout.is_some());
        let counted = item.counted();
        let put = self.put(&mut state.bodies, lane, key, (&mut item, counted), &mut now);
        if let Err(error) = put {
            let key = key.clone();
            state.forget_if_idle(&key);
            return Err(error);
        }
        let place = lane.open.as_ref().map_or(0, |open| open.batch.len());
        let looked = place.is_multiple_of(LOOK_EVERY).then(|| now.get());
        let due = lane.is_due(key.is_ordered(), looked, self.limits.linger);
        let held = corked && due && lane.sealed.is_empty();
        let first = held && state.corked.is_empty();
        if held && !lane.corked {
            lane.corked = true;
            state.corked.push(key.clone());
        }
        let pump = (due && !held && !lane.pumping).then(|| key.clone());
        // Nothing else would make it leave when it is neither eager nor full, or end when its lane is held up for longer
        // than it may wait.
        let held_up = !due && hurried;
        let wake = held_up || (!ticking && lane.open.is_some() && !(eager && due));
        state.ticking |= wake;
        drop(guard);
        if wake {
            self.opened.notify_one();
        }
        self.go_on(followed);
        if let Some(key) = pump {
            self.pump(&key);
        }
        Ok(first)
    }

    /// The lane of a hash; `None` while the topic's messages are parked or must be.
    fn queue_of(
        &self,
        state: &mut State<T>,
        topic: &Arc<str>,
        hash: i32,
        followed: &mut Followed<T>,
    ) -> Result<Option<Key>, ClientError> {
        if state.parked.contains_key(topic) {
            return Ok(None);
        }
        let Some(route) = self.producer.routes().known(topic) else {
            return Ok(None);
        };
        let key = park::by_hash(topic, &route, hash);
        let key = key.inspect_err(|_| self.producer.routes().suspect_missing(topic, &route))?;
        self.follow(state, topic, &route, followed);
        Ok(Some(key))
    }

    /// Adds a message to its lane, behind everything that is there.
    fn put(
        &self,
        bodies: &mut BytesMut,
        lane: &mut Lane<T>,
        key: &Key,
        (item, counted): (&mut Item<'_, T>, usize),
        now: &mut Now,
    ) -> Result<(), ClientError> {
        let single = matches!(key, Key::Any(_)) && self.limits.linger.is_zero();
        if single || item.packed.is_some() || item.alone || item.timeout.is_some() {
            self.put_alone(bodies, lane, key, (item, counted), now.get());
            return Ok(());
        }
        let properties = COMMON_PROPERTIES + item.extra.len();
        let hash = item.hash();
        let size = (item.body.len(), properties);
        let open = self.open(lane, key, size, hash.is_some(), item.batch, now);
        let place = open.batch.len();
        let id = self.ids.next_at(self.producer.ids(), open.since_ms);
        open.batch
            .push_with_id(item.body, item.extra, &id, item.flag)
            .map_err(unencodable)?;
        open.hashes.extend(hash);
        open.eager |= item.eager;
        if let Some(ticket) = item.ticket.take() {
            open.tickets.push((place, ticket));
        }
        Ok(())
    }

    /// The batch that takes one more message: of so many bytes of body and properties, by a hash or not.
    fn open<'a>(
        &self,
        lane: &'a mut Lane<T>,
        key: &Key,
        (body, properties): (usize, usize),
        by_hash: bool,
        own: Option<OwnBatch>,
        now: &mut Now,
    ) -> &'a mut Open<T> {
        let full = lane.open.as_ref().is_some_and(|open| {
            (own.is_none() && open.batch.len() >= self.limits.messages)
                || open.own != own
                || !open.batch.fits(body, properties)
                || open.hashes.is_empty() == by_hash
        });
        if full {
            lane.seal();
        }
        lane.open.get_or_insert_with(|| Open {
            batch: self.batch(key, own),
            own,
            timeout: own.map_or(self.producer.options().send_timeout, |own| own.timeout),
            tickets: Vec::new(),
            hashes: Vec::new(),
            since: now.get(),
            since_ms: clock::now_ms(),
            eager: false,
        })
    }

    fn batch(&self, key: &Key, own: Option<OwnBatch>) -> Batch {
        let longest = self.longest.load(Ordering::Relaxed);
        let bytes = match own {
            // A broker that has refused a length would refuse it again.
            Some(own) if longest == self.limits.bytes => own.bytes,
            Some(own) => own.bytes.min(longest),
            None => longest,
        };
        let batch = Batch::new(key.topic().clone(), key.target(), bytes);
        if own.is_some_and(|own| own.inner) {
            return batch.with_id(self.producer.ids().next(clock::now_ms()).to_string());
        }
        batch
    }

    fn put_alone(
        &self,
        bodies: &mut BytesMut,
        lane: &mut Lane<T>,
        key: &Key,
        (item, counted): (&mut Item<'_, T>, usize),
        now: Instant,
    ) {
        let id = self.ids.next(self.producer.ids());
        let id = std::str::from_utf8(&id).unwrap_or_default();
        let timeout = item.time(self.producer.options().send_timeout);
        let hashes = item.hash().into_iter().collect();
        let (body, sys_flag) = match item.packed.take() {
            Some(packed) => (packed.body, packed.flags),
            None => (copied(bodies, item.body), 0),
        };
        let draft = Draft {
            topic: key.topic().clone(),
            body,
            counted,
            properties: batch::alone_properties(id, item.extra),
            message_id: id.to_owned(),
            flag: item.flag,
            sys_flag,
            target: key.target(),
            items: 0,
            reply: false,
        };
        lane.seal();
        lane.sealed.push_back(Load {
            draft,
            hashes,
            tickets: item.ticket.take().map(|ticket| (0, ticket)).into_iter().collect(),
            since: now,
            timeout,
            own: None,
            parts: None,
        });
    }

    /// Launches what may leave. Only one thread at a time works on a lane; the others leave their work to it.
    fn pump(self: &Arc<Self>, key: &Key) {
        let mut followed = Followed::default();
        let mut worked = false;
        loop {
            let mut guard = self.state();
            let state = &mut *guard;
            if key.is_ordered()
                && state.routes.contains_key(key.topic())
                && let Some(route) = self.producer.routes().known(key.topic())
            {
                self.follow(state, key.topic(), &route, &mut followed);
            }
            let Some(lane) = state.lanes.get_mut(key) else {
                break;
            };
            if worked {
                lane.pumping = false;
            } else if lane.pumping {
                break;
            }
            let next = lane.next(key.is_ordered(), Instant::now(), self.limits.linger);
            let Some(load) = next else {
                state.forget_if_idle(key);
                break;
            };
            (lane.pumping, worked) = (true, true);
            drop(guard);
            self.launch(key.clone(), load);
        }
        self.go_on(followed);
    }

    fn launch(self: &Arc<Self>, key: Key, load: Load<T>) {
        let (draft, kept) = (load.draft, load.tickets.len());
        let body = if draft.items > 1 {
            draft.body.clone()
        } else {
            Bytes::new()
        };
        let away = Away {
            tickets: load.tickets,
            hashes: load.hashes,
            items: draft.items,
            body,
            bytes: draft.body.len(),
            counted: draft.counted,
            since: load.since,
            timeout: load.timeout,
            own: load.own,
            parts: load.parts,
        };
        let this = self.clone();
        let done = Box::new(move |outcome| this.landed(&key, away, outcome));
        self.producer.launch(draft, load.since, load.timeout, kept, done);
    }

    fn landed(self: &Arc<Self>, key: &Key, away: Away<T>, outcome: Result<SendResult, ClientError>) {
        if let Err(error) = &outcome
            && away.items > 1
            && is_illegal(error)
        {
            let inner = away.own.is_some_and(|own| own.inner).then(|| self.producer.ids());
            if let Ok(halves) = split::halves(key, &away.body, inner) {
                tracing::debug!(topic = &**key.topic(), items = away.items, %error, "a refused batch is sent in halves");
                return self.split(key, away, halves);
            }
            self.producer.count_failed(u64::from(away.items));
            let told = away.tickets.len();
            let gate = self.producer.gate();
            gate.leave(away.items as usize - told, away.counted);
        }
        self.learn(&away, &outcome);
        let (items, tickets) = (away.items, away.tickets);
        if let Err(error) = &outcome
            && tickets.len() < items.max(1) as usize
        {
            let count = items.max(1) as usize - tickets.len();
            tracing::warn!(topic = &**key.topic(), count, %error, "messages without a callback were not confirmed");
        }
        let mut state = self.state();
        let mut more = false;
        if let Some(lane) = state.lanes.get_mut(key) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            if let Some(open) = &mut lane.open
                && key.is_ordered()
            {
                // What came while this one was away has waited long enough.
                open.eager = true;
            }
            more = !lane.pumping && lane.is_due(key.is_ordered(), Some(Instant::now()), self.limits.linger);
        }
        state.forget_if_idle(key);
        drop(state);
        if !tickets.is_empty() {
            (self.sink)(Landed {
                tickets,
                batch: items > 0,
                outcome: outcome.map(Arc::new),
            });
        }
        if more {
            self.pump(key);
        }
    }

    /// Sends what has been gathered, without waiting for company or outcomes.
    pub fn flush(self: &Arc<Self>) {
        let mut state = self.state();
        let mut due = Vec::new();
        // They wait for a route; once that is known they leave at once, too.
        for parked in state.parked.values_mut().flatten() {
            parked.hurry();
        }
        for (key, lane) in &mut state.lanes {
            lane.seal();
            if !lane.sealed.is_empty() {
                due.push(key.clone());
            }
        }
        drop(state);
        for key in due {
            self.pump(&key);
        }
    }

    /// Topics and queues of which something waits or is on its way.
    pub fn lanes(&self) -> usize {
        self.state().lanes.len()
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
        for (key, lane) in &mut state.lanes {
            while let Some(load) = lane.take_late(now) {
                late.push((key.clone(), load));
            }
            let next = lane.sealed.iter().map(Load::late_at).min();
            again = again.into_iter().chain(next.filter(|_| lane.in_flight > 0)).min();
            let Some(open) = &mut lane.open else { continue };
            let ripe = open.since + linger;
            if now < ripe {
                again = Some(again.map_or(ripe, |other: Instant| other.min(ripe)));
            } else {
                // A lane of a queue that waits for an answer goes on by itself when that comes.
                open.eager |= key.is_ordered();
                due.push(key.clone());
            }
        }
        state.ticking = again.is_some();
        drop(guard);
        for (key, load) in late {
            // Its time is over: it ends as a flight that does not depart.
            self.launch(key, load);
        }
        for key in due {
            self.pump(&key);
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

/// The timer: asleep until a batch is opened, then until the oldest is ripe. It keeps nothing alive.
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
