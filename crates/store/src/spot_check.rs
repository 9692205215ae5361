//! Looks for queues that lost their files after another broker stopped here: where ours did, `queueEnds` tells (see `queue_ends`),
//! where a Java broker did, only the log knows which queues there must be.
//!
//! So records are read that stand at the beginning of each segment, [`BUDGET`] bytes in all: the whole of a smaller log. A record
//! whose queue is not there, or ends in front of it, says that the queues must be built again. It does not where its topic was
//! deleted since: the topic's other queues begin behind it, or there are none and the broker's table does not have the topic.

use crate::commit_log::CommitLog;
use crate::deleted::{Positions, is_gone};
use crate::error::StoreError;
use crate::fs::Fs;
use crate::log_reader::{LogReader, Step};
use crate::queues::Queues;
use pyrmq_remoting::body::Json;
use pyrmq_remoting::message::{Record, sys_flag};
use std::cell::OnceCell;
use std::path::Path;

/// Bytes that are read at most, and in each segment at least.
const BUDGET: i64 = 256 << 20;
const LEAST: i64 = 64 << 10;

/// The topic and id of a queue that lacks units which the log says that it had.
pub(crate) fn find_missing(
    fs: &dyn Fs,
    root: &Path,
    log: &CommitLog,
    queues: &Queues,
    deleted: &Positions,
) -> Result<Option<(String, i32)>, StoreError> {
    let segments = log.segments();
    let count = i64::try_from(segments.len()).unwrap_or(i64::MAX).max(1);
    let share = (BUDGET / count).max(LEAST);
    let table = OnceCell::new();
    for segment in segments {
        let end = segment.base + share.min(log.segment_bytes());
        let mut reader = LogReader::new(log, segment.base, false).until(segment.base + log.segment_bytes());
        while reader.position() < end {
            let Step::Record(record) = reader.step()? else {
                break;
            };
            let has_queue = !sys_flag::is_hidden(record.sys_flag)
                && record.sys_flag & sys_flag::INNER_BATCH == 0
                && !is_gone(deleted, record.topic, record.physical_offset);
            if has_queue && is_missing(fs, queues, &record, || knows(fs, root, &table, record.topic))? {
                return Ok(Some((record.topic.to_owned(), record.queue_id)));
            }
        }
    }
    Ok(None)
}

fn is_missing(
    fs: &dyn Fs,
    queues: &Queues,
    record: &Record<'_>,
    knows_topic: impl FnOnce() -> bool,
) -> Result<bool, StoreError> {
    let position = record.physical_offset;
    let own = queues.get(record.topic, record.queue_id);
    if let Some(queue) = own.filter(|queue| queue.end() > 0) {
        let last = queue.last(fs)?.map_or(0, |unit| unit.position);
        let is_behind = record.queue_offset >= queue.end() && position > last;
        return Ok(is_behind || record.queue_offset < queue.min());
    }
    let mut has_others = false;
    for other in queues.of(record.topic) {
        if other.end() == 0 {
            continue;
        }
        has_others = true;
        if other.min() > 0 || !other.begins_behind(fs, position)? {
            return Ok(true);
        }
    }
    Ok(!has_others && knows_topic())
}

/// Whether the broker's table has a topic; where it cannot be read it may.
fn knows(fs: &dyn Fs, root: &Path, table: &OnceCell<Option<Json>>, topic: &str) -> bool {
    let table = table.get_or_init(|| {
        let bytes = fs.read(&root.join("config").join("topics.json")).ok()?;
        Json::parse(&bytes).ok()
    });
    table.as_ref().is_none_or(|table| {
        table
            .get("topicConfigTable")
            .is_none_or(|topics| topics.get(topic).is_some())
    })
}
