//! Walks from record to record: over the log by size and magic alone, over a response's body by whole records.

use super::read::Cursor;
use super::record::{BLANK_SIZE, FIXED_V4, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record};
use crate::error::WireError;

/// The content of a record's first eight bytes, for walking the log without decoding records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// A record with this many bytes.
    Record(usize),
    /// The rest of the file, this many bytes, is unused.
    Blank(usize),
    /// Neither: the valid data ends here.
    End,
}

/// Reads size and magic.
pub fn hop(bytes: &[u8]) -> Hop {
    let mut cursor = Cursor::new(bytes, "message record");
    let (Ok(size), Ok(magic)) = (cursor.i32(), cursor.u32()) else {
        return Hop::End;
    };
    match (usize::try_from(size), magic) {
        (Ok(size), MAGIC_V1 | MAGIC_V2) if size > FIXED_V4 => Hop::Record(size),
        (Ok(left), MAGIC_BLANK) if left >= BLANK_SIZE => Hop::Blank(left),
        _ => Hop::End,
    }
}

/// The magic number of something that looks like a record or a blank record, but of a kind that this version does not
/// know: a newer version wrote it, or it is damaged. The last byte of a magic number is the kind; zero there means that
/// a write was cut off.
pub fn unknown_kind(bytes: &[u8]) -> Option<u32> {
    let mut cursor = Cursor::new(bytes, "message record");
    let (size, magic) = (cursor.i32().ok()?, cursor.u32().ok()?);
    let is_family = [MAGIC_V1, MAGIC_BLANK]
        .iter()
        .any(|known| u8::try_from(magic ^ known).is_ok());
    let is_known = matches!(magic, MAGIC_V1 | MAGIC_V2 | MAGIC_BLANK);
    let is_size = usize::try_from(size).is_ok_and(|size| size >= BLANK_SIZE);
    (is_family && !is_known && is_size && magic.to_be_bytes().last() != Some(&0)).then_some(magic)
}

/// Why bytes that are not a record cannot be read.
pub fn no_record(bytes: &[u8]) -> String {
    match unknown_kind(bytes) {
        Some(magic) => format!(
            "a record of an unknown kind (magic {magic:08X}): a newer version wrote it, or it is damaged"
        ),
        None => "no record begins here".to_owned(),
    }
}

/// Records without gaps between them, as in the body of a pull response. After an error the iterator ends.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { left: bytes }
}

/// Iterator over records without gaps between them.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, WireError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let next = Record::decode(self.left);
        self.left = match &next {
            Ok(record) => self.left.get(record.size..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(next)
    }
}
