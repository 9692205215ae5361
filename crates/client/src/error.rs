//! What a producer or puller can fail with. The caller's fault, the peer's and the machine's are apart; whether a
//! message may have been stored is a field, never a guess from the text.

use pyrmq_remoting::WireError;
use pyrmq_remoting::net::NetError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A failed attempt of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 1.
    pub number: u32,
    /// The broker that was asked.
    pub broker: Arc<str>,
    /// The queue that was asked for; -1: the broker was to choose.
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
/// for all; `item` is the message's place in it.
pub fn id_at(ids: &str, item: Option<u32>) -> &str {
    const DIGITS: usize = 32;
    let Some(item) = item.map(|item| item as usize) else {
        return ids;
    };
    // Our own ids have 32 digits each: the place is known without a search.
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
    /// Messages in the frame; 0: a single one, no batch.
    pub items: u32,
    /// The broker that was asked last.
    pub broker: Option<Arc<str>>,
    /// The queue that was asked for last.
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
    /// Of a single message that no attempt was made for.
    pub fn unsent(topic: Arc<str>, message_id: String, since: Instant, last: ClientError) -> Self {
        Self {
            topic,
            message_ids: message_id,
            items: 0,
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

    /// The unique id of the message at this place of the frame.
    pub fn message_id(&self, item: Option<u32>) -> &str {
        id_at(&self.message_ids, item)
    }
}

/// The text for a failed send, as it concerns one message of the frame or the whole.
struct FailureText<'a>(&'a SendFailure, Option<u32>);

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
        let first = (failure.items > 0).then_some(0);
        write!(f, "message {} ", failure.message_id(item.or(first)))?;
        if item.is_none() && failure.items > 1 {
            write!(f, "and {} more of its batch ", failure.items - 1)?;
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
    /// Its topic, without the client's namespace.
    pub topic: Arc<str>,
    /// Its broker's name.
    pub broker: Arc<str>,
    /// Its number.
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

/// The first of the queues, for an error's text; the error itself has them all.
fn some(failed: &[Uncommitted]) -> String {
    let mut text: Vec<String> = failed.iter().take(NAMED).map(ToString::to_string).collect();
    if failed.len() > NAMED {
        text.push(format!("and {} more", failed.len() - NAMED));
    }
    text.join("; ")
}

/// Queues that an error's text names.
const NAMED: usize = 3;

/// The window of a broker is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerFull {
    /// Its name.
    pub name: Arc<str>,
    /// Messages for it that are on their way.
    pub messages: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// How many messages may be.
    pub window: usize,
    /// How many bytes may be.
    pub byte_limit: usize,
}

/// The in-flight limit is reached: how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowFull {
    /// Messages on their way.
    pub messages: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// How many messages may be now: fewer than the limit while a broker has too much to do.
    pub window: usize,
    /// The limit of messages.
    pub message_limit: usize,
    /// The limit of bytes.
    pub byte_limit: usize,
    /// Where there was room, but not in the window of the only broker that the message could go to.
    pub broker: Option<BrokerFull>,
    /// How long there was no room.
    pub waited: Duration,
}

impl WindowFull {
    fn text(&self) -> String {
        let Self {
            messages,
            bytes,
            window,
            message_limit,
            byte_limit,
            broker,
            waited,
        } = self;
        let (text, option) = if let Some(broker) = broker {
            let BrokerFull {
                name,
                messages,
                bytes,
                window,
                byte_limit,
            } = broker;
            let text = format!(
                "{messages} messages of {bytes} bytes for broker `{name}` are on their way, the limit of one broker is {window} messages and {byte_limit} bytes now"
            );
            let option = if messages < window {
                "max_in_flight_bytes"
            } else {
                "max_in_flight"
            };
            (text, option)
        } else if messages < window {
            let text = format!("messages of {bytes} bytes are on their way, the limit is {byte_limit} bytes");
            (text, "max_in_flight_bytes")
        } else if window < message_limit {
            let text = format!(
                "{messages} messages are on their way, the limit is {window} while a broker is busy (else {message_limit})"
            );
            (text, "max_in_flight")
        } else {
            let text = format!("{messages} messages are on their way, the limit is {message_limit}");
            (text, "max_in_flight")
        };
        if waited.is_zero() {
            text + &format!(": wait for results or raise `{option}`")
        } else {
            text + &format!(
                ", and no room came in {} ms, the time of the send: wait for results before you send more, or raise `send_timeout`, this send's `timeout` or `{option}`",
                waited.as_millis()
            )
        }
    }
}

