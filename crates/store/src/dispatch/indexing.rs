//! How keys reach the index: from puts, whose keys wait under the append lock; and from the log, for keys that the
//! index lacks when the store opens or after a failure.

use crate::error::StoreError;
use crate::index::pending::{PendingKeys, RecordKeys};
use crate::index::{KeyIndex, MessageKeys, TopicKeys};
use crate::log::damage::record_after;
use crate::log::reader::{LogReader, Step, end_of};
use crate::state::shared::Shared;
use crate::sync::wakeup::Wakeup;
use crate::sync::{LockWaiters, MutexGuard, lock, try_lock};
use pyrmq_remoting::message::properties::names;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Distance from the log's end at which puts start to pass on their keys, while the index thread reads the rest.
const CATCH_UP_LAST: i64 = 64 << 10;
const CATCH_UP_BATCH: usize = 4096;
/// Number of bytes of the log that one round reads between index files.
const GAP_ROUND_BYTES: i64 = 64 << 20;
/// Maximum time that closing spends on filling the index.
const CATCH_UP_AT_CLOSE: Duration = Duration::from_secs(5);

/// Fills the key index.
pub(crate) struct Indexing {
    /// The index; `None` without a key index.
    pub(crate) index: Option<KeyIndex>,
    /// Held by the thread that moves keys to the index. The list is exchanged for the full one.
    pub(crate) spare: Mutex<PendingKeys>,
    /// Position at which reading the log for the index continues.
    pub(crate) from: AtomicI64,
    pub(crate) wakeup: Wakeup,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

impl Indexing {
    pub(crate) fn new(shared: &Shared, index: Option<KeyIndex>, from: i64) -> Self {
        Self {
            index,
            spare: Mutex::default(),
            from: AtomicI64::new(from),
            wakeup: Wakeup::default(),
            shared: shared.clone(),
        }
    }

    /// Deletes index files whose records are all gone. Returns how many it deleted.
    pub(crate) fn trim(&self, log_start: i64) -> Result<u64, StoreError> {
        self.index.as_ref().map_or(Ok(0), |index| index.trim(log_start))
    }

    /// Writes the staged entries of the index.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        self.index.as_ref().map_or(Ok(()), KeyIndex::write_out)
    }

