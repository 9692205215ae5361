//! How far each delay level was delivered, noted with every message: `config/delayProgress` (ours; Apache ignores it).
//!
//! ```text
//! 16 bytes for each level, from level 1 on: offset int64, CRC-32 of level int32 and offset, 4 zero bytes
//! ```
//! `delayOffset.json` is written every 10 s behind an fsync. What was delivered since then would be delivered again
//! after every kill. This note is never fsynced, so it costs one small write a message. It may reach the disk before
//! the messages do, so it counts only where the system kept running and has everything that was written: after a kill
//! of the process.

use pyrmq_remoting::message::record::body_crc;
use pyrmq_store::StoreError;
use pyrmq_store::fs::{File, Fs};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const NAME: &str = "delayProgress";
const ENTRY: usize = 16;

/// The file.
#[derive(Debug)]
pub(crate) struct Delivered {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    // Guards the file once it is there.
    file: Mutex<Option<Arc<dyn File>>>,
}

impl Delivered {
    /// Reads the file below `config` after a kill; a file that does not count is removed. Says how far each level was
    /// delivered.
    pub(crate) fn open(
        fs: Arc<dyn Fs>,
        config: &Path,
        was_killed: bool,
    ) -> Result<(Self, BTreeMap<i32, i64>), StoreError> {
        let path = config.join(NAME);
        let failed = |operation, error: io::Error| StoreError::io(operation, &path, &error);
        let (mut file, mut offsets) = (None, BTreeMap::new());
        if fs.exists(&path).map_err(|error| failed("look for", error))? {
            if was_killed {
                offsets = parse(&fs.read(&path).map_err(|error| failed("read", error))?);
                file = Some(fs.open(&path).map_err(|error| failed("open", error))?);
            } else {
                fs.remove(&path).map_err(|error| failed("remove", error))?;
            }
        }
        let delivered = Self {
            fs,
            path,
            file: Mutex::new(file),
        };
        Ok((delivered, offsets))
    }

    /// Notes that a level was delivered up to an offset. Where that fails, more is delivered again after a kill.
    pub(crate) fn note(&self, level: i32, offset: i64) {
        if let Err(error) = self.try_note(level, offset) {
            tracing::debug!(%error, path = %self.path.display(), "the progress of a delay level was not noted");
        }
    }

    fn try_note(&self, level: i32, offset: i64) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
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
        file.write_all_at(&entry(level, offset), at)
    }
}

fn entry(level: i32, offset: i64) -> [u8; ENTRY] {
    let number = u128::from(offset.cast_unsigned()) << 64 | u128::from(crc(level, offset)) << 32;
    number.to_be_bytes()
}

fn crc(level: i32, offset: i64) -> u32 {
    body_crc(&[level.to_be_bytes().as_slice(), &offset.to_be_bytes()].concat())
}

fn parse(bytes: &[u8]) -> BTreeMap<i32, i64> {
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    let found = (1_i32..).zip(entries).filter_map(|(level, bytes)| {
        let offset = i64::from_be_bytes(*bytes.first_chunk()?);
        (entry(level, offset) == *bytes).then_some((level, offset))
    });
    found.collect()
}
