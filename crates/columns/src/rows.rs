//! Records of a log as the rows that a read through its broker would give.

use crate::columns::{Block, ColumnError, Columns};
use crate::layout::Column;
use crate::tags::Tags;
use bytes::Bytes;
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::message::{Record, inner_batch, sys_flag};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

const WRAPPED: i32 = sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP;

/// What to do with a message whose body cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadBody {
    /// The read fails.
    Fail,
    /// The body becomes null.
    Null,
    /// The message is left out.
    Skip,
}

/// Which messages of a log are wanted.
#[derive(Debug, Clone, Default)]
pub struct RowFilter {
    /// Keep records of these topics.
    pub topics: HashSet<String>,
    /// Keep records with these tags.
    pub tags: Tags,
    /// Keep records stored in this time, ms, the end excluded; `None`: at any time.
    pub stored_ms: Option<Range<i64>>,
    /// Keep these offsets of these queues, by topic and queue number; `None`: all.
    pub queues: Option<HashMap<String, HashMap<i32, Range<i64>>>>,
    /// Log positions by topic: messages of the topic before its position were deleted with it, and are left out.
    pub deleted: HashMap<String, i64>,
}

impl RowFilter {
    /// True for a record that consumers can see and that is not excluded by what a batch shares.
    fn wants_record(&self, record: &Record<'_>) -> bool {
        self.topics.contains(record.topic)
            // Prepared and rolled back messages have no entry in a consume queue.
            && !sys_flag::is_hidden(record.sys_flag)
            && self
                .stored_ms
                .as_ref()
                .is_none_or(|stored| stored.contains(&record.store_timestamp_ms))
            && self
                .deleted
                .get(record.topic)
                .is_none_or(|end| record.physical_offset >= *end)
    }

    fn wants_message(&self, record: &Record<'_>) -> bool {
        let is_in_range = self.queues.as_ref().is_none_or(|queues| {
            queues
                .get(record.topic)
                .and_then(|topic| topic.get(&record.queue_id))
                .is_some_and(|offsets| offsets.contains(&record.queue_offset))
        });
        is_in_range && self.tags.wants(record)
    }
}

/// A message whose body could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Topic.
    pub topic: String,
    /// Queue number.
    pub queue_id: i32,
    /// Offset in the queue.
    pub offset: i64,
    /// Position in the log.
    pub position: i64,
    /// Why the body could not be read.
    pub cause: ColumnError,
}

/// Collects the wanted records of a log.
#[derive(Debug)]
pub struct LogRows {
    columns: Columns,
    filter: RowFilter,
    broker: Option<String>,
    on_bad: BadBody,
    bad: Vec<BadRow>,
}

impl LogRows {
    /// Collects nothing yet. Without a broker's name, the column of the broker is null.
    pub fn new(wanted: Vec<Column>, filter: RowFilter, broker: Option<String>, on_bad: BadBody) -> Self {
        let columns = Columns::new(wanted);
        Self {
            columns: match on_bad {
                BadBody::Null => columns.with_null_bodies(),
                BadBody::Fail | BadBody::Skip => columns,
            },
            filter,
            broker,
            on_bad,
            bad: Vec::new(),
        }
    }

    /// Adds a record's messages, if they are wanted. `bytes` are the record's.
    pub fn push(&mut self, record: &Record<'_>, bytes: &[u8]) -> Result<(), BadRow> {
        if !self.filter.wants_record(record) {
            return Ok(());
        }
        if record.sys_flag & WRAPPED != WRAPPED {
            return self.push_one(record);
        }
        match inner_batch::unwrapped(Bytes::copy_from_slice(bytes), 0) {
            Ok(messages) => {
                for message in records(&messages) {
                    match message {
                        Ok(message) => self.push_one(&message)?,
                        Err(cause) => return self.not_readable(record, cause.into()),
                    }
                }
                Ok(())
            }
            Err(cause) => self.not_readable(record, cause.into()),
        }
    }

    fn push_one(&mut self, record: &Record<'_>) -> Result<(), BadRow> {
        if !self.filter.wants_message(record) {
            return Ok(());
        }
        match self.columns.push(self.broker.as_deref(), record) {
            Ok(None) => Ok(()),
            Ok(Some(cause)) => {
                self.bad.push(bad_row(record, cause.into()));
                Ok(())
            }
            Err(cause) => self.not_readable(record, cause),
        }
    }

    fn not_readable(&mut self, record: &Record<'_>, cause: ColumnError) -> Result<(), BadRow> {
        let row = bad_row(record, cause);
        if self.on_bad == BadBody::Fail {
            return Err(row);
        }
        self.bad.push(row);
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.columns.rows()
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        self.columns.bytes()
    }

    /// Returns the collected rows and starts a new block.
    pub fn finish(&mut self) -> Block {
        self.columns.finish()
    }

    /// The messages that could not be read since the last call and did not end the read.
    pub fn take_bad(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.bad)
    }
}

fn bad_row(record: &Record<'_>, cause: ColumnError) -> BadRow {
    BadRow {
        topic: record.topic.to_owned(),
        queue_id: record.queue_id,
        offset: record.queue_offset,
        position: record.physical_offset,
        cause,
    }
}
