//! The messages that wait for one topic or queue: the batch that is being filled, and those that are ready.

use crate::producer::accumulator::message::BatchSettings;
use crate::producer::accumulator::split_outcome::SplitOutcome;
use crate::producer::back_pressure::Permit;
use crate::producer::batch::Batch;
use crate::producer::outgoing::{OutgoingMessage, Target};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an expired batch waits for the one before it: that one usually ends first.
const GRACE_PERIOD: Duration = Duration::from_millis(20);

/// The partition that a message belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum PartitionKey {
    /// Messages for any queue: batches go to the topic's queues in turn, several at a time.
    Any(Arc<str>),
    /// Messages for one queue, one batch at a time, so that no retry overtakes what came before it.
    Queue(Arc<str>, Arc<str>, i32),
}

impl PartitionKey {
    pub(super) fn target(&self) -> Target {
        match self {
            Self::Any(_) => Target::Any,
            Self::Queue(_, broker, id) => Target::Queue {
                broker: broker.clone(),
                id: *id,
            },
        }
    }

    pub(super) fn topic(&self) -> &Arc<str> {
        match self {
            Self::Any(topic) | Self::Queue(topic, _, _) => topic,
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        matches!(self, Self::Queue(..))
    }
}

/// The time of a call, read on first use: most messages join a batch and need none.
#[derive(Debug, Default)]
pub(super) struct LazyNow(Option<Instant>);

impl LazyNow {
    pub(super) fn at(time: Instant) -> Self {
        Self(Some(time))
    }

    pub(super) fn get(&mut self) -> Instant {
        *self.0.get_or_insert_with(Instant::now)
    }
}

/// A batch that is being filled.
#[derive(Debug)]
pub(super) struct OpenBatch<T> {
    pub(super) batch: Batch,
    pub(super) permit: Permit,
    /// Set for a batch of `send_batch`: only messages with equal settings join it.
    pub(super) settings: Option<BatchSettings>,
    /// Time for the whole send, from when its first message came.
    pub(super) timeout: Duration,
    pub(super) completions: Vec<(u32, T)>,
    /// The hash of each message that was sent by sharding key; otherwise empty.
    pub(super) hashes: Vec<i32>,
    /// When the batch's first message came: its time and its linger count from here.
    pub(super) since: Instant,
    /// When the batch's first message came, by the wall clock: the messages' ids carry it.
    pub(super) since_ms: i64,
    /// A caller waits for the batch: it is sent as soon as no other batch of its partition is in flight.
    pub(super) eager: bool,
}

/// A frame that is ready to leave.
#[derive(Debug)]
pub(super) struct ReadyBatch<T> {
    pub(super) outgoing: OutgoingMessage,
    pub(super) permit: Permit,
    pub(super) completions: Vec<(u32, T)>,
    /// The hash of each message that was sent by sharding key; otherwise empty.
    pub(super) hashes: Vec<i32>,
    pub(super) since: Instant,
    pub(super) timeout: Duration,
    /// Set for a batch of `send_batch`: only messages with equal settings join it.
    pub(super) settings: Option<BatchSettings>,
    /// Set for a part of a batch that was refused.
    pub(super) split_outcome: Option<Arc<SplitOutcome>>,
}

impl<T> ReadyBatch<T> {
    /// When the batch fails even if an earlier one is still in flight.
    pub(super) fn expires_at(&self) -> Instant {
        self.since + self.timeout + GRACE_PERIOD
    }
}

#[derive(Debug)]
pub(super) struct PartitionQueue<T> {
    pub(super) open: Option<OpenBatch<T>>,
    /// Batches that take no more messages, oldest first.
    pub(super) sealed: VecDeque<ReadyBatch<T>>,
    pub(super) in_flight: usize,
    /// A thread is sending this partition queue's batches: it checks for more before it stops.
    pub(super) draining: bool,
    /// Its batches wait until their caller has pushed all it has.
    pub(super) corked: bool,
}

impl<T> Default for PartitionQueue<T> {
    fn default() -> Self {
        Self {
            open: None,
            sealed: VecDeque::new(),
            in_flight: 0,
            draining: false,
            corked: false,
        }
    }
}

impl<T> PartitionQueue<T> {
    /// Moves the open batch to the ready ones.
    pub(super) fn seal(&mut self) {
        if let Some(mut open) = self.open.take().filter(|open| !open.batch.is_empty()) {
            self.sealed.push_back(ReadyBatch {
                outgoing: open.batch.finish(),
                permit: open.permit,
                completions: open.completions,
                hashes: open.hashes,
                since: open.since,
                timeout: open.timeout,
                settings: open.settings,
                split_outcome: None,
            });
        }
    }

    /// True when the open batch need not wait for more messages.
    fn is_ready(&self, ordered: bool, now: Option<Instant>, linger: Duration) -> bool {
        let Some(open) = &self.open else {
            return false;
        };
        let is_old = |now: Instant| now >= open.since + linger;
        (self.in_flight == 0 && open.eager) || (!ordered && now.is_some_and(is_old))
    }

    /// True when it has no messages, waiting or in flight, and may be removed.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.sealed.is_empty() && self.in_flight == 0 && !self.draining && !self.corked
    }

    /// True when a batch may be sent now. Without a time, its age does not count.
    pub(super) fn is_due(&self, ordered: bool, now: Option<Instant>, linger: Duration) -> bool {
        if ordered && self.in_flight > 0 {
            return false;
        }
        !self.sealed.is_empty() || self.is_ready(ordered, now, linger)
    }

    /// Takes a batch whose timeout has passed while an earlier one is in flight. It counts as in flight.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<ReadyBatch<T>> {
        if self.in_flight == 0 {
            return None;
        }
        let at = self
            .sealed
            .iter()
            .position(|ready| now >= ready.since + ready.timeout)?;
        self.in_flight += 1;
        self.sealed.remove(at)
    }

    /// Takes the next batch that may be sent now. It counts as in flight.
    pub(super) fn next(&mut self, ordered: bool, now: Instant, linger: Duration) -> Option<ReadyBatch<T>> {
        if !self.is_due(ordered, Some(now), linger) {
            return None;
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        let ready = self.sealed.pop_front()?;
        self.in_flight += 1;
        Some(ready)
    }
}
