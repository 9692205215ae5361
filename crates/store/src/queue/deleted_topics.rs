//! Deleted topics, so that none comes back: their records stay in the log until its segments are deleted, and a replay
//! of the log would put them into queues again (ours: Apache has no such file and ignores it).
//!
//! ```text
//! <root>/deletedTopics   for each deletion: topic length int16, topic, log position int64, CRC-32 of "PYRMQ-T1", of where this
//!                        begins in the file (int64), and of everything before it
//! ```
//! A record of the topic before the position gets no queue. An entry is written and fsynced before the first queue file
//! is deleted, so that a start after a crash completes the deletion. It is removed once the log's start has passed its
//! position. The file is void once a Java broker has worked here (the checkpoint shows it): it brings such topics back,
//! and may have stored more in them.

use crate::error::StoreError;
use crate::format::correct_bit;
use crate::fs::{Context, File, Fs, with_suffix};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "deletedTopics";
const MAGIC: &[u8] = b"PYRMQ-T1";
/// Bytes of an entry with a topic of maximum length.
const MAX_ENTRY_BYTES: usize = 2 + 255 + 8 + 4;

/// The log position of the last deletion of each topic.
pub type DeletedPositions = HashMap<String, i64>;
pub(crate) type Positions = DeletedPositions;

/// The deletions recorded in a store's directory; empty for a Java broker's.
pub fn deleted_topics(fs: &dyn Fs, root: &Path) -> Result<DeletedPositions, StoreError> {
    let path = root.join(NAME);
    if !fs.exists(&path).at("look for", &path)? {
        return Ok(Positions::new());
    }
    Ok(parse(&fs.read(&path).at("read", &path)?).0)
}

/// Whether a record was deleted with its topic.
pub(crate) fn is_deleted(positions: &Positions, topic: &str, position: i64) -> bool {
    !positions.is_empty() && positions.get(topic).is_some_and(|end| position < *end)
}

/// The open file `deletedTopics`.
#[derive(Debug)]
pub(crate) struct DeletedTopics {
    root: PathBuf,
    file: Option<Arc<dyn File>>,
    /// Number of valid and durable bytes.
    length: u64,
    pub(crate) positions: Positions,
}

impl DeletedTopics {
    /// Reads the file and makes its content durable, or removes a void file.
    pub(crate) fn open(fs: &dyn Fs, root: &Path, is_valid: bool, crashed: bool) -> Result<Self, StoreError> {
        let mut deleted = Self {
            root: root.to_owned(),
            file: None,
            length: 0,
            positions: Positions::new(),
        };
        let path = deleted.path();
        if !fs.exists(&path).at("look for", &path)? {
            return Ok(deleted);
        }
        if !is_valid {
            tracing::warn!(file = %path.display(), "another broker worked here: topics that were deleted before may be back");
            deleted.remove(fs)?;
            return Ok(deleted);
        }
        let mut bytes = fs.read(&path).at("read", &path)?;
        let (mut positions, mut length) = parse(&bytes);
        let is_corrected = correct(&mut bytes, length);
        if is_corrected {
            tracing::warn!(file = %path.display(), "one bit was wrong and was corrected by the checksum");
            (positions, length) = parse(&bytes);
        }
        let file = fs.open(&path).at("open", &path)?;
        if length < bytes.len() {
            file.set_length(length as u64).at("cut", &path)?;
        }
        // A killed process may not have reached the fsync, or its fsync failed: then the system considers pages clean
        // that are not on the disk, unless they are rewritten. Queues are about to be deleted because of them.
        if crashed || is_corrected {
            let valid = bytes.get(..length).unwrap_or_default();
            file.write_all_at(valid, 0).at("write", &path)?;
        }
        file.sync().at("flush", &path)?;
        fs.sync_directory(root).at("flush", root)?;
        deleted.file = Some(file);
        deleted.length = length as u64;
        deleted.positions = positions;
        Ok(deleted)
    }

    fn path(&self) -> PathBuf {
        self.root.join(NAME)
    }

    fn remove(&mut self, fs: &dyn Fs) -> Result<(), StoreError> {
        let path = self.path();
        (self.file, self.length) = (None, 0);
        fs.remove(&path).at("remove", &path)?;
        fs.sync_directory(&self.root).at("flush", &self.root)
    }

