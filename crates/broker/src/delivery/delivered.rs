//! How far each delay level was delivered, recorded with every message in `config/delayProgress` (ours; Apache ignores
//! it).
//!
//! ```text
//! 32 bytes for each level, from level 1 on
//! offset int64   position of the delivered copy int64   its store time int64   CRC-32 of level and these int32   0 int32
//! ```
//! `delayOffset.json` is written every 10 s after an fsync, so after each kill the messages of up to 10 s would be
//! delivered again. This file is written after every message and never fsynced, so it costs one small write. It may
//! reach the disk before the messages do, so an entry counts only if the recovered log contains its copy: then the log
//! is whole up to there and contains all earlier copies, too.

use pyrmq_remoting::message::record::{self, body_crc};
use pyrmq_remoting::sync::lock;
use pyrmq_store::fs::{File, Fs};
use pyrmq_store::{Store, StoreError};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const NAME: &str = "delayProgress";
const ENTRY: usize = 32;

/// A message that was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Offset after the delayed message in its level's queue.
    pub(crate) offset: i64,
    /// Position of the delivered copy in the log.
    pub(crate) position: i64,
    /// When the copy was stored, in ms.
    pub(crate) store_ms: i64,
}

/// The open file `config/delayProgress`.
#[derive(Debug)]
pub(crate) struct Delivered {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    // Guards the file, which is created on first use.
    file: Mutex<Option<Arc<dyn File>>>,
}

impl Delivered {
    /// Reads the file below `config`. Returns how far each level was delivered, for copies that the log still contains.
    pub(crate) fn open(
        fs: Arc<dyn Fs>,
        config: &Path,
        store: &Store,
    ) -> Result<(Self, BTreeMap<i32, i64>), StoreError> {
        let path = config.join(NAME);
        let failed = |operation, error: io::Error| StoreError::io(operation, &path, &error);
        let (mut file, mut offsets) = (None, BTreeMap::new());
        if fs.exists(&path).map_err(|error| failed("look for", error))? {
            for (level, copied) in parse(&fs.read(&path).map_err(|error| failed("read", error))?) {
                if is_there(store, copied)? {
                    offsets.insert(level, copied.offset);
                }
            }
            file = Some(fs.open(&path).map_err(|error| failed("open", error))?);
        }
        let delivered = Self {
            fs,
            path,
            file: Mutex::new(file),
        };
        Ok((delivered, offsets))
    }

    /// Records the last delivered message of a level. If that fails, more is delivered again after a kill.
    pub(crate) fn record(&self, level: i32, copied: Copied) {
        if let Err(error) = self.try_note(level, copied) {
            tracing::debug!(%error, path = %self.path.display(), "the progress of a delay level was not noted");
        }
    }

    fn try_note(&self, level: i32, copied: Copied) -> io::Result<()> {
        let mut file = lock(&self.file);
        let file = match &mut *file {
            Some(file) => file,
            none => {
                if let Some(directory) = self.path.parent() {
                    self.fs.create_directories(directory)?;
                }
                none.insert(self.fs.create(&self.path)?)
            }
        };
        let at = u64::try_from(level - 1).unwrap_or_default() * ENTRY as u64;
        file.write_all_at(&entry(level, copied), at)
    }
}

/// Whether the log contains the copy: a record at its position with its time.
fn is_there(store: &Store, copied: Copied) -> Result<bool, StoreError> {
    let Some(bytes) = store.record_at(copied.position)? else {
        return Ok(false);
    };
    let record = record::records(&bytes).next().and_then(Result::ok);
    Ok(record.is_some_and(|record| record.store_timestamp_ms == copied.store_ms))
}

fn entry(level: i32, copied: Copied) -> [u8; ENTRY] {
    let numbers = [copied.offset, copied.position, copied.store_ms]
        .map(i64::to_be_bytes)
        .concat();
    let crc = body_crc(&[level.to_be_bytes().as_slice(), &numbers].concat());
    let mut entry = [0; ENTRY];
    for (to, from) in entry.iter_mut().zip(numbers.into_iter().chain(crc.to_be_bytes())) {
        *to = from;
    }
    entry
}

fn parse(bytes: &[u8]) -> Vec<(i32, Copied)> {
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    let found = (1_i32..).zip(entries).filter_map(|(level, bytes)| {
        let (numbers, _) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| i64::from_be_bytes(*number));
        let copied = Copied {
            offset: numbers.next()?,
            position: numbers.next()?,
            store_ms: numbers.next()?,
        };
        (entry(level, copied) == *bytes).then_some((level, copied))
    });
    found.collect()
}
