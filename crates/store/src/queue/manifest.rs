//! Records which queues exist and how far their files reach, so that a queue that was damaged or deleted while no store
//! was open is noticed and rebuilt, however large the log is (ours: Apache has no such file and ignores it).
//!
//! ```text
//! <root>/queueEnds   magic "PYRMQ-Q2", then parts, each: length int32 of what follows up to the CRC, the log's start int64, the
//!                    log's end int64, then for each queue: topic length int16, topic, queue id int32, min int64, end int64; CRC-32 of
//!                    where the part begins in the file (int64) and of everything in it
//! ```
//! A store that closes writes one part with all queues. An open store adds a part whenever new queue files have become
//! durable, before the checkpoint says so, and before old ones are deleted. A later part overrides an earlier one, and
//! each file that it covers is durable. So after a crash each of these files must exist with its full length, unless
//! the topic was deleted at or after the log's end of its part. What came later is in the part of the log that a start
//! reads anyway. After a crash, and whenever else the file may be incomplete, it is rewritten with the next fsync of
//! the queues.

use crate::error::StoreError;
use crate::format::to_i64;
use crate::fs::{Context, File, Fs, parent, with_suffix};
use crate::queue::deleted_topics::Positions;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "queueEnds";
const MAGIC: &[u8] = b"PYRMQ-Q2";
/// Bytes of a part's length and of its CRC.
const PART_OVERHEAD: usize = 4 + 4;

/// How far a queue's files reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueRange {
    pub(crate) topic: Arc<str>,
    pub(crate) id: i32,
    pub(crate) min: i64,
    /// Index after the newest written unit; more may have been added since.
    pub(crate) end: i64,
}

/// The recorded range of a queue.
#[derive(Debug, Clone, Copy)]
struct RecordedRange {
    min: i64,
    end: i64,
    log_start: i64,
    log_end: i64,
}

/// The recorded range of each queue.
type RecordedRanges = HashMap<(String, i32), RecordedRange>;

/// The result of a comparison with the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The file cannot be read, or may be older than another broker's work.
    Unknown,
    /// Every queue is as long as it was.
    Whole,
    /// The named queue has fewer units, or fewer files, than the manifest says.
    Short(String, i32),
}

/// The open file `queueEnds`.
#[derive(Debug)]
pub(crate) struct QueueManifest {
    path: PathBuf,
    /// The file and its length, if parts may be added to it.
    file: Option<(Arc<dyn File>, u64)>,
    /// The ranges recorded when the store opened; empty after [`QueueManifest::end_recovery`].
    known: Option<RecordedRanges>,
    /// Whether files from before the store opened may not be durable.
    pub(crate) is_undurable: bool,
}

impl QueueManifest {
    /// Reads the file.
    pub(crate) fn open(fs: &dyn Fs, root: &Path) -> Result<Self, StoreError> {
        let path = root.join(NAME);
        let mut manifest = Self {
            path,
            file: None,
            known: None,
            is_undurable: false,
        };
        let bytes = match fs.read(&manifest.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(manifest),
            Err(error) => return Err(StoreError::io("read", &manifest.path, &error)),
        };
        let Some((known, length)) = parse(&bytes) else {
            tracing::warn!(file = %manifest.path.display(), "not readable: queues are not compared with the last stop");
            return Ok(manifest);
        };
        // A part that was cut off would hide later ones.
        if length == bytes.len() {
            let file = fs.open(&manifest.path).at("open", &manifest.path)?;
            manifest.file = Some((file, length as u64));
        }
        manifest.known = Some(known);
        Ok(manifest)
    }

    /// Looks for a queue with fewer units than at the last clean stop. Its minimum may only have moved with the log's
    /// start. `range_of` returns the current range of indexes of a queue.
    pub(crate) fn find_short(
        &self,
        log_start: i64,
        range_of: impl Fn(&str, i32) -> Option<(i64, i64)>,
    ) -> Compared {
        let Some(known) = &self.known else {
            return Compared::Unknown;
        };
        let short = known.iter().find(|((topic, id), recorded)| {
            let (min, end) = range_of(topic, *id).unwrap_or_default();
            end < recorded.end || (min > recorded.min && log_start == recorded.log_start)
        });
        short.map_or(Compared::Whole, |((topic, id), _)| {
            Compared::Short(topic.clone(), *id)
        })
    }

    /// Looks for a queue that lost a file since a crash of ours. `is_whole` says whether a queue's files cover a range
    /// of indexes; a topic without any queue that `knows` does not know was deleted.
    pub(crate) fn find_lost(
        &self,
        deleted: &Positions,
        is_whole: impl Fn(&str, i32, (i64, i64)) -> bool,
        knows: impl Fn(&str) -> bool,
    ) -> Compared {
        let Some(known) = &self.known else {
            return Compared::Unknown;
        };
        let lost = known.iter().find(|((topic, id), recorded)| {
            let was_deleted = deleted
                .get(topic)
                .is_some_and(|position| *position >= recorded.log_end);
            !was_deleted && !is_whole(topic, *id, (recorded.min, recorded.end)) && knows(topic)
        });
        lost.map_or(Compared::Whole, |((topic, id), _)| {
            Compared::Short(topic.clone(), *id)
        })
    }

