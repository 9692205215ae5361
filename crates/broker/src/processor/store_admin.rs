//! Store administration: entries of a consume queue 321, deletion of old files 306, 316 and 329, and the state of
//! replication 907 (Apache `AdminBrokerProcessor`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::client::subscription_data;
use crate::processor::query::internal;
use crate::processor::{Answer, answer};
use pyrmq_remoting::body::{ConsumeQueueData, HARuntimeInfo, QueryConsumeQueueResponseBody};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::QueryConsumeQueueRequestHeader;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, WireError};
use pyrmq_store::{MaintenanceTask, QueueEntry};
use std::sync::Arc;

/// Maximum number of consume queue entries in a response.
const MAX_ENTRIES: i32 = 4096;

/// Returns entries of a consume queue (321).
pub(crate) fn queue_entries(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryConsumeQueueRequestHeader::decode(&request.fields)?;
    let topic = header.topic.ok_or(WireError::MissingField("topic"))?;
    let queue_id = header.queue_id.unwrap_or(0);
    let index = header.index.unwrap_or(0);
    let count = header.count.unwrap_or(0).clamp(0, MAX_ENTRIES);
    let entries = context
        .store
        .queue_entries(topic, queue_id, index, i64::from(count))
        .map_err(|error| internal(&error))?
        .ok_or_else(|| Refusal::internal(format!("{queue_id}@{topic} is not exist!")))?;
    let mut body = QueryConsumeQueueResponseBody {
        max_queue_index: context.store.max_offset(topic, queue_id),
        min_queue_index: context.store.min_offset(topic, queue_id),
        queue_data: entries.iter().map(queue_data).collect(),
        ..QueryConsumeQueueResponseBody::default()
    };
    if let Some(group) = header.consumer_group {
        let subscription = context
            .clients
            .consumers(group, |group| group.subscriptions.get(topic).cloned())
            .flatten();
        body.filter_data = Some(match &subscription {
            None => format!("{group}@{topic} is not online!"),
            // Apache's Bloom filter data, which is not used here.
            Some(_) => "null".to_owned(),
        });
        body.subscription_data = subscription.as_deref().map(subscription_data);
    }
    let mut response = answer(&body);
    if body.queue_data.is_empty() {
        response.remark = Some(format!("Index {index} of {queue_id}@{topic} is not exist!"));
    }
    Ok(response)
}

fn queue_data(entry: &QueueEntry) -> ConsumeQueueData {
    ConsumeQueueData {
        physic_offset: entry.position,
        physic_size: entry.size,
        tags_code: entry.tags_code,
        ..ConsumeQueueData::default()
    }
}

/// Deletes the oldest files of consume queues together with the log's: runs one round of retention now (306).
pub(crate) fn clean_expired_queues(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    context
        .store
        .run(MaintenanceTask::Clean)
        .map_err(|error| internal(&error))?;
    Ok(Command::response(response::SUCCESS))
}

/// Deletes the consume queues of topics that are not in the table (316): a crash right after a topic's deletion leaves
/// them.
pub(crate) fn clean_unused_topics(context: &BrokerContext, _request: &Command, peer: &Peer) -> Answer {
    for (topic, _) in context.store.topics() {
        let is_used = context.topics.get(&topic).is_some() || context.topics.is_system(&topic);
        if !is_used {
            tracing::info!(topic, peer = %peer.remote(), "deleted the consume queues of an unknown topic");
            context
                .store
                .delete_topic(&topic)
                .map_err(|error| internal(&error))?;
        }
    }
    Ok(Command::response(response::SUCCESS))
}

/// Deletes segments older than `fileReservedTime` at any hour (329). Responds before it is done, as Apache does,
/// because it may take longer than the caller waits.
pub(crate) fn delete_expired(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    let store = Arc::clone(&context.store);
    std::thread::Builder::new()
        .name("pyrmq-delete".to_owned())
        .spawn(move || match store.delete_expired() {
            Ok(files) => tracing::info!(files, "deleted old files on demand"),
            Err(error) => tracing::error!(%error, "cannot delete old files"),
        })
        .map_err(|error| Refusal::internal(format!("cannot start a thread that deletes: {error}")))?;
    Ok(Command::response(response::SUCCESS))
}

/// Returns the state of replication (907): a master without slaves.
pub(crate) fn replication(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(answer(&HARuntimeInfo {
        master: true,
        master_commit_log_max_offset: context.store.health().max_physical_offset,
        ..HARuntimeInfo::default()
    }))
}

/// Resets what a slave knows of its master's flushed log (908). A master answers and changes nothing, as Apache's.
pub(crate) fn reset_master_flush(_state: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(Command::response(response::SUCCESS))
}
