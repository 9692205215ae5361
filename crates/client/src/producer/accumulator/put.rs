//! Adds messages to batches.

use super::await_route;
use super::message::{AccumulatedMessage, BatchSettings, copied, unencodable};
use super::partition::{LazyNow, OpenBatch, PartitionKey, PartitionQueue, ReadyBatch};
use super::shared::{Accumulator, AccumulatorState, IDLE_KEPT, Rerouted};
use crate::ClientError;
use crate::producer::back_pressure::{BackPressure, BorrowedPermit, Permit};
use crate::producer::batch::{self, Batch, COMMON_PROPERTIES};
use crate::producer::outgoing::{OutgoingMessage, TargetRef};
use crate::session::topic_name::check_topic;
use bytes::BytesMut;
use pyrmq_remoting::clock;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::message::properties::MAX_BYTES;
use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

/// The timer sends batches that are old enough. In case it is late, every 32nd message sends them, too.
const AGE_CHECK_EVERY: u32 = 32;

impl<T: Send + 'static> Accumulator<T> {
    /// Accepts a message for [`Self::push`] and [`Self::push_corked`]. True: the caller must uncork. This is one
    /// function, though long, because the lock is held throughout, and partition and topic are looked up once.
    pub(super) fn accept(
        self: &Arc<Self>,
        mut message: AccumulatedMessage<'_, T>,
        mut permit: BorrowedPermit<'_>,
        corked: bool,
    ) -> Result<bool, ClientError> {
        self.prepare(&mut message)?;
        let mut now = LazyNow::default();
        let mut guard = self.state();
        let state = &mut *guard;
        if state.closed {
            return Err(ClientError::Closed { what: "producer" });
        }
        let any = if let Some(any) = state.topics.get(message.topic) {
            any
        } else {
            self.add_topic(&mut state.topics, state.partitions.len(), message.topic)?
        };
        let own_key;
        let mut rerouted = Rerouted::default();
        let key = match message.target {
            TargetRef::Any => any,
            TargetRef::Queue(broker, id) => {
                own_key = PartitionKey::Queue(any.topic().clone(), broker.into(), id);
                &own_key
            }
            TargetRef::Hash(hash) => {
                let topic = any.topic().clone();
                if let Some(found) = self.queue_of(state, &topic, hash, &mut rerouted)? {
                    own_key = found;
                    &own_key
                } else {
                    self.await_route(guard, &topic, hash, (message, permit), now.get());
                    return Ok(false);
                }
            }
        };
        let partition = match state.partitions.get_mut(key) {
            Some(partition) => partition,
            None => state.partitions.entry(key.clone()).or_default(),
        };
        let (ticking, eager, has_deadline) = (state.ticking, message.eager, message.timeout.is_some());
        let put = self.put(
            &mut state.bodies,
            partition,
            key,
            (&mut message, &mut permit),
            &mut now,
        );
        if let Err(error) = put {
            let key = key.clone();
            state.forget_if_idle(&key);
            return Err(error);
        }
        let index = partition.open.as_ref().map_or(0, |open| open.batch.len());
        let age_check = index.is_multiple_of(AGE_CHECK_EVERY).then(|| now.get());
        let due = partition.is_due(key.is_ordered(), age_check, self.limits.linger);
        let is_corked = corked && due && partition.sealed.is_empty();
        let first = is_corked && state.corked.is_empty();
        if is_corked && !partition.corked {
            partition.corked = true;
            state.corked.push(key.clone());
        }
        let drain = (due && !is_corked && !partition.draining).then(|| key.clone());
        // Only the timer launches a batch that is neither eager nor full, and only it ends a message whose deadline
        // passes while its partition queue waits for an answer.
        let needs_timer = !due && has_deadline;
        let wake = needs_timer || (!ticking && partition.open.is_some() && !(eager && due));
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

    /// Checks the size of a message, and compresses a large body. Before the lock is taken, since compression takes
    /// long.
    fn prepare(&self, message: &mut AccumulatedMessage<'_, T>) -> Result<(), ClientError> {
        self.producer.check_size(message.topic, message.body.len())?;
        if COMMON_PROPERTIES + message.properties.len() > MAX_BYTES {
            return Err(ClientError::Properties {
                topic: message.topic.to_owned(),
                bytes: COMMON_PROPERTIES + message.properties.len(),
            });
        }
        if message.encoded.is_none()
            && message.batch.is_none()
            && self.producer.is_compressible(message.body.len())
        {
            message.encoded = self.producer.encode_body(message.body);
        }
        Ok(())
    }

    fn add_topic<'a>(
        &self,
        topics: &'a mut NameMap<Arc<str>, PartitionKey>,
        partitions: usize,
        topic: &str,
    ) -> Result<&'a PartitionKey, ClientError> {
        check_topic(topic)?;
        let key = PartitionKey::Any(self.producer.topic(topic));
        if topics.len() > IDLE_KEPT + 2 * partitions {
            // A cache: names in use are added again.
            topics.clear();
        }
        Ok(topics.entry(topic.into()).or_insert(key))
    }

    /// The partition of a hash; `None` if the topic's messages must wait for its route.
    pub(super) fn queue_of(
        &self,
        state: &mut AccumulatorState<T>,
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

    /// Adds a message to its partition, after everything that is there. After an error the permit is untouched.
    pub(super) fn put<B: Borrow<Arc<BackPressure>>>(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (message, permit): (&mut AccumulatedMessage<'_, T>, &mut Permit<B>),
        now: &mut LazyNow,
    ) -> Result<(), ClientError> {
        let is_alone = message.alone
            || message.encoded.is_some()
            || message.timeout.is_some()
            || (matches!(key, PartitionKey::Any(_)) && self.limits.linger.is_zero());
        if is_alone {
            self.put_alone(bodies, partition, key, (message, permit), now.get());
            return Ok(());
        }
        let properties = COMMON_PROPERTIES + message.properties.len();
        let hash = message.hash();
        let size = (message.body.len(), properties);
        let open = self.open(partition, key, size, hash.is_some(), message.batch, now);
        let index = open.batch.len();
        let id = self.ids.next_at(self.producer.ids(), open.since_ms);
        open.batch
            .push_with_id(message.body, message.properties, &id, message.flag)
            .map_err(unencodable)?;
        open.permit.absorb(permit);
        open.hashes.extend(hash);
        open.eager |= message.eager;
        if let Some(completion) = message.completion.take() {
            open.completions.push((index, completion));
        }
        Ok(())
    }

    /// The open batch for a message with this size (body and properties), sent by sharding hash or not.
    pub(super) fn open<'a>(
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

    pub(super) fn new_batch(&self, key: &PartitionKey, settings: Option<BatchSettings>) -> Batch {
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

    pub(super) fn put_alone<B: Borrow<Arc<BackPressure>>>(
        &self,
        bodies: &mut BytesMut,
        partition: &mut PartitionQueue<T>,
        key: &PartitionKey,
        (message, permit): (&mut AccumulatedMessage<'_, T>, &mut Permit<B>),
        now: Instant,
    ) {
        let id = self.ids.next(self.producer.ids());
        let id = std::str::from_utf8(&id).unwrap_or_default();
        let timeout = message.time(self.producer.options().send_timeout);
        let hashes = message.hash().into_iter().collect();
        let (body, sys_flag) = match message.encoded.take() {
            Some(encoded) => (encoded.body, encoded.flags),
            None => (copied(bodies, message.body), 0),
        };
        let outgoing = OutgoingMessage {
            topic: key.topic().clone(),
            body,
            charged_bytes: permit.bytes(),
            properties: batch::alone_properties(id, message.properties),
            message_id: id.to_owned(),
            flag: message.flag,
            sys_flag,
            target: key.target(),
            batch: None,
            reply: false,
        };
        partition.seal();
        partition.sealed.push_back(ReadyBatch {
            outgoing,
            permit: permit.take(),
            hashes,
            completions: message
                .completion
                .take()
                .map(|completion| (0, completion))
                .into_iter()
                .collect(),
            since: now,
            timeout,
            settings: None,
            split_outcome: None,
        });
    }
}
