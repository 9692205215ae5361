//! A pull with an explicit offset, and what its answer says about the queue (Apache `PullMessageRequestHeader`,
//! `PullMessageResponseHeader`).

use crate::reader::{Range, RangeError};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::FieldValue;
use std::sync::Arc;

/// Pull sysFlag: the request carries its subscription (Apache `PullSysFlag.FLAG_SUBSCRIPTION`). Nothing is committed,
/// and the broker does not hold the request.
const WITH_SUBSCRIPTION: &str = "4";

/// Asks for up to `count` messages from an offset on.
pub(super) fn request(range: &Range, group: &str, tags: &str, from: i64, count: i64) -> Command {
    Command::request(request::PULL_MESSAGE)
        .with_field("consumerGroup", group)
        .with_field("topic", &range.topic)
        .with_field("queueId", &range.queue_id.to_string())
        .with_field("queueOffset", &from.to_string())
        .with_field("maxMsgNums", &count.to_string())
        .with_field("sysFlag", WITH_SUBSCRIPTION)
        .with_field("commitOffset", "0")
        .with_field("suspendTimeoutMillis", "0")
        .with_field("subscription", tags)
        .with_field("subVersion", "0")
        .with_field("expressionType", "TAG")
}

/// Where a queue begins and ends, and where to go on, as an answer says it.
pub(super) struct Position {
    pub(super) next_begin: i64,
    pub(super) lowest: i64,
    pub(super) highest: i64,
}

/// Reads it off an answer.
pub(super) fn position(range: &Arc<Range>, answer: &Command) -> Result<Position, RangeError> {
    let number = |key| {
        FieldValue::read(answer.fields.get(key), key).map_err(|cause| RangeError::Answer {
            range: range.clone(),
            cause,
        })
    };
    Ok(Position {
        next_begin: number("nextBeginOffset")?,
        lowest: number("minOffset")?,
        highest: number("maxOffset")?,
    })
}
