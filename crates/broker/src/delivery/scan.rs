//! Searching a queue of the store.

use pyrmq_remoting::message::{Record, record};
use pyrmq_store::{GetMessage, Store, StoreError, TagFilter};
use std::ops::ControlFlow;

const READ_COUNT: usize = 1024;
const READ_BYTES: usize = 4 << 20;

/// Reads a queue from an offset to its current end. `take` gets the records of one read at a time, back to back, and
/// may end the scan.
pub(crate) fn read_on(
    store: &Store,
    (topic, queue_id): (&str, i32),
    mut offset: i64,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), StoreError> {
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
        if take(&got.body).is_break() || got.next_offset <= offset {
            break;
        }
        offset = got.next_offset;
    }
    Ok(())
}

/// Whether a queue contains a wanted record between an offset and the queue's current end. Stops at the first.
pub(crate) fn has_record(
    store: &Store,
    queue: (&str, i32),
    offset: i64,
    mut is_wanted: impl FnMut(&Record<'_>) -> bool,
) -> Result<bool, StoreError> {
    let mut is_found = false;
    read_on(store, queue, offset, |records| {
        let mut records = record::records(records).map_while(Result::ok);
        is_found = records.any(|record| is_wanted(&record));
        if is_found {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(is_found)
}
