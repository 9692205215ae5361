//! Extended queue entries, which a Java broker writes with `enableConsumeQueueExt` (Apache `ConsumeQueueExt`); read
//! only.
//!
//! ```text
//! consumequeue_ext/<topic>/<queue>/<20 digits>   units back to back: size int16, tags code int64, store time int64, bit map
//!                                                length int16, bit map; an int16 of -1 ends a file that has no room for one more
//! consume queue unit                             its tags code is an address: position of the unit here + the smallest int64
//! ```
//! pyrmq writes plain codes, as a Java broker does once the option is off; the files stay as they are. An address
//! without a unit matches every filter (Apache): clients compare tags themselves.

use crate::error::StoreError;
use crate::format::{parse_file_name, to_u64};
use crate::fs::read_mode::ReadMode;
use crate::fs::{Context, Fs};
use crate::queue::consume_queue::ConsumeQueue;
use crate::sync::{Mutex, lock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the units.
pub(crate) const CONSUME_QUEUE_EXT: &str = "consumequeue_ext";
/// The greatest code that is an address; hashes have 32 bits.
const GREATEST_ADDRESS: i64 = i32::MIN as i64 - 1;
/// Bytes of a unit without a bit map.
const SHORTEST: usize = 20;
/// Number of bytes read at once, since a filter checks many neighbours.
const CHUNK: usize = 1 << 16;

/// Whether a tags code is a position in the extended files.
pub(crate) fn is_address(tags_code: i64) -> bool {
    tags_code <= GREATEST_ADDRESS
}

/// The files of all queues.
#[derive(Debug)]
pub(crate) struct ConsumeQueueExt {
    root: PathBuf,
    /// The chunk that was read last.
    chunk: Mutex<Option<Chunk>>,
}

#[derive(Debug)]
struct Chunk {
    topic: Arc<str>,
    queue: i32,
    from: i64,
    bytes: Vec<u8>,
}

impl Chunk {
    fn code_at(&self, position: i64) -> Option<i64> {
        let from = usize::try_from(position - self.from).ok()?;
        let (size, rest) = self.bytes.get(from..)?.split_first_chunk()?;
        let is_unit = usize::try_from(i16::from_be_bytes(*size)).is_ok_and(|size| size >= SHORTEST);
        let code = i64::from_be_bytes(*rest.first_chunk()?);
        is_unit.then_some(code)
    }
}

impl ConsumeQueueExt {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.join(CONSUME_QUEUE_EXT),
            chunk: Mutex::default(),
        }
    }

    /// The tags code at an address, if its unit exists. Only a reader that may wait reads files.
    pub(crate) fn code(
        &self,
        mode: &ReadMode,
        fs: &dyn Fs,
        queue: &ConsumeQueue,
        address: i64,
    ) -> Result<Option<i64>, StoreError> {
        let position = address.wrapping_sub(i64::MIN);
        let mut chunk = lock(&self.chunk);
        let is_here = |chunk: &&Chunk| chunk.queue == queue.id && chunk.topic == queue.topic;
        if let Some(code) = chunk
            .as_ref()
            .filter(is_here)
            .and_then(|chunk| chunk.code_at(position))
        {
            return Ok(Some(code));
        }
        if !mode.may_wait() {
            return Ok(None);
        }
        *chunk = self.read(fs, queue, position)?;
        Ok(chunk.as_ref().and_then(|chunk| chunk.code_at(position)))
    }

    fn read(&self, fs: &dyn Fs, queue: &ConsumeQueue, position: i64) -> Result<Option<Chunk>, StoreError> {
        let directory = self.root.join(&*queue.topic).join(queue.id.to_string());
        let entries = fs.list(&directory).at("list", &directory)?;
        let newest = entries
            .iter()
            .filter_map(|entry| Some((parse_file_name(&entry.name)?, entry)))
            .filter(|(base, _)| *base <= position)
            .max_by_key(|(base, _)| *base);
        let Some((base, entry)) = newest else {
            return Ok(None);
        };
        let path = directory.join(&entry.name);
        let file = match fs.open_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            done => done.at("open", &path)?,
        };
        let mut bytes = vec![0; CHUNK];
        let got = file
            .read_at(&mut bytes, to_u64(position - base))
            .at("read", &path)?;
        bytes.truncate(got);
        Ok(Some(Chunk {
            topic: Arc::clone(&queue.topic),
            queue: queue.id,
            from: position,
            bytes,
        }))
    }

    /// Deletes the files of a topic.
    pub(crate) fn delete(&self, fs: &dyn Fs, topic: &str) -> Result<(), StoreError> {
        *lock(&self.chunk) = None;
        let topic = self.root.join(topic);
        for queue in fs.list(&topic).at("list", &topic)? {
            let directory = topic.join(&queue.name);
            if !queue.is_directory {
                continue;
            }
            for file in fs.list(&directory).at("list", &directory)? {
                if !file.is_directory {
                    let path = directory.join(&file.name);
                    fs.remove(&path).at("remove", &path)?;
                }
            }
        }
        Ok(())
    }
}
