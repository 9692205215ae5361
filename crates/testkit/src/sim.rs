//! A disk in memory that records every change, and can show what a crash at any moment may leave.
//!
//! Time is a number that the test advances. A process is a [`Session`]: after a kill all of its calls fail, and the
//! next session finds everything that was written, fsynced or not. [`SimDisk::crash`] builds the disk after a power
//! loss.
//!
//! The model assumes this of a disk, and nothing more:
//! - an fsync of a file makes its bytes and length durable, not its name;
//! - an fsync of a directory makes the names in it durable, not that directory's own name;
//! - a sector of 512 bytes holds one of the states that it had since it was last fsynced, independent of other sectors;
//! - a length is one of those that the file had since then, independent of its bytes;
//! - changes of names since then may have happened or not, each as a whole; a rename is one change.
//!
//! One file, although it is long: the model above, and the two traits over it. `sim/` has what a crash leaves and which
//! calls fail.
//!
//! [`SimDisk::set_faults`] and [`SimDisk::set_room`] make calls fail; `sim/faults.rs` defines what a failed fsync
//! means.

mod crash;
mod faults;

pub use crash::Loss;
pub use faults::{Call, Faults};

use crate::lock::lock;
use pyrmq_store::fs::{DirectoryEntry, File, Fs, LockGuard, Space, System};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// One kind of fsync that a broken disk only pretends to do. The checker of a fault test must notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swallow {
    /// Fsyncs of files whose path contains this.
    File(&'static str),
    /// Fsyncs of directories whose path ends with this.
    Directory(&'static str),
    /// Fsyncs of directories below one whose path ends with this.
    Below(&'static str),
    /// Fsyncs of a whole file system.
    All,
}

impl Swallow {
    fn takes_directory(self, path: &Path) -> bool {
        match self {
            Self::Directory(name) => path.ends_with(name),
            Self::Below(name) => path.ancestors().skip(1).any(|above| above.ends_with(name)),
            Self::File(_) | Self::All => false,
        }
    }
}

/// A recorded change, in order.
#[derive(Debug, Clone)]
enum Step {
    Create(PathBuf, usize),
    MakeDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    RemoveDirectory(PathBuf),
    Write(usize, u64, Arc<[u8]>),
    Clear(usize, u64, u64),
    SetLength(usize, u64),
    Sync(usize),
    SyncDirectory(PathBuf),
    SyncAll,
    /// An fsync failed: earlier writes may or may not be on the disk, whatever a later fsync says.
    Drop(usize),
    DropAll,
    Failed(Call, PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    modified_ms: i64,
}

#[derive(Debug)]
struct World {
    names: BTreeMap<PathBuf, Node>,
    inodes: Vec<Inode>,
    /// The names and inodes that existed at the beginning.
    base: (BTreeMap<PathBuf, Node>, Vec<Inode>),
    journal: Vec<Step>,
    locked: BTreeSet<PathBuf>,
    now_ms: i64,
    /// The boot of the machine: a power loss begins another one.
    boot: u64,
    space: Space,
    swallow: Option<Swallow>,
    faults: Option<Faults>,
    /// Bytes that may still be written; `None` for no limit.
    room: Option<usize>,
    /// Whether it supports an fsync of the whole file system.
    syncs_all: bool,
}

/// A simulated disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::with(
            BTreeMap::from([(PathBuf::from("/"), Node::Directory)]),
            Vec::new(),
            0,
        )
    }
}

