//! Finds directories and topics of kinds that this store does not write by name, before anything is changed: a store
//! that worked on half of the data would lose messages silently.

use crate::config_file::{self, Loaded};
use crate::error::StoreError;
use crate::format::CONSUME_QUEUE;
use crate::fs::{Context, Fs, with_suffix};
use crate::options::timer::TimerOptions;
use pyrmq_remoting::body::TopicConfigSerializeWrapper;
use std::cell::RefCell;
use std::io;
use std::path::Path;

/// Directories that must not contain a file.
const DIRECTORIES: &[(&str, &str)] = &[
    (
        "batchconsumequeue",
        "batch consume queues (topics of type BatchCQ)",
    ),
    ("compaction/compactionLog", "compacted topics"),
    ("compaction/compactionCq", "compacted topics"),
    ("tiered_index_file", TIERED),
];

/// Files that must not exist (Apache `DefaultMetadataStore` of the tiered store).
const FILES: &[(&str, &str)] = &[("config/tieredStoreMetadata.json", TIERED)];

const TIERED: &str = "tiered storage (messageStorePlugIn)";

/// Directories that must not be a RocksDB database with data.
const DATABASES: &[(&str, &str)] = &[
    (
        CONSUME_QUEUE,
        "a RocksDB consume queue (storeType=defaultRocksDB)",
    ),
    ("rocksdbstore", "a RocksDB store with data"),
    (
        "config/topics",
        "a RocksDB configuration (configStorageType=rocksdb)",
    ),
    (
        "config/subscriptionGroups",
        "a RocksDB configuration (configStorageType=rocksdb)",
    ),
    (
        "config/consumerOffsets",
        "a RocksDB configuration (configStorageType=rocksdb)",
    ),
    (
        "config/metadata",
        "a RocksDB configuration (configStorageType=rocksdb)",
    ),
    (
        "config/rdb",
        "a RocksDB configuration (configStorageType=rocksdb)",
    ),
];

/// Queues of this prefix belong to multi-dispatch (light message queues).
const MULTI_DISPATCH: &str = "%LMQ%";
/// The attribute `queue.type` of a topic of batches.
const BATCHES: &str = "BatchCQ";
/// A slot of the timer wheel: time / precision int64, first and last position int64, number int32, magic int32 (Apache
/// `Slot`).
const SLOT: usize = 32;
/// Bytes of a record in the timer's log (Apache `TimerLog`).
const TIMER_RECORD: usize = 52;

/// Refuses a directory that contains what this store does not write.
pub(crate) fn refuse(fs: &dyn Fs, root: &Path, timer: &TimerOptions) -> Result<(), StoreError> {
    for (name, what) in DIRECTORIES {
        let path = root.join(name);
        if has_files(fs, &path, 4)? {
            return Err(StoreError::Foreign { path, what });
        }
    }
    for (name, what) in FILES {
        let path = root.join(name);
        if fs.exists(&path).at("look for", &path)? {
            return Err(StoreError::Foreign { path, what });
        }
    }
    for (name, what) in DATABASES {
        let path = root.join(name);
        let entries = fs.list(&path).at("list", &path)?;
        let has_tables = entries.iter().any(|entry| {
            !entry.is_directory
                && Path::new(&entry.name)
                    .extension()
                    .is_some_and(|kind| kind == "sst")
        });
        let is_database = *name != "rocksdbstore" && entries.iter().any(|entry| entry.name == "CURRENT");
        if has_tables || is_database {
            return Err(StoreError::Foreign { path, what });
        }
    }
    let queues = root.join(CONSUME_QUEUE);
    for entry in fs.list(&queues).at("list", &queues)? {
        if entry.is_directory && entry.name.starts_with(MULTI_DISPATCH) {
            return Err(StoreError::Foreign {
                path: queues.join(entry.name),
                what: "queues of multi-dispatch (enableMultiDispatch, light message queues)",
            });
        }
    }
    for entry in fs.list(root).at("list", root)? {
        if entry.is_directory
            && entry.name.starts_with("dledger-")
            && has_files(fs, &root.join(&entry.name), 4)?
        {
            return Err(StoreError::Foreign {
                path: root.join(entry.name),
                what: "a DLedger commit log (enableDLegerCommitLog)",
            });
        }
    }
    refuse_topics_of_batches(fs, root)?;
    if timer.enable {
        return Ok(());
    }
    refuse_timers(fs, root, timer.precision_ms)
}

