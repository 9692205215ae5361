//! Calls that fail: which ones, how often and with which error, chosen by a seed.
//!
//! A failed fsync of a file behaves as Linux does: the pages that were not written are clean from then on, so the next
//! fsync of
//! that file says that all is well although their bytes are not on the disk; only bytes written again get there. A
//! failed syncfs
//! does so to every file. A failed fsync of a directory leaves the changes of names to the next one: a journal either
//! commits them
//! later or the file system turns read-only. A failed write brings the beginning of its bytes, up to
//! the end of a sector; any other failed call nothing.

use super::crash::SECTOR;
use super::{Step, World, size};
use crate::random::Random;
use std::io;
use std::path::Path;

/// A call that changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Making a file, or emptying one.
    Create,
    /// Making a directory.
    MakeDirectory,
    /// A positional write.
    Write,
    /// Setting a length.
    SetLength,
    /// Making bytes zero.
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
    /// All of them.
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

/// Calls that fail.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Which.
    pub calls: Vec<Call>,
    /// One of so many of them.
    pub one_in: usize,
    /// With which error.
    pub kind: io::ErrorKind,
    /// Chooses among them.
    pub random: Random,
}

/// Bytes that a new name takes.
const NAME: usize = 64;

impl World {
    /// Fails if this call is one that is to fail.
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

    /// How many of the bytes of a write are brought to the file, and why not all.
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

    /// Space for a name, or for a length that grows.
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