    /// Completes the index up to the log's end and makes it durable, when the store closes.
    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        self.catch_up_at_close()?;
        self.round()?;
        if let Some(index) = &self.index
            && let Some(durable_ms) = index.sync()?
        {
            self.shared.checkpoint.update(|times| times.index_ms = durable_ms);
        }
        Ok(())
    }

    /// Moves waiting keys into the index; any thread may call this. After a failure the index takes them from the log.
    pub(crate) fn round(&self) -> Result<(), StoreError> {
        let Some(index) = &self.index else {
            return Ok(());
        };
        self.index_with(index, lock(&self.spare))
    }

    /// Like [`Indexing::round`], on the thread of a put, in `block_in_place`: another thread may be moving keys, and
    /// the disk may hang. If that takes longer than `most`, or too many threads block already, the keys continue to
    /// wait.
    pub(crate) fn round_of_put(&self, most: Duration) -> Result<(), StoreError> {
        let Some(index) = &self.index else {
            return Ok(());
        };
        let (since, waiters, mut done) = (Instant::now(), LockWaiters::default(), Ok(()));
        self.shared.listeners.block_in_place(&mut || {
            if let Some(spare) = waiters.wait(&self.spare, || since.elapsed() < most) {
                done = self.index_with(index, spare);
            }
        });
        done
    }

    /// Whether the index has the keys of all messages, except those that wait. While the last ones are read from the
    /// log, which may fail, this waits for the outcome.
    pub(crate) fn is_whole(&self) -> bool {
        let _indexing = lock(&self.spare);
        lock(&self.shared.append).index_direct && !self.index.as_ref().is_some_and(KeyIndex::has_gaps)
    }

    /// Reads the log between index files that lie far apart, a part of it in each call. If a file is missing there, the
    /// newer ones are dropped, and [`Indexing::catch_up`] reads the log from there.
    pub(crate) fn read_gaps(&self) -> Result<(), StoreError> {
        let Some(index) = self.index.as_ref().filter(|index| index.has_gaps()) else {
            return Ok(());
        };
        if !index.read_gaps(&self.shared.log, GAP_ROUND_BYTES)? {
            return Ok(());
        }
        // Held to the end: no other thread may add keys, or consider the index whole.
        let _indexing = lock(&self.spare);
        let from = index.drop_after_gap(&self.shared.log)?;
        let mut append = lock(&self.shared.append);
        append.index_direct = false;
        append.index.clear();
        self.from.store(from, Ordering::Relaxed);
        index.forget_gaps();
        Ok(())
    }

    /// Helps to move waiting keys, on the thread of a put, in `block_in_place`. Not while another thread moves keys,
    /// which may be waiting for an fsync of a whole index file.
    pub(crate) fn help(&self) -> Result<(), StoreError> {
        let (Some(index), Some(spare)) = (&self.index, try_lock(&self.spare)) else {
            return Ok(());
        };
        let (mut spare, mut done) = (Some(spare), Ok(()));
        self.shared.listeners.block_in_place(&mut || {
            if let Some(spare) = spare.take() {
                done = self.index_with(index, spare);
            }
        });
        done
    }

    fn index_with(&self, index: &KeyIndex, mut spare: MutexGuard<'_, PendingKeys>) -> Result<(), StoreError> {
        std::mem::swap(&mut *spare, &mut lock(&self.shared.append).index);
        let full = index.add(&spare);
        spare.clear();
        if full.is_err() {
            let mut append = lock(&self.shared.append);
            append.index_direct = false;
            append.index.clear();
            self.from.store(
                index.newest_position().max(self.shared.log.start()),
                Ordering::Relaxed,
            );
        }
        if let Some(full_ms) = full? {
            self.shared.checkpoint.update(|times| times.index_ms = full_ms);
            self.shared.checkpoint.save()?;
        }
        Ok(())
    }

    /// Reads the log from where the index ends. True: the index thread may continue with the keys that puts pass on.
    pub(crate) fn catch_up(&self) -> Result<bool, StoreError> {
        while !self.shared.state.is_closed() {
            if lock(&self.shared.append).index_direct {
                return Ok(true);
            }
            let from = self.from.load(Ordering::Relaxed).max(self.shared.log.start());
            let target = self.shared.log.appended();
            if target - from <= CATCH_UP_LAST {
                return self.catch_up_last(from);
            }
            self.index_range(from, target, || self.shared.state.is_closed())?;
        }
        Ok(false)
    }

    /// Reads the rest, and makes puts pass on the keys of later messages. True: it succeeded.
    fn catch_up_last(&self, from: i64) -> Result<bool, StoreError> {
        // Held to the end: the keys that puts pass on from now on come after these.
        let _indexing = lock(&self.spare);
        let target = {
            let mut append = lock(&self.shared.append);
            append.index_direct = true;
            self.shared.log.appended()
        };
        let read = self.index_range(from, target, || self.shared.state.is_closed());
        if !matches!(&read, Ok(done) if *done >= target) {
            let mut append = lock(&self.shared.append);
            append.index_direct = false;
            append.index.clear();
        }
        Ok(read? >= target)
    }

    /// Indexes the few records that the index lacks when the store opens, so that keys are found at once.
    pub(crate) fn catch_up_if_near(&self) -> Result<(), StoreError> {
        let lacks =
            self.shared.log.appended() - self.from.load(Ordering::Relaxed).max(self.shared.log.start());
        if lacks > CATCH_UP_LAST {
            return Ok(());
        }
        match self.catch_up() {
            Err(error) if !error.is_passing() => Err(error),
            _ => self.shared.log.failure.check(),
        }
    }

    /// Completes the index when the store closes before its thread ran, so that a Java broker finds every key. What
    /// takes longer than `CATCH_UP_AT_CLOSE` is left to the next start.
    pub(crate) fn catch_up_at_close(&self) -> Result<(), StoreError> {
        if lock(&self.shared.append).index_direct {
            return Ok(());
        }
        let begin = Instant::now();
        let from = self.from.load(Ordering::Relaxed).max(self.shared.log.start());
        self.index_range(from, self.shared.log.appended(), || {
            begin.elapsed() >= CATCH_UP_AT_CLOSE
        })
        .map(drop)
    }

    /// Reads a range of the log for the index. Returns the position that it reached.
    fn index_range(&self, from: i64, target: i64, stop: impl Fn() -> bool) -> Result<i64, StoreError> {
        let Some(index) = &self.index else {
            return Ok(target);
        };
        let mut reader = LogReader::new(&self.shared.log, from, false);
        let (mut waiting, mut hashes) = (PendingKeys::default(), Vec::new());
        let mut done = from;
        while done < target && !stop() {
            match reader.step()? {
                Step::Record(record) => {
                    let [unique_key, keys, tag] =
                        record
                            .properties
                            .get_many([names::UNIQ_KEY, names::KEYS, names::TAGS]);
                    let keys = MessageKeys {
                        unique_key,
                        keys,
                        tag,
                    };
                    hashes.clear();
                    TopicKeys::new(record.topic, record.sys_flag).hashes(&keys, |hash| hashes.push(hash));
                    let of_record = RecordKeys::new(0, hashes.len());
                    waiting.add(
                        record.physical_offset,
                        record.store_timestamp_ms,
                        &[of_record],
                        &hashes,
                    );
                    done = end_of(&record);
                }
                Step::End(_) => {
                    done = self.index_goes_on(reader.position(), target)?;
                    reader = LogReader::new(&self.shared.log, done, false);
                }
            }
            if waiting.len() >= CATCH_UP_BATCH || done >= target {
                if let Some(full_ms) = index.add(&waiting)? {
                    self.shared.checkpoint.update(|times| times.index_ms = full_ms);
                    self.shared.checkpoint.save()?;
                }
                waiting.clear();
                self.from.store(done, Ordering::Relaxed);
            }
        }
        Ok(done)
    }

    /// Where the missing records continue when none can be read at a position.
    fn index_goes_on(&self, position: i64, target: i64) -> Result<i64, StoreError> {
        let start = self.shared.log.start();
        if position >= target || position < start {
            // The end, after a blank record; or retention deleted the range.
            return Ok(start.max(position).min(target));
        }
        let next =
            record_after(&self.shared.log, position, |_, _| true)?.map_or(target, |next| next.min(target));
        tracing::warn!(
            position,
            next,
            "the commit log is damaged: messages there are not in the key index"
        );
        Ok(next)
    }
}
