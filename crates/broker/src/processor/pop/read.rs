//! Reads messages for pops and peeks.

use crate::block_in_place;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::pop::Pass;
use crate::processor::pull::COLD_AFTER_MESSAGES;
use pyrmq_remoting::codes::response;
use pyrmq_store::{GetMessage, GetMessageResult, StoreError};

/// Reads messages in a pass over a pop. `None`: they are not in memory, and the pass may not wait for the disk.
pub(super) fn read_in(
    pass: Pass,
    context: &BrokerContext,
    get: &GetMessage<'_>,
) -> Result<Option<GetMessageResult>, Refusal> {
    let got = match pass {
        Pass::First => return read(context, get).map(Some),
        Pass::Resumed { may_wait: false, .. } => read_cached(context, get),
        Pass::Resumed { may_wait: true, .. } => context.store.get(get).map(Some),
    };
    got.map_err(|error| Refusal::internal(error.to_string()))
}

/// Reads messages on the connection's task if they are in memory. Otherwise another thread takes over the task's other
/// connections meanwhile, since the disk may be slow or hang. SYSTEM_BUSY if too many requests wait like that.
pub(super) fn read(context: &BrokerContext, get: &GetMessage<'_>) -> Result<GetMessageResult, Refusal> {
    let mut got = read_cached(context, get);
    if matches!(got, Ok(None)) {
        block_in_place::POPS.run(&mut || got = context.store.get(get).map(Some));
    }
    let got = got.map_err(|error| Refusal::internal(error.to_string()))?;
    got.ok_or_else(|| {
        let text = "too many requests wait for a disk that is slow or hangs";
        Refusal::new(response::SYSTEM_BUSY, text)
    })
}

/// Reads messages that are in memory. Where the system cannot say whether they are, those that are fresh.
fn read_cached(
    context: &BrokerContext,
    get: &GetMessage<'_>,
) -> Result<Option<GetMessageResult>, StoreError> {
    let store = &context.store;
    let is_fresh = || {
        let end = store.max_offset(get.topic, get.queue_id);
        end.saturating_sub(get.offset) <= COLD_AFTER_MESSAGES
    };
    if store.knows_cached() || is_fresh() {
        store.get_cached(get)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::site::{Site, in_time};
    use pyrmq_store::{NewMessage, TagFilter};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread")]
    async fn any_number_of_pops_that_read_from_a_disk_that_hangs_leaves_sends_their_threads() {
        const READS: usize = 300;
        let site = Site::new();
        let host = "127.0.0.1:1".parse().unwrap();
        let message = NewMessage {
            body: b"x",
            ..NewMessage::new("T", 0, host)
        };
        site.context.store.put(&message).unwrap();
        site.disk.hang_reads_for(Duration::from_secs(20));
        let [found, refused] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for _ in 0..READS {
            let (context, found, refused) = (site.context.clone(), found.clone(), refused.clone());
            site.tasks.spawn(async move {
                let got = read(
                    &context,
                    &GetMessage {
                        topic: "T",
                        queue_id: 0,
                        offset: 0,
                        max_count: 1,
                        max_bytes: 1000,
                        tags: TagFilter::All,
                    },
                );
                let count = match got {
                    Ok(got) => (got.count == 1).then_some(found),
                    Err(refusal) => (refusal.code == response::SYSTEM_BUSY).then_some(refused),
                };
                count.unwrap().fetch_add(1, Ordering::Relaxed);
            });
        }
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        in_time("all wait or are refused", || {
            site.disk.waiting_reads() + count(&refused) == READS
        })
        .await;
        let waiting = site.disk.waiting_reads();
        let mut has_run = false;
        block_in_place::block_in_place(&mut || has_run = true);
        assert!(has_run, "{waiting} reads wait");
        assert!(waiting > 1);
        site.disk.hang_reads(false);
        in_time("those that waited are served", || count(&found) == waiting).await;
    }
}
