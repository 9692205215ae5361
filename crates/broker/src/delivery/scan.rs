//! Searching a queue of the store.

use pyrmq_remoting::message::{Record, record};
use pyrmq_store::{GetMessage, Store, StoreError, TagFilter};

const READ_COUNT: usize = 256;
const READ_BYTES: usize = 4 << 20;

/// Whether a queue contains a wanted record between an offset and the queue's current end. Stops at the first.
pub(crate) fn has_record(
    store: &Store,
    (topic, queue_id): (&str, i32),
    mut offset: i64,
    mut is_wanted: impl FnMut(&Record<'_>) -> bool,
) -> Result<bool, StoreError> {
    let end = store.max_offset(topic, queue_id);
    while offset < end {
        let got = store.get(&GetMessage {
            topic,
            queue_id,
            offset,
            max_count: READ_COUNT,
            max_bytes: READ_BYTES,
            tags: TagFilter::All,
        })?;
        let mut records = record::records(&got.body).map_while(Result::ok);
        if records.any(|record| is_wanted(&record)) {
            return Ok(true);
        }
        if got.next_offset <= offset {
            break;
        }
        offset = got.next_offset;
    }
    Ok(false)
}
