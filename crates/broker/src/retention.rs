//! Warns before `storeMaxBytes` deletes messages that a consumer group has not consumed.

use crate::context::{BrokerContext, on_blocking_thread};
use crate::metrics;
use pyrmq_remoting::net::Shutdown;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// A group and a topic whose messages will be deleted before they are consumed.
type Endangered = BTreeSet<(String, String)>;

/// Checks as often as the store deletes. Logs each group and topic once, until it has caught up.
pub(crate) async fn watch(context: Arc<BrokerContext>, shutdown: Shutdown) {
    let mut warned = Endangered::new();
    let period = || Duration::from_millis(context.store.live().clean_interval_ms());
    while !shutdown.sleep_or_stop(period()).await {
        let searched = context.clone();
        // Finding positions in the log reads queue files, which may block.
        let search = move || Ok::<_, Infallible>(endangered(&searched));
        let found = match on_blocking_thread(&context.stats, search).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot find groups that are behind what will be deleted, will try again");
                continue;
            }
        };
        for (group, topic) in found.difference(&warned) {
            tracing::warn!(
                group,
                topic,
                "messages that the group has not consumed will be deleted soon: the log is near `storeMaxBytes`; \
                 let the group catch up, or raise the option"
            );
        }
        warned = found;
    }
}

/// The groups whose next message is in a segment that will be deleted soon.
pub(crate) fn endangered(context: &BrokerContext) -> Endangered {
    let Some(deleted_before) = context.store.deleted_before() else {
        return Endangered::new();
    };
    if deleted_before <= context.store.health().min_physical_offset {
        return Endangered::new();
    }
    let waiting = metrics::groups(context).into_iter().filter(|of| {
        let queues = (0_i32..).zip(&of.lag);
        queues.filter(|(_, lag)| **lag > 0).any(|(queue_id, lag)| {
            let next = context.store.max_offset(&of.topic, queue_id) - lag;
            let entries = context.store.queue_entries(&of.topic, queue_id, next, 1);
            // A queue that cannot be read fails when its consumers pull.
            let entry = entries
                .ok()
                .flatten()
                .and_then(|entries| entries.first().copied());
            entry.is_some_and(|entry| entry.position < deleted_before)
        })
    });
    waiting.map(|of| (of.group, of.topic)).collect()
}
