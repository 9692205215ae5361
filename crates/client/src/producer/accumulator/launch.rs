//! Sends batches and handles their outcomes.

use super::partition::{PartitionKey, ReadyBatch};
use super::shared::{Accumulator, InFlightBatch, Rerouted};
use super::{BatchOutcome, split};
use crate::producer::SendOutcome;
use crate::producer::back_pressure::Permit;
use crate::producer::verdict::is_illegal;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;

/// The log lines keep the name of the accumulator.
const LOG: &str = "pyrmq_client::producer::accumulator";

impl<T: Send + 'static> Accumulator<T> {
    /// Launches what may leave. Only one thread at a time works on a partition; the others leave their work to it.
    pub(super) fn drain(self: &Arc<Self>, key: &PartitionKey) {
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
            let Some(ready) = next else {
                state.forget_if_idle(key);
                break;
            };
            (partition.draining, worked) = (true, true);
            drop(guard);
            self.launch(key.clone(), ready);
        }
        self.finish_reroute(rerouted);
    }

    pub(super) fn launch(self: &Arc<Self>, key: PartitionKey, ready: ReadyBatch<T>) {
        let outgoing = ready.outgoing;
        let body = if outgoing.messages() > 1 {
            outgoing.body.clone()
        } else {
            Bytes::new()
        };
        let in_flight_batch = InFlightBatch {
            completions: ready.completions,
            hashes: ready.hashes,
            is_batch: outgoing.is_batch(),
            messages: outgoing.messages(),
            body,
            bytes: outgoing.body.len(),
            since: ready.since,
            timeout: ready.timeout,
            settings: ready.settings,
            split_outcome: ready.split_outcome,
        };
        let this = self.clone();
        let done = Box::new(move |(outcome, permit): (SendOutcome, Permit)| {
            this.on_outcome(&key, (in_flight_batch, permit), outcome);
        });
        self.producer
            .launch(outgoing, ready.permit, (ready.since, ready.timeout), done);
    }

    pub(super) fn on_outcome(
        self: &Arc<Self>,
        key: &PartitionKey,
        (in_flight_batch, mut permit): (InFlightBatch<T>, Permit),
        outcome: SendOutcome,
    ) {
        if let Err(error) = &outcome
            && in_flight_batch.messages > 1
            && is_illegal(error)
        {
            let inner = in_flight_batch
                .settings
                .is_some_and(|settings| settings.inner)
                .then(|| self.producer.ids());
            if let Ok(halves) = split::halves(key, &in_flight_batch.body, inner) {
                tracing::debug!(target: LOG, topic = &**key.topic(), messages = in_flight_batch.messages, %error, "a refused batch is sent in halves");
                return self.split(key, (in_flight_batch, permit), halves);
            }
            self.producer.count_failed(u64::from(in_flight_batch.messages));
        }
        permit.keep_for(&in_flight_batch.completions);
        self.lower_batch_limit(&in_flight_batch, &outcome);
        let (messages, completions) = (in_flight_batch.messages as usize, in_flight_batch.completions);
        if let Err(error) = &outcome
            && completions.len() < messages
        {
            let count = messages - completions.len();
            tracing::warn!(target: LOG, topic = &**key.topic(), count, %error, "messages without a callback were not confirmed");
        }
        let mut state = self.state();
        let mut more = false;
        if let Some(partition) = state.partitions.get_mut(key) {
            partition.in_flight = partition.in_flight.saturating_sub(1);
            if let Some(open) = &mut partition.open
                && key.is_ordered()
            {
                // Messages that came while this batch was in flight have waited long enough.
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
                batch: in_flight_batch.is_batch,
                outcome: outcome.map(Arc::new),
            });
        }
        if more {
            self.drain(key);
        }
    }
}
