//! The operating system's files.
//!
//! One file, although it is long: it has all of the crate's unsafe code, which nothing else may contain.

use crate::fs::{DirectoryEntry, File, FileSystem, Fs, LockGuard, Space, System, memory, parent};
use crate::sync::lock;
#[cfg(target_os = "linux")]
use rustix::fs::Advice;
#[cfg(target_os = "linux")]
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::BTreeSet;
use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::UNIX_EPOCH;

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

/// The file system cannot tell which pages are in memory. One flag for the process: a store is on one file system.
static CACHE_UNKNOWN: AtomicBool = AtomicBool::new(cfg!(not(target_os = "linux")));

#[derive(Debug)]
struct RealFile(fs::File);

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    #[cfg(target_os = "linux")]
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if CACHE_UNKNOWN.load(Ordering::Relaxed) {
            return self.read_at(buffer, offset).map(Some);
        }
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let place = &mut [io::IoSliceMut::new(rest)];
            match rustix::io::preadv2(&self.0, place, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    CACHE_UNKNOWN.store(true, Ordering::Relaxed);
                    return self.read_at(buffer, offset).map(Some);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(done))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.metadata().map(|data| data.len())
    }

    #[cfg(target_os = "linux")]
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        linux::next_data(&self.0, offset)
    }

    #[cfg(target_os = "linux")]
    fn drop_cached(&self, from: u64, to: u64) -> io::Result<()> {
        let Some(length) = NonZeroU64::new(to.saturating_sub(from)) else {
            return Ok(());
        };
        Ok(rustix::fs::fadvise(
            &self.0,
            from,
            Some(length),
            Advice::DontNeed,
        )?)
    }

    #[cfg(target_os = "linux")]
    fn clear(&self, from: u64, to: u64) -> io::Result<()> {
        linux::clear(&self.0, from, to)
    }
}

fn modified_ms(data: &fs::Metadata) -> i64 {
    data.modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "this is the one file that opens files")]
impl Fs for RealFs {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(fs::File::open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let directory = match fs::read_dir(path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::new();
        for entry in directory {
            let entry = entry?;
            let mut data = entry.metadata()?;
            if data.is_symlink() {
                // Follow the link: a topic's directory may be on another disk.
                data = fs::metadata(entry.path()).unwrap_or(data);
            }
            entries.push(DirectoryEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_directory: data.is_dir(),
                is_file: data.is_file(),
                length: data.len(),
                modified_ms: modified_ms(&data),
                device: data.dev(),
            });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn links(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.nlink())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        statvfs(path)
    }

    fn system_of(&self, path: &Path) -> Option<System> {
        // All containers of a machine have one; each boot makes a new one.
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.trim().split('-').collect();
        let data = fs::metadata(path).ok()?;
        Some(System {
            boot: u128::from_str_radix(&digits, 16).ok()?,
            device: data.dev(),
            inode: data.ino(),
        })
    }

    fn knows_cached(&self) -> bool {
        !CACHE_UNKNOWN.load(Ordering::Relaxed)
    }

    #[cfg(target_os = "linux")]
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        check_reports_failed_writes()?;
        linux::sync_all(&fs::File::open(path)?)
    }

    #[cfg(target_os = "linux")]
    fn memory_limit(&self) -> Option<u64> {
        memory::limit()
    }

    fn file_system(&self, path: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        Ok(Some(Arc::new(HeldFileSystem(fs::File::open(path)?))))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        // To the end: the file is neither opened nor closed while another thread decides.
        let mut held = lock(&HELD);
        if FileId::of(path).is_some_and(|id| held.contains(&id)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let directory = lock_directory(parent(path))?;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        lock_record(&file)?;
        lock_against_ours(&file)?;
        file.write_all_at(b"lock", 0)?;
        let id = FileId::new(&file.metadata()?);
        held.insert(id);
        Ok(Box::new(RealLock {
            id,
            file: Some(file),
            directory,
        }))
    }
}

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct HeldFileSystem(fs::File);

#[cfg(target_os = "linux")]
impl FileSystem for HeldFileSystem {
    fn sync(&self) -> io::Result<()> {
        check_reports_failed_writes()?;
        linux::sync_all(&self.0)
    }
}

/// Refuses `syncfs` before Linux 5.8, where it succeeds although writes have failed.
#[cfg(target_os = "linux")]
fn check_reports_failed_writes() -> io::Result<()> {
    static REPORTS: OnceLock<bool> = OnceLock::new();
    let reports = REPORTS.get_or_init(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        release_reports_failed_writes(&release)
    });
    if *reports {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Whether `syncfs` of a kernel release (such as `6.1.0-13-amd64`) reports failed writes. False if the text is no
/// version.
#[cfg(target_os = "linux")]
fn release_reports_failed_writes(release: &str) -> bool {
    let mut numbers = release
        .trim()
        .split(|other: char| !other.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 8)
}

/// What the standard library has no call for.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "system calls that the standard library lacks")]
mod linux {
    use crate::fs::write_zeros;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    fn offset_of(offset: u64) -> io::Result<libc::off_t> {
        libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    pub(super) fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
        let at = offset_of(offset)?;
        // SAFETY: the descriptor is open as long as `file` is; nothing uses the cursor that moves.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
        if let Ok(found) = u64::try_from(found) {
            return Ok(Some(found));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            // A file system that knows no holes.
            Some(libc::EINVAL | libc::EOPNOTSUPP) => Ok(Some(offset)),
            _ => Err(error),
        }
    }

    pub(super) fn clear(file: &File, from: u64, to: u64) -> io::Result<()> {
        if to <= from {
            return Ok(());
        }
        let (at, length) = (offset_of(from)?, offset_of(to - from)?);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open as long as `file` is, and the call takes no memory.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, at, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
            return Err(error);
        }
        write_zeros(from, to, |zeros, at| file.write_all_at(zeros, at))
    }

    pub(super) fn sync_all(directory: &File) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as `directory` is.
        if unsafe { libc::syncfs(directory.as_raw_fd()) } == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
}

/// Lock files that this process holds. Their record locks belong to the process: a thread that opens such a file and
/// closes it again takes all of them away. So a second lock is refused without opening the file.
static HELD: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

/// Device and number of a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(u64, u64);

impl FileId {
    fn new(data: &fs::Metadata) -> Self {
        Self(data.dev(), data.ino())
    }

    fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::new)
    }
}

/// True for a lock file that this process holds. Asking the system instead would take the lock away.
pub fn is_locked_here(path: &Path) -> bool {
    let held = lock(&HELD);
    FileId::of(path).is_some_and(|id| held.contains(&id))
}

#[derive(Debug)]
struct RealLock {
    id: FileId,
    file: Option<fs::File>,
    /// The directory of the file, where its file system can lock directories.
    directory: Option<fs::File>,
}

impl LockGuard for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        let mut held = lock(&HELD);
        // Closed before another thread may lock it, because closing would release that thread's lock, too. A forked
        // child still has the file open.
        if let Some(file) = self.file.take() {
            unlock_against_ours(&file);
        }
        if let Some(Err(error)) = self.directory.take().map(|directory| directory.unlock()) {
            tracing::debug!(%error, "the directory of the lock file was not unlocked");
        }
        held.remove(&self.id);
    }
}

/// Locks the directory of a lock file. A process that deletes the file and makes a new one gets the lock of the new
/// file, but not the directory's. `None` where the file system has no such locks, as NFS.
#[expect(clippy::disallowed_methods, reason = "this is the one file that opens files")]
fn lock_directory(path: &Path) -> io::Result<Option<fs::File>> {
    let directory = fs::File::open(path)?;
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(fs::TryLockError::Error(error)) => {
            tracing::debug!(%error, path = %path.display(), "the directory cannot be locked, its lock file is all the same");
            Ok(None)
        }
    }
}

/// Java's `FileChannel.tryLock(0, 1, false)`: a POSIX record lock on the first byte.
fn lock_record(file: &fs::File) -> io::Result<()> {
    set_lock(file, libc::F_SETLK, libc::F_WRLCK, 0)
}

/// A lock of the open file on the second byte. It stays where code of this process that knows nothing of locks (a copy
/// of the directory) opens the file and closes it; other processes of ours respect it.
#[cfg(target_os = "linux")]
fn lock_against_ours(file: &fs::File) -> io::Result<()> {
    match set_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK, 1) {
        // A file system without such locks.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

#[cfg(target_os = "linux")]
fn unlock_against_ours(file: &fs::File) {
    if let Err(error) = set_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, 1) {
        tracing::debug!(%error, "the lock file's second byte was not unlocked");
    }
}

#[cfg(not(target_os = "linux"))]
fn lock_against_ours(_file: &fs::File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn unlock_against_ours(_file: &fs::File) {}

#[expect(
    unsafe_code,
    reason = "the standard library has no record locks, and Java's are such"
)]
fn set_lock(file: &fs::File, command: libc::c_int, kind: libc::c_int, byte: libc::off_t) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "the constants are small")]
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is, and `request` outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const request) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(error),
    }
}

#[expect(unsafe_code, reason = "the standard library cannot tell the free space")]
fn statvfs(path: &Path) -> io::Result<Space> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `name` ends with a zero byte and `answer` is a writable statvfs.
    let result = unsafe { libc::statvfs(name.as_ptr(), answer.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure consists of integers, for which zero bytes are valid, and the call has filled it.
    let answer = unsafe { answer.assume_init() };
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the widths differ between systems"
    )]
    Ok(Space {
        total: (answer.f_blocks as u64).saturating_mul(answer.f_frsize as u64),
        free: (answer.f_bavail as u64).saturating_mul(answer.f_frsize as u64),
    })
}

/// The hour of the day in the machine's time zone.
#[expect(unsafe_code, reason = "the standard library knows no time zones")]
pub(crate) fn local_hour(now_ms: i64) -> u8 {
    let seconds: libc::time_t = now_ms.div_euclid(1000);
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call; a null result leaves `parts` zero, which is a valid tm.
    let parts = unsafe {
        libc::localtime_r(&raw const seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    u8::try_from(parts.tm_hour).unwrap_or_default()
}

/// How many descriptors this process may have.
#[expect(unsafe_code, reason = "the standard library cannot tell limits")]
pub(crate) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a writable rlimit; a failing call leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::release_reports_failed_writes;

    #[test]
    fn syncfs_is_trusted_from_linux_5_8_on() {
        for release in [
            "5.8",
            "5.8.0-63-generic\n",
            "5.10-rc1",
            "5.10.16.3-microsoft-standard-WSL2",
            "6.1.0-13-amd64",
            "6.6+",
            "10.0.1",
        ] {
            assert!(release_reports_failed_writes(release), "{release}");
        }
        for release in ["", "\n", "unknown", "3.10.0-1160.el7", "4.19.0", "5", "5.7.19"] {
            assert!(!release_reports_failed_writes(release), "{release}");
        }
    }
}
