//! The outcome of one queue append.

use crate::append::buffer::{EncodedRecord, LogPosition};
use crate::format::to_i64;
use crate::message::Stored;

/// The answer to a put, and what its listener and its queue need.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) stored: Stored,
    /// The tags code; `None` for several messages with different codes.
    pub(crate) tags_code: Option<i64>,
    /// Bytes of units that the queue has yet to write to its file.
    pub(crate) units_waiting: usize,
    /// Whether readers find the messages now, rather than only after an fsync.
    pub(crate) is_readable: bool,
}

impl Appended {
    pub(super) fn new(
        encoded_records: &[EncodedRecord],
        queue_offset: i64,
        log_position: LogPosition,
    ) -> Self {
        let positions = || {
            encoded_records
                .iter()
                .map(|encoded_record| log_position.of(encoded_record))
        };
        let mut codes = encoded_records
            .iter()
            .map(|encoded_record| encoded_record.tags_code);
        let tags_code = codes.next();
        Self {
            stored: Stored {
                physical_offset: positions().next().unwrap_or_default(),
                end_position: encoded_records
                    .last()
                    .map_or(0, |last| log_position.of(last) + to_i64(last.size)),
                queue_offset,
                store_timestamp_ms: log_position.store_ms,
                count: u32::try_from(encoded_records.len()).unwrap_or(u32::MAX),
                batch_offsets: if encoded_records.len() > 1 {
                    positions().collect()
                } else {
                    Vec::new()
                },
            },
            tags_code: tags_code.filter(|first| codes.all(|code| code == *first)),
            units_waiting: 0,
            is_readable: false,
        }
    }
}
