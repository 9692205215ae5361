//! Failing calls: a seed chooses which ones, how often and with which error.
//!
//! A failed fsync of a file behaves like Linux: the pages that were not written count as clean afterwards, so the next
//! fsync of that file succeeds although their bytes are not on the disk; only bytes written again get there. A failed
//! syncfs does this to every file. A failed fsync of a directory leaves the changes of names to the next one: a journal
//! either commits them later or the file system turns read-only. A failed write stores the beginning of its bytes, up
//! to the end of a sector. Any other failed call changes nothing.

use super::crash::SECTOR;
use super::{Step, World, size};
use crate::random::Random;
use std::io;
use std::path::Path;

/// A call that changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Creating or truncating a file.
    Create,
    /// Creating a directory.
    MakeDirectory,
    /// A positional write.
    Write,
    /// Setting a length.
    SetLength,
    /// Zeroing bytes.
    Clear,
    /// An fsync of a file.
    Sync,
    /// An fsync of a directory.
    SyncDirectory,
    /// An fsync of the file system.
    SyncAll,
    /// A rename.
    Rename,
    /// Removing a file.
    Remove,
    /// Removing a directory.
    RemoveDirectory,
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 11] = [
        Self::Create,
        Self::MakeDirectory,
        Self::Write,
        Self::SetLength,
        Self::Clear,
        Self::Sync,
        Self::SyncDirectory,
        Self::SyncAll,
        Self::Rename,
        Self::Remove,
        Self::RemoveDirectory,
    ];
}

/// The calls that fail.
#[derive(Debug, Clone)]
pub struct Faults {
    /// The kinds of calls.
    pub calls: Vec<Call>,
    /// One of this many calls fails.
    pub one_in: usize,
    /// The error.
    pub kind: io::ErrorKind,
    /// Chooses the failing calls.
    pub random: Random,
}

/// Bytes that a new name uses.
const NAME: usize = 64;

impl World {
    /// Returns an error if this call should fail.
    pub(super) fn call(&mut self, call: Call, path: &Path) -> io::Result<()> {
        let Some(faults) = self.faults.as_mut().filter(|faults| faults.calls.contains(&call)) else {
            return Ok(());
        };
        if !faults.random.one_in(faults.one_in) {
            return Ok(());
        }
        let kind = faults.kind;
        self.journal.push(Step::Failed(call, path.to_owned()));
        Err(io::Error::new(kind, format!("injected into {call:?}")))
    }

    /// Returns how many bytes of a write reach the file, and the error if not all do.
    pub(super) fn part_of(&mut self, offset: u64, count: usize, path: &Path) -> (usize, io::Result<()>) {
        let to_sector = |fits: usize| {
            let end = (offset + fits as u64) / SECTOR * SECTOR;
            size(end.saturating_sub(offset))
        };
        if let Err(error) = self.call(Call::Write, path) {
            let part = self
                .faults
                .as_mut()
                .map_or(0, |faults| faults.random.below(count + 1));
            return (to_sector(part), Err(error));
        }
        let Some(room) = self.room.as_mut() else {
            return (count, Ok(()));
        };
        if *room < count {
            let fits = to_sector(*room);
            *room = 0;
            return (fits, Err(io::ErrorKind::StorageFull.into()));
        }
        *room -= count;
        (count, Ok(()))
    }

    /// Takes space for a name, or for a growing length.
    pub(super) fn take_name(&mut self) -> io::Result<()> {
        match self.room.as_mut() {
            Some(room) if *room < NAME => Err(io::ErrorKind::StorageFull.into()),
            Some(room) => {
                *room -= NAME;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
