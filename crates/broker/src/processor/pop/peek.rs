//! Requests that take nothing: 200052 peeks at messages, 200055 counts requests that wait, 200056 is for brokers with
//! RocksDB (Apache `PeekMessageProcessor`, `PollingInfoProcessor`, `AdminBrokerProcessor.transferPopToFsStore`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::pop::MAX_MESSAGES;
use crate::processor::Answer;
use crate::processor::pop::admission::admit;
use crate::processor::pop::read::read;
use crate::processor::pop::{pop_offset, retry_topics};
use crate::tables::topics::Topic;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    PeekMessageRequestHeader, PollingInfoRequestHeader, PollingInfoResponseHeader, PopMessageResponseHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_store::{GetMessage, GetStatus, TagFilter};
use std::ops::Range;
use std::sync::Arc;

/// 200052.
pub(crate) fn peek(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = PeekMessageRequestHeader::decode(&request.fields)?;
    let (topic, _) = admit(
        context,
        "peeking",
        header.topic,
        header.consumer_group,
        header.queue_id,
    )?;
    if !(1..=MAX_MESSAGES).contains(&header.max_msg_nums) {
        let text = format!(
            "maxMsgNums is {}, allowed are 1 to {MAX_MESSAGES}",
            header.max_msg_nums
        );
        return Err(Refusal::new(response::INVALID_PARAMETER, text));
    }
    let retries = retry_topics(context, header.topic, header.consumer_group);
    let retries = retries.iter().filter_map(|(name, _)| context.topics.get(name));
    let all = |queues: i32| 0..queues;
    let own = if header.queue_id < 0 {
        all(topic.read_queue_nums)
    } else {
        header.queue_id..header.queue_id + 1
    };
    let queues_of_topics = std::iter::once((topic.clone(), own)).chain(retries.map(|topic| {
        let queues = all(topic.read_queue_nums);
        (topic, queues)
    }));
    let (parts, rest) = read_front(context, &header, queues_of_topics)?;
    let (code, remark) = if parts.is_empty() {
        (response::PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    } else {
        (response::SUCCESS, "FOUND")
    };
    let mut answer = Command::response(code).with_header(&PopMessageResponseHeader {
        rest_num: rest,
        ..PopMessageResponseHeader::default()
    });
    answer.remark = Some(remark.to_owned());
    if !parts.is_empty() {
        answer.body = Some(parts.concat().into());
    }
    Ok(answer)
}

/// Reads up to `maxMsgNums` messages of the queues, and how many the group has before it in all of them.
fn read_front(
    context: &BrokerContext,
    header: &PeekMessageRequestHeader<'_>,
    queues_of_topics: impl Iterator<Item = (Arc<Topic>, Range<i32>)>,
) -> Result<(Vec<Bytes>, i64), Refusal> {
    let (mut parts, mut rest): (Vec<Bytes>, i64) = (Vec::new(), 0);
    let mut room = usize::try_from(header.max_msg_nums).unwrap_or(0);
    for (topic, queues) in queues_of_topics {
        for queue_id in queues {
            let name = &topic.topic_name;
            let offset = pop_offset(context, name, header.consumer_group, queue_id, 0);
            let min = context.store.min_offset(name, queue_id);
            rest += (context.store.max_offset(name, queue_id) - offset).max(0);
            if room == 0 {
                continue;
            }
            let get = GetMessage {
                topic: name,
                queue_id,
                offset: offset.max(min),
                max_count: room,
                max_bytes: context.store.live().usual_transfer_bytes(),
                tags: TagFilter::All,
            };
            let got = read(context, &get)?;
            if got.status == GetStatus::Found {
                room = room.saturating_sub(got.count);
                parts.push(got.body);
            }
        }
    }
    Ok((parts, rest))
}

/// 200055.
pub(crate) fn polling_info(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = PollingInfoRequestHeader::decode(&request.fields)?;
    admit(
        context,
        "peeking",
        header.topic,
        header.consumer_group,
        header.queue_id,
    )?;
    let count = context
        .pops
        .held
        .count_of(header.topic, header.consumer_group, header.queue_id);
    Ok(
        Command::response(response::SUCCESS).with_header(&PollingInfoResponseHeader {
            polling_num: i32::try_from(count).unwrap_or(i32::MAX),
        }),
    )
}

/// 200056: moves the messages in flight of a broker with RocksDB to its log. Here they are always in the log.
pub(crate) fn rollback(_state: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(Command::response(response::SUCCESS))
}
