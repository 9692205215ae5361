//! What a producer or puller can fail with. Errors of the caller, the peer and the machine are different variants;
//! whether a message may have been stored is a field, never a guess from the text.

mod failures;
mod window_full;

pub use failures::{Attempt, SendFailure, Uncommitted, id_at};
use failures::{FailureText, some};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::net::{NetError, Retry};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
pub use window_full::{BrokerFull, WindowFull};

/// Why a client call failed.
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
        "message for topic `{topic}` has an empty body: RocketMQ has no empty messages; send at least one byte"
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
        "the properties of a message for topic `{topic}` have {bytes} bytes together with keys, tags and the unique id, the limit is {}: put some of it into the body",
        MAX_BYTES
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
    /// The name servers do not know the topic, and it is not to be created: no broker may, or the caller does not send
    /// to it.
    #[error("topic `{topic}` does not exist{}. Fix: `pyrmq topic create {topic}`, or {}",
            if *.to_send { " and no broker creates topics by itself" } else { "" },
            if *.to_send { "autoCreateTopicEnable=true on the broker" }
            else { "send to it: that creates it where a broker has autoCreateTopicEnable=true" })]
    NoTopic {
        /// The topic.
        topic: String,
        /// Whether it was looked up for a send.
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
    /// The broker's master is not in any route that this client knows.
    #[error("broker `{broker}` has no master in the route: it is down, or has not registered yet")]
    NoMaster {
        /// The broker's name.
        broker: String,
    },
    /// A broker or name server answered with an error.
    #[error("{address} answered {what} with {name} ({code}): {remark}")]
    Refused {
        /// What was requested.
        what: &'static str,
        /// Response code.
        code: i32,
        /// Apache's name of the code.
        name: &'static str,
        /// The other side's text.
        remark: String,
        /// Address of the server that answered.
        address: String,
    },
    /// The transport failed.
    #[error("{what} failed: {source}")]
    Net {
        /// What was requested.
        what: &'static str,
        /// Address of the server that got the request.
        address: String,
        /// What happened.
        source: Box<NetError>,
    },
    /// A send was not begun within its time.
    #[error("not sent within {} ms: earlier messages of its queue were still in flight", .timeout.as_millis())]
    NotBegun {
        /// The time that it had.
        timeout: Duration,
    },
    /// A message, or a batch, was handed over for sending and not confirmed.
    #[error("{}", FailureText(.failure, *.item))]
    NotConfirmed {
        /// What is known of it; shared by the messages of a batch.
        failure: Arc<SendFailure>,
        /// Place in the batch of the message that this concerns; `None`: the whole frame.
        item: Option<u32>,
    },
    /// The limit of messages or bytes in flight is reached.
    #[error("{}", .0.text())]
    TooManyInFlight(WindowFull),
    /// Positions that are not committed: brokers did not answer, or refused.
    #[error(
        "the positions of {} of {requested} queues were not committed: {}. The next reader of these queues gets the messages since the last commit again",
        .failed.len(), some(.failed)
    )]
    NotCommitted {
        /// How many positions should be committed.
        requested: usize,
        /// The positions that are not committed.
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
    /// An error of this client ended it.
    #[error(
        "an error of the client ended {what}: it may or may not have been carried out; the log has the error"
    )]
    Aborted {
        /// What was ended.
        what: &'static str,
    },
    /// A queue that another member has now.
    #[error(
        "queue {queue_id} of topic `{topic}` on broker `{broker}` has gone to another member, which begins where the \
         group has committed: what was returned of it since is delivered again there"
    )]
    QueueGone {
        /// The topic.
        topic: String,
        /// The broker's name.
        broker: String,
        /// The queue.
        queue_id: i32,
    },
    /// A position that its broker does not have.
    #[error(
        "offset {offset} of queue {queue_id} of topic `{topic}` on broker `{broker}` is out of range: it has messages \
         from {} up to {}, without the last; seek another position, or choose one by `out_of_range`",
        .held.0,
        .held.1
    )]
    OutOfRange {
        /// The topic.
        topic: String,
        /// The broker's name.
        broker: String,
        /// The queue.
        queue_id: i32,
        /// The position.
        offset: i64,
        /// The queue's first offset, and the one that its next message gets.
        held: (i64, i64),
    },
    /// A receipt handle that cannot be used: it is of no pop, or of another group or broker, was used before, or has
    /// expired.
    #[error("receipt handle `{handle}` cannot be used: {reason}")]
    Receipt {
        /// As given.
        handle: String,
        /// Why not.
        reason: String,
    },
    /// A topic that was left before its subscription had joined the group.
    #[error(
        "topic `{topic}` was unsubscribed from, or its `subscribe` was cancelled, before the group was joined"
    )]
    Unsubscribed {
        /// Topic.
        topic: String,
    },
    /// Messages are requested without a topic.
    #[error("this consumer is subscribed to no topic: call `subscribe` first")]
    NotSubscribed,
    /// Bytes from the peer that do not follow the format.
    #[error("cannot read the answer of {address} to {what}: {source}")]
    UnreadableAnswer {
        /// What was requested.
        what: &'static str,
        /// Address of the server that answered.
        address: String,
        /// What is wrong.
        source: WireError,
    },
    /// A message that the format has no form for.
    #[error("cannot encode {what}: {source}")]
    Unencodable {
        /// What should be encoded.
        what: &'static str,
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

    /// The cause: for a failed send, the error of the last attempt.
    pub fn cause(&self) -> &Self {
        self.failure().map_or(self, |failure| &failure.last)
    }

    /// Whether the request may have taken effect although it was not confirmed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Net { source, .. } if source.retry() == Retry::UnknownOutcome)
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
    pub fn refused(what: &'static str, address: &str, code: i32, remark: Option<String>) -> Self {
        let known = pyrmq_remoting::codes::response::RESPONSE_CODES;
        let name = known.iter().find(|(_, value)| *value == code);
        Self::Refused {
            what,
            code,
            name: name.map_or("an unknown code", |(name, _)| *name),
            remark: remark.unwrap_or_default(),
            address: address.to_owned(),
        }
    }
}
