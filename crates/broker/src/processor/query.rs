//! Requests for stored messages: 12 by key, 33 by log offset (Apache `QueryMessageProcessor`), and for the ends of
//! queues: 29, 30, 31, 32 (Apache `AdminBrokerProcessor`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::Answer;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader, GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader, GetMinOffsetResponseHeader,
    QueryMessageRequestHeader, QueryMessageResponseHeader, SearchOffsetRequestHeader,
    SearchOffsetResponseHeader, ViewMessageRequestHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_store::{Boundary, KeyKind, KeyQuery, StoreError};

/// Marks a search by unique key (Apache `MixAll.UNIQUE_MSG_QUERY_FLAG`).
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";

/// Finds messages by key (12).
pub(crate) fn by_key(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryMessageRequestHeader::decode(&request.fields)?;
    let is_unique = request
        .fields
        .get(UNIQUE_KEY_QUERY)
        .is_some_and(|flag| flag.eq_ignore_ascii_case("true"))
        || header.index_type == Some("U");
    let kind = match header.index_type {
        Some("T") => KeyKind::Tag,
        _ if is_unique => KeyKind::Unique,
        _ => KeyKind::Key,
    };
    let max_count = if is_unique {
        context.live.default_query_max_num()
    } else {
        header.max_num
    };
    let found = context.store.query(&KeyQuery {
        topic: header.topic,
        key: header.key,
        kind,
        max_count: usize::try_from(max_count).unwrap_or(0),
        begin_ms: header.begin_timestamp,
        end_ms: header.end_timestamp,
    });
    let found = found.map_err(|error| internal(&error))?;
    let code = if found.count == 0 {
        response::QUERY_NOT_FOUND
    } else {
        response::SUCCESS
    };
    let mut response = Command::response(code).with_header(&QueryMessageResponseHeader {
        index_last_update_timestamp: found.index_last_update_ms,
        index_last_update_phyoffset: found.index_last_update_offset,
    });
    if found.count == 0 {
        response.remark = Some(
            "can not find message, maybe time range not correct: no message has this key in this time"
                .to_owned(),
        );
    } else {
        response.body = Some(found.body);
    }
    Ok(response)
}

/// Returns the message at a log offset (33).
pub(crate) fn by_id(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = ViewMessageRequestHeader::decode(&request.fields)?;
    match context
        .store
        .readable_at(header.offset)
        .map_err(|error| internal(&error))?
    {
        Some(record) => Ok(Command::response(response::SUCCESS).with_body(record)),
        None => Err(Refusal::internal(format!(
            "can not find message by the offset, {}: no message begins there",
            header.offset
        ))),
    }
}

/// Returns a queue's maximum offset (30).
pub(crate) fn max_offset(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetMaxOffsetRequestHeader::decode(&request.fields)?;
    let offset = context.store.max_offset(header.topic, header.queue_id);
    Ok(Command::response(response::SUCCESS).with_header(&GetMaxOffsetResponseHeader { offset }))
}

/// Returns a queue's minimum offset (31).
pub(crate) fn min_offset(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetMinOffsetRequestHeader::decode(&request.fields)?;
    let offset = context.store.min_offset(header.topic, header.queue_id);
    Ok(Command::response(response::SUCCESS).with_header(&GetMinOffsetResponseHeader { offset }))
}

/// Finds a queue's offset by store time (29).
pub(crate) fn by_time(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = SearchOffsetRequestHeader::decode(&request.fields)?;
    let boundary = match header.boundary_type {
        Some(kind) if kind.eq_ignore_ascii_case("UPPER") => Boundary::Upper,
        _ => Boundary::Lower,
    };
    let found = context
        .store
        .offset_by_time(header.topic, header.queue_id, header.timestamp, boundary);
    let offset = found.map_err(|error| internal(&error))?;
    Ok(Command::response(response::SUCCESS).with_header(&SearchOffsetResponseHeader { offset }))
}

/// Returns when a queue's first message was stored (32).
pub(crate) fn earliest_time(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetEarliestMsgStoretimeRequestHeader::decode(&request.fields)?;
    let time = context
        .store
        .earliest_time(header.topic, header.queue_id)
        .map_err(|error| internal(&error))?;
    Ok(
        Command::response(response::SUCCESS).with_header(&GetEarliestMsgStoretimeResponseHeader {
            timestamp: time.unwrap_or(-1),
        }),
    )
}

/// A read that failed because of the disk or the request.
pub(crate) fn internal(error: &StoreError) -> Refusal {
    Refusal::internal(error.to_string())
}
