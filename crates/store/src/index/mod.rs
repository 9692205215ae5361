//! The key index: finds messages by key, unique id or tag (Apache `IndexService`).
//!
//! The append path only hashes keys and passes on what `pending.rs` describes; a separate thread writes the files. The
//! index covers the whole log: entries that a crash took are read from the log again by that thread, while messages
//! flow.
//!
//! Keys as Apache 5.5 writes them: `topic#UNIQ_KEY`, `topic#key` for each of `KEYS`, `topic#T#TAGS`; the hash is
//! Java's, made positive. Rolled back transactions are not indexed.

pub(crate) mod chain;
pub(crate) mod file;
mod neighbours;
pub(crate) mod pending;
pub(crate) mod query;

use crate::descriptors::Shares;
use crate::error::StoreError;
use crate::format::INDEX;
use crate::fs::{Context, Fs, make_directories};
use crate::index::chain::MAX_HOPS;
use crate::index::file::{Header, IndexFile, Wanted, file_length};
use crate::index::neighbours::Gaps;
use crate::index::pending::PendingKeys;
use crate::index::query::{KeyKind, KeyQuery};
use crate::log::commit_log::CommitLog;
use crate::log::reader::{LogReader, Step, end_of};
use crate::options::Options;
use crate::sync::lock;
use pyrmq_remoting::message::java_hash::JavaHash;
use pyrmq_remoting::message::properties::KEY_SEPARATOR;
use pyrmq_remoting::message::sys_flag;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The keys of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageKeys<'a> {
    pub(crate) unique_key: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) tag: Option<&'a str>,
}

/// The hashed start of the keys of a topic's messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicKeys {
    /// The hash of `topic#`; `None` if messages are not indexed.
    key: Option<JavaHash>,
}

impl TopicKeys {
    /// For messages with this sys flag: rolled back transactions have no keys.
    pub(crate) fn new(topic: &str, flags: i32) -> Self {
        let key = JavaHash::new().then(topic).then("#");
        Self {
            key: (sys_flag::transaction(flags) != sys_flag::TRANSACTION_ROLLBACK).then_some(key),
        }
    }

    /// Calls `take` with the hash of every key of a message.
    pub(crate) fn hashes(self, message: &MessageKeys<'_>, mut take: impl FnMut(i32)) {
        let Some(topic) = self.key else {
            return;
        };
        if let Some(key) = message.unique_key {
            take(positive(topic.then(key)));
        }
        let keys = message.keys.unwrap_or_default();
        if keys.contains(KEY_SEPARATOR) {
            for key in keys.split(KEY_SEPARATOR).filter(|key| !key.is_empty()) {
                take(positive(topic.then(key)));
            }
        } else if !keys.is_empty() {
            take(positive(topic.then(keys)));
        }
        if let Some(tag) = message.tag.filter(|tag| !tag.is_empty()) {
            take(positive(topic.then("T#").then(tag)));
        }
    }
}

/// Java's `Math.abs`, whose one negative result becomes 0.
fn positive(hash: JavaHash) -> i32 {
    hash.value().checked_abs().unwrap_or(0)
}

/// The files of the index.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    tables: (u32, u32),
    /// Oldest first. The newest `most_open` are open: searches begin with them.
    files: Mutex<Vec<IndexFile>>,
    most_open: usize,
    /// Whether a file was dropped at the start.
    dropped: bool,
    /// The dropped files, newest first, until they are removed.
    to_remove: Mutex<Vec<PathBuf>>,
    /// The gaps between files that the start did not read whole.
    gaps: Gaps,
    /// Whether a file that somebody else deleted was reported.
    reported_gone: AtomicBool,
    added: AtomicU64,
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    pub(crate) positions: Vec<i64>,
    pub(crate) last_update_ms: i64,
    pub(crate) last_update_position: i64,
    /// Whether older entries may be missing: there were too many, or somebody deleted a file.
    pub(crate) is_cut: bool,
}

