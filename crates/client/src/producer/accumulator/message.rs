//! The accumulator's input, a message, and its output, the outcome of a batch.

use crate::ClientError;
use crate::producer::SendResult;
use crate::producer::back_pressure::Permit;
use crate::producer::outgoing::{EncodedBody, TargetRef};
use bytes::{Bytes, BytesMut};
use pyrmq_remoting::WireError;
use std::sync::Arc;
use std::time::Duration;

/// Size of the memory that small bodies share.
const SHARED_BYTES: usize = 16 * 1024;
/// Bodies above this size get memory of their own.
const LARGE_BODY: usize = 2 * 1024;

/// When a batch is full, and how long it may be kept open.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for other messages. Zero: each message that names no queue is sent by itself.
    pub linger: Duration,
    /// Bytes of a batch.
    pub bytes: usize,
    /// Messages of a batch.
    pub messages: u32,
}

/// How the messages of a call of many are batched: only with messages of the same settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// Bytes of a batch.
    pub bytes: usize,
    /// Topics of batches keep each batch as one record.
    pub inner: bool,
    /// Time for each batch.
    pub timeout: Duration,
}

/// A message to be sent.
#[derive(Debug)]
pub struct AccumulatedMessage<'a, T> {
    /// Topic.
    pub topic: &'a str,
    /// Body.
    pub body: &'a [u8],
    /// The body as it is sent, if the caller has compressed it already by `Producer::encode_body`.
    pub encoded: Option<EncodedBody>,
    /// The message's own properties in wire form.
    pub properties: &'a str,
    /// The user's flag.
    pub flag: i32,
    /// Where it goes.
    pub target: TargetRef<'a>,
    /// A caller waits for it: it does not linger while its partition is idle.
    pub eager: bool,
    /// Brokers refuse it in a batch (a delayed message).
    pub alone: bool,
    /// Its own timeout. A message with one is sent alone.
    pub timeout: Option<Duration>,
    /// Set for the messages of `send_batch`, which are sent in a batch, uncompressed, whatever their size.
    pub batch: Option<BatchSettings>,
    /// Comes back with the outcome. A message without one is only counted, and logged when it fails.
    pub completion: Option<T>,
}

impl<T> AccumulatedMessage<'_, T> {
    /// Bytes that it takes of the in-flight limit.
    pub fn charged_bytes(&self) -> usize {
        self.body.len() + self.properties.len()
    }

    /// The timeout of the message, from its arrival on.
    pub(super) fn time(&self, usual: Duration) -> Duration {
        let batch = self.batch.map(|batch| batch.timeout);
        self.timeout.or(batch).unwrap_or(usual)
    }

    pub(super) fn hash(&self) -> Option<i32> {
        match self.target {
            TargetRef::Hash(hash) => Some(hash),
            TargetRef::Any | TargetRef::Queue(..) => None,
        }
    }
}

/// What became of one frame.
#[derive(Debug)]
pub struct BatchOutcome<T> {
    /// Capacity for as many messages as there are completions: a message counts as in flight until its completion is
    /// delivered.
    pub permit: Permit,
    /// Index in the frame and completion of each message that has one.
    pub completions: Vec<(u32, T)>,
    /// The frame was a batch.
    pub batch: bool,
    /// The frame's outcome.
    pub outcome: Result<Arc<SendResult>, ClientError>,
}

/// Takes each finished frame, on the connection's task: it must not block. Called many times, so it is no `Completion`.
pub type Sink<T> = Box<dyn Fn(BatchOutcome<T>) + Send + Sync>;

pub(super) fn unencodable(source: WireError) -> ClientError {
    ClientError::Unencodable {
        what: "a batch",
        source,
    }
}

/// A copy of a body. Small ones share memory: an allocation each, made by one thread and freed by another, costs more
/// than the copy.
pub(super) fn copied(bodies: &mut BytesMut, body: &[u8]) -> Bytes {
    if body.len() > LARGE_BODY {
        return Bytes::copy_from_slice(body);
    }
    if bodies.capacity() - bodies.len() < body.len() {
        *bodies = BytesMut::with_capacity(SHARED_BYTES);
    }
    bodies.extend_from_slice(body);
    bodies.split().freeze()
}
