//! One rule for every fsync of a store: what failed to become durable is never claimed durable later.
//!
//! A failed fsync may have dropped the pages that it was for, and the next fsync of the same file still returns OK. So
//! the first failure is recorded here, whatever the file and the caller. It turns the store read-only, and every later
//! fsync is refused with it. ENOSPC and EDQUOT are no exception: some file systems find out about missing space only at
//! the fsync, when the pages are gone. An fsync that did not begin, because the directory could not be opened, has lost
//! nothing and may be retried.

use crate::error::{StoreError, is_exhausted};
use crate::failure::Failure;
use crate::fs::{DirectoryEntry, File, FileSystem, Fs, LockGuard, Space, System};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system that remembers its failed fsyncs.
#[derive(Debug)]
pub(crate) struct Guarded {
    inner: Arc<dyn Fs>,
    failure: Arc<Failure>,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Fs>, failure: Arc<Failure>) -> Self {
        Self { inner, failure }
    }

    fn file(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GuardedFile {
            inner,
            path: path.to_owned(),
            failure: Arc::clone(&self.failure),
        })
    }
}

/// Fsyncs a file or directory that may have to be opened first.
fn sync_opened(failure: &Failure, path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    check(failure)?;
    sync().inspect_err(|error| {
        let did_not_begin = is_exhausted("open", error)
            || matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::Unsupported
            );
        if !did_not_begin {
            failure.set(&StoreError::io("flush", path, error));
        }
    })
}

fn check(failure: &Failure) -> io::Result<()> {
    failure.check().map_err(io::Error::other)
}

#[derive(Debug)]
struct GuardedFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    failure: Arc<Failure>,
}

impl File for GuardedFile {
    forward! {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
        fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>>;
        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
        fn set_length(&self, length: u64) -> io::Result<()>;
        fn length(&self) -> io::Result<u64>;
        fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;
        fn drop_cached(&self, from: u64, to: u64) -> io::Result<()>;
        fn clear(&self, from: u64, to: u64) -> io::Result<()>;
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    }

    fn sync(&self) -> io::Result<()> {
        check(&self.failure)?;
        self.inner
            .sync()
            .inspect_err(|error| self.failure.set(&StoreError::io("flush", &self.path, error)))
    }
}

#[derive(Debug)]
struct GuardedFileSystem {
    inner: Arc<dyn FileSystem>,
    path: PathBuf,
    failure: Arc<Failure>,
}

impl FileSystem for GuardedFileSystem {
    fn sync(&self) -> io::Result<()> {
        sync_opened(&self.failure, &self.path, || self.inner.sync())
    }
}

impl Fs for Guarded {
    forward! {
        fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>>;
        fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
        fn remove(&self, path: &Path) -> io::Result<()>;
        fn remove_directory(&self, path: &Path) -> io::Result<()>;
        fn create_directories(&self, path: &Path) -> io::Result<()>;
        fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
        fn exists(&self, path: &Path) -> io::Result<bool>;
        fn links(&self, path: &Path) -> io::Result<u64>;
        fn space(&self, path: &Path) -> io::Result<Space>;
        fn memory_limit(&self) -> Option<u64>;
        fn system_of(&self, path: &Path) -> Option<System>;
        fn knows_cached(&self) -> bool;
        fn now_ms(&self) -> i64;
        fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.inner.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.inner.create(path)?))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        sync_opened(&self.failure, path, || self.inner.sync_directory(path))
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        sync_opened(&self.failure, path, || self.inner.sync_all(path))
    }

    fn file_system(&self, path: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        let inner = self.inner.file_system(path)?;
        Ok(inner.map(|inner| {
            let held: Arc<dyn FileSystem> = Arc::new(GuardedFileSystem {
                inner,
                path: path.to_owned(),
                failure: Arc::clone(&self.failure),
            });
            held
        }))
    }
}
