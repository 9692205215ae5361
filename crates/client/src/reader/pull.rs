//! A pull with an explicit offset, and what its answer says about the queue (Apache `PullMessageRequestHeader`,
//! `PullMessageResponseHeader`).

use crate::consumer::pulling::WITH_SUBSCRIPTION;
use crate::reader::{Range, RangeError};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::FieldValue;
use pyrmq_remoting::header::pull::PullMessageRequestHeader;
use std::sync::Arc;

/// Asks for up to `count` messages from an offset on. Nothing is committed, and the broker does not hold the request.
pub(super) fn request(range: &Range, group: &str, tags: &str, from: i64, count: i64) -> Command {
    let header = PullMessageRequestHeader {
        consumer_group: group,
        topic: &range.topic,
        queue_id: range.queue_id,
        queue_offset: from,
        max_msg_nums: i32::try_from(count).unwrap_or(i32::MAX),
        sys_flag: WITH_SUBSCRIPTION,
        subscription: Some(tags),
        expression_type: Some("TAG"),
        ..PullMessageRequestHeader::default()
    };
    Command::request(request::PULL_MESSAGE).with_header(&header)
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
