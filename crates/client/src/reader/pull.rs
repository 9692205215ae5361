//! A pull with an explicit offset, and what its answer says about the queue (Apache `PullMessageRequestHeader`,
//! `PullMessageResponseHeader`).

use crate::reader::{Range, RangeError};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::FieldValue;
use pyrmq_remoting::header::pull::{PullMessageRequestHeader, sys_flag};
use std::sync::Arc;

/// Which messages the broker selects.
#[derive(Clone, Copy)]
pub(super) enum Filter<'a> {
    /// `*`, or tags separated by `||`.
    Tags(&'a str),
    /// A SQL92 condition on properties.
    Sql(&'a str),
}

/// Requests up to `count` messages from an offset on. Nothing is committed, and the broker does not hold the request.
pub(super) fn request(range: &Range, group: &str, filter: Filter<'_>, from: i64, count: i64) -> Command {
    let (expression_type, subscription) = match filter {
        Filter::Tags(tags) => ("TAG", tags),
        Filter::Sql(condition) => ("SQL92", condition),
    };
    let header = PullMessageRequestHeader {
        consumer_group: group,
        topic: &range.topic,
        queue_id: range.queue_id,
        queue_offset: from,
        max_msg_nums: i32::try_from(count).unwrap_or(i32::MAX),
        sys_flag: sys_flag::SUBSCRIPTION,
        subscription: Some(subscription),
        expression_type: Some(expression_type),
        ..PullMessageRequestHeader::default()
    };
    Command::request(request::PULL_MESSAGE).with_header(&header)
}

/// Where a queue begins and ends, and where to continue, according to an answer.
pub(super) struct AnswerOffsets {
    pub(super) next_begin: i64,
    pub(super) lowest: i64,
    pub(super) highest: i64,
}

/// Reads it off an answer.
pub(super) fn read_offsets(range: &Arc<Range>, answer: &Command) -> Result<AnswerOffsets, RangeError> {
    let number = |key| {
        FieldValue::read(answer.fields.get(key), key).map_err(|cause| RangeError::Answer {
            range: range.clone(),
            cause,
        })
    };
    Ok(AnswerOffsets {
        next_begin: number("nextBeginOffset")?,
        lowest: number("minOffset")?,
        highest: number("maxOffset")?,
    })
}
