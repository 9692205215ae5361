//! Keeps messages with a sharding hash until their topic's route is known, which says which queue the hash selects.

use crate::ClientError;
use crate::error::SendFailure;
use crate::producer::accumulator::message::{AccumulatedMessage, BatchOutcome};
use crate::producer::accumulator::partition::{LazyNow, PartitionKey, PartitionQueue};
use crate::producer::accumulator::shared::{Accumulator, AccumulatorState, AwaitingRoute, Rerouted};
use crate::producer::back_pressure::{BorrowedPermit, Permit};
use crate::producer::outgoing::TargetRef;
use crate::session::routes::TopicRoute;
use bytes::Bytes;
use pyrmq_remoting::clock;
use pyrmq_routing::select;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

impl<T: Send + 'static> Accumulator<T> {
    /// Keeps a message until its topic's route says which queue its hash selects.
    pub(super) fn await_route(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, AccumulatorState<T>>,
        topic: &Arc<str>,
        hash: i32,
        (message, permit): (AccumulatedMessage<'_, T>, BorrowedPermit<'_>),
        since: Instant,
    ) {
        state.last_awaiting += 1;
        let number = state.last_awaiting;
        let by = since + message.time(self.producer.options().send_timeout);
        state
            .awaiting_route
            .entry(topic.clone())
            .or_default()
            .push(AwaitingRoute {
                number,
                body: match message.encoded {
                    Some(_) => Bytes::new(),
                    None => Bytes::copy_from_slice(message.body),
                },
                permit: permit.into_owned(),
                encoded: message.encoded,
                properties: message.properties.to_owned(),
                flag: message.flag,
                hash,
                eager: message.eager,
                alone: message.alone,
                timeout: message.timeout,
                batch: message.batch,
                completion: message.completion,
                since,
            });
        drop(state);
        let (this, name) = (self.clone(), topic.clone());
        self.producer
            .routes()
            .with_route(topic, by, move |known| match known {
                Ok(route) => this.route_found(&name, &route),
                Err(error) => this.fail_awaiting(&name, number, error),
            });
    }

    /// Fails one message: its time is over, or its topic has no route.
    fn fail_awaiting(&self, topic: &Arc<str>, number: u64, error: ClientError) {
        let mut state = self.state();
        let Some(all) = state.awaiting_route.get_mut(topic) else {
            return;
        };
        let at = all
            .iter()
            .position(|awaiting_route| awaiting_route.number == number);
        let found = at.map(|at| all.remove(at));
        if all.is_empty() {
            state.awaiting_route.remove(topic);
        }
        drop(state);
        if let Some(awaiting_route) = found {
            self.refuse(topic, awaiting_route.permit, awaiting_route.completion, error);
        }
    }

    /// Puts each message of a topic whose route is known now into its partition, in the order in which they came.
    fn route_found(self: &Arc<Self>, topic: &Arc<str>, route: &TopicRoute) {
        let mut failed = Vec::new();
        let mut used = Vec::new();
        let mut guard = self.state();
        let state = &mut *guard;
        let mut rerouted = Rerouted::default();
        self.reroute(state, topic, route, &mut rerouted);
        for awaiting_route in state.awaiting_route.remove(topic).unwrap_or_default() {
            let mut permit = awaiting_route.permit;
            let put = partition_of_hash(topic, route, awaiting_route.hash).and_then(|key| {
                let mut message = AccumulatedMessage {
                    topic,
                    body: &awaiting_route.body,
                    encoded: awaiting_route.encoded,
                    properties: &awaiting_route.properties,
                    flag: awaiting_route.flag,
                    target: TargetRef::Hash(awaiting_route.hash),
                    eager: awaiting_route.eager,
                    alone: awaiting_route.alone,
                    timeout: awaiting_route.timeout,
                    batch: awaiting_route.batch,
                    completion: None,
                };
                let partition = state.partitions.entry(key.clone()).or_default();
                self.put(
                    &mut state.bodies,
                    partition,
                    &key,
                    (&mut message, &mut permit),
                    &mut LazyNow::at(awaiting_route.since),
                )?;
                Ok(key)
            });
            match put {
                Ok(key) => {
                    if let (Some(completion), Some(partition)) =
                        (awaiting_route.completion, state.partitions.get_mut(&key))
                    {
                        partition.attach_completion(completion);
                    }
                    if !used.contains(&key) {
                        used.push(key);
                    }
                }
                Err(error) => failed.push((permit, awaiting_route.completion, error)),
            }
        }
        drop(guard);
        for (permit, completion, error) in failed {
            self.refuse(topic, permit, completion, error);
        }
        self.finish_reroute(rerouted);
        for key in used {
            self.drain(&key);
        }
        // The timer sends batches that are neither eager nor full.
        self.opened.notify_one();
    }

    /// Fails a message that cannot be sent and has no id and no queue yet.
    pub(super) fn refuse(
        &self,
        topic: &Arc<str>,
        mut permit: Permit,
        completion: Option<T>,
        last: ClientError,
    ) {
        let id = self.producer.ids().next(clock::now_ms()).to_string();
        let name = self.producer.options().client.unwrap_name(topic);
        let error = ClientError::NotConfirmed {
            failure: Arc::new(SendFailure::unsent(name, id, Instant::now(), last)),
            item: None,
        };
        permit.keep_for(completion.as_slice());
        self.producer.count_failed(1);
        let Some(completion) = completion else {
            tracing::warn!(topic = &**topic, %error, "a message without a callback was not sent");
            return;
        };
        (self.sink)(BatchOutcome {
            permit,
            completions: vec![(0, completion)],
            batch: false,
            outcome: Err(error),
        });
    }
}

impl<T> PartitionQueue<T> {
    /// Attaches a completion to the message that was put last.
    fn attach_completion(&mut self, completion: T) {
        if let Some(open) = &mut self.open {
            open.completions
                .push((open.batch.len().saturating_sub(1), completion));
        } else if let Some(ready) = self.sealed.back_mut() {
            ready.completions.push((0, completion));
        }
    }
}

/// The partition for messages with this hash.
pub(super) fn partition_of_hash(
    topic: &Arc<str>,
    route: &TopicRoute,
    hash: i32,
) -> Result<PartitionKey, ClientError> {
    let queues = &route.published.queues;
    let at = select::by_number(i64::from(hash), queues.len());
    let queue = at.and_then(|at| queues.get(at));
    let queue = queue.ok_or_else(|| route.no_queue(topic))?;
    Ok(PartitionKey::Queue(
        topic.clone(),
        queue.broker.clone(),
        queue.queue_id,
    ))
}
