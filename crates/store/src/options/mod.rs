//! The store's settings under Apache's names (Apache `MessageStoreConfig`), with Apache's defaults.

pub(crate) mod parse;
pub(crate) mod timer;

use crate::error::StoreError;
use crate::options::parse::{bad, flag, hours, number, percent};
use crate::options::timer::TimerOptions;
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::names::DELAY_LEVELS;
use std::path::PathBuf;

/// When a message is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushDiskType {
    /// As soon as the message is in the page cache; an fsync follows within the interval.
    #[default]
    Async,
    /// After an fsync.
    Sync,
}

impl FlushDiskType {
    /// The durability of a message when it is answered.
    pub const fn durability(self) -> Durability {
        match self {
            Self::Async => Durability::Memory,
            Self::Sync => Durability::Local,
        }
    }
}

/// The settings of a store. A field's comment gives Apache's key, default and range.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `storePathRootDir`: the directory. Required here; the broker applies Apache's default `$HOME/store`.
    pub root: PathBuf,
    /// `storePathCommitLog`: default `<root>/commitlog`.
    pub commit_log: Option<PathBuf>,
    /// `mappedFileSizeCommitLog`: bytes of a segment; 1 GiB; at least 4096, at most 2 GiB - 1.
    pub segment_bytes: u64,
    /// `mappedFileSizeConsumeQueue`: bytes of a queue file; 6,000,000; a multiple of 20.
    pub queue_file_bytes: u64,
    /// `flushDiskType`: `ASYNC_FLUSH`.
    pub flush: FlushDiskType,
    /// `flushIntervalCommitLog`: 500 ms; 1 to 60,000.
    pub flush_interval_ms: u64,
    /// `flushIntervalConsumeQueue`: 1000 ms; 1 to 600,000.
    pub flush_queue_interval_ms: u64,
    /// `syncFlushTimeout`: 5000 ms; at least 1.
    pub sync_flush_timeout_ms: u64,
    /// `osPageCacheBusyTimeOutMills`: duration of a write or an fsync after which puts are answered "busy"; 1000 ms; 1
    /// to 600,000.
    pub busy_ms: u64,
    /// `waitTimeMillsInSendQueue`: wait for other puts after which a put is answered "busy"; 1000 ms (Apache: 200); 1
    /// to 600,000.
    pub send_wait_ms: u64,
    /// `sendThreadPoolQueueCapacity`: senders that may wait for the disk; 10,000; at least 1. With `SYNC_FLUSH` it
    /// bounds all sends, with `ASYNC_FLUSH` those that request `local`.
    pub send_capacity: usize,
    /// `maxMessageSize`: bytes of a body; 4 MiB; 1 to 128 MiB. A record must also fit into a segment.
    pub max_message_bytes: usize,
    /// `fileReservedTime`: hours that a segment is kept; 72.
    pub file_reserved_hours: u32,
    /// `deleteWhen`: hours of the day for deletion, `04` or `04;16`.
    pub delete_when: Vec<u8>,
    /// `diskMaxUsedSpaceRatio`: disk usage in percent at which old segments are deleted at any hour; 75; 10 to 95.
    pub disk_max_used_percent: u8,
    /// `diskSpaceCleanForciblyRatio`: disk usage in percent at which segments of any age are deleted; 85.
    pub disk_clean_forcibly_percent: u8,
    /// `diskSpaceWarningLevelRatio`: disk usage in percent at which writes are refused; 90.
    pub disk_warning_percent: u8,
    /// `diskSpaceEnoughBytes` (ours): free bytes above which the two ratios above do not count; 16 GiB.
    pub disk_enough_bytes: u64,
    /// `diskSpaceMinFreeBytes` (ours): free bytes below which writes are refused at any ratio; 256 MiB.
    pub disk_min_free_bytes: u64,
    /// `hotLogBytes` (ours): how much of the log stays in the page cache; 1 GiB, and an eighth of the memory at most;
    /// 0: the system decides.
    pub hot_log_bytes: u64,
    /// `storeMaxBytes` (ours): size of the commit log above which the oldest segments are deleted at any age; 0: no
    /// limit.
    pub store_max_bytes: u64,
    /// `cleanResourceInterval`: 10,000 ms.
    pub clean_interval_ms: u64,
    /// `messageIndexEnable`: true.
    pub index: bool,
    /// `maxHashSlotNum`: 5,000,000; at least 1.
    pub index_slots: u32,
    /// `maxIndexNum`: 20,000,000; at least 2.
    pub index_entries: u32,
    /// `maxMsgsNumBatch`: maximum messages in an answer to a query by key; 64.
    pub max_query_count: usize,
    /// `maxTransferCountOnMessageInMemory`: maximum messages of a pull; 1,024 (Apache 32).
    pub max_transfer_count: usize,
    /// `maxTransferBytesOnMessageInMemory`: maximum bytes of a pull; 4 MiB (Apache 256 KiB).
    pub max_transfer_bytes: usize,
    /// Bytes of a pull that names no size: 256 KiB, or `maxTransferBytesOnMessageInMemory` if that is set. A client
    /// that cannot state its limit may pull hundreds of queues at once.
    pub usual_transfer_bytes: usize,
    /// `messageDelayLevel`, in milliseconds, level 1 first (see [`crate::parse_levels`]): when delayed messages are
    /// due.
    pub delay_levels_ms: Vec<i64>,
    /// `checkCRCOnRecover`: true.
    pub check_crc_on_recover: bool,
    /// Ours: while fsyncs take less than this on average, the thread that commits an append batch does them itself,
    /// microseconds; 0: never. 1000.
    pub flush_inline_below_us: u64,
    /// Ours: with [`FlushDiskType::Sync`], this many zero bytes at a time are written ahead of the records; 0: none. 1
    /// MiB. Apache's `warmMapedFileEnable` does it for a whole file when it is made.
    pub flush_ahead_bytes: u64,
    /// Ours: if nothing else shows at the start whether queues lost files, at most this many bytes of the log are
    /// compared with them. 256 MiB; no option sets it.
    pub compare_bytes: i64,
    /// Ours: bytes of consume queues that wait to be written, or with [`FlushDiskType::Sync`] for an fsync of their
    /// messages, above which puts are answered "busy". 64 MiB; no option sets it.
    pub max_unwritten_bytes: usize,
    /// The timer's settings.
    pub timer: TimerOptions,
}

