//! The builders behind [`Columns`](crate::Columns), one for each kind of type.

use crate::layout::{Buffer, Column, ColumnData};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::Properties;
use std::collections::HashMap;
use std::net::SocketAddr;

/// With this many properties or more, repeated names are found by hash instead of pair by pair.
const MANY_PROPERTIES: usize = 16;

#[derive(Debug)]
pub(crate) enum Builder {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Text(Text),
    Map(Map),
}

impl Builder {
    pub(crate) fn of(column: Column) -> Self {
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

    pub(crate) fn finish(&mut self) -> ColumnData {
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
pub(crate) struct Text {
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
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<usize, WireError> {
        let end = self.data.len() + value.len();
        let offset = offset_of(end)?;
        self.data.extend_from_slice(value);
        self.offsets.push(offset);
        self.validity.push(true);
        Ok(value.len() + 4)
    }

    pub(crate) fn push_option(&mut self, value: Option<&[u8]>) -> Result<usize, WireError> {
        if let Some(value) = value {
            return self.push(value);
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
pub(crate) struct Map {
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
    pub(crate) fn push(&mut self, properties: Properties<'_>) -> Result<usize, WireError> {
        // Of two pairs with one name the later one counts, as in the map that Java reads them into.
        let bytes = if properties.iter().nth(MANY_PROPERTIES).is_some() {
            self.push_many(properties)?
        } else {
            self.push_few(properties)?
        };
        self.offsets.push(offset_of(self.keys.offsets.len() - 1)?);
        Ok(4 + bytes)
    }

    fn push_few(&mut self, properties: Properties<'_>) -> Result<usize, WireError> {
        let mut bytes = 0;
        let mut rest = properties.iter();
        while let Some((name, value)) = rest.next() {
            if rest.clone().all(|(later, _)| later != name) {
                bytes += self.keys.push(name.as_bytes())? + self.values.push(value.as_bytes())?;
            }
        }
        Ok(bytes)
    }

    fn push_many(&mut self, properties: Properties<'_>) -> Result<usize, WireError> {
        let last: HashMap<&str, usize> = properties
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (name, index))
            .collect();
        let mut bytes = 0;
        for (index, (name, value)) in properties.iter().enumerate() {
            if last.get(name) == Some(&index) {
                bytes += self.keys.push(name.as_bytes())? + self.values.push(value.as_bytes())?;
            }
        }
        Ok(bytes)
    }
}

/// A host as text, kept because consecutive rows often have the same host.
#[derive(Debug, Default)]
pub(crate) struct HostText {
    host: Option<SocketAddr>,
    text: String,
}

impl HostText {
    pub(crate) fn of(&mut self, host: SocketAddr) -> &[u8] {
        if self.host != Some(host) {
            self.text = host.to_string();
            self.host = Some(host);
        }
        self.text.as_bytes()
    }
}
