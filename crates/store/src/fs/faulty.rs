//! A wrapper of the real disk that is full, slow or failing on command: for `pyrmq.testing` and other tests.
//!
//! The code that opens a store passes this explicitly; no option, file or variable selects it. A store without it uses
//! [`RealFs`](super::RealFs) directly and pays nothing.

use crate::fs::{DirectoryEntry, File, Fs, LockGuard, Space, System};
use crate::sync::lock;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The current faults of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Time that each write and each fsync takes longer.
    pub slow: Duration,
    /// Bytes that can still be written; `None` for as many as the real disk takes.
    pub free_bytes: Option<u64>,
    /// Writes and all that changes files fail.
    pub fail_writes: bool,
    /// Every fsync fails, of files, directories and file systems.
    pub fail_syncs: bool,
    /// Reads fail.
    pub fail_reads: bool,
}

#[derive(Debug, Default)]
struct Condition {
    /// Nothing is looked up while this is false.
    any: AtomicBool,
    // Guards the faults; never held while a disk is waited for.
    faults: Mutex<DiskFaults>,
}

impl Condition {
    fn faults(&self) -> MutexGuard<'_, DiskFaults> {
        lock(&self.faults)
    }

    fn now(&self) -> Option<DiskFaults> {
        self.any.load(Ordering::Relaxed).then(|| *self.faults())
    }

    fn read(&self) -> io::Result<()> {
        fail_if(self.now().is_some_and(|faults| faults.fail_reads))
    }

    fn sync(&self) -> io::Result<()> {
        let Some(faults) = self.now() else { return Ok(()) };
        std::thread::sleep(faults.slow);
        fail_if(faults.fail_syncs)
    }

    /// Before a change that needs no space.
    fn change(&self) -> io::Result<()> {
        fail_if(self.now().is_some_and(|faults| faults.fail_writes))
    }

    /// Before this many bytes are written.
    fn write(&self, bytes: u64) -> io::Result<()> {
        let Some(faults) = self.now() else { return Ok(()) };
        std::thread::sleep(faults.slow);
        fail_if(faults.fail_writes)?;
        let mut faults = self.faults();
        match faults.free_bytes {
            None => Ok(()),
            Some(free) => {
                let left = free.checked_sub(bytes).ok_or_else(full)?;
                faults.free_bytes = Some(left);
                Ok(())
            }
        }
    }

    /// Before something new is made.
    fn make(&self) -> io::Result<()> {
        self.change()?;
        let is_full = self.now().is_some_and(|faults| faults.free_bytes == Some(0));
        if is_full { Err(full()) } else { Ok(()) }
    }
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

fn fail_if(fails: bool) -> io::Result<()> {
    if fails {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    Ok(())
}

/// A wrapper of another file system. Clones share its faults.
#[derive(Debug, Clone)]
pub struct FaultyFs {
    inner: Arc<dyn Fs>,
    condition: Arc<Condition>,
}

impl FaultyFs {
    /// Wraps another file system, without faults yet.
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self {
            inner,
            condition: Arc::default(),
        }
    }

    /// Changes what is wrong.
    pub fn change(&self, change: impl FnOnce(&mut DiskFaults)) {
        let mut faults = self.condition.faults();
        change(&mut faults);
        self.condition
            .any
            .store(*faults != DiskFaults::default(), Ordering::Relaxed);
    }

    fn file(&self, file: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile {
            inner: file?,
            condition: self.condition.clone(),
        }))
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    condition: Arc<Condition>,
}

impl File for FaultyFile {
    forward! {
        fn length(&self) -> io::Result<u64>;
        fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;
        fn drop_cached(&self, from: u64, to: u64) -> io::Result<()>;
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.condition.read()?;
        self.inner.read_at(buffer, offset)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.condition.read()?;
        self.inner.read_cached(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.condition.write(bytes.len() as u64)?;
        self.inner.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.condition.sync()?;
        self.inner.sync()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if length > self.inner.length()? {
            self.condition.make()?;
        } else {
            self.condition.change()?;
        }
        self.inner.set_length(length)
    }

    fn clear(&self, from: u64, to: u64) -> io::Result<()> {
        self.condition.change()?;
        self.inner.clear(from, to)
    }
}

impl Fs for FaultyFs {
    forward! {
        fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
        fn exists(&self, path: &Path) -> io::Result<bool>;
        fn links(&self, path: &Path) -> io::Result<u64>;
        fn knows_cached(&self) -> bool;
        fn system_of(&self, path: &Path) -> Option<System>;
        fn now_ms(&self) -> i64;
        fn memory_limit(&self) -> Option<u64>;
        fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.file(self.inner.open(path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.file(self.inner.open_read(path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.condition.make()?;
        self.file(self.inner.create(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.condition.read()?;
        self.inner.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.condition.change()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.condition.change()?;
        self.inner.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.condition.change()?;
        self.inner.remove_directory(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.condition.make()?;
        self.inner.create_directories(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.condition.sync()?;
        self.inner.sync_directory(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let real = self.inner.space(path)?;
        let claimed = self.condition.now().and_then(|faults| faults.free_bytes);
        Ok(Space {
            free: claimed.map_or(real.free, |free| free.min(real.free)),
            ..real
        })
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.condition.sync()?;
        self.inner.sync_all(path)
    }
}
