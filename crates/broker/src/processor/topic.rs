//! Topics: create 17, 18, delete 215, 351, the whole table 21, statistics 202, 300, system topics 305 (Apache
//! `AdminBrokerProcessor`).

use crate::admission;
use crate::announcements::announced;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::query::internal;
use crate::processor::{Answer, answer, read_body};
use crate::stats::windows::Span;
use crate::tables::attributes;
use pyrmq_remoting::body::{
    CreateTopicListRequestBody, GroupList, Json, MessageQueue, TopicConfig, TopicFilterType, TopicList,
    TopicOffset, TopicStatsTable,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader, QueryTopicConsumeByWhoRequestHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};
use std::collections::BTreeSet;

/// Maximum number of queues of a topic: ids have 32 bits, but each queue has its own files.
pub(crate) const QUEUES_LIMIT: i32 = 65_536;

/// Maximum number of further topics in a request for statistics.
const MAX_FURTHER_TOPICS: usize = 1000;

/// Creates or changes a topic (17).
pub(crate) fn create(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = CreateTopicRequestHeader::decode(&request.fields)?;
    let old = context.topics.get(header.topic);
    let topic = TopicConfig {
        topic_name: header.topic.to_owned(),
        read_queue_nums: header.read_queue_nums,
        write_queue_nums: header.write_queue_nums,
        perm: header.perm,
        topic_filter_type: filter_type(header.topic_filter_type)?,
        topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
        order: header.order,
        attributes: attributes::altered(
            attributes::OF_TOPICS,
            old.as_ref().map(|old| &old.attributes),
            &attributes::parse(header.attributes.unwrap_or_default())?,
        )?,
        ..TopicConfig::default()
    };
    check(context, &topic)?;
    if context.create_as_user(request, peer, &[header.topic], || context.topics.put(topic))? {
        tracing::info!(topic = header.topic, peer = %peer.remote(), "changed a topic");
        context.announcements.changed();
    }
    Ok(Command::response(response::SUCCESS))
}

/// Creates or changes several topics (18).
pub(crate) fn create_list(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let mut topics = read_body::<CreateTopicListRequestBody>(request)?.topic_config_list;
    for topic in &mut topics {
        check(context, topic)?;
        topic.topic_filter_type = filter_type(topic.topic_filter_type.name())?;
        let old = context.topics.get(&topic.topic_name);
        let current = old.as_ref().map(|old| &old.attributes);
        topic.attributes = attributes::altered(attributes::OF_TOPICS, current, &topic.attributes)?;
    }
    let names: Vec<String> = topics.iter().map(|topic| topic.topic_name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if context.create_as_user(request, peer, &names, || context.topics.put_all(topics))? {
        context.announcements.changed();
    }
    Ok(Command::response(response::SUCCESS))
}

fn check(context: &BrokerContext, topic: &TopicConfig) -> Result<(), Refusal> {
    admission::topic_name(&topic.topic_name)?;
    if context.options.validate_system_topic_when_update_topic && context.topics.is_system(&topic.topic_name)
    {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            format!(
                "The topic[{}] is conflict with system topic. Choose another name",
                topic.topic_name
            ),
        ));
    }
    for (what, number) in [
        ("readQueueNums", topic.read_queue_nums),
        ("writeQueueNums", topic.write_queue_nums),
    ] {
        if !(0..=QUEUES_LIMIT).contains(&number) {
            return Err(Refusal::new(
                response::INVALID_PARAMETER,
                format!("{what} is {number}, allowed is 0 to {QUEUES_LIMIT}"),
            ));
        }
    }
    if !(0..=15).contains(&topic.perm) {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            format!(
                "perm is {}, allowed are the bits 4 (read), 2 (write), 1 (inherit)",
                topic.perm
            ),
        ));
    }
    Ok(())
}

fn filter_type(name: &str) -> Result<TopicFilterType, Refusal> {
    if name.is_empty() {
        return Ok(TopicFilterType::default());
    }
    TopicFilterType::from_name(name).ok_or_else(|| {
        Refusal::new(
            response::INVALID_PARAMETER,
            format!("topicFilterType is {name}, allowed are SINGLE_TAG and MULTI_TAG"),
        )
    })
}

/// Deletes a topic (215).
pub(crate) fn delete(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = DeleteTopicRequestHeader::decode(&request.fields)?;
    let name = header.topic;
    if name.trim().is_empty() {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            "The specified topic is blank. Say which topic is to be deleted",
        ));
    }
    if context.options.validate_system_topic_when_update_topic && context.topics.is_system(name) {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            format!("The topic[{name}] is conflict with system topic. It cannot be deleted"),
        ));
    }
    if context.topics.remove(name)? {
        tracing::info!(topic = name, peer = %peer.remote(), "deleted a topic");
    }
    context.offsets.remove_topic(name);
    context.pops.remove_topic(name);
    // Before the messages: a crash must not leave offsets that lie past the messages of a new topic with this name.
    context.persist_orders().map_err(|error| internal(&error))?;
    context.persist_offsets().map_err(|error| internal(&error))?;
    context
        .store
        .delete_topic(name)
        .map_err(|error| internal(&error))?;
    context.long_polling.release_all(Some(name));
    // A pop may have been under way at the first time.
    context.pops.remove_topic(name);
    context.announcements.changed();
    Ok(Command::response(response::SUCCESS))
}

