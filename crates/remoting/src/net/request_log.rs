//! The log of requests: one line for a request that was slow, and one for a request that its row refused.
//!
//! Lines have address, request, topic, group, and times or the reason, and nothing else of a request: no other field,
//! no body. What a peer chose is quoted, escaped and cut. Each kind of line is limited for each address and in sum.
//! Refusals for lack of rights are in the audit log.

use super::audit::{cut, name_of, result_of};
use crate::codes::{request, response};
use crate::command::Command;
use crate::net::limits::line_limit::LineLimit;
use std::net::SocketAddr;
use std::time::Duration;

/// A request is slow if it waited and was served for this long. Apache has no such option; its store warns of writes
/// that take half a second.
const SLOW: Duration = Duration::from_secs(1);

/// Lines of each kind in ten seconds, for each address and in sum.
const PER_ADDRESS: u32 = 5;
const IN_SUM: u32 = 50;

/// The fields that name a request's group, the most common first.
const GROUPS: [&str; 4] = ["consumerGroup", "group", "groupName", "producerGroup"];

/// Writes the lines of a server. Its ports share one.
#[derive(Debug)]
pub struct RequestLog {
    slow: LineLimit,
    /// Refusals that the server is the cause of.
    failed: LineLimit,
    /// Refusals that the request is the cause of.
    refused: LineLimit,
}

/// What a line says of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestNames<'a> {
    /// The request code.
    pub code: i32,
    /// The topic; empty without one.
    pub topic: &'a str,
    /// The group; empty without one.
    pub group: &'a str,
}

impl<'a> From<&'a Command> for RequestNames<'a> {
    fn from(request: &'a Command) -> Self {
        let field = |name| request.fields.get(name);
        let (topic, group) = if has_short_names(request.code) {
            (field("b"), field("a"))
        } else {
            (field("topic"), GROUPS.into_iter().find_map(field))
        };
        Self {
            code: request.code,
            topic: topic.unwrap_or_default(),
            group: group.unwrap_or_default(),
        }
    }
}

/// A request of which only the code is kept.
impl From<i32> for RequestNames<'_> {
    fn from(code: i32) -> Self {
        Self {
            code,
            topic: "",
            group: "",
        }
    }
}

/// Whether the header has letters for names (Apache `SendMessageRequestHeaderV2`).
fn has_short_names(code: i32) -> bool {
    matches!(
        code,
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE | request::SEND_REPLY_MESSAGE_V2
    )
}

/// Whether an answer says that the server could not do what the request may ask for.
fn is_servers_fault(answer: i32) -> bool {
    matches!(
        answer,
        response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | response::SERVICE_NOT_AVAILABLE
            | response::FLUSH_DISK_TIMEOUT
            | response::POLLING_FULL
    )
}

/// Whether an answer is part of ordinary work: there is nothing, or nobody, yet.
fn is_ordinary(answer: i32) -> bool {
    matches!(
        answer,
        response::QUERY_NOT_FOUND | response::NO_MESSAGE | response::CONSUMER_NOT_ONLINE
    )
}

/// Writes a line about a refused request. A level must be known to the compiler.
macro_rules! write_refused {
    ($level:ident, $names:expr, $from:ident, $answer:ident, $why:ident, $omitted:ident) => {{
        let names: RequestNames<'_> = $names;
        tracing::event!(
            target: "pyrmq_requests",
            tracing::Level::$level,
            from = %$from,
            code = names.code,
            request = name_of(names.code),
            topic = ?cut(names.topic),
            group = ?cut(names.group),
            result = result_of($answer),
            reason = ?cut($why),
            not_logged = $omitted,
            "refused"
        );
    }};
}

impl Default for RequestLog {
    fn default() -> Self {
        let limit = || LineLimit::new(PER_ADDRESS, IN_SUM);
        Self {
            slow: limit(),
            failed: limit(),
            refused: limit(),
        }
    }
}

impl RequestLog {
    /// Writes a line if a request was slow: it `waited` for its turn, for a thread or for what it needs, and then was
    /// `served`. Returns whether it was slow.
    pub fn served<'a>(
        &self,
        request: impl Into<RequestNames<'a>>,
        from: SocketAddr,
        (waited, served): (Duration, Duration),
    ) -> bool {
        let is_slow = waited + served >= SLOW;
        if is_slow {
            self.write_slow(request.into(), from, (waited, served));
        }
        is_slow
    }

    fn write_slow(&self, names: RequestNames<'_>, from: SocketAddr, (waited, served): (Duration, Duration)) {
        let Some(omitted) = self.slow.take(from.ip()) else {
            return;
        };
        tracing::warn!(
            target: "pyrmq_requests",
            from = %from,
            code = names.code,
            request = name_of(names.code),
            topic = ?cut(names.topic),
            group = ?cut(names.group),
            waited_ms = waited.as_millis(),
            served_ms = served.as_millis(),
            not_logged = omitted,
            "slow"
        );
    }

    /// Writes a line about a request that was answered with an error, and why: WARN if the server could not do what it
    /// asks for, INFO if the request is wrong.
    pub fn refused<'a>(
        &self,
        request: impl Into<RequestNames<'a>>,
        from: SocketAddr,
        answer: i32,
        why: &str,
    ) {
        if is_ordinary(answer) {
            return;
        }
        let info = tracing::event_enabled!(target: "pyrmq_requests", tracing::Level::INFO);
        if is_servers_fault(answer) {
            if let Some(omitted) = self.failed.take(from.ip()) {
                write_refused!(WARN, request.into(), from, answer, why, omitted);
            }
        } else if info && let Some(omitted) = self.refused.take(from.ip()) {
            write_refused!(INFO, request.into(), from, answer, why, omitted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &Command) -> (&str, &str) {
        let names = RequestNames::from(command);
        (names.topic, names.group)
    }

    #[test]
    fn topic_and_group_are_found_in_every_header() {
        let send = Command::request(request::SEND_MESSAGE_V2)
            .with_field("a", "cooks")
            .with_field("b", "orders");
        assert_eq!(names(&send), ("orders", "cooks"));
        let pull = Command::request(request::PULL_MESSAGE)
            .with_field("topic", "orders")
            .with_field("consumerGroup", "kitchen")
            .with_field("a", "another field");
        assert_eq!(names(&pull), ("orders", "kitchen"));
        let delete = Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_field("groupName", "kitchen");
        assert_eq!(names(&delete), ("", "kitchen"));
        assert_eq!(names(&Command::request(request::HEART_BEAT)), ("", ""));
    }

    #[test]
    fn nothing_is_counted_that_is_not_written() {
        let log = RequestLog::default();
        let from = SocketAddr::from(([192, 0, 2, 7], 1));
        let heartbeat = Command::request(request::HEART_BEAT);
        for _ in 0..100 {
            log.served(&heartbeat, from, (SLOW / 3, SLOW / 3));
            log.refused(&heartbeat, from, response::QUERY_NOT_FOUND, "none yet");
        }
        assert_eq!(log.slow.take(from.ip()), Some(0));
        assert_eq!(log.failed.take(from.ip()), Some(0));
        for _ in 0..100 {
            log.served(&heartbeat, from, (SLOW / 2, SLOW / 2));
        }
        // One line was taken above.
        assert_eq!(log.slow.take(from.ip()), None);
    }
}
