//! A disk that fails on demand, over any other file system.
//!
//! One file, although it is long: the wrapper forwards each call of two traits, and each has its fault.

use crate::hangs::Hangs;
use crate::lock::lock;
use pyrmq_store::fs::{DirectoryEntry, File, Fs, LockGuard, RealFs, Space, System};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// An operation that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// A positional read.
    Read,
    /// A positional read of more than 4 MiB.
    LongRead,
    /// A positional write.
    Write,
    /// An fsync of a file.
    Sync,
    /// An fsync of a directory.
    SyncDirectory,
    /// A rename.
    Rename,
    /// A removal.
    Remove,
    /// Zeroing bytes of a file.
    Clear,
    /// An fsync of a whole file system.
    SyncAll,
    /// Checking whether a file exists.
    Exists,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With this error, without any effect.
    Error(io::ErrorKind),
    /// With this system error number, without any effect: some kinds have no name in the standard library.
    System(i32),
    /// A write stores this number of bytes and then fails with this error.
    Torn(usize, io::ErrorKind),
}

#[derive(Debug)]
struct Rule {
    operation: Operation,
    path_part: String,
    skip: u64,
    /// `None`: the operation panics.
    fault: Option<Fault>,
}

#[derive(Debug, Default)]
struct Plan {
    rules: Mutex<Vec<Rule>>,
    writes: AtomicU64,
    reads: AtomicU64,
    syncs: AtomicU64,
    injected: AtomicU64,
    /// What was opened or created.
    opened: Mutex<Vec<PathBuf>>,
    reads_hang: Hangs,
    writes_hang: Hangs,
    /// Of files.
    syncs_hang: Hangs,
    /// Of directories.
    removals_hang: Hangs,
    /// Whether the disk cannot tell what is in memory.
    blind: AtomicBool,
}