/// A client call that did not do what was asked.
#[derive(Debug, Clone, Error)]
pub enum ClientError {
    /// An option out of its range.
    #[error("option `{option}` is `{value}`, it must be {range}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// As given.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// A topic name that no broker takes.
    #[error("topic `{topic}` is illegal: {reason}")]
    Topic {
        /// As given.
        topic: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Messages of several topics in one batch.
    #[error("a batch for topic `{topic}` has a message for topic `{other}`: send a batch for each topic")]
    MixedTopics {
        /// The batch's topic.
        topic: String,
        /// The message's topic.
        other: String,
    },
    /// A body without a byte: brokers and other clients refuse it.
    #[error(
        "message for topic `{topic}` has an empty body: RocketMQ has no empty messages; put what you mean into a byte"
    )]
    EmptyBody {
        /// Where it should go.
        topic: String,
    },
    /// A body larger than the producer's limit.
    #[error(
        "message for topic `{topic}` has {size} bytes, the limit is {limit}: raise `max_message_bytes` here and `maxMessageSize` on the broker, or split it"
    )]
    BodyTooLarge {
        /// Where it should go.
        topic: String,
        /// Bytes of the body.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A property that cannot be written.
    #[error("property `{name}` of a message for topic `{topic}` is illegal: {reason}")]
    Property {
        /// Where it should go.
        topic: String,
        /// The property.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More properties than a message can carry.
    #[error(
        "the properties of a message for topic `{topic}` have {bytes} bytes together with keys, tags and the unique id, the limit is 32767: put some of it into the body"
    )]
    Properties {
        /// Where it should go.
        topic: String,
        /// Bytes of all in wire form.
        bytes: usize,
    },
    /// No name server answered.
    #[error("{}; tried {failed_attempts}. Fix: {}",
            if *.unresolved { "no name server's host name could be resolved" } else { "no name server answered" },
            if *.unresolved { "correct the host in `name_server` (or NAMESRV_ADDR), or the machine's DNS" }
            else { "start one (`pyrmq nameserver`) or correct `name_server` (or NAMESRV_ADDR)" })]
    NameServers {
        /// The addresses, with `;` between them.
        addresses: String,
        /// Each with what happened there.
        failed_attempts: String,
        /// True when the system knows none of the hosts.
        unresolved: bool,
    },
    /// No broker is registered at the name servers.
    #[error(
        "topic `{topic}` has no broker: none is registered at the name server. Fix: start one (`pyrmq broker`), with this name server as its `namesrvAddr`"
    )]
    NoBroker {
        /// The topic.
        topic: String,
    },
    /// The name servers do not know the topic, and it is not to be created: no broker may, or nobody sends.
    #[error("topic `{topic}` does not exist{}. Fix: `pyrmq topic create {topic}`, or {}",
            if *.to_send { " and no broker creates topics by itself" } else { "" },
            if *.to_send { "autoCreateTopicEnable=true on the broker" }
            else { "send to it: that creates it where a broker has autoCreateTopicEnable=true" })]
    NoTopic {
        /// The topic.
        topic: String,
        /// Whether it was looked for to send to it.
        to_send: bool,
    },
    /// The topic has no queue that can be used.
    #[error("topic `{topic}` has no queue to {what}: {reason}")]
    NoQueue {
        /// The topic.
        topic: String,
        /// "write to" or "read from".
        what: &'static str,
        /// Why there is none.
        reason: &'static str,
    },
    /// A broker or name server answered with an error.
    #[error("{address} answered {what} with {name} ({code}): {remark}")]
    Answer {
        /// What was asked.
        what: &'static str,
        /// Response code.
        code: i32,
        /// Apache's name of the code.
        name: &'static str,
        /// The other side's text.
        remark: String,
        /// Who answered.
        address: String,
    },
    /// The transport failed.
    #[error("{what} failed: {source}")]
    Net {
        /// What was asked.
        what: &'static str,
        /// Who was asked.
        address: String,
        /// What happened.
        source: Box<NetError>,
    },
    /// A message, or a batch, was handed over for sending and not confirmed.
    #[error("{}", FailureText(.failure, *.item))]
    NotConfirmed {
        /// What is known of it; shared by the messages of a batch.
        failure: Arc<SendFailure>,
        /// The place in the batch of the message that this is told of; `None`: the whole frame.
        item: Option<u32>,
    },
    /// As much is on its way as may be.
    #[error("{}", .0.text())]
    TooManyInFlight(WindowFull),
    /// Positions that are not committed: brokers did not answer, or refused.
    #[error(
        "the positions of {} of {asked} queues were not committed: {}. Their messages since the last commit come again to who reads these queues next",
        .failed.len(), some(.failed)
    )]
    NotCommitted {
        /// How many should be committed.
        asked: usize,
        /// Those that are not.
        failed: Vec<Uncommitted>,
    },
    /// A filter that cannot be compiled.
    #[error("the filter {expression:?} of topic `{topic}` is illegal: {source}")]
    Filter {
        /// The topic.
        topic: String,
        /// As given.
        expression: String,
        /// What is wrong.
        source: pyrmq_routing::filter::FilterError,
    },
    /// The application's own strategy gave no answer.
    #[error(
        "queues of topic `{topic}` are not allocated: the strategy of option `allocate` raised, or did not return within 10 s"
    )]
    NotAllocated {
        /// The topic.
        topic: String,
    },
    /// A queue that is not assigned to this consumer.
    #[error("queue {queue_id} of topic `{topic}` on broker `{broker}` is not assigned to this consumer")]
    NotAssigned {
        /// The topic.
        topic: String,
        /// The broker's name.
        broker: String,
        /// The queue.
        queue_id: i32,
    },
    /// Bytes of the other side that do not follow the format.
    #[error("cannot read the answer of {address} to {what}: {source}")]
    Answered {
        /// What was asked.
        what: &'static str,
        /// Who answered.
        address: String,
        /// What is wrong.
        source: WireError,
    },
    /// Used after it was closed.
    #[error("the {what} is closed")]
    Closed {
        /// producer or consumer.
        what: &'static str,
    },
}

