//! The only door to files. Everything the store does on a disk goes through [`Fs`] and [`File`], so that tests can
//! inject lost, torn and failed writes and replay every crash point.
//!
//! Reads and writes are positional: no seek, no shared cursor, no map. Nothing here retries over a failed fsync.

use pyrmq_remoting::clock;
use std::fmt;
use std::io;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Methods of a wrapper that do nothing but call the same method of `self.inner`.
macro_rules! forward {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) -> $result {
            self.inner.$name($($argument),*)
        })*
    };
}

mod faulty;
mod guarded;
pub(crate) mod memory;
pub(crate) mod read_mode;
mod real;

pub use faulty::{DiskFaults, FaultyFs};
pub(crate) use guarded::Guarded;
pub use real::{RealFs, is_locked_here};
pub(crate) use real::{descriptor_limit, local_hour};

/// An open file.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads like [`File::read_at`], but returns `None` where that would wait for the disk. If the system cannot know
    /// that, it reads.
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, offset).map(Some)
    }
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the data durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Sets the length; new bytes read as zero.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// The length now.
    fn length(&self) -> io::Result<u64>;
    /// Where at or after `offset` something may stand that is not zero; `None` when only holes follow.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.length()?).then_some(offset))
    }
    /// Lets the system drop the bytes `from..to` from memory: later reads take them from the disk. What is not durable
    /// yet stays. Advice only; where a system cannot do it nothing happens.
    fn drop_cached(&self, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }
    /// Makes the bytes `from..to` zero; the length stays.
    fn clear(&self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(from, to, |zeros, at| self.write_all_at(zeros, at))
    }

    /// Reads exactly `buffer.len()` bytes.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = buffer.len();
        let got = self.read_at(buffer, offset)?;
        if got == wanted {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{wanted} bytes wanted at {offset}, {got} there"),
        ))
    }
}

/// An entry of a directory, as [`Fs::list`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The entry's name.
    pub name: String,
    /// True for a directory.
    pub is_directory: bool,
    /// True for a regular file; false also for a pipe, a socket, a device and a link that leads nowhere.
    pub is_file: bool,
    /// Bytes of a file.
    pub length: u64,
    /// Time of the last write to the file, ms.
    pub modified_ms: i64,
    /// The file system that it is on.
    pub device: u64,
}

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total: u64,
    /// Bytes that we may still use.
    pub free: u64,
}

/// One run of an operating system, from boot to boot, and a file as that run knows it. As long as they are the same,
/// everything that was written to the file's neighbours is still there, fsynced or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// The boot, as the system names it.
    pub boot: u128,
    /// Device of the file.
    pub device: u64,
    /// Number of the file on that device: a copy has another one.
    pub inode: u64,
}

/// Held as long as a lock file is locked.
pub trait LockGuard: Send + Sync + fmt::Debug {}

/// A file system as a whole, kept open.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Makes everything that was written to the file system durable, as [`Fs::sync_all`] does.
    fn sync(&self) -> io::Result<()>;
}

/// A file system.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading only.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Makes a file, or empties an existing one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// A whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Moves a file over another; durable only after [`Fs::sync_directory`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Deletes a file; durable only after [`Fs::sync_directory`].
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Deletes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory and its parents.
    fn create_directories(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// The entries of a directory, sorted by name; empty when there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    /// True when there is a file or directory. An error where that cannot be known: it must not pass for "no".
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Number of names of a file: above one, something else may hold the file, such as a snapshot.
    fn links(&self, _path: &Path) -> io::Result<u64> {
        Ok(1)
    }
    /// The space of the file system that holds a directory.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Makes everything durable that is on the file system of a directory; `Unsupported` where the system cannot say
    /// whether that went well.
    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The run of the system that knows a file; `None` where nothing names it.
    fn system_of(&self, _path: &Path) -> Option<System> {
        None
    }
    /// A handle on the file system of a directory, to be kept open. Its [`FileSystem::sync`] reports every write that
    /// has failed since the handle was opened, also one that was already reported elsewhere. `None`: there is nothing
    /// but [`Fs::sync_all`].
    fn file_system(&self, _path: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        Ok(None)
    }
    /// False once a file system could not say what is in memory: [`File::read_cached`] may wait then.
    fn knows_cached(&self) -> bool {
        true
    }
    /// Bytes of memory that this process may use; `None` if unknown, and where files are simulated.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
    /// The time of this machine, ms since the Unix epoch; a simulated one has its own.
    fn now_ms(&self) -> i64 {
        clock::now_ms()
    }
    /// Takes a lock that other processes (a Java broker's too) respect; `WouldBlock` when it is taken.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
}

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x} {} {}", self.boot, self.device, self.inode)
    }
}

impl FromStr for System {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        Ok(Self {
            boot: u128::from_str_radix(next(), 16)?,
            device: next().parse()?,
            inode: next().parse()?,
        })
    }
}

/// Writes zeros into `from..to`, in pieces.
pub(crate) fn write_zeros(
    from: u64,
    to: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut at = from;
    while at < to {
        let left = usize::try_from(to - at).unwrap_or(usize::MAX);
        let piece = ZEROS.get(..left).unwrap_or(&ZEROS);
        write(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Adds what was tried and on which file to a system error.
pub(crate) trait Context<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T, crate::StoreError>;
}

impl<T> Context<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T, crate::StoreError> {
        self.map_err(|error| crate::StoreError::io(operation, path, &error))
    }
}

/// A path with something appended to its last component.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    PathBuf::from(text)
}

/// Makes a directory and what is missing above it, durably: each new name is fsynced in the directory that holds it.
pub(crate) fn make_directories(fs: &dyn Fs, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for directory in path.ancestors() {
        if directory.as_os_str().is_empty() || fs.exists(directory)? {
            break;
        }
        missing.push(directory);
    }
    if missing.is_empty() {
        return Ok(());
    }
    fs.create_directories(path)?;
    for directory in missing.iter().rev() {
        fs.sync_directory(parent(directory))?;
    }
    Ok(())
}

/// The directory that holds a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
