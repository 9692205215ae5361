//! The ways to put messages.

use crate::common::host;
use crate::sent::Sent;
use crate::workload::Outcome;
use pyrmq_store::{BatchMessage, MessageBatch, Store, StoreError, Stored};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a batch that fit into the smallest segment.
const MAX_BATCH_BYTES: usize = 7000;
/// Bytes of a record without body and properties, at most.
const RECORD_BYTES: usize = 150;

/// True if a put that failed like this was not tried: its record certainly does not exist.
pub(crate) fn is_refused(error: &StoreError) -> bool {
    use StoreError::{DiskFull, IllegalQueue, ReadOnly};
    matches!(error, DiskFull { .. } | ReadOnly { .. } | IllegalQueue { .. })
}

/// Stores messages in one write: none of them has a position before the end. Returns the outcome of each.
pub(crate) fn append_together(store: &Store, sent: &[Sent]) -> Outcome<Vec<Result<Stored, StoreError>>> {
    let outcomes = Arc::new(Mutex::new(BTreeMap::new()));
    let mut batch = store.append_batch();
    for (number, sent) in sent.iter().enumerate() {
        let done = Arc::clone(&outcomes);
        // A message that cannot be stored is answered at once, before those in front of it.
        let done = Box::new(move |stored| {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.insert(number, stored);
            None
        });
        batch.stage(&sent.message(), done);
    }
    batch.commit();
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    if outcomes.len() != sent.len() {
        return Err(format!(
            "{} of {} messages of an append batch were answered",
            outcomes.len(),
            sent.len()
        ));
    }
    Ok(outcomes.into_values().collect())
}

/// Leaves out messages that would make a batch too large for a segment.
pub(crate) fn fitting(mut sent: Vec<Sent>) -> Vec<Sent> {
    let mut room = MAX_BATCH_BYTES;
    sent.retain(|sent| {
        let size = sent.body.len() + sent.properties.len() + RECORD_BYTES;
        let fits = size <= room;
        room -= if fits { size } else { 0 };
        fits
    });
    sent
}

/// Stores messages of one queue as a batch.
pub(crate) fn put_batch(store: &Store, sent: &[Sent]) -> Result<Stored, StoreError> {
    let items: Vec<_> = sent
        .iter()
        .map(|sent| {
            let message = sent.message();
            BatchMessage {
                flag: message.flag,
                body: &sent.body,
                properties: &sent.properties,
                tags_code: message.tags_code,
                unique_key: message.unique_key,
                keys: message.keys,
                tag: message.tag,
            }
        })
        .collect();
    store.put_batch(&MessageBatch {
        topic: &sent[0].topic,
        queue_id: sent[0].queue,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host("127.0.0.1:1"),
        store_host: host("127.0.0.1:2"),
        reconsume_times: 0,
        items: &items,
    })
}