impl ClientError {
    /// This failure as it concerns one message of a batch.
    #[must_use]
    pub fn of_item(self, item: Option<u32>) -> Self {
        match self {
            Self::NotConfirmed { failure, .. } => Self::NotConfirmed { failure, item },
            other => other,
        }
    }

    /// What is known of the send that failed, when it is a send's failure.
    pub fn failure(&self) -> Option<&SendFailure> {
        match self {
            Self::NotConfirmed { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// What happened: of a send that failed, what it was given up for.
    pub fn cause(&self) -> &Self {
        self.failure().map_or(self, |failure| &failure.last)
    }

    /// A request that got no answer.
    pub fn net(what: &'static str, address: impl Into<String>, source: NetError) -> Self {
        Self::Net {
            what,
            address: address.into(),
            source: Box::new(source),
        }
    }

    /// An answer with an error code.
    pub fn answer(what: &'static str, address: &str, code: i32, remark: Option<String>) -> Self {
        let known = pyrmq_remoting::codes::response::RESPONSE_CODES;
        let name = known.iter().find(|(_, value)| *value == code);
        Self::Answer {
            what,
            code,
            name: name.map_or("an unknown code", |(name, _)| *name),
            remark: remark.unwrap_or_default(),
            address: address.to_owned(),
        }
    }
}
