//! Finds the next valid record after damage.
//!
//! Bodies contain whatever senders like, including bytes that look like a record. So bytes only count as one if they
//! name their own position and their body matches its checksum.

use crate::error::StoreError;
use crate::format::{to_i64, to_u64, to_usize};
use crate::fs::Context;
use crate::scan::{CHUNK, HEAD, LogScan, named_position, sound};
use pyrmq_remoting::message::record::{Hop, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, hop};

/// Bytes of a head up to and including the position that it names.
const NAMED: usize = PHYSICAL_OFFSET_AT + 8;
/// Bytes before the magic number.
const MAGIC_AT: usize = 4;

impl LogScan {
    /// Moves to the next valid record after the position. False, without moving: the file has none.
    pub fn skip_damage(&mut self) -> Result<bool, StoreError> {
        self.find_sound(self.position + 1)
    }

    /// Moves to the next valid record from this position on. False, without moving: the file has none.
    pub fn find_sound(&mut self, from: i64) -> Result<bool, StoreError> {
        let mut at = from.max(self.base);
        let mut chunk = Vec::new();
        while at + to_i64(NAMED) <= self.end {
            let Some(data) = self
                .file
                .next_data(to_u64(at - self.base))
                .at("read", &self.path)?
            else {
                return Ok(false);
            };
            // A record's first bytes may be zeros at the end of a hole.
            at = at.max(self.base.saturating_add_unsigned(data) - to_i64(MAGIC_AT));
            let wanted = to_i64(CHUNK).min(self.end - at).max(0);
            chunk.resize(to_usize(wanted), 0);
            let got = self
                .file
                .read_at(&mut chunk, to_u64(at - self.base))
                .at("read", &self.path)?;
            chunk.truncate(got);
            if let Some(found) = self.first_sound(&chunk, at)? {
                self.position = found;
                return Ok(true);
            }
            if got < NAMED {
                return Ok(false);
            }
            // The next chunk begins with bytes that may be the start of a head.
            at += to_i64(got - NAMED + 1);
        }
        Ok(false)
    }

    fn first_sound(&self, chunk: &[u8], at: i64) -> Result<Option<i64>, StoreError> {
        for (index, head) in chunk.windows(NAMED).enumerate() {
            let magic = head.get(MAGIC_AT..HEAD).and_then(|bytes| bytes.first_chunk());
            let magic = magic.map(|bytes| u32::from_be_bytes(*bytes));
            if !matches!(magic, Some(MAGIC_V1 | MAGIC_V2)) {
                continue;
            }
            let position = at + to_i64(index);
            if named_position(head) != Some(position) {
                continue;
            }
            let Hop::Record(size) = hop(head) else { continue };
            if to_i64(size) > self.end - position {
                continue;
            }
            let mut record = vec![0; size];
            let got = self
                .file
                .read_at(&mut record, to_u64(position - self.base))
                .at("read", &self.path)?;
            if got == size && sound(&record, position, true).is_ok() {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }
}
