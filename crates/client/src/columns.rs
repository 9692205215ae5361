//! Pulled records as column buffers in Arrow's layout, only the columns that were asked for.
//!
//! ```text
//! int32, int64        [validity] [values]
//! text, bytes         [validity] [offsets int32, rows + 1] [data]
//! map of text         [validity] [offsets int32, rows + 1] [key offsets] [key data] [value offsets] [value data]
//! ```
//! Validity is one bit a row, lowest bit first, 1 for a value; it is left out while a column has no null. A row costs
//! one copy of what it carries and no allocation of its own. Timestamps are microseconds.
//!
//! What a column means follows Apache `MessageDecoder.decode` and `MessageExt`: `msgId` is the producer's unique id,
//! or the offset id where there is none; of two properties with one name the later one holds.

use pyrmq_remoting::WireError;
use pyrmq_remoting::message::compress::{self, Codec};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Properties, Record, sys_flag};
use std::net::SocketAddr;
use thiserror::Error;

/// Most bytes that a compressed body may unfold to.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;

/// A record that cannot become a row.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// Its body does not unfold, or a column outgrew Arrow's 32-bit offsets.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It holds a batch of messages, which nothing here takes apart yet.
    #[error(
        "the record at {physical_offset} holds a batch (topic attribute queue.type=BatchCQ), which cannot be read yet"
    )]
    InnerBatch {
        /// Where it stands in the broker's commit log.
        physical_offset: i64,
    },
}

/// One column of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the columns")]
pub enum Column {
    Topic,
    BrokerName,
    QueueId,
    QueueOffset,
    Body,
    Keys,
    Tags,
    Properties,
    MsgId,
    BornTimestamp,
    StoreTimestamp,
    BornHost,
    StoreHost,
    Flag,
    SysFlag,
    ReconsumeTimes,
    CommitLogOffset,
}

impl Column {
    const NAMES: [(&'static str, Self); 17] = [
        ("topic", Self::Topic),
        ("brokerName", Self::BrokerName),
        ("queueId", Self::QueueId),
        ("queueOffset", Self::QueueOffset),
        ("body", Self::Body),
        ("keys", Self::Keys),
        ("tags", Self::Tags),
        ("properties", Self::Properties),
        ("msgId", Self::MsgId),
        ("bornTimestamp", Self::BornTimestamp),
        ("storeTimestamp", Self::StoreTimestamp),
        ("bornHost", Self::BornHost),
        ("storeHost", Self::StoreHost),
        ("flag", Self::Flag),
        ("sysFlag", Self::SysFlag),
        ("reconsumeTimes", Self::ReconsumeTimes),
        ("commitLogOffset", Self::CommitLogOffset),
    ];

    /// The column of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, column)| *column)
    }
}

/// One buffer, aligned for what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Buffer {
    /// Text, bytes, or bits.
    Bytes(Vec<u8>),
    /// Values or offsets.
    Int32(Vec<i32>),
    /// Values.
    Int64(Vec<i64>),
}

/// A finished column: its buffers in the order of the layout above, the first one the validity.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnData {
    /// How many rows are null.
    pub nulls: usize,
    /// Validity (absent without nulls), then what the type has.
    pub buffers: Vec<Option<Buffer>>,
}

