//! Errors of the broker itself ([`BrokerError`]) and of one request ([`Refusal`]).

use pyrmq_remoting::codes::response;
use pyrmq_remoting::names;
use pyrmq_remoting::net::{NetError, Reply, RequestLog, RequestNames};
use pyrmq_remoting::{Command, WireError};
use pyrmq_store::StoreError;
use thiserror::Error;

/// Why a broker could not start, stop or change its options.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The options did not change, since a file could not be written.
    #[error("the options stay as they are: {reason}")]
    NotChanged {
        /// What happened.
        reason: String,
    },
    /// An invalid configuration value: the caller's fault.
    #[error("wrong value of {key}: `{value}`, allowed is {range}")]
    Option {
        /// Apache's key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// What is allowed.
        range: String,
    },
    /// The port cannot be listened on, or a transport option is wrong.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The store does not open, or fails.
    #[error("the message store failed: {0}")]
    Store(#[from] StoreError),
}

/// A refused request, with the code and the remark of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Response code.
    pub code: i32,
    /// The remark, for the reader of the client's log.
    pub remark: String,
    /// The kind of refusal, for pulls (Apache `ForbiddenType`).
    pub forbidden_type: Option<&'static str>,
}

impl Refusal {
    /// A refusal with this code and remark.
    pub fn new(code: i32, remark: impl Into<String>) -> Self {
        Self {
            code,
            remark: remark.into(),
            forbidden_type: None,
        }
    }

    /// A failure inside the broker.
    pub fn internal(remark: impl Into<String>) -> Self {
        Self::new(response::SYSTEM_ERROR, remark)
    }

    /// The topic does not exist and may not be created.
    pub fn no_topic(topic: &str) -> Self {
        Self::no_topic_in("topic[{}] not exist, apply first please! ", topic)
    }

    /// Like [`Self::no_topic`], in Apache's words for this request; `{}` stands for the topic.
    pub fn no_topic_in(words: &str, topic: &str) -> Self {
        Self::missing(
            response::TOPIC_NOT_EXIST,
            words,
            topic,
            "create it with updateTopic, or set autoCreateTopicEnable",
        )
    }

    /// Replaces the remark of a refusal for a missing group by Apache's words for this request; other refusals stay as
    /// they are.
    #[must_use]
    pub fn with_group_words(self, words: &str, group: &str) -> Self {
        if self.code == response::SUBSCRIPTION_GROUP_NOT_EXIST {
            return Self::no_group_in(words, group);
        }
        self
    }

    /// Apache's words first, by which people and tools find the cause, then the fix.
    fn missing(code: i32, words: &str, name: &str, mend: &str) -> Self {
        let name = names::shortened(name);
        Self::new(code, format!("{}{mend}", words.replace("{}", &name)))
    }

    /// The topic or group does not exist, and the limit for automatic creation is reached.
    pub fn limit_reached(name: &str, key: &str, limit: i32) -> Self {
        let name = names::shortened(name);
        Self::new(
            response::TOPIC_NOT_EXIST,
            format!("{name} does not exist and is not created at its first use: {key} ({limit}) is reached"),
        )
    }

    /// The consumer group does not exist and may not be created.
    pub fn no_group(group: &str) -> Self {
        Self::no_group_in("subscription group [{}] does not exist, ", group)
    }

    /// Like [`Self::no_group`], in Apache's words for this request; `{}` stands for the group.
    pub fn no_group_in(words: &str, group: &str) -> Self {
        Self::missing(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            words,
            group,
            "create it with updateSubGroup, or set autoCreateSubscriptionGroup",
        )
    }

    /// The broker filters by tags only.
    pub fn no_property_filter(kind: &str) -> Self {
        Self::internal(format!(
            "The broker does not support consumer to filter message by {kind}, set enablePropertyFilter=true"
        ))
    }

    /// The store did not accept a message (Apache `SendMessageProcessor.handlePutMessageResult`).
    pub fn of_put(error: &StoreError) -> Self {
        let code = match error {
            StoreError::MessageTooLarge { .. }
            | StoreError::PropertiesTooLarge { .. }
            | StoreError::IllegalQueue { .. }
            | StoreError::EmptyBatch
            | StoreError::Wire(_) => response::MESSAGE_ILLEGAL,
            StoreError::ReadOnly { .. }
            | StoreError::DiskFull { .. }
            | StoreError::Stalled { .. }
            | StoreError::Exhausted { .. }
            | StoreError::Closed => response::SERVICE_NOT_AVAILABLE,
            StoreError::Busy { .. } => response::SYSTEM_BUSY,
            _ => response::SYSTEM_ERROR,
        };
        let words = match code {
            response::MESSAGE_ILLEGAL => {
                "the message is illegal, maybe msg body or properties length not matched. "
            }
            response::SERVICE_NOT_AVAILABLE => {
                "service not available now. It may be caused by one of the following reasons: "
            }
            _ => "",
        };
        Self::new(code, format!("{words}{error}"))
    }

    /// A message is stored but not known to be on disk: the next start may find it. The response gives its position,
    /// which distinguishes it from a message that was not stored. A half gets a code after which no producer stores it
    /// again elsewhere, where both could be committed.
    pub fn of_flush(error: &StoreError, half: bool) -> Self {
        let code = match error {
            StoreError::FlushTimeout { .. } => response::FLUSH_DISK_TIMEOUT,
            _ if half => response::FLUSH_DISK_TIMEOUT,
            _ => response::SERVICE_NOT_AVAILABLE,
        };
        Self::new(code, error.to_string())
    }

    /// Answers the request that is refused, and logs it.
    pub(crate) fn answer<'a>(self, request: impl Into<RequestNames<'a>>, reply: Reply, log: &RequestLog) {
        log.refused(request, reply.peer().remote(), self.code, &self.remark);
        reply.send(self.into_response());
    }

    /// The response that carries this refusal.
    pub fn into_response(self) -> Command {
        let response = Command::error(self.code, self.remark);
        match self.forbidden_type {
            Some(kind) => response.with_field("forbiddenType", kind),
            None => response,
        }
    }
}

/// A header or body that cannot be read is the peer's fault.
impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::new(response::INVALID_PARAMETER, error.to_string())
    }
}

/// Whether storing the same message again may succeed. A message that can never be stored must not block the others.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::MessageTooLarge { .. }
            | StoreError::PropertiesTooLarge { .. }
            | StoreError::IllegalQueue { .. }
            | StoreError::EmptyBatch
            | StoreError::Wire(_)
    )
}
