//! Rows on their way to a block.

use crate::build::{Builder, HostText};
use crate::layout::{Column, ColumnData};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::compress::{self, Codec};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::properties::names;
use std::borrow::Cow;
use thiserror::Error;

/// Maximum size of a decompressed body, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;

/// A record that cannot become a row.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// The body cannot be decompressed, or a column outgrew Arrow's 32-bit offsets.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Finished rows, one [`ColumnData`] per wanted column, in that order.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of rows.
    pub rows: usize,
    /// The columns.
    pub columns: Vec<ColumnData>,
}

/// Collects rows.
#[derive(Debug)]
pub struct Columns {
    wanted: Vec<Column>,
    builders: Vec<Builder>,
    rows: usize,
    bytes: usize,
    born: HostText,
    stored: HostText,
    id: String,
    bad_body_is_null: bool,
}

impl Columns {
    /// An empty block of these columns.
    pub fn new(wanted: Vec<Column>) -> Self {
        Self {
            builders: wanted.iter().map(|column| Builder::of(*column)).collect(),
            wanted,
            rows: 0,
            bytes: 0,
            born: HostText::default(),
            stored: HostText::default(),
            id: String::new(),
            bad_body_is_null: false,
        }
    }

    /// Makes a body that cannot be decompressed null instead of an error.
    #[must_use]
    pub fn with_null_bodies(self) -> Self {
        Self {
            bad_body_is_null: true,
            ..self
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one record that came from this broker, if it is known. `Some`: the row is there, but its body could not be
    /// read.
    ///
    /// A body that cannot be read is an error before anything of the row is added, so the next record can follow.
    pub fn push(
        &mut self,
        broker: Option<&str>,
        record: &Record<'_>,
    ) -> Result<Option<WireError>, ColumnError> {
        let (body, bad) = match self.body_of(record) {
            Ok(body) => (body, None),
            Err(cause) if self.bad_body_is_null => (None, Some(cause)),
            Err(cause) => return Err(cause.into()),
        };
        let [keys, tags, unique] = record
            .properties
            .get_many([names::KEYS, names::TAGS, names::UNIQ_KEY]);
        for (column, builder) in self.wanted.iter().zip(&mut self.builders) {
            self.bytes += match (column, builder) {
                (Column::Topic, Builder::Text(text)) => text.push(record.topic.as_bytes())?,
                (Column::BrokerName, Builder::Text(text)) => text.push_option(broker.map(str::as_bytes))?,
                (Column::Body, Builder::Text(text)) => text.push_option(body.as_deref())?,
                (Column::Keys, Builder::Text(text)) => text.push_option(keys.map(str::as_bytes))?,
                (Column::Tags, Builder::Text(text)) => text.push_option(tags.map(str::as_bytes))?,
                (Column::MsgId, Builder::Text(text)) => match unique {
                    Some(unique) => text.push(unique.as_bytes())?,
                    None => text.push(offset_id(record, &mut self.id).as_bytes())?,
                },
                (Column::BornHost, Builder::Text(text)) => text.push(self.born.of(record.born_host))?,
                (Column::StoreHost, Builder::Text(text)) => text.push(self.stored.of(record.store_host))?,
                (Column::Properties, Builder::Map(map)) => map.push(record.properties)?,
                (column, Builder::Int32(values)) => {
                    values.push(small(*column, record));
                    4
                }
                (column, Builder::Int64(values)) => {
                    values.push(large(*column, record));
                    8
                }
                (_, Builder::Text(_) | Builder::Map(_)) => 0,
            };
        }
        self.rows += 1;
        Ok(bad)
    }

    /// The body as it was sent; none if no column needs it.
    fn body_of<'a>(&self, record: &Record<'a>) -> Result<Option<Cow<'a, [u8]>>, WireError> {
        if !self.wanted.contains(&Column::Body) {
            return Ok(None);
        }
        Ok(Some(match Codec::of(record.sys_flag)? {
            Some(codec) => Cow::Owned(compress::decompress(codec, record.body, MAX_BODY_BYTES)?),
            None => Cow::Borrowed(record.body),
        }))
    }

    /// Returns the collected rows and starts a new block.
    pub fn finish(&mut self) -> Block {
        let columns = self.builders.iter_mut().map(Builder::finish).collect();
        self.bytes = 0;
        Block {
            rows: std::mem::take(&mut self.rows),
            columns,
        }
    }
}

fn small(column: Column, record: &Record<'_>) -> i32 {
    match column {
        Column::QueueId => record.queue_id,
        Column::Flag => record.flag,
        Column::SysFlag => record.sys_flag,
        Column::ReconsumeTimes => record.reconsume_times,
        _ => 0,
    }
}

fn large(column: Column, record: &Record<'_>) -> i64 {
    match column {
        Column::QueueOffset => record.queue_offset,
        Column::CommitLogOffset => record.physical_offset,
        Column::BornTimestamp => record.born_timestamp_ms.saturating_mul(1000),
        Column::StoreTimestamp => record.store_timestamp_ms.saturating_mul(1000),
        _ => 0,
    }
}

fn offset_id<'a>(record: &Record<'_>, text: &'a mut String) -> &'a str {
    text.clear();
    let id = OffsetId {
        host: record.store_host,
        offset: record.physical_offset,
    };
    text.push_str(id.digits().as_str());
    text
}