    /// Forgets what was recorded before the recovery, which has ended. Unless the file has all queues, it is rewritten
    /// with the next fsync; if its content is no longer true, it is deleted.
    pub(crate) fn end_recovery(
        &mut self,
        fs: &dyn Fs,
        is_complete: bool,
        is_wrong: bool,
    ) -> Result<(), StoreError> {
        self.known = None;
        if !is_complete {
            self.file = None;
        }
        if is_wrong && fs.exists(&self.path).at("look for", &self.path)? {
            fs.remove(&self.path).at("remove", &self.path)?;
        }
        Ok(())
    }

    /// Whether parts can be added: the file has everything about the queues except what is added now.
    pub(crate) fn is_complete(&self) -> bool {
        self.file.is_some()
    }

    /// Forbids adding a part until the whole file is rewritten.
    pub(crate) fn require_rewrite(&mut self) {
        self.file = None;
    }

    /// Rewrites the file with all queues, whose files are durable.
    pub(crate) fn write(
        &mut self,
        fs: &dyn Fs,
        log: (i64, i64),
        queues: &[QueueRange],
    ) -> Result<(), StoreError> {
        self.file = None;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(part(to_i64(bytes.len()), log, queues));
        let new = with_suffix(&self.path, ".tmp");
        let file = fs.create(&new).at("create", &new)?;
        file.write_all_at(&bytes, 0).at("write", &new)?;
        file.sync().at("flush", &new)?;
        fs.rename(&new, &self.path).at("rename", &self.path)?;
        let root = parent(&self.path);
        fs.sync_directory(root).at("flush", root)?;
        self.file = Some((file, bytes.len() as u64));
        Ok(())
    }

    /// Adds a part, durably.
    pub(crate) fn add(&mut self, log: (i64, i64), queues: &[QueueRange]) -> Result<(), StoreError> {
        // After an error the file's content is unknown.
        let Some((file, length)) = self.file.take() else {
            return Ok(());
        };
        let bytes = part(i64::try_from(length).unwrap_or(i64::MAX), log, queues);
        file.write_all_at(&bytes, length).at("write", &self.path)?;
        file.sync().at("flush", &self.path)?;
        self.file = Some((file, length + bytes.len() as u64));
        Ok(())
    }
}

fn part(at: i64, (log_start, log_end): (i64, i64), queues: &[QueueRange]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&log_start.to_be_bytes());
    bytes.extend_from_slice(&log_end.to_be_bytes());
    for queue in queues {
        let length = u16::try_from(queue.topic.len()).unwrap_or_default();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(queue.topic.as_bytes());
        bytes.extend_from_slice(&queue.id.to_be_bytes());
        bytes.extend_from_slice(&queue.min.to_be_bytes());
        bytes.extend_from_slice(&queue.end.to_be_bytes());
    }
    let length = u32::try_from(bytes.len() - 4).unwrap_or_default();
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = length.to_be_bytes();
    }
    bytes.extend_from_slice(&crc(at, &bytes).to_be_bytes());
    bytes
}

fn crc(at: i64, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&at.to_be_bytes());
    crc.update(bytes);
    crc.finalize()
}

/// The content of the valid parts from the start on, and how many bytes they take; `None` if not even the first is
/// valid.
fn parse(bytes: &[u8]) -> Option<(RecordedRanges, usize)> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let (mut known, mut at) = (RecordedRanges::new(), MAGIC.len());
    while let Some(content) = valid_part(at, rest) {
        parse_part(content, &mut known)?;
        let size = content.len() + PART_OVERHEAD;
        at += size;
        rest = rest.get(size..)?;
    }
    (at > MAGIC.len()).then_some((known, at))
}

/// The first part's bytes between length and CRC.
fn valid_part(at: usize, bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::try_from(u32::from_be_bytes(*bytes.first_chunk()?)).ok()?;
    let whole = bytes.get(..length.checked_add(4)?)?;
    let sum = bytes.get(whole.len()..)?.first_chunk()?;
    (crc(to_i64(at), whole) == u32::from_be_bytes(*sum)).then_some(whole.get(4..)?)
}

fn parse_part(content: &[u8], known: &mut RecordedRanges) -> Option<()> {
    let (log_start, rest) = content.split_first_chunk::<8>()?;
    let (log_end, mut rest) = rest.split_first_chunk::<8>()?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (topic, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let (id, after) = after.split_first_chunk::<4>()?;
        let (min, after) = after.split_first_chunk::<8>()?;
        let (end, after) = after.split_first_chunk::<8>()?;
        let topic = String::from_utf8(topic.to_vec()).ok()?;
        let recorded = RecordedRange {
            min: i64::from_be_bytes(*min),
            end: i64::from_be_bytes(*end),
            log_start: i64::from_be_bytes(*log_start),
            log_end: i64::from_be_bytes(*log_end),
        };
        known.insert((topic, i32::from_be_bytes(*id)), recorded);
        rest = after;
    }
    Some(())
}
