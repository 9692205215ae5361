//! Where each queue ended at the last clean stop, so that a queue that was damaged or deleted since is noticed and built again
//! (ours: Apache has no such file and ignores it).
//!
//! ```text
//! <root>/queueEnds   magic "PYRMQ-Q1", the log's start int64, count int32, then for each queue: topic length int16, topic,
//!                    queue id int32, min int64, end int64; CRC-32 of everything before it
//! ```
//! Written when a store closes, removed when it opens: what another broker changes after that is never compared with it.

use crate::error::StoreError;
use crate::fs::{Context, Fs};
use crate::queues::Queues;
use std::io;
use std::path::Path;

const NAME: &str = "queueEnds";
const MAGIC: &[u8] = b"PYRMQ-Q1";

/// What the file holds.
struct Ends {
    log_start: i64,
    queues: Vec<Saved>,
}

struct Saved {
    topic: String,
    id: i32,
    min: i64,
    end: i64,
}

/// What a comparison with the file says.
#[derive(Debug)]
pub(crate) enum Compared {
    /// No file can be read: another broker stopped here.
    Unknown,
    /// Every queue is as long as it was.
    Whole,
    /// This queue is not.
    Short(String, i32),
}

/// Writes the file.
pub(crate) fn save(fs: &dyn Fs, root: &Path, log_start: i64, queues: &Queues) -> Result<(), StoreError> {
    let path = root.join(NAME);
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&log_start.to_be_bytes());
    let all: Vec<_> = queues.all().into_iter().filter(|queue| queue.end() > 0).collect();
    bytes.extend_from_slice(&u32::try_from(all.len()).unwrap_or_default().to_be_bytes());
    for queue in &all {
        let length = u16::try_from(queue.topic.len()).unwrap_or_default();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(queue.topic.as_bytes());
        bytes.extend_from_slice(&queue.id.to_be_bytes());
        bytes.extend_from_slice(&queue.min().to_be_bytes());
        bytes.extend_from_slice(&queue.end().to_be_bytes());
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    let file = fs.create(&path).at("create", &path)?;
    file.write_all_at(&bytes, 0).at("write", &path)?;
    file.sync().at("flush", &path)
}

/// Looks for a queue that has fewer units than it had at the last clean stop. A minimum may only have moved with the log's start.
pub(crate) fn find_short(
    fs: &dyn Fs,
    root: &Path,
    log_start: i64,
    queues: &Queues,
) -> Result<Compared, StoreError> {
    let path = root.join(NAME);
    let bytes = match fs.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Compared::Unknown),
        Err(error) => return Err(StoreError::io("read", &path, &error)),
    };
    let Some(ends) = parse(&bytes) else {
        tracing::warn!(file = %path.display(), "not readable: queues are not compared with the last stop");
        return Ok(Compared::Unknown);
    };
    let is_short = |saved: &Saved| {
        let (min, end) = queues
            .get(&saved.topic, saved.id)
            .map_or((0, 0), |queue| (queue.min(), queue.end()));
        end < saved.end || (min > saved.min && log_start == ends.log_start)
    };
    let short = ends.queues.into_iter().find(is_short);
    Ok(short.map_or(Compared::Whole, |saved| Compared::Short(saved.topic, saved.id)))
}

/// Removes the file, if there is one.
pub(crate) fn forget(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join(NAME);
    if fs.exists(&path) {
        fs.remove(&path).at("remove", &path)?;
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Option<Ends> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_be_bytes(*crc) {
        return None;
    }
    let (log_start, rest) = content.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut queues = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (topic, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let (id, after) = after.split_first_chunk::<4>()?;
        let (min, after) = after.split_first_chunk::<8>()?;
        let (end, after) = after.split_first_chunk::<8>()?;
        queues.push(Saved {
            topic: String::from_utf8(topic.to_vec()).ok()?,
            id: i32::from_be_bytes(*id),
            min: i64::from_be_bytes(*min),
            end: i64::from_be_bytes(*end),
        });
        rest = after;
    }
    Some(Ends {
        log_start: i64::from_be_bytes(*log_start),
        queues,
    })
}