    /// Adapts the positions to the recovered log: no position lies after its end, since later records are new, and
    /// entries that its start has passed are removed.
    pub(crate) fn fit_to_log(&mut self, fs: &dyn Fs, start: i64, end: i64) -> Result<(), StoreError> {
        let fitting: Positions = self
            .positions
            .iter()
            .map(|(topic, position)| (topic.clone(), end.min(*position)))
            .filter(|(_, position)| *position > start)
            .collect();
        if fitting == self.positions {
            return Ok(());
        }
        self.positions = fitting;
        if self.positions.is_empty() {
            return self.remove(fs);
        }
        let mut topics: Vec<_> = self.positions.iter().collect();
        topics.sort_unstable();
        let mut bytes = Vec::new();
        for (topic, position) in topics {
            let entry = entry(bytes.len() as u64, topic, *position);
            bytes.extend_from_slice(&entry);
        }
        let path = self.path();
        let new = with_suffix(&path, ".tmp");
        let file = fs.create(&new).at("create", &new)?;
        file.write_all_at(&bytes, 0).at("write", &new)?;
        file.sync().at("flush", &new)?;
        fs.rename(&new, &path).at("rename", &new)?;
        fs.sync_directory(&self.root).at("flush", &self.root)?;
        self.file = Some(file);
        self.length = bytes.len() as u64;
        Ok(())
    }

    /// Records a deletion durably. With an error, the flag is true if the file certainly does not have it.
    pub(crate) fn add(&mut self, fs: &dyn Fs, topic: &str, position: i64) -> Result<(), (StoreError, bool)> {
        let path = self.path();
        let (file, is_new) = match &self.file {
            Some(file) => (Arc::clone(file), false),
            None => (
                fs.create(&path)
                    .at("create", &path)
                    .map_err(|error| (error, true))?,
                true,
            ),
        };
        let bytes = entry(self.length, topic, position);
        let written = file
            .write_all_at(&bytes, self.length)
            .at("write", &path)
            .and_then(|()| file.sync().at("flush", &path))
            .and_then(|()| {
                if is_new {
                    return fs.sync_directory(&self.root).at("flush", &self.root);
                }
                Ok(())
            });
        if let Err(error) = written {
            let is_undone =
                error.is_full() && file.set_length(self.length).and_then(|()| file.sync()).is_ok();
            return Err((error, is_undone));
        }
        self.file = Some(file);
        self.length += bytes.len() as u64;
        self.positions.insert(topic.to_owned(), position);
        Ok(())
    }
}

fn entry(at: u64, topic: &str, position: i64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(topic.len() + 14);
    bytes.extend_from_slice(&u16::try_from(topic.len()).unwrap_or_default().to_be_bytes());
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&position.to_be_bytes());
    bytes.extend_from_slice(&crc(at, &bytes).to_be_bytes());
    bytes
}

fn crc(at: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(MAGIC);
    crc.update(&at.to_be_bytes());
    crc.update(bytes);
    crc.finalize()
}

/// The valid entries from the start on, and how many bytes they take.
fn parse(bytes: &[u8]) -> (Positions, usize) {
    let (mut positions, mut at) = (Positions::new(), 0);
    while let Some((topic, position, size)) = bytes.get(at..).and_then(|rest| parse_one(at as u64, rest)) {
        let newest = positions.entry(topic).or_insert(position);
        *newest = position.max(*newest);
        at += size;
    }
    (positions, at)
}

/// Corrects one flipped bit of the entry after the valid ones. False: it is invalid for another reason, for example cut
/// off.
fn correct(bytes: &mut [u8], at: usize) -> bool {
    let end = bytes.len().min(at + MAX_ENTRY_BYTES);
    correct_bit(bytes, at..end, |bytes| {
        bytes
            .get(at..)
            .is_some_and(|rest| parse_one(at as u64, rest).is_some())
    })
}

fn parse_one(at: u64, bytes: &[u8]) -> Option<(String, i64, usize)> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (topic, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (position, rest) = rest.split_first_chunk::<8>()?;
    let end = 2 + topic.len() + 8;
    let valid = crc(at, bytes.get(..end)?) == u32::from_be_bytes(*rest.first_chunk()?);
    let topic = String::from_utf8(topic.to_vec()).ok()?;
    valid.then(|| (topic, i64::from_be_bytes(*position), end + 4))
}