impl SimDisk {
    fn with(names: BTreeMap<PathBuf, Node>, inodes: Vec<Inode>, now_ms: i64) -> Self {
        let world = World {
            base: (names.clone(), inodes.clone()),
            names,
            inodes,
            journal: Vec::new(),
            locked: BTreeSet::new(),
            now_ms,
            boot: 1,
            space: Space {
                total: 1 << 40,
                free: 1 << 39,
            },
            swallow: None,
            faults: None,
            room: None,
            syncs_all: true,
        };
        Self {
            world: Arc::new(Mutex::new(world)),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Starts a process that uses the disk.
    pub fn session(&self) -> Session {
        Session {
            disk: self.clone(),
            alive: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Makes this kind of fsync only pretend to succeed.
    pub fn swallow(&self, what: Swallow) {
        self.world().swallow = Some(what);
    }

    /// Returns the number of recorded steps.
    pub fn steps(&self) -> usize {
        self.world().journal.len()
    }

    /// Describes the step before this number.
    pub fn describe(&self, step: usize) -> String {
        let world = self.world();
        let Some(step) = step.checked_sub(1).and_then(|step| world.journal.get(step)) else {
            return "nothing was done".to_owned();
        };
        match step {
            Step::Write(inode, at, bytes) => {
                format!("write of {} bytes at {at} to inode {inode}", bytes.len())
            }
            Step::Failed(call, path) => format!("{call:?} of {} fails", path.display()),
            other => format!("{other:?}"),
        }
    }

    /// Sets the clock.
    pub fn set_now(&self, now_ms: i64) {
        self.world().now_ms = now_ms;
    }

    /// Returns the clock.
    pub fn now(&self) -> i64 {
        self.world().now_ms
    }

    /// Sets how many bytes may still be written; `None` for no limit. A write that needs more stores what fits and
    /// fails. A new name uses some too.
    pub fn set_room(&self, room: Option<usize>) {
        self.world().room = room;
    }

    /// Makes these calls fail; `None` for no faults.
    pub fn set_faults(&self, faults: Option<Faults>) {
        self.world().faults = faults;
    }

    /// Sets whether it supports an fsync of the whole file system; without it that returns `Unsupported`.
    pub fn set_syncs_all(&self, syncs_all: bool) {
        self.world().syncs_all = syncs_all;
    }

    /// Sets the space that the disk reports.
    pub fn set_space(&self, space: Space) {
        self.world().space = space;
    }
}

/// A process that uses a [`SimDisk`].
#[derive(Debug, Clone)]
pub struct Session {
    disk: SimDisk,
    alive: Arc<AtomicBool>,
}

impl Session {
    /// Kills the process: no later call of it reaches the disk.
    pub fn kill(&self) {
        let mut world = self.disk.world();
        self.alive.store(false, Ordering::Release);
        world.locked.clear();
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, World>> {
        crate::schedule::point(false);
        let world = self.disk.world();
        if self.alive.load(Ordering::Acquire) {
            Ok(world)
        } else {
            Err(io::Error::other("the process was killed"))
        }
    }

    fn handle(&self, inode: usize, path: &Path) -> Arc<dyn File> {
        Arc::new(SimFile {
            session: self.clone(),
            inode,
            path: path.to_owned(),
        })
    }
}

#[derive(Debug)]
struct SimFile {
    session: Session,
    inode: usize,
    path: PathBuf,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl World {
    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn inode(&mut self, number: usize) -> io::Result<&mut Inode> {
        let now_ms = self.now_ms;
        let inode = self.inodes.get_mut(number).ok_or_else(not_found)?;
        inode.modified_ms = now_ms;
        Ok(inode)
    }

    fn has_children(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name.parent() == Some(path))
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.session.enter()?;
        let inode = world.inodes.get(self.inode).ok_or_else(not_found)?;
        let from = inode.bytes.get(size(offset)..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), from.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.session.enter()?;
        let (fits, done) = world.part_of(offset, bytes.len(), &self.path);
        let part = bytes.get(..fits).unwrap_or(bytes);
        if !part.is_empty() {
            write(world.inode(self.inode)?, offset, part);
            world.journal.push(Step::Write(self.inode, offset, part.into()));
        }
        done
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.session.enter()?;
        world
            .call(Call::Sync, &self.path)
            .inspect_err(|_| world.journal.push(Step::Drop(self.inode)))?;
        let is_swallowed =
            matches!(world.swallow, Some(Swallow::File(part)) if self.path.to_string_lossy().contains(part));
        if !is_swallowed {
            world.journal.push(Step::Sync(self.inode));
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut world = self.session.enter()?;
        world.call(Call::SetLength, &self.path)?;
        let grows = (world.inode(self.inode)?.bytes.len() as u64) < length;
        if grows {
            world.take_name()?;
        }
        world.inode(self.inode)?.bytes.resize(size(length), 0);
        world.journal.push(Step::SetLength(self.inode, length));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let world = self.session.enter()?;
        let inode = world.inodes.get(self.inode).ok_or_else(not_found)?;
        Ok(inode.bytes.len() as u64)
    }

    fn clear(&self, from: u64, to: u64) -> io::Result<()> {
        let mut world = self.session.enter()?;
        world.call(Call::Clear, &self.path)?;
        clear(world.inode(self.inode)?, from, to);
        world.journal.push(Step::Clear(self.inode, from, to));
        Ok(())
    }
}

fn write(inode: &mut Inode, offset: u64, bytes: &[u8]) {
    let (from, to) = (size(offset), size(offset) + bytes.len());
    if inode.bytes.len() < to {
        inode.bytes.resize(to, 0);
    }
    if let Some(place) = inode.bytes.get_mut(from..to) {
        place.copy_from_slice(bytes);
    }
}

fn clear(inode: &mut Inode, from: u64, to: u64) {
    let to = size(to).min(inode.bytes.len());
    if let Some(place) = inode.bytes.get_mut(size(from)..to) {
        place.fill(0);
    }
}

impl Fs for Session {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let inode = self.enter()?.file(path)?;
        Ok(self.handle(inode, path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut world = self.enter()?;
        if world.names.get(path.parent().ok_or_else(not_found)?) != Some(&Node::Directory) {
            return Err(not_found());
        }
        world.call(Call::Create, path)?;
        if let Ok(inode) = world.file(path) {
            world.inode(inode)?.bytes.clear();
            world.journal.push(Step::SetLength(inode, 0));
            return Ok(self.handle(inode, path));
        }
        world.take_name()?;
        let inode = world.inodes.len();
        let modified_ms = world.now_ms;
        world.inodes.push(Inode {
            bytes: Vec::new(),
            modified_ms,
        });
        world.names.insert(path.to_owned(), Node::File(inode));
        world.journal.push(Step::Create(path.to_owned(), inode));
        Ok(self.handle(inode, path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let world = self.enter()?;
        let inode = world.file(path)?;
        Ok(world.inodes.get(inode).ok_or_else(not_found)?.bytes.clone())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        world.call(Call::Rename, from)?;
        let node = world.names.remove(from).ok_or_else(not_found)?;
        world.names.insert(to.to_owned(), node);
        world.journal.push(Step::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        world.file(path)?;
        world.call(Call::Remove, path)?;
        world.names.remove(path);
        world.journal.push(Step::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        if world.has_children(path) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        world.call(Call::RemoveDirectory, path)?;
        world.names.remove(path).ok_or_else(not_found)?;
        world.journal.push(Step::RemoveDirectory(path.to_owned()));
        Ok(())
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        let missing: Vec<_> = path
            .ancestors()
            .take_while(|directory| !world.names.contains_key(*directory))
            .map(Path::to_owned)
            .collect();
        for directory in missing.into_iter().rev() {
            world.call(Call::MakeDirectory, &directory)?;
            world.take_name()?;
            world.names.insert(directory.clone(), Node::Directory);
            world.journal.push(Step::MakeDirectory(directory));
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        if world.names.get(path) != Some(&Node::Directory) {
            return Err(not_found());
        }
        world.call(Call::SyncDirectory, path)?;
        if !world.swallow.is_some_and(|swallow| swallow.takes_directory(path)) {
            world.journal.push(Step::SyncDirectory(path.to_owned()));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let world = self.enter()?;
        let entry = |(name, node): (&PathBuf, &Node)| {
            let inode = match node {
                Node::File(inode) => world.inodes.get(*inode),
                Node::Directory => None,
            };
            DirectoryEntry {
                name: name
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                is_directory: *node == Node::Directory,
                is_file: *node != Node::Directory,
                length: inode.map_or(0, |inode| inode.bytes.len() as u64),
                modified_ms: inode.map_or(0, |inode| inode.modified_ms),
                device: 1,
            }
        };
        let below = world.names.range(path.to_owned()..);
        Ok(below
            .take_while(|(name, _)| name.starts_with(path))
            .filter(|(name, _)| name.parent() == Some(path))
            .map(entry)
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.enter()?.names.contains_key(path))
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(self.enter()?.space)
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        let mut world = self.enter()?;
        if !world.syncs_all {
            return Err(io::ErrorKind::Unsupported.into());
        }
        world
            .call(Call::SyncAll, path)
            .inspect_err(|_| world.journal.push(Step::DropAll))?;
        if world.swallow != Some(Swallow::All) {
            world.journal.push(Step::SyncAll);
        }
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.disk.now()
    }

    fn system_of(&self, path: &Path) -> Option<System> {
        let world = self.enter().ok()?;
        let inode = world.file(path).ok()? as u64;
        Some(System {
            boot: world.boot.into(),
            device: 1,
            inode,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        if !self.exists(path)? {
            self.create(path)?;
        }
        let mut world = self.enter()?;
        if !world.locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock {
            session: self.clone(),
            path: path.to_owned(),
        }))
    }
}

#[derive(Debug)]
struct SimLock {
    session: Session,
    path: PathBuf,
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        if let Ok(mut world) = self.session.enter() {
            world.locked.remove(&self.path);
        }
    }
}
