//! What is known of a send that was not confirmed, and of positions that could not be committed.

use super::ClientError;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

/// A failed attempt of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 1.
    pub number: u32,
    /// The broker that got the request.
    pub broker: Arc<str>,
    /// The queue that was requested; -1: the broker was to choose.
    pub queue_id: i32,
    /// When it began, in milliseconds of the send.
    pub began_ms: u64,
    /// How long it took.
    pub took_ms: u64,
    /// What it failed with.
    pub cause: String,
    /// True when this attempt may have stored the message.
    pub may_exist: bool,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            broker,
            queue_id,
            began_ms,
            took_ms,
            cause,
            ..
        } = self;
        write!(
            f,
            "{number}. {broker} queue {queue_id} at {began_ms} ms for {took_ms} ms: {cause}"
        )
    }
}

/// One message's id among those of its frame. A batch has the ids of its messages with commas between them, or one id
/// for all; `item` is the message's index in it.
pub fn id_at(ids: &str, item: Option<u32>) -> &str {
    const DIGITS: usize = 32;
    let Some(item) = item.map(|item| item as usize) else {
        return ids;
    };
    // Our own ids have 32 digits each: the id's position is known without a search.
    let start = item * (DIGITS + 1);
    ids.get(start..start + DIGITS)
        .unwrap_or_else(|| ids.split(',').nth(item).unwrap_or(ids))
}

/// What is known of a message, or of a batch of them, that was not confirmed.
#[derive(Debug, Clone)]
pub struct SendFailure {
    /// The topic, without the client's namespace.
    pub topic: Arc<str>,
    /// The unique id; of a batch, the ids of its messages with commas between them.
    pub message_ids: String,
    /// Messages of the batch; `None`: a message that is sent alone.
    pub batch: Option<NonZeroU32>,
    /// The broker that got the last request.
    pub broker: Option<Arc<str>>,
    /// The queue that was requested last.
    pub queue_id: Option<i32>,
    /// Attempts made.
    pub attempts: u32,
    /// Time spent.
    pub elapsed_ms: u64,
    /// True when at least one attempt may have stored it.
    pub may_exist: bool,
    /// True when time ran out, false when the attempts did.
    pub in_time: bool,
    /// Each attempt that failed; of many the first and the last ones.
    pub failed_attempts: Vec<Attempt>,
    /// What it was given up for.
    pub last: ClientError,
}

impl SendFailure {
    /// The failure of a single message for which no attempt was made.
    pub fn unsent(topic: Arc<str>, message_id: String, since: Instant, last: ClientError) -> Self {
        Self {
            topic,
            message_ids: message_id,
            batch: None,
            broker: None,
            queue_id: None,
            attempts: 0,
            elapsed_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            may_exist: false,
            in_time: false,
            failed_attempts: Vec::new(),
            last,
        }
    }

    /// The unique id of the message with this index in the frame.
    pub fn message_id(&self, item: Option<u32>) -> &str {
        id_at(&self.message_ids, item)
    }
}

/// The text for a failed send, as it concerns one message of the frame or the whole.
pub(super) struct FailureText<'a>(pub(super) &'a SendFailure, pub(super) Option<u32>);

impl fmt::Display for FailureText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(failure, item) = self;
        let SendFailure {
            topic,
            attempts,
            elapsed_ms,
            last,
            ..
        } = failure;
        let first = failure.batch.map(|_| 0);
        write!(f, "message {} ", failure.message_id(item.or(first)))?;
        let others = failure.batch.map_or(0, |messages| messages.get() - 1);
        if item.is_none() && others > 0 {
            write!(f, "and {others} more of its batch ")?;
        }
        let outcome = if failure.may_exist {
            "it may have been stored: the outcome is unknown"
        } else {
            "it was not stored"
        };
        write!(
            f,
            "for topic `{topic}` was not confirmed after {attempts} attempts in {elapsed_ms} ms ({outcome}); last"
        )?;
        if let (Some(broker), Some(queue_id)) = (&failure.broker, failure.queue_id) {
            write!(f, ", {broker} queue {queue_id}")?;
        }
        let cause = last.to_string();
        write!(f, ": {cause}")?;
        let earlier = match failure.failed_attempts.split_last() {
            Some((attempt, earlier)) if attempt.cause == cause => earlier,
            _ => &failure.failed_attempts,
        };
        for (at, attempt) in earlier.iter().enumerate() {
            let start = if at == 0 { "; before: " } else { "; " };
            write!(f, "{start}{attempt}")?;
        }
        Ok(())
    }
}

/// A queue whose position could not be committed.
#[derive(Debug, Clone)]
pub struct Uncommitted {
    /// The queue's topic, without the client's namespace.
    pub topic: Arc<str>,
    /// Name of the queue's broker.
    pub broker: Arc<str>,
    /// Number of the queue.
    pub queue_id: i32,
    /// The position: the offset of the group's next message.
    pub offset: i64,
    /// What the commit failed with.
    pub cause: ClientError,
}

impl fmt::Display for Uncommitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            topic,
            broker,
            queue_id,
            offset,
            cause,
        } = self;
        write!(
            f,
            "queue {queue_id} of topic `{topic}` on broker `{broker}` at offset {offset}: {cause}"
        )
    }
}

/// The first of the queues, for an error's text; the error itself has all of them.
pub(super) fn some(failed: &[Uncommitted]) -> String {
    let mut text: Vec<String> = failed.iter().take(NAMED).map(ToString::to_string).collect();
    if failed.len() > NAMED {
        text.push(format!("and {} more", failed.len() - NAMED));
    }
    text.join("; ")
}

/// Queues that an error's text names.
const NAMED: usize = 3;