/// Returns one topic's configuration (351).
pub(crate) fn config(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetTopicConfigRequestHeader::decode(&request.fields)?;
    let topic = context
        .topics
        .get(header.topic)
        .ok_or_else(|| Refusal::no_topic_in("No topic in this broker. topic: {}; ", header.topic))?;
    Ok(answer(&**topic))
}

/// Returns all topics (21).
pub(crate) fn all(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    let (topics, version) = context.topics.all();
    Ok(
        answer(&announced(&topics, version, -1)).with_header(&GetAllTopicConfigResponseHeader {
            total_topic_num: i32::try_from(topics.len()).ok(),
        }),
    )
}

/// Returns the offsets and times of a topic's queues (202).
///
/// Unlike Apache's brokers, also those of further topics, which the body names: `{"topics":["a","b"]}`. A further topic
/// that does not exist is left out, and one that is named several times counts once.
pub(crate) fn stats(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetTopicStatsInfoRequestHeader::decode(&request.fields)?;
    let topic = context
        .topics
        .get(header.topic)
        .ok_or_else(|| Refusal::no_topic_in("topic[{}] not exist, ", header.topic))?;
    let puts = topic.traffic.puts(Span::Minute, clock::now_ms());
    let mut body = TopicStatsTable {
        topic_put_tps: puts.map_or(0.0, |growth| growth.messages_per_second()),
        ..TopicStatsTable::default()
    };
    let names = further_topics(request)?.into_iter();
    let names = names.filter(|name| *name != header.topic);
    let further: Vec<_> = names.filter_map(|name| context.topics.get(&name)).collect();
    let queues = |topic: &TopicConfig| i64::from(topic.queue_nums());
    let count = queues(&topic) + further.iter().map(|topic| queues(topic)).sum::<i64>();
    if !further.is_empty() && count > i64::from(QUEUES_LIMIT) {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            format!(
                "the topics of the request have {count} queues, allowed are {QUEUES_LIMIT}: ask for fewer topics at once"
            ),
        ));
    }
    for topic in std::iter::once(&topic).chain(&further) {
        add_queues(context, topic, &mut body)?;
    }
    Ok(answer(&body))
}

/// Topics of the body of a request for statistics.
fn further_topics(request: &Command) -> Result<BTreeSet<String>, Refusal> {
    let Some(body) = request.body.as_deref().filter(|body| !body.is_empty()) else {
        return Ok(BTreeSet::new());
    };
    let json = Json::parse(body)?;
    let names = json.get("topics").and_then(Json::as_array).unwrap_or_default();
    if names.len() > MAX_FURTHER_TOPICS {
        return Err(Refusal::new(
            response::INVALID_PARAMETER,
            format!(
                "the body names {} topics, allowed are {MAX_FURTHER_TOPICS}",
                names.len()
            ),
        ));
    }
    let names = names.iter().filter_map(Json::as_str);
    Ok(names.map(str::to_owned).collect())
}

fn add_queues(
    context: &BrokerContext,
    topic: &TopicConfig,
    body: &mut TopicStatsTable,
) -> Result<(), Refusal> {
    for queue_id in 0..topic.queue_nums() {
        let (min_offset, max_offset) = ends(context, &topic.topic_name, queue_id);
        let newest = if max_offset > 0 {
            context
                .store
                .store_time(&topic.topic_name, queue_id, max_offset - 1)
                .map_err(|error| internal(&error))?
                .unwrap_or(0)
        } else {
            0
        };
        body.offset_table.insert(
            MessageQueue::new(&topic.topic_name, &context.options.broker_name, queue_id),
            TopicOffset {
                last_update_timestamp: newest,
                max_offset,
                min_offset,
            },
        );
    }
    Ok(())
}

/// The smallest and largest offset of a queue, never negative.
pub(crate) fn ends(context: &BrokerContext, topic: &str, queue_id: i32) -> (i64, i64) {
    (
        context.store.min_offset(topic, queue_id).max(0),
        context.store.max_offset(topic, queue_id).max(0),
    )
}

/// Lists the groups that consume a topic (300).
pub(crate) fn consumed_by(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryTopicConsumeByWhoRequestHeader::decode(&request.fields)?;
    let mut groups = context.offsets.groups_of(header.topic);
    groups.extend(context.clients.groups_of_topic(header.topic));
    Ok(answer(&GroupList {
        group_list: groups.into_iter().collect(),
    }))
}

/// Lists the system topics (305).
pub(crate) fn system(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(topic_list(context.topics.system().map(str::to_owned).collect()))
}

/// A response that lists topics.
pub(crate) fn topic_list(topic_list: Vec<String>) -> Command {
    answer(&TopicList {
        topic_list,
        ..TopicList::default()
    })
}
