//! The plain batch: the body of request 320 and of a batch sent by 310 (Apache `MessageDecoder.encodeMessages`).
//!
//! ```text
//! item   4  item size, counts itself
//!        4  magic, 0
//!        4  body CRC, 0
//!        4  flag
//!        4  body length      b  body
//!        2  properties length  p  properties
//! ```
//! Items follow each other without gaps; every reader ignores magic and CRC.

use super::properties::{self, Properties};
use super::read::Cursor;
use crate::error::WireError;

/// Bytes of an item before its body.
pub const ITEM_HEAD: usize = 4 + 4 + 4 + 4 + 4;
/// Bytes of an item other than body and properties.
pub const ITEM_OVERHEAD: usize = ITEM_HEAD + 2;
const WHAT: &str = "batch item";

/// One message inside a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchItem<'a> {
    /// The user's flag.
    pub flag: i32,
    /// The body.
    pub body: &'a [u8],
    /// The properties in wire form.
    pub properties: &'a [u8],
}

impl<'a> BatchItem<'a> {
    /// A view of the properties.
    pub fn properties(&self) -> Properties<'a> {
        Properties::from_bytes(self.properties)
    }

    /// Exact number of bytes that [`encode`] appends.
    pub fn encoded_size(&self) -> usize {
        ITEM_OVERHEAD + self.body.len() + self.properties.len()
    }
}

/// Appends an item, or nothing if it does not fit its length fields.
pub fn encode(item: &BatchItem<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    encode_parts(item.flag, item.body, [item.properties], out)
}

/// Appends an item, or nothing if it does not fit its length fields. The parts of its properties are written one after
/// the other, so that a caller that has them apart need not join them first.
#[inline]
pub fn encode_parts<const N: usize>(
    flag: i32,
    body: &[u8],
    property_parts: [&[u8]; N],
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let too_large = |what, length, limit| WireError::TooLarge { what, length, limit };
    let limit = i32::MAX as usize;
    let properties_size = property_parts.iter().map(|part| part.len()).sum::<usize>();
    let size = ITEM_OVERHEAD + body.len() + properties_size;
    let whole = i32::try_from(size).map_err(|_| too_large(WHAT, size, limit))?;
    let body_length = i32::try_from(body.len()).map_err(|_| too_large(WHAT, size, limit))?;
    let properties_length = i16::try_from(properties_size)
        .map_err(|_| too_large("properties", properties_size, properties::MAX_BYTES))?;
    let mut head = [0; ITEM_HEAD];
    head[..4].copy_from_slice(&whole.to_be_bytes());
    head[12..16].copy_from_slice(&flag.to_be_bytes());
    head[16..].copy_from_slice(&body_length.to_be_bytes());
    out.reserve(size);
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    out.extend_from_slice(&properties_length.to_be_bytes());
    for part in property_parts {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// The items of a batch body. After an error the iterator ends.
pub fn items(body: &[u8]) -> Items<'_> {
    Items { left: body }
}

/// Iterator over a batch body.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<BatchItem<'a>, WireError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        match decode(self.left) {
            Ok((item, used)) => {
                self.left = self.left.get(used..).unwrap_or_default();
                Some(Ok(item))
            }
            Err(error) => {
                self.left = &[];
                Some(Err(error))
            }
        }
    }
}

/// Takes one item off the front. Returns it and its announced size, which is the number of bytes used.
pub fn decode(bytes: &[u8]) -> Result<(BatchItem<'_>, usize), WireError> {
    let mut outer = Cursor::new(bytes, WHAT);
    let announced = outer.i32()?;
    let size = outer.length(i64::from(announced))?;
    if size < ITEM_OVERHEAD {
        return Err(WireError::Length {
            what: WHAT,
            length: i64::from(announced),
        });
    }
    let mut inner = Cursor::new(outer.take(size - 4)?, WHAT);
    inner.take(8)?;
    let flag = inner.i32()?;
    let length = i64::from(inner.i32()?);
    let body = inner.take(inner.length(length)?)?;
    let length = i64::from(inner.i16()?);
    let properties = inner.take(inner.length(length)?)?;
    if inner.remaining() != 0 {
        return Err(WireError::Length {
            what: WHAT,
            length: i64::from(announced),
        });
    }
    Ok((
        BatchItem {
            flag,
            body,
            properties,
        },
        size,
    ))
}