impl Plan {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        lock(&self.rules)
    }

    fn opened(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        lock(&self.opened)
    }

    fn fault(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let counter = match operation {
            Operation::Write => Some(&self.writes),
            Operation::Read => Some(&self.reads),
            Operation::Sync => Some(&self.syncs),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if operation == Operation::Open {
            self.opened().push(path.to_owned());
        }
        let text = path.to_string_lossy();
        for rule in self.rules().iter_mut() {
            if rule.operation == operation && text.contains(&rule.path_part) {
                if rule.skip == 0 {
                    self.injected.fetch_add(1, Ordering::Relaxed);
                    assert!(rule.fault.is_some(), "injected panic");
                    return rule.fault;
                }
                rule.skip -= 1;
            }
        }
        None
    }

    fn check(&self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.fault(operation, path) {
            None => Ok(()),
            Some(Fault::Error(kind) | Fault::Torn(_, kind)) => Err(injected(kind)),
            Some(Fault::System(number)) => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

fn injected(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "injected fault")
}

/// A file system whose operations fail on demand.
#[derive(Debug, Clone)]
pub struct FaultyDisk {
    inner: Arc<dyn Fs>,
    plan: Arc<Plan>,
    space: Arc<Mutex<Option<Space>>>,
}

impl Default for FaultyDisk {
    fn default() -> Self {
        Self::new(Arc::new(RealFs))
    }
}

impl FaultyDisk {
    /// Wraps another file system, without any fault yet.
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
            space: Arc::default(),
        }
    }

    /// Sets the space that the file system reports; `None` for its real space.
    pub fn set_space(&self, space: Option<Space>) {
        *lock(&self.space) = space;
    }

    /// Makes the operation fail on every path that contains `path_part`, after `skip` more successes.
    pub fn fail(&self, operation: Operation, path_part: &str, skip: u64, fault: Fault) {
        self.plan.rules().push(Rule {
            operation,
            path_part: path_part.to_owned(),
            skip,
            fault: Some(fault),
        });
    }

    /// Makes the operation panic on every path that contains `path_part`.
    pub fn panic(&self, operation: Operation, path_part: &str) {
        self.plan.rules().push(Rule {
            operation,
            path_part: path_part.to_owned(),
            skip: 0,
            fault: None,
        });
    }

    /// Makes every fsync of a file wait until this is called again with `false`.
    pub fn hang(&self, hangs: bool) {
        self.hang_syncs_of("", hangs);
    }

    /// Makes every fsync of a file whose path contains `path_part` wait until this is called again with `false`.
    pub fn hang_syncs_of(&self, path_part: &str, hangs: bool) {
        self.plan.syncs_hang.set(path_part, hangs);
    }

    /// Returns how many fsyncs of files wait now.
    pub fn waiting_syncs(&self) -> usize {
        self.plan.syncs_hang.waiting()
    }

    /// Makes the removal of a directory whose path ends with `path_end` wait until this is called again with `false`.
    pub fn hang_removal_of(&self, path_end: &str, hangs: bool) {
        self.plan.removals_hang.set(path_end, hangs);
    }

    /// Returns how many removals of directories wait now.
    pub fn waiting_removals(&self) -> usize {
        self.plan.removals_hang.waiting()
    }

    /// Makes every positional read of a file wait until this is called again with `false`.
    pub fn hang_reads(&self, hangs: bool) {
        self.plan.reads_hang.set("", hangs);
    }

    /// Returns how many reads wait now.
    pub fn waiting_reads(&self) -> usize {
        self.plan.reads_hang.waiting()
    }

    /// Reads hang from now on, until they are released or for this long: a test that fails ends, too.
    pub fn hang_reads_for(&self, limit: Duration) {
        self.hang_reads(true);
        let released = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(limit);
            released.hang_reads(false);
        });
    }

    /// Makes it unable to tell what is in memory.
    pub fn make_blind(&self) {
        self.plan.blind.store(true, Ordering::Relaxed);
    }

    /// Makes every write to the commit log wait until this is called again with `false`.
    pub fn hang_writes(&self, hangs: bool) {
        self.hang_writes_to("/commitlog/", hangs);
    }

    /// Makes every write to a file whose path contains `path_part` wait until this is called again with `false`.
    pub fn hang_writes_to(&self, path_part: &str, hangs: bool) {
        self.plan.writes_hang.set(path_part, hangs);
    }

    /// Returns how many writes wait now.
    pub fn waiting_writes(&self) -> usize {
        self.plan.writes_hang.waiting()
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.plan.rules().clear();
    }

    /// Returns how many calls have failed on demand so far.
    pub fn injected(&self) -> u64 {
        self.plan.injected.load(Ordering::Relaxed)
    }

    /// Returns how often something whose path contains `path_part` was opened or created so far.
    pub fn opens(&self, path_part: &str) -> usize {
        let opened = self.plan.opened();
        let matches = |path: &&PathBuf| path.to_string_lossy().contains(path_part);
        opened.iter().filter(matches).count()
    }

    /// Returns the numbers of reads, writes and fsyncs of files so far.
    pub fn counts(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            load(&self.plan.reads),
            load(&self.plan.writes),
            load(&self.plan.syncs),
        )
    }

    fn file(&self, path: &Path, file: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile {
            inner: file?,
            path: path.to_owned(),
            plan: Arc::clone(&self.plan),
        }))
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    plan: Arc<Plan>,
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.plan.check(Operation::Read, &self.path)?;
        if buffer.len() > 4 << 20 {
            self.plan.check(Operation::LongRead, &self.path)?;
        }
        self.plan.reads_hang.wait(&self.path);
        self.inner.read_at(buffer, offset)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if self.plan.blind.load(Ordering::Relaxed) {
            return self.read_at(buffer, offset).map(Some);
        }
        self.plan.check(Operation::Read, &self.path)?;
        // A read that would hang counts as a read of data that is not in memory.
        if self.plan.reads_hang.hangs(&self.path) {
            return Ok(None);
        }
        self.inner.read_at(buffer, offset).map(Some)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.plan.writes_hang.wait(&self.path);
        match self.plan.fault(Operation::Write, &self.path) {
            None => self.inner.write_all_at(bytes, offset),
            Some(Fault::Error(kind)) => Err(injected(kind)),
            Some(Fault::System(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Torn(length, kind)) => {
                let part = bytes.get(..length.min(bytes.len())).unwrap_or_default();
                self.inner.write_all_at(part, offset)?;
                Err(injected(kind))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.syncs_hang.wait(&self.path);
        self.plan.check(Operation::Sync, &self.path)?;
        self.inner.sync()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.plan.check(Operation::Write, &self.path)?;
        self.inner.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn clear(&self, from: u64, to: u64) -> io::Result<()> {
        self.plan.check(Operation::Clear, &self.path)?;
        self.inner.clear(from, to)
    }
}

impl Fs for FaultyDisk {
    fn knows_cached(&self) -> bool {
        !self.plan.blind.load(Ordering::Relaxed)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.plan.check(Operation::Open, path)?;
        self.file(path, self.inner.open(path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.plan.check(Operation::Open, path)?;
        self.file(path, self.inner.open_read(path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.plan.check(Operation::Open, path)?;
        self.file(path, self.inner.create(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.plan.check(Operation::Read, path)?;
        self.inner.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check(Operation::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::Remove, path)?;
        self.inner.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.plan.removals_hang.wait_if(|end| path.ends_with(end));
        self.plan.check(Operation::Remove, path)?;
        self.inner.remove_directory(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::Open, path)?;
        self.inner.create_directories(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::SyncDirectory, path)?;
        self.inner.sync_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.inner.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.plan.check(Operation::Exists, path)?;
        self.inner.exists(path)
    }

    fn links(&self, path: &Path) -> io::Result<u64> {
        self.inner.links(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        match *lock(&self.space) {
            Some(space) => Ok(space),
            None => self.inner.space(path),
        }
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Operation::SyncAll, path)?;
        self.inner.sync_all(path)
    }

    fn now_ms(&self) -> i64 {
        self.inner.now_ms()
    }

    fn system_of(&self, path: &Path) -> Option<System> {
        self.inner.system_of(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}