/// Maximum bytes of a pull.
const MAX_TRANSFER_BYTES: usize = 4 << 20;
/// Bytes of a pull that names no size.
const USUAL_TRANSFER_BYTES: usize = 256 << 10;

impl Options {
    /// Apache's defaults for a directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            commit_log: None,
            segment_bytes: 1 << 30,
            queue_file_bytes: 6_000_000,
            flush: FlushDiskType::Async,
            flush_interval_ms: 500,
            flush_queue_interval_ms: 1000,
            sync_flush_timeout_ms: 5000,
            busy_ms: 1000,
            send_wait_ms: 1000,
            send_capacity: 10_000,
            max_message_bytes: 4 << 20,
            file_reserved_hours: 72,
            delete_when: vec![4],
            disk_max_used_percent: 75,
            disk_clean_forcibly_percent: 85,
            disk_warning_percent: 90,
            disk_enough_bytes: 16 << 30,
            disk_min_free_bytes: 256 << 20,
            hot_log_bytes: 1 << 30,
            store_max_bytes: 0,
            clean_interval_ms: 10_000,
            index: true,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            max_query_count: 64,
            max_transfer_count: 1024,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            usual_transfer_bytes: USUAL_TRANSFER_BYTES,
            delay_levels_ms: crate::parse_levels(DELAY_LEVELS).unwrap_or_default(),
            check_crc_on_recover: true,
            flush_inline_below_us: 1000,
            flush_ahead_bytes: 1 << 20,
            compare_bytes: 256 << 20,
            max_unwritten_bytes: 64 << 20,
            timer: TimerOptions::default(),
        }
    }

    /// The keys that [`Options::set`] accepts.
    pub const KEYS: &'static [&'static str] = &[
        "storePathRootDir",
        "storePathCommitLog",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "flushDiskType",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "syncFlushTimeout",
        "osPageCacheBusyTimeOutMills",
        "waitTimeMillsInSendQueue",
        "sendThreadPoolQueueCapacity",
        "maxMessageSize",
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "diskSpaceEnoughBytes",
        "diskSpaceMinFreeBytes",
        "hotLogBytes",
        "storeMaxBytes",
        "cleanResourceInterval",
        "messageIndexEnable",
        "maxHashSlotNum",
        "maxIndexNum",
        "maxMsgsNumBatch",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInMemory",
        "checkCRCOnRecover",
        "timerWheelEnable",
        "timerPrecisionMs",
        "timerRollWindowSlot",
        "timerMaxDelaySec",
        "timerCongestNumEachSlot",
        "timerStopEnqueue",
        "timerStopDequeue",
        "timerFlushIntervalMs",
        "mappedFileSizeTimerLog",
    ];

    /// Sets one option by Apache's name from text. `Ok(false)`: the store has no option of this name.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, StoreError> {
        let Some(key) = Self::KEYS.iter().find(|name| **name == key).copied() else {
            return Ok(false);
        };
        let value = value.trim();
        match key {
            "storePathRootDir" => self.root = PathBuf::from(value),
            "storePathCommitLog" => {
                self.commit_log = Some(PathBuf::from(value)).filter(|_| !value.is_empty());
            }
            "mappedFileSizeCommitLog" => self.segment_bytes = number(key, value)?,
            "mappedFileSizeConsumeQueue" => self.queue_file_bytes = number(key, value)?,
            "flushDiskType" => {
                self.flush = match value {
                    "ASYNC_FLUSH" => FlushDiskType::Async,
                    "SYNC_FLUSH" => FlushDiskType::Sync,
                    _ => return Err(bad(key, value, "ASYNC_FLUSH or SYNC_FLUSH")),
                }
            }
            "flushIntervalCommitLog" => self.flush_interval_ms = number(key, value)?,
            "flushIntervalConsumeQueue" => self.flush_queue_interval_ms = number(key, value)?,
            "syncFlushTimeout" => self.sync_flush_timeout_ms = number(key, value)?,
            "osPageCacheBusyTimeOutMills" => self.busy_ms = number(key, value)?,
            "waitTimeMillsInSendQueue" => self.send_wait_ms = number(key, value)?,
            "sendThreadPoolQueueCapacity" => self.send_capacity = number(key, value)?,
            "maxMessageSize" => self.max_message_bytes = number(key, value)?,
            "fileReservedTime" => self.file_reserved_hours = number(key, value)?,
            "deleteWhen" => self.delete_when = hours(key, value)?,
            "diskMaxUsedSpaceRatio" => self.disk_max_used_percent = number(key, value)?,
            "diskSpaceCleanForciblyRatio" => self.disk_clean_forcibly_percent = percent(key, value)?,
            "diskSpaceWarningLevelRatio" => self.disk_warning_percent = percent(key, value)?,
            "diskSpaceEnoughBytes" => self.disk_enough_bytes = number(key, value)?,
            "diskSpaceMinFreeBytes" => self.disk_min_free_bytes = number(key, value)?,
            "hotLogBytes" => self.hot_log_bytes = number(key, value)?,
            "storeMaxBytes" => self.store_max_bytes = number(key, value)?,
            "cleanResourceInterval" => self.clean_interval_ms = number(key, value)?,
            "messageIndexEnable" => self.index = flag(key, value)?,
            "maxHashSlotNum" => self.index_slots = number(key, value)?,
            "maxIndexNum" => self.index_entries = number(key, value)?,
            "maxMsgsNumBatch" => self.max_query_count = number(key, value)?,
            "maxTransferCountOnMessageInMemory" => self.max_transfer_count = number(key, value)?,
            "maxTransferBytesOnMessageInMemory" => {
                self.max_transfer_bytes = number(key, value)?;
                self.usual_transfer_bytes = match self.max_transfer_bytes {
                    MAX_TRANSFER_BYTES => USUAL_TRANSFER_BYTES,
                    chosen => chosen,
                };
            }
            "checkCRCOnRecover" => self.check_crc_on_recover = flag(key, value)?,
            _ => return self.timer.set(key, value),
        }
        Ok(true)
    }

    /// The directory of the commit log's segments.
    pub fn commit_log_dir(&self) -> PathBuf {
        self.commit_log
            .clone()
            .unwrap_or_else(|| self.root.join("commitlog"))
    }

    /// Refuses unusable values. The error names key, value and range.
    pub fn validate(&self) -> Result<(), StoreError> {
        let log = self.commit_log_dir();
        if log.to_string_lossy().contains(',') {
            let range = "one directory: several commit log roots are not supported";
            return Err(bad("storePathCommitLog", &log.to_string_lossy(), range));
        }
        if self.root.as_os_str().is_empty() {
            return Err(bad("storePathRootDir", "", "a directory"));
        }
        for (key, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                return Err(bad(key, &value.to_string(), &format!("{least} to {most}")));
            }
        }
        if !self.queue_file_bytes.is_multiple_of(20) {
            let value = self.queue_file_bytes.to_string();
            return Err(bad("mappedFileSizeConsumeQueue", &value, "a multiple of 20"));
        }
        self.timer.validate()
    }

    /// Key, value, minimum and maximum of the numeric settings. A table, so it is longer than other functions.
    fn ranges(&self) -> [(&'static str, u64, u64, u64); 22] {
        const MAX_FILE_BYTES: u64 = (1 << 31) - 1;
        [
            (
                "mappedFileSizeCommitLog",
                self.segment_bytes,
                4096,
                MAX_FILE_BYTES,
            ),
            (
                "mappedFileSizeConsumeQueue",
                self.queue_file_bytes,
                20,
                MAX_FILE_BYTES,
            ),
            ("maxMessageSize", self.max_message_bytes as u64, 1, 128 << 20),
            ("flushIntervalCommitLog", self.flush_interval_ms, 1, 60_000),
            (
                "flushIntervalConsumeQueue",
                self.flush_queue_interval_ms,
                1,
                600_000,
            ),
            ("syncFlushTimeout", self.sync_flush_timeout_ms, 1, 600_000),
            ("osPageCacheBusyTimeOutMills", self.busy_ms, 1, 600_000),
            ("waitTimeMillsInSendQueue", self.send_wait_ms, 1, 600_000),
            (
                "sendThreadPoolQueueCapacity",
                self.send_capacity as u64,
                1,
                10_000_000,
            ),
            ("cleanResourceInterval", self.clean_interval_ms, 10, 86_400_000),
            ("diskMaxUsedSpaceRatio", self.disk_max_used_percent.into(), 10, 95),
            (
                "diskSpaceCleanForciblyRatio",
                self.disk_clean_forcibly_percent.into(),
                10,
                99,
            ),
            (
                "diskSpaceWarningLevelRatio",
                self.disk_warning_percent.into(),
                10,
                100,
            ),
            (
                "diskSpaceEnoughBytes",
                self.disk_enough_bytes,
                0,
                i64::MAX.unsigned_abs(),
            ),
            (
                "diskSpaceMinFreeBytes",
                self.disk_min_free_bytes,
                0,
                i64::MAX.unsigned_abs(),
            ),
            ("hotLogBytes", self.hot_log_bytes, 0, i64::MAX.unsigned_abs()),
            ("storeMaxBytes", self.store_max_bytes, 0, i64::MAX.unsigned_abs()),
            ("maxHashSlotNum", self.index_slots.into(), 1, 500_000_000),
            ("maxIndexNum", self.index_entries.into(), 2, 100_000_000),
            ("maxMsgsNumBatch", self.max_query_count as u64, 1, 10_000),
            (
                "maxTransferCountOnMessageInMemory",
                self.max_transfer_count as u64,
                1,
                65_536,
            ),
            (
                "maxTransferBytesOnMessageInMemory",
                self.max_transfer_bytes as u64,
                1,
                1 << 30,
            ),
        ]
    }
}