/// Refuses topics of batches, even if they have no messages yet: here their messages would get ordinary queues, and
/// with these Apache's broker does not start (`ConsumeQueueStore.queueTypeShouldBe`).
fn refuse_topics_of_batches(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join("config").join("topics.json");
    let table = RefCell::new(TopicConfigSerializeWrapper::default());
    let check = |text: &str| {
        let read = config_file::parse(text, "topicConfigTable").map_err(|error| error.to_string())?;
        table.replace(read);
        Ok(())
    };
    let file = match config_file::find(fs, &path, check) {
        Ok(Loaded::Main(_)) => path,
        Ok(Loaded::Backup { .. }) => with_suffix(&path, ".bak"),
        // A broker refuses a file that it cannot read when it loads it; a store alone has no topics to write to.
        Ok(Loaded::Missing) | Err(StoreError::BadConfigFile { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let topics = table.into_inner().topic_config_table.into_iter();
    let of_batches = topics.filter(|(_, topic)| {
        let kind = topic.attributes.get("queue.type");
        kind.is_some_and(|kind| kind == BATCHES)
    });
    let names: Vec<_> = of_batches.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(StoreError::TopicsOfBatches {
        path: file,
        topics: names.join(", "),
    })
}

/// Without a timer: refuses a wheel with messages that are still to be delivered. After a crash the wheel may lack what
/// its log has after the position in `config/timercheck` (Apache `TimerCheckpoint`: time and log position up to which
/// the wheel is done, both int64).
fn refuse_timers(fs: &dyn Fs, root: &Path, precision_ms: i64) -> Result<(), StoreError> {
    let log = root.join("timerlog");
    if !has_files(fs, &log, 1)? {
        return Ok(());
    }
    let check = read(fs, &root.join("config").join("timercheck"))?;
    let read_to_ms = first_long(&check).unwrap_or_default();
    let flushed = check.get(8..).and_then(first_long).unwrap_or_default();
    let path = root.join("timerwheel");
    let wheel = read(fs, &path)?;
    let is_waiting = |slot: &[u8]| {
        let count = slot.get(24..).and_then(<[u8]>::first_chunk);
        count.is_some_and(|count| i32::from_be_bytes(*count) > 0)
            && first_long(slot).is_some_and(|step| step.saturating_mul(precision_ms) >= read_to_ms)
    };
    let lacks = fs.exists(&root.join("abort")).at("look for", root)? && has_record_at(fs, &log, flushed)?;
    if lacks || wheel.chunks_exact(SLOT).any(is_waiting) {
        return Err(StoreError::Foreign {
            path,
            what: "timer messages that wait for delivery, and timerWheelEnable is false",
        });
    }
    Ok(())
}

/// Whether the timer log, whose files are named by their first position, has bytes at a position.
fn has_record_at(fs: &dyn Fs, log: &Path, position: i64) -> Result<bool, StoreError> {
    for entry in fs.list(log).at("list", log)? {
        let path = log.join(&entry.name);
        let begin = entry.name.parse::<i64>().ok();
        let Some(inside) = begin.and_then(|begin| u64::try_from(position - begin).ok()) else {
            continue;
        };
        let mut bytes = [0; TIMER_RECORD];
        let file = fs.open_read(&path).at("open", &path)?;
        let size = file.read_at(&mut bytes, inside).at("read", &path)?;
        if bytes.iter().take(size).any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn first_long(bytes: &[u8]) -> Option<i64> {
    bytes.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, StoreError> {
    match fs.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        done => done.at("read", path),
    }
}

fn has_files(fs: &dyn Fs, path: &Path, depth: u8) -> Result<bool, StoreError> {
    for entry in fs.list(path).at("list", path)? {
        if !entry.is_directory || (depth > 0 && has_files(fs, &path.join(&entry.name), depth - 1)?) {
            return Ok(true);
        }
    }
    Ok(false)
}
