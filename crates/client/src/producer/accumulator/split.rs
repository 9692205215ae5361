//! Splits a batch that was accumulated here and that a broker refuses for its content: it is sent again in halves, down
//! to single messages, so that each caller gets the outcome of its own message.
//!
//! No caller asked for the batch, so none gets its refusal: the broker's `maxMessageSize` is below `batch_bytes`, or
//! one of the messages cannot be stored. The halves are sent before everything newer, within the timeout of the batch.
//! If all its messages are stored in the end, the batch was too long: later ones are limited to the longest part that
//! was stored.

use crate::ClientError;
use crate::producer::SendResult;
use crate::producer::accumulator::partition::{PartitionKey, ReadyBatch};
use crate::producer::accumulator::shared::{Accumulator, InFlightBatch};
use crate::producer::accumulator::split_outcome::SplitOutcome;
use crate::producer::back_pressure::Permit;
use crate::producer::batch::Batch;
use crate::producer::outgoing::OutgoingMessage;
use pyrmq_remoting::message::batch::{self, BatchItem};
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::{WireError, clock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

impl<T: Send + 'static> Accumulator<T> {
    /// Puts a refused batch's halves at the front of its partition.
    pub(super) fn split(
        self: &Arc<Self>,
        key: &PartitionKey,
        (in_flight_batch, mut permit): (InFlightBatch<T>, Permit),
        (middle, outgoings): Halves,
    ) {
        permit.on_response();
        let index = u32::try_from(middle).unwrap_or(u32::MAX);
        let split_outcome = in_flight_batch.split_outcome.unwrap_or_else(|| {
            Arc::new(SplitOutcome {
                whole: in_flight_batch.bytes,
                left: AtomicUsize::new(1),
                longest_stored: AtomicUsize::new(0),
                has_failed: AtomicBool::new(false),
            })
        });
        split_outcome.left.fetch_add(1, Ordering::AcqRel);
        let (early, late): (Vec<_>, Vec<_>) = in_flight_batch
            .completions
            .into_iter()
            .partition(|(at, _)| *at < index);
        let late = late
            .into_iter()
            .map(|(at, completion)| (at - index, completion))
            .collect();
        let mut hashes = in_flight_batch.hashes;
        let late_hashes = hashes.split_off(middle.min(hashes.len()));
        let early_permit = permit.split(middle, outgoings[0].charged_bytes);
        let halves = outgoings
            .into_iter()
            .zip([(early_permit, early, hashes), (permit, late, late_hashes)]);
        let ready_batches: Vec<ReadyBatch<T>> = halves
            .map(|(outgoing, (permit, completions, hashes))| ReadyBatch {
                outgoing,
                permit,
                completions,
                hashes,
                since: in_flight_batch.since,
                timeout: in_flight_batch.timeout,
                settings: in_flight_batch.settings,
                split_outcome: Some(split_outcome.clone()),
            })
            .collect();
        let mut state = self.state();
        let partition = state.partitions.entry(key.clone()).or_default();
        partition.in_flight = partition.in_flight.saturating_sub(1);
        for ready in ready_batches.into_iter().rev() {
            partition.sealed.push_front(ready);
        }
        let more = !partition.draining
            && partition.is_due(key.is_ordered(), Some(Instant::now()), self.limits.linger);
        drop(state);
        if more {
            self.drain(key);
        }
    }

    /// Learns from the end of a part.
    pub(super) fn lower_batch_limit(
        &self,
        in_flight_batch: &InFlightBatch<T>,
        outcome: &Result<SendResult, ClientError>,
    ) {
        let Some(split_outcome) = &in_flight_batch.split_outcome else {
            return;
        };
        let Some(longest) = split_outcome.end(in_flight_batch.bytes, outcome.is_ok()) else {
            return;
        };
        if self.batch_limit.lower(longest, Instant::now()) {
            let refused = split_outcome.whole;
            tracing::warn!(
                refused,
                longest,
                "a broker takes shorter batches only (maxMessageSize): `batch_bytes` is lowered"
            );
        }
    }
}

/// The number of messages in the first half, and the two halves.
pub(super) type Halves = (usize, [OutgoingMessage; 2]);

/// Splits the messages of a batch into two batches of about the same number. With `inner`, each gets its own id.
pub(super) fn halves(
    key: &PartitionKey,
    body: &[u8],
    inner: Option<&UniqueIds>,
) -> Result<Halves, WireError> {
    let items: Vec<_> = batch::items(body).collect::<Result<_, _>>()?;
    let middle = items.len() / 2;
    let (first, second) = items.split_at(middle);
    Ok((
        middle,
        [accumulated(key, first, inner)?, accumulated(key, second, inner)?],
    ))
}

fn accumulated(
    key: &PartitionKey,
    items: &[BatchItem<'_>],
    inner: Option<&UniqueIds>,
) -> Result<OutgoingMessage, WireError> {
    let mut part = Batch::new(key.topic().clone(), key.target(), usize::MAX);
    if let Some(ids) = inner {
        part = part.with_id(ids.next(clock::now_ms()).to_string());
    }
    for item in items {
        part.push_again(item)?;
    }
    Ok(part.finish())
}