impl KeyIndex {
    /// Opens the existing files. After a crash, files that may be half-written are dropped, as are files of another
    /// size, files that refer to records after the log's end, and files before which another one is missing. Their
    /// entries are read from the log again.
    pub(crate) fn load(
        fs: &Arc<dyn Fs>,
        options: &Options,
        crashed: bool,
        durable_ms: i64,
        log: &CommitLog,
    ) -> Result<Self, StoreError> {
        let directory = options.root.join(INDEX);
        let tables = (options.index_slots, options.index_entries);
        let most_open = Shares::of_process().index_files;
        let mut files: Vec<IndexFile> = Vec::new();
        let mut dropping = false;
        let (mut dropped, mut gaps) = (Vec::new(), Vec::new());
        let entries = fs
            .list(&directory)
            .at("list", &directory)?
            .into_iter()
            .filter(|entry| {
                let is_name = entry.name.len() == 17 && entry.name.bytes().all(|byte| byte.is_ascii_digit());
                !entry.is_directory && is_name
            });
        let mut entries = entries.peekable();
        while let Some(entry) = entries.next() {
            // A file was fsynced when it became full, before the next one was created, and when the store was closed.
            let is_newest = entries.peek().is_none();
            let path = directory.join(&entry.name);
            let file = if entry.length == file_length(tables.0, tables.1) {
                Some(IndexFile::open(fs.as_ref(), &path, tables)?)
            } else {
                None
            };
            let keep = file.filter(|file| {
                !dropping
                    && file.is_sound()
                    && file.header.end_position < log.appended().max(1)
                    && !(crashed && (is_newest || file.header.end_ms > durable_ms))
                    && neighbours::may_follow(log, files.last(), file, &mut gaps)
            });
            if let Some(file) = keep {
                push(&mut files, file, most_open);
            } else {
                // Files follow one another: after a dropped one, all are rebuilt.
                dropping = true;
                neighbours::warn_dropped(&path);
                dropped.insert(0, path);
            }
        }
        Ok(Self {
            fs: Arc::clone(fs),
            directory,
            tables,
            files: Mutex::new(files),
            most_open,
            dropped: dropping || crashed,
            to_remove: Mutex::new(dropped),
            gaps: Gaps::new(gaps),
            reported_gone: AtomicBool::new(false),
            added: AtomicU64::new(0),
        })
    }

    /// Removes the dropped files: not while the store opens, because that takes time, but before anything is added.
    /// They are removed newest first, each durably: a file that remained would look as if all earlier records were
    /// indexed.
    pub(crate) fn remove_dropped(&self) -> Result<(), StoreError> {
        let mut dropped = lock(&self.to_remove);
        while let Some(path) = dropped.first() {
            self.remove(path)?;
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
            dropped.remove(0);
        }
        Ok(())
    }

    /// Where reading the log must continue, so that every record is in the index. After a file was dropped, the newest
    /// known message may be indexed only in part: it is read again, and searches remove duplicates.
    pub(crate) fn resume_at(&self, log: &CommitLog) -> Result<i64, StoreError> {
        let newest = match lock(&self.files).last() {
            Some(last) if last.header.count > 1 || last.header.end_position > 0 => last.header.end_position,
            _ => return Ok(log.start()),
        };
        if newest < log.start() {
            return Ok(log.start());
        }
        let mut reader = LogReader::new(log, newest, false);
        Ok(match reader.step()? {
            Step::Record(record) if !self.dropped => end_of(&record),
            _ => newest,
        })
    }

    /// Position of the newest indexed message; 0 if there is none.
    pub(crate) fn newest_position(&self) -> i64 {
        lock(&self.files)
            .last()
            .map_or(0, |last| last.header.end_position)
    }

    /// Number of keys added.
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    /// Adds keys in the order of the log. Returns the end time of a file that became full and durable.
    pub(crate) fn add(&self, keys: &PendingKeys) -> Result<Option<i64>, StoreError> {
        self.remove_dropped()?;
        let mut full = None;
        let mut files = Some(lock(&self.files));
        keys.each(|entry| {
            let newest = files.as_ref().and_then(|files| files.last());
            if newest.is_none_or(IndexFile::is_full) {
                files = None;
                full = self.roll()?.or(full);
                files = Some(lock(&self.files));
            }
            let newest = files.as_mut().and_then(|files| files.last_mut());
            newest.map_or(Ok(()), |newest| newest.add(entry))
        })?;
        self.added.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(full)
    }

    /// Creates the next file once the newest one is durable, and returns the time up to which the index is durable. The
    /// fsync may be one of some hundred megabytes, and searches run meanwhile. Only one thread at a time adds keys, so
    /// the newest file stays the newest.
    fn roll(&self) -> Result<Option<i64>, StoreError> {
        let newest = match lock(&self.files).last_mut() {
            Some(newest) => {
                newest.write_out()?;
                newest.forget_pages();
                Some((newest.handle()?, newest.name.clone(), newest.header))
            }
            None => None,
        };
        let Some(((file, path), name, header)) = newest else {
            let first = self.new_file(None, None)?;
            push(&mut lock(&self.files), first, self.most_open);
            return Ok(None);
        };
        file.sync().at("flush", &path)?;
        let next = self.new_file(Some(&name), Some(header))?;
        push(&mut lock(&self.files), next, self.most_open);
        Ok(Some(header.end_ms))
    }