/// Rows that are ready to hand over, one [`ColumnData`] a wanted column, in that order.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// How many.
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

    /// Adds one record that came from this broker.
    pub fn push(&mut self, broker: &str, record: &Record<'_>) -> Result<(), ColumnError> {
        if record.sys_flag & sys_flag::INNER_BATCH != 0 {
            return Err(ColumnError::InnerBatch {
                physical_offset: record.physical_offset,
            });
        }
        let [keys, tags, unique] = record
            .properties
            .get_many([names::KEYS, names::TAGS, names::UNIQ_KEY]);
        for (column, builder) in self.wanted.iter().zip(&mut self.builders) {
            self.bytes += match (column, builder) {
                (Column::Topic, Builder::Text(text)) => text.push(record.topic.as_bytes())?,
                (Column::BrokerName, Builder::Text(text)) => text.push(broker.as_bytes())?,
                (Column::Body, Builder::Text(text)) => push_body(text, record)?,
                (Column::Keys, Builder::Text(text)) => text.push_option(keys)?,
                (Column::Tags, Builder::Text(text)) => text.push_option(tags)?,
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
        Ok(())
    }

    /// Hands over what was collected, and starts anew.
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

fn push_body(text: &mut Text, record: &Record<'_>) -> Result<usize, WireError> {
    match Codec::of(record.sys_flag)? {
        Some(codec) => text.push(&compress::decompress(codec, record.body, MAX_BODY_BYTES)?),
        None => text.push(record.body),
    }
}

fn offset_id<'a>(record: &Record<'_>, text: &'a mut String) -> &'a str {
    text.clear();
    OffsetId {
        host: record.store_host,
        offset: record.physical_offset,
    }
    .write(text);
    text
}

#[derive(Debug)]
enum Builder {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Text(Text),
    Map(Map),
}

impl Builder {
    fn of(column: Column) -> Self {
        match column {
            Column::QueueId | Column::Flag | Column::SysFlag | Column::ReconsumeTimes => {
                Self::Int32(Vec::new())
            }
            Column::QueueOffset
            | Column::CommitLogOffset
            | Column::BornTimestamp
            | Column::StoreTimestamp => Self::Int64(Vec::new()),
            Column::Properties => Self::Map(Map::default()),
            Column::Topic
            | Column::BrokerName
            | Column::Body
            | Column::Keys
            | Column::Tags
            | Column::MsgId
            | Column::BornHost
            | Column::StoreHost => Self::Text(Text::default()),
        }
    }

    fn finish(&mut self) -> ColumnData {
        match self {
            Self::Int32(values) => ColumnData {
                nulls: 0,
                buffers: vec![None, Some(Buffer::Int32(fresh(values)))],
            },
            Self::Int64(values) => ColumnData {
                nulls: 0,
                buffers: vec![None, Some(Buffer::Int64(fresh(values)))],
            },
            Self::Text(text) => {
                let text = text.renew();
                ColumnData {
                    nulls: text.validity.nulls,
                    buffers: vec![
                        text.validity.buffer(),
                        Some(Buffer::Int32(text.offsets)),
                        Some(Buffer::Bytes(text.data)),
                    ],
                }
            }
            Self::Map(map) => {
                let (keys, values) = (map.keys.renew(), map.values.renew());
                let offsets = std::mem::replace(&mut map.offsets, vec![0]);
                ColumnData {
                    nulls: 0,
                    buffers: vec![
                        None,
                        Some(Buffer::Int32(offsets)),
                        Some(Buffer::Int32(keys.offsets)),
                        Some(Buffer::Bytes(keys.data)),
                        Some(Buffer::Int32(values.offsets)),
                        Some(Buffer::Bytes(values.data)),
                    ],
                }
            }
        }
    }
}

/// Takes a vector and leaves an empty one with as much room: the next block is about as large.
fn fresh<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

/// Which rows have a value. No bits are kept before the first null.
#[derive(Debug, Default)]
struct Validity {
    bits: Vec<u8>,
    rows: usize,
    nulls: usize,
}

impl Validity {
    fn push(&mut self, valid: bool) {
        if !valid && self.nulls == 0 {
            self.bits = vec![0xFF; self.rows / 8];
            if !self.rows.is_multiple_of(8) {
                self.bits.push((1 << (self.rows % 8)) - 1);
            }
        }
        if !valid || self.nulls > 0 {
            if self.rows.is_multiple_of(8) {
                self.bits.push(0);
            }
            if let Some(last) = self.bits.last_mut() {
                *last |= u8::from(valid) << (self.rows % 8);
            }
        }
        self.nulls += usize::from(!valid);
        self.rows += 1;
    }

    fn buffer(self) -> Option<Buffer> {
        (self.nulls > 0).then_some(Buffer::Bytes(self.bits))
    }
}

/// Text or bytes.
#[derive(Debug)]
struct Text {
    offsets: Vec<i32>,
    data: Vec<u8>,
    validity: Validity,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            data: Vec::new(),
            validity: Validity::default(),
        }
    }
}

impl Text {
    fn push(&mut self, value: &[u8]) -> Result<usize, WireError> {
        let end = self.data.len() + value.len();
        let offset = offset_of(end)?;
        self.data.extend_from_slice(value);
        self.offsets.push(offset);
        self.validity.push(true);
        Ok(value.len() + 4)
    }

    fn push_option(&mut self, value: Option<&str>) -> Result<usize, WireError> {
        if let Some(value) = value {
            return self.push(value.as_bytes());
        }
        self.offsets.push(offset_of(self.data.len())?);
        self.validity.push(false);
        Ok(4)
    }

    fn renew(&mut self) -> Self {
        let mut offsets = Vec::with_capacity(self.offsets.len());
        offsets.push(0);
        let next = Self {
            offsets,
            data: Vec::with_capacity(self.data.len()),
            validity: Validity::default(),
        };
        std::mem::replace(self, next)
    }
}

fn offset_of(length: usize) -> Result<i32, WireError> {
    i32::try_from(length).map_err(|_| WireError::TooLarge {
        what: "column of a batch",
        length,
        limit: i32::MAX as usize,
    })
}

/// Properties, name to value.
#[derive(Debug)]
struct Map {
    offsets: Vec<i32>,
    keys: Text,
    values: Text,
}

impl Default for Map {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            keys: Text::default(),
            values: Text::default(),
        }
    }
}

impl Map {
    fn push(&mut self, properties: Properties<'_>) -> Result<usize, WireError> {
        let mut bytes = 4;
        let mut rest = properties.iter();
        while let Some((name, value)) = rest.next() {
            // Of two pairs with one name the later one holds, as in the map that Java reads them into.
            if rest.clone().any(|(later, _)| later == name) {
                continue;
            }
            bytes += self.keys.push(name.as_bytes())? + self.values.push(value.as_bytes())?;
        }
        self.offsets.push(offset_of(self.keys.offsets.len() - 1)?);
        Ok(bytes)
    }
}

/// A host as text; the same one stands in many rows in a row.
#[derive(Debug, Default)]
struct HostText {
    host: Option<SocketAddr>,
    text: String,
}

impl HostText {
    fn of(&mut self, host: SocketAddr) -> &[u8] {
        if self.host != Some(host) {
            self.text = host.to_string();
            self.host = Some(host);
        }
        self.text.as_bytes()
    }
}
