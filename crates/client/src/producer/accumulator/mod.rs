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
mod batch_limit;
mod item;
mod partition;
mod parts;
mod reroute;
mod shared;
mod split;

use crate::ClientError;
use crate::producer::back_pressure::{BackPressure, BorrowedPermit, Permit};
use crate::producer::batch::{self, Batch, COMMON_PROPERTIES, IdText};
pub use crate::producer::outgoing::Destination;
use crate::producer::outgoing::{OutgoingMessage, check_topic};
use crate::producer::pending_send::is_illegal;
use crate::producer::{Producer, SendResult};
use batch_limit::BatchLimit;
use bytes::{Bytes, BytesMut};
pub use item::{BatchOutcome, BatchSettings, Item, Limits, Sink};
use item::{copied, unencodable};
use partition::{LazyNow, OpenBatch, PartitionKey, PartitionQueue, ReadyBatch};
use pyrmq_remoting::clock;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::net::Shutdown;
pub use shared::Accumulator;
use shared::{IDLE_KEPT, InFlightBatch, Rerouted, State};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use tokio::sync::Notify;
/// The timer sends batches that are old enough. In case it is late, every 32nd message sends them, too.
const AGE_CHECK_EVERY: u32 = 32;

impl<T: Send + 'static> Accumulator<T> {
    /// Starts the timer on the producer's runtime; it ends with the producer or the accumulator.
    pub fn new(producer: Arc<Producer>, limits: Limits, sink: Sink<T>) -> Arc<Self> {
        let bytes = limits.bytes.min(producer.options().max_message_bytes);
        let made = Arc::new(Self {
            batch_limit: BatchLimit::new(bytes),
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

    /// Takes a message. `permit` is for one message of [`Item::charged_bytes`] bytes.
    pub fn push(self: &Arc<Self>, item: Item<'_, T>, permit: BorrowedPermit<'_>) -> Result<(), ClientError> {
        self.take(item, permit, false).map(drop)
    }

    /// As [`Self::push`], for a caller that has more to push right now, such as the tasks of an event loop that run one
    /// after the other: what would leave at once, half empty, waits for [`Self::uncork`]. True: the caller must see to
    /// that.
    pub fn push_corked(
        self: &Arc<Self>,
        item: Item<'_, T>,
        permit: BorrowedPermit<'_>,
    ) -> Result<bool, ClientError> {
        self.take(item, permit, true)
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

    fn take(
        self: &Arc<Self>,
        mut item: Item<'_, T>,
        mut permit: BorrowedPermit<'_>,
        corked: bool,
    ) -> Result<bool, ClientError> {
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
                    self.await_route(guard, &topic, hash, (item, permit), now.get());
                    return Ok(false);
                }
            }
        };
        let partition = match state.partitions.get_mut(key) {
            Some(partition) => partition,
            None => state.partitions.entry(key.clone()).or_default(),
        };
        let (ticking, eager, has_deadline) = (state.ticking, item.eager, item.timeout.is_some());
        let put = self.put(
            &mut state.bodies,
            partition,
            key,
            (&mut item, &mut permit),
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

    /// Adds a message to its partition, behind everything that is there. After an error the permit is untouched.
    fn put<B: Borrow<Arc<BackPressure>>>(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (item, permit): (&mut Item<'_, T>, &mut Permit<B>),
        now: &mut LazyNow,
    ) -> Result<(), ClientError> {
        let single = matches!(key, PartitionKey::Any(_)) && self.limits.linger.is_zero();
        if single || item.encoded.is_some() || item.alone || item.timeout.is_some() {
            self.put_alone(bodies, partition, key, (item, permit), now.get());
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
        open.permit.absorb(permit);
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
            permit: Permit::empty(self.producer.back_pressure()),
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
        let wanted = settings.map_or(self.limits.bytes, |settings| settings.bytes);
        // A broker that has refused a length would refuse it again.
        let lowered = self.batch_limit.lowered(Instant::now);
        let bytes = lowered.map_or(wanted, |lowered| wanted.min(lowered));
        let batch = Batch::new(key.topic().clone(), key.target(), bytes);
        if settings.is_some_and(|settings| settings.inner) {
            return batch.with_id(self.producer.ids().next(clock::now_ms()).to_string());
        }
        batch
    }

    fn put_alone<B: Borrow<Arc<BackPressure>>>(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (item, permit): (&mut Item<'_, T>, &mut Permit<B>),
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
            charged_bytes: permit.bytes(),
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
            permit: permit.take(),
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
        let outgoing = load.outgoing;
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
            since: load.since,
            timeout: load.timeout,
            settings: load.settings,
            parts: load.parts,
        };
        let this = self.clone();
        let done = Box::new(move |outcome, permit| this.on_outcome(&key, (in_flight_batch, permit), outcome));
        self.producer
            .launch(outgoing, load.permit, (load.since, load.timeout), done);
    }

    fn on_outcome(
        self: &Arc<Self>,
        key: &PartitionKey,
        (in_flight_batch, mut permit): (InFlightBatch<T>, Permit),
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
                return self.split(key, (in_flight_batch, permit), halves);
            }
            self.producer.count_failed(u64::from(in_flight_batch.items));
        }
        permit.shrink_to(in_flight_batch.completions.len());
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
                permit,
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
