//! Names, magic numbers and widths of the files on disk, in this one place.
//!
//! ```text
//! <root>/commitlog/<20 digits>                      records (pyrmq_remoting::message::record)
//! <root>/consumequeue/<topic>/<queue>/<20 digits>   units of 20 bytes: position int64, size int32, tags code int64
//! <root>/consumequeue_ext/...                      see `queue/ext.rs`
//! <root>/index/<yyyyMMddHHmmssSSS>                  see `index/file.rs`
//! <root>/checkpoint  abort  lock  config/*.json
//! ```
//! Twenty digits are the offset of the file's first byte in the run of files, with leading zeros
//! (Apache `UtilAll.offset2FileName`).

use std::path::{Path, PathBuf};

/// Directory of the consume queues.
pub(crate) const CONSUME_QUEUE: &str = "consumequeue";
/// Directory of the key index.
pub(crate) const INDEX: &str = "index";
/// File of the checkpoint.
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// File that is there while a store is open.
pub(crate) const ABORT: &str = "abort";
/// Whole records that look torn; Apache has no such file.
pub(crate) const NUL_RECORDS: &str = "nulRecords";
/// File that a running broker holds locked.
pub(crate) const LOCK: &str = "lock";
/// Digits of a file name.
const NAME_DIGITS: usize = 20;

/// The name of the file whose first byte is at `offset`.
pub(crate) fn file_name(offset: i64) -> String {
    format!("{offset:0NAME_DIGITS$}")
}

/// The offset in a file name.
pub(crate) fn parse_file_name(name: &str) -> Option<i64> {
    if name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.parse().ok()
    } else {
        None
    }
}

/// The directory of one consume queue.
pub(crate) fn queue_directory(root: &Path, topic: &str, queue_id: i32) -> PathBuf {
    root.join(CONSUME_QUEUE).join(topic).join(queue_id.to_string())
}

/// An entry of a consume queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CqUnit {
    /// Position of the record in the commit log.
    pub(crate) position: i64,
    /// Bytes of the record.
    pub(crate) size: i32,
    /// Hash of the tag, or the delivery time in the schedule topic.
    pub(crate) tags_code: i64,
}

/// Bytes of a unit.
pub(crate) const CQ_UNIT_SIZE: usize = 20;
/// [`CQ_UNIT_SIZE`] for arithmetic on positions.
pub(crate) const CQ_UNIT_SIZE_I64: i64 = 20;

impl CqUnit {
    /// What fills a file before a first entry that is not the file's first (Apache `ConsumeQueue.fillPreBlank`).
    pub(crate) const FILLER: Self = Self {
        position: 0,
        size: i32::MAX,
        tags_code: 0,
    };

    pub(crate) fn to_bytes(self) -> [u8; CQ_UNIT_SIZE] {
        let [p0, p1, p2, p3, p4, p5, p6, p7] = self.position.to_be_bytes();
        let [s0, s1, s2, s3] = self.size.to_be_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.tags_code.to_be_bytes();
        [
            p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5, t6, t7,
        ]
    }

    /// Reads a unit; `None` when fewer than 20 bytes are there.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (position, rest) = bytes.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let tags_code = rest.first_chunk()?;
        Some(Self {
            position: i64::from_be_bytes(*position),
            size: i32::from_be_bytes(*size),
            tags_code: i64::from_be_bytes(*tags_code),
        })
    }

    pub(crate) fn is_filler(self) -> bool {
        self.size == i32::MAX
    }

    /// Whether the unit was written: the rest of a file is zero.
    pub(crate) fn is_written(self) -> bool {
        self.position >= 0 && self.size > 0
    }

    /// Position after the record.
    pub(crate) fn end(self) -> i64 {
        if self.is_filler() {
            0
        } else {
            self.position.saturating_add(i64::from(self.size))
        }
    }
}

/// The bytes of a number at an offset; zeros if some are missing.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

/// Writes fields one after the other at the start of `place`.
pub(crate) fn put_fields(mut place: &mut [u8], fields: &[&[u8]]) {
    for field in fields {
        if let Some((now, rest)) = std::mem::take(&mut place).split_at_mut_checked(field.len()) {
            now.copy_from_slice(field);
            place = rest;
        }
    }
}

/// Corrects one flipped bit at one of these positions, if that makes `bytes` valid. Only for content with a checksum so
/// wide that no other content becomes valid by chance.
pub(crate) fn correct_bit(
    bytes: &mut [u8],
    places: impl Iterator<Item = usize>,
    is_valid: impl Fn(&[u8]) -> bool,
) -> bool {
    for at in places {
        for bit in 0..8 {
            let mask = 1 << bit;
            flip(bytes, at, mask);
            if is_valid(bytes) {
                return true;
            }
            flip(bytes, at, mask);
        }
    }
    false
}

fn flip(bytes: &mut [u8], at: usize, mask: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= mask;
    }
}

/// Lengths in memory never reach 2^63.
pub(crate) fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A position inside a file, which is never negative.
pub(crate) fn to_u64(position: i64) -> u64 {
    u64::try_from(position).unwrap_or(u64::MAX)
}

/// A length or count that was checked to be small and not negative.
pub(crate) fn to_usize(length: i64) -> usize {
    usize::try_from(length).unwrap_or_default()
}
