//! What the parts of the accumulator share: the messages that have not left yet.

use crate::ClientError;
use crate::producer::Producer;
use crate::producer::accumulator::batch_limit::BatchLimit;
use crate::producer::accumulator::message::{BatchSettings, Limits, Sink};
use crate::producer::accumulator::partition::{PartitionKey, PartitionQueue};
use crate::producer::accumulator::split_outcome::SplitOutcome;
use crate::producer::back_pressure::Permit;
use crate::producer::batch::IdText;
use crate::producer::outgoing::EncodedBody;
use bytes::{Bytes, BytesMut};
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::sync::lock;
use pyrmq_routing::route::TopicPublishInfo;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Number of idle topics whose names and queues are kept.
pub(super) const IDLE_KEPT: usize = 1024;

/// Everything that has not left yet.
pub(super) struct AccumulatorState<T> {
    pub(super) partitions: NameMap<PartitionKey, PartitionQueue<T>>,
    /// The names of the topics that were used; a partition's key is made of them.
    pub(super) topics: NameMap<Arc<str>, PartitionKey>,
    pub(super) awaiting_route: HashMap<Arc<str>, Vec<AwaitingRoute<T>>>,
    pub(super) last_awaiting: u64,
    /// The queues by which hashes were last read.
    pub(super) routes: HashMap<Arc<str>, Arc<TopicPublishInfo>>,
    /// Partitions that wait to be uncorked.
    pub(super) corked: Vec<PartitionKey>,
    /// Bodies that travel alone are copied into this, one after the other.
    pub(super) bodies: BytesMut,
    /// The timer is awake.
    pub(super) ticking: bool,
    pub(super) closed: bool,
}

impl<T> AccumulatorState<T> {
    /// Forgets the queues of topics that have no partition any more, now and then.
    pub(super) fn forget_idle_routes(&mut self) {
        if self.routes.len() > IDLE_KEPT + 2 * self.partitions.len() {
            let used: HashSet<&Arc<str>> = self.partitions.keys().map(PartitionKey::topic).collect();
            self.routes.retain(|topic, _| used.contains(topic));
        }
    }

    /// Removes a partition that has no messages, waiting or in flight. It is created again when it is needed.
    pub(super) fn forget_if_idle(&mut self, key: &PartitionKey) {
        if self.partitions.get(key).is_some_and(PartitionQueue::is_idle) {
            self.partitions.remove(key);
        }
    }
}

/// What a frame in flight needs when its response comes.
pub(super) struct InFlightBatch<T> {
    pub(super) completions: Vec<(u32, T)>,
    pub(super) hashes: Vec<i32>,
    /// False: a message that is sent alone.
    pub(super) is_batch: bool,
    pub(super) messages: u32,
    /// The body of a batch of several messages, otherwise empty.
    pub(super) body: Bytes,
    pub(super) bytes: usize,
    pub(super) since: Instant,
    pub(super) timeout: Duration,
    pub(super) settings: Option<BatchSettings>,
    pub(super) split_outcome: Option<Arc<SplitOutcome>>,
}

/// Gathers messages for one producer.
pub struct Accumulator<T> {
    pub(super) producer: Arc<Producer>,
    pub(super) limits: Limits,
    pub(super) ids: IdText,
    pub(super) sink: Sink<T>,
    /// Bytes that a batch may have.
    pub(super) batch_limit: BatchLimit,
    // Guards everything that has not left yet.
    pub(super) state: Mutex<AccumulatorState<T>>,
    pub(super) opened: Arc<Notify>,
}

impl<T> std::fmt::Debug for Accumulator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accumulator")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl<T> Accumulator<T> {
    pub(super) fn state(&self) -> MutexGuard<'_, AccumulatorState<T>> {
        lock(&self.state)
    }
}

impl<T> Drop for Accumulator<T> {
    fn drop(&mut self) {
        // The timer then sees that no accumulator is left.
        self.opened.notify_one();
    }
}

/// A message with a sharding hash that waits for its topic's route.
pub(super) struct AwaitingRoute<T> {
    pub(super) number: u64,
    /// Empty if `encoded` has the body.
    pub(super) body: Bytes,
    pub(super) encoded: Option<EncodedBody>,
    pub(super) permit: Permit,
    pub(super) properties: String,
    pub(super) flag: i32,
    pub(super) hash: i32,
    pub(super) eager: bool,
    pub(super) alone: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) batch: Option<BatchSettings>,
    pub(super) completion: Option<T>,
    pub(super) since: Instant,
}

impl<T> AwaitingRoute<T> {
    /// Lets the message leave as soon as it may, without waiting for others.
    pub(super) fn skip_linger(&mut self) {
        self.eager = true;
    }
}

/// What follows a route.
pub(super) struct Rerouted<T> {
    pub(super) topic: Option<Arc<str>>,
    /// The partitions that got something.
    pub(super) partitions: Vec<PartitionKey>,
    /// What could not be taken there: its permit and completion, and why.
    pub(super) failed: Vec<(Permit, Option<T>, ClientError)>,
}

impl<T> Default for Rerouted<T> {
    fn default() -> Self {
        Self {
            topic: None,
            partitions: Vec::new(),
            failed: Vec::new(),
        }
    }
}
