//! Moves messages with a sharding hash whose queue left the route while they waited, to the queue that the hash selects
//! now.
//!
//! Apache calls its selector when it sends a message, with the queues of that moment. So messages that were not sent
//! yet follow the route, in order, before newer ones of their hash are accepted. Those in flight to a queue that is
//! gone stay bound to it and fail. Messages for a queue that the caller chose are never moved.

use crate::producer::accumulator::await_route;
use crate::producer::accumulator::message::unencodable;
use crate::producer::accumulator::partition::{LazyNow, PartitionKey, ReadyBatch};
use crate::producer::accumulator::shared::{Accumulator, AccumulatorState, Rerouted};
use crate::producer::batch::charged_bytes;
use crate::session::routes::TopicRoute;
use pyrmq_remoting::message::batch;
use std::sync::Arc;

impl<T: Send + 'static> Accumulator<T> {
    /// Moves a topic's messages if its queues have changed since the last call. Without a change this costs a
    /// comparison of pointers.
    pub(super) fn reroute(
        &self,
        state: &mut AccumulatorState<T>,
        topic: &Arc<str>,
        route: &TopicRoute,
        into: &mut Rerouted<T>,
    ) {
        let published = &route.published;
        match state.routes.get_mut(topic) {
            None => {
                state.forget_idle_routes();
                state.routes.insert(topic.clone(), published.clone());
                return;
            }
            Some(seen) if Arc::ptr_eq(seen, published) => return,
            Some(seen) => {
                // A refreshed route is another object, usually with the same queues.
                let same = seen.queues == published.queues;
                *seen = published.clone();
                if same {
                    return;
                }
            }
        }
        let queues = &published.queues;
        // Without queues, the broker that has them may be about to come back.
        if queues.is_empty() {
            return;
        }
        let is_gone = |key: &PartitionKey| match key {
            PartitionKey::Any(_) => false,
            PartitionKey::Queue(of, broker, id) => {
                of == topic
                    && !queues
                        .iter()
                        .any(|queue| queue.queue_id == *id && (broker.is_empty() || queue.broker == *broker))
            }
        };
        let mut moved = Vec::new();
        for (_, partition) in state.partitions.iter_mut().filter(|(key, _)| is_gone(key)) {
            partition.seal();
            let (hashed, chosen) = std::mem::take(&mut partition.sealed)
                .into_iter()
                .partition(|ready| !ready.hashes.is_empty());
            partition.sealed = chosen;
            moved.push(hashed);
        }
        into.topic = Some(topic.clone());
        for ready in moved.into_iter().flatten() {
            self.requeue(state, topic, route, ready, into);
        }
    }

    /// Puts each message of a batch into the partition of its hash, after those that are in it.
    fn requeue(
        &self,
        state: &mut AccumulatorState<T>,
        topic: &Arc<str>,
        route: &TopicRoute,
        mut ready: ReadyBatch<T>,
        into: &mut Rerouted<T>,
    ) {
        if !ready.outgoing.is_batch() {
            return Self::requeue_alone(state, topic, route, ready, into);
        }
        let settings = ready.settings;
        let body = ready.outgoing.body.clone();
        let items = batch::items(&body).filter_map(Result::ok);
        let mut ids = ready.outgoing.message_id.split(',');
        let mut completions = std::mem::take(&mut ready.completions).into_iter().peekable();
        for ((index, item), hash) in (0..).zip(items).zip(ready.hashes) {
            let completion = completions
                .next_if(|(at, _)| *at == index)
                .map(|(_, completion)| completion);
            let id = ids.next().unwrap_or_default();
            let mut permit = ready.permit.split(1, charged_bytes(&item));
            let key = match await_route::partition_of_hash(topic, route, hash) {
                Ok(key) => key,
                Err(error) => {
                    into.failed.push((permit, completion, error));
                    continue;
                }
            };
            let partition = state.partitions.entry(key.clone()).or_default();
            let size = (item.body.len(), item.properties.len());
            let open = self.open(
                partition,
                &key,
                size,
                true,
                settings,
                &mut LazyNow::at(ready.since),
            );
            let (index, text) = (open.batch.len(), String::from_utf8_lossy(item.properties));
            if let Err(source) = open.batch.push(item.body, &text, id, item.flag) {
                into.failed.push((permit, completion, unencodable(source)));
                continue;
            }
            open.permit.absorb(&mut permit);
            open.hashes.push(hash);
            // It has waited long enough.
            open.eager = true;
            open.since = open.since.min(ready.since);
            open.completions
                .extend(completion.map(|completion| (index, completion)));
            into.note(key);
        }
    }

    /// Puts a message that is sent alone, as it is, into the partition of its hash.
    fn requeue_alone(
        state: &mut AccumulatorState<T>,
        topic: &Arc<str>,
        route: &TopicRoute,
        mut ready: ReadyBatch<T>,
        into: &mut Rerouted<T>,
    ) {
        let hash = ready.hashes.first().copied().unwrap_or_default();
        match await_route::partition_of_hash(topic, route, hash) {
            Ok(key) => {
                let partition = state.partitions.entry(key.clone()).or_default();
                partition.seal();
                ready.outgoing.target = key.target();
                partition.sealed.push_back(ready);
                into.note(key);
            }
            Err(error) => {
                let completion = ready
                    .completions
                    .into_iter()
                    .next()
                    .map(|(_, completion)| completion);
                into.failed.push((ready.permit, completion, error));
            }
        }
    }

    /// Reports what failed, and sends what is ready. Without the lock.
    pub(super) fn finish_reroute(self: &Arc<Self>, rerouted: Rerouted<T>) {
        let Some(topic) = rerouted.topic else { return };
        for (permit, completion, error) in rerouted.failed {
            self.refuse(&topic, permit, completion, error);
        }
        for key in rerouted.partitions {
            self.drain(&key);
        }
    }
}

impl<T> Rerouted<T> {
    fn note(&mut self, key: PartitionKey) {
        if !self.partitions.contains(&key) {
            self.partitions.push(key);
        }
    }
}