    fn new_file(&self, after: Option<&str>, previous: Option<Header>) -> Result<IndexFile, StoreError> {
        make_directories(self.fs.as_ref(), &self.directory).at("create", &self.directory)?;
        let mut name = time_name(self.fs.now_ms());
        // Names order the files, so each must be greater than the previous one, even if the clock went back.
        if let Some(after) = after
            && name.as_str() <= after
        {
            name = following(after);
        }
        while self
            .fs
            .exists(&self.directory.join(&name))
            .at("look for", &self.directory)?
        {
            name = following(&name);
        }
        let file = IndexFile::create(
            self.fs.as_ref(),
            &self.directory.join(name),
            self.tables,
            previous,
        )?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)?;
        Ok(file)
    }

    /// Writes everything to the files, without an fsync.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        lock(&self.files).last_mut().map_or(Ok(()), IndexFile::write_out)
    }

    /// Makes everything durable. Returns the time up to which the index is durable.
    pub(crate) fn sync(&self) -> Result<Option<i64>, StoreError> {
        let mut files = lock(&self.files);
        let Some(last) = files.last_mut() else {
            return Ok(None);
        };
        last.sync()?;
        Ok(Some(last.header.end_ms))
    }

    /// Positions of records that may have the key, newest first, none before `from`.
    pub(crate) fn find(&self, query: &KeyQuery<'_>, from: i64, most: usize) -> Result<Hits, StoreError> {
        let topic = JavaHash::new().then(query.topic).then("#");
        let key = match query.kind {
            KeyKind::Key | KeyKind::Unique => topic.then(query.key),
            KeyKind::Tag => topic.then("T#").then(query.key),
        };
        let wanted = Wanted {
            hash: positive(key),
            from,
            begin_ms: query.begin_ms,
            end_ms: query.end_ms,
        };
        let mut found = Hits::default();
        let mut chains = Vec::new();
        {
            let mut files = lock(&self.files);
            if let Some(last) = files.last() {
                found.last_update_ms = last.header.end_ms;
                found.last_update_position = last.header.end_position;
            }
            for file in files.iter_mut().rev() {
                if file.header.end_position < from {
                    break;
                }
                if file.overlaps(&wanted) {
                    chains.push(file.chain(wanted.hash)?);
                }
                if file.header.begin_ms < wanted.begin_ms {
                    break;
                }
            }
        }
        let (mut hops, mut lacks_file) = (MAX_HOPS, false);
        for chain in chains {
            if found.positions.len() >= most {
                break;
            }
            let path = chain.path.clone();
            let is_there = chain.find(self.fs.as_ref(), (&wanted, most), &mut hops, &mut found.positions)?;
            lacks_file |= !is_there && self.is_lost(&path);
        }
        found.is_cut = lacks_file || hops == 0 || found.positions.len() >= most;
        Ok(found)
    }

    /// Whether a missing file was deleted by somebody else: those that retention deletes leave the list with that.
    fn is_lost(&self, path: &Path) -> bool {
        let is_lost = lock(&self.files).iter().any(|file| file.path == path);
        if is_lost && !self.reported_gone.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                file = %path.display(),
                "an index file was deleted while the store runs: searches by key may miss messages; the next start \
                 builds it again from the log"
            );
        }
        is_lost
    }

    /// Deletes a file, unless it is gone already.
    fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.fs.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.at("remove", path),
        }
    }

    /// Deletes files whose records all lie before the log's start, never the newest. Returns how many it deleted.
    pub(crate) fn trim(&self, log_start: i64) -> Result<u64, StoreError> {
        let mut files = lock(&self.files);
        let mut removed = 0;
        while files.len() > 1
            && let Some(first) = files.first()
            && first.header.end_position < log_start
        {
            self.remove(&first.path)?;
            files.remove(0);
            removed += 1;
        }
        Ok(removed)
    }
}

/// Adds the newest file, and closes the one that is no longer among the `most` newest.
fn push(files: &mut Vec<IndexFile>, newest: IndexFile, most: usize) {
    files.push(newest);
    let old = files.len().checked_sub(most + 1);
    if let Some(old) = old.and_then(|old| files.get_mut(old)) {
        old.close();
    }
}

/// `yyyyMMddHHmmssSSS` in UTC.
fn time_name(now_ms: i64) -> String {
    let day = now_ms.div_euclid(86_400_000);
    let of_day = now_ms.rem_euclid(86_400_000);
    // Civil date from days, by eras of 400 years that begin on the first of March.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}{month:02}{date:02}{hour:02}{minute:02}{second:02}{milli:03}")
}

/// The next name in order, which need not be a real time.
fn following(name: &str) -> String {
    let number: u64 = name.parse().unwrap_or_default();
    format!("{:017}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::{following, time_name};

    #[test]
    fn names_are_times() {
        assert_eq!(time_name(0), "19700101000000000");
        assert_eq!(time_name(1_709_210_096_789), "20240229123456789");
        assert_eq!(time_name(1_795_284_789_832), "20261121181309832");
        assert_eq!(following("20261231235959999"), "20261231235960000");
    }
}
