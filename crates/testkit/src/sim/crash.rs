//! Builds the disk as a crash may leave it.

use super::{Inode, Node, SimDisk, Step, World, clear, size, write};
use crate::random::Random;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub(super) const SECTOR: u64 = 512;

/// What happens to data that was not fsynced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing is lost: the process was killed, the machine continues.
    Nothing,
    /// All of it is lost.
    All,
    /// Everything before some moment is kept, everything after it is lost.
    Newest,
    /// Each write and each change of a name is kept or lost: reordered.
    Writes,
    /// Each sector has the first or the last of its possible states: torn and reordered.
    Sectors,
    /// Each sector has any of its possible states.
    States,
}

impl Loss {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::All,
        Self::Newest,
        Self::Writes,
        Self::Sectors,
        Self::States,
    ];
}

/// Chooses the states of sectors, lengths and names.
struct Choice {
    loss: Loss,
    seed: u64,
    steps: usize,
    newest: usize,
}

impl Choice {
    /// Returns true if the state of `key` after step `number`, or a later one, reached the disk.
    fn keeps(&self, number: usize, key: (usize, u64)) -> bool {
        let random = || Random::of(&[self.seed, key.0 as u64, key.1]).next();
        match self.loss {
            Loss::Nothing => true,
            Loss::All => false,
            Loss::Newest => number < self.newest,
            Loss::Writes => Random::of(&[self.seed, number as u64]).next().is_multiple_of(2),
            Loss::Sectors => random().is_multiple_of(2),
            Loss::States => number < size(random()) % (self.steps + 1),
        }
    }
}

/// The steps that made data durable.
#[derive(Default)]
struct Durable<'w> {
    /// The fsyncs of each inode, and whether they succeeded.
    files: HashMap<usize, Vec<(usize, bool)>>,
    /// The fsyncs of the whole file system, and whether they succeeded.
    all: Vec<(usize, bool)>,
    /// The last fsync of each directory.
    directories: HashMap<&'w Path, usize>,
    newest_of_all: usize,
}

impl Durable<'_> {
    /// Returns true if the first fsync after a step succeeded: after a failed one, no later one counts.
    fn has_file(&self, number: usize, inode: usize) -> bool {
        let first = |syncs: &[(usize, bool)]| {
            let next = syncs.partition_point(|(sync, _)| *sync <= number);
            syncs.get(next).copied()
        };
        let of_file = self.files.get(&inode).and_then(|syncs| first(syncs));
        match (of_file, first(&self.all)) {
            (Some(one), Some(other)) => one.min(other).1,
            (Some((_, is_done)), None) | (None, Some((_, is_done))) => is_done,
            (None, None) => false,
        }
    }

    fn has_name(&self, number: usize, path: &Path) -> bool {
        let directory = path.parent().unwrap_or(path);
        number < self.newest_of_all || self.directories.get(directory).is_some_and(|sync| number < *sync)
    }
}

/// A disk under construction.
struct After {
    names: BTreeMap<PathBuf, Node>,
    inodes: Vec<Inode>,
    /// The lengths of the files; their bytes may end before or after.
    lengths: Vec<u64>,
}

impl SimDisk {
    /// Returns the disk after a power loss after the first `steps` steps. Equal arguments give equal disks.
    #[must_use]
    pub fn crash(&self, steps: usize, loss: Loss, seed: u64) -> Self {
        let world = self.world();
        let choice = Choice {
            loss,
            seed,
            steps,
            newest: size(Random::of(&[seed]).next()) % (steps + 1),
        };
        let journal = world.journal.get(..steps).unwrap_or(&world.journal);
        let durable = durable(journal);
        let mut after = After {
            names: world.base.0.clone(),
            lengths: world
                .base
                .1
                .iter()
                .map(|inode| inode.bytes.len() as u64)
                .collect(),
            inodes: world.base.1.clone(),
        };
        after.lengths.resize(world.inodes.len(), 0);
        after.inodes.resize(world.inodes.len(), Inode::default());
        for (number, step) in journal.iter().enumerate() {
            after.apply(number, step, &durable, &choice);
        }
        let disk = after.finish(&world);
        if loss == Loss::Nothing {
            disk.world().boot = world.boot;
        }
        disk
    }
}

fn durable(journal: &[Step]) -> Durable<'_> {
    let mut durable = Durable::default();
    for (number, step) in journal.iter().enumerate() {
        match step {
            Step::Sync(inode) => durable.files.entry(*inode).or_default().push((number, true)),
            Step::Drop(inode) => durable.files.entry(*inode).or_default().push((number, false)),
            Step::SyncDirectory(path) => {
                durable.directories.insert(path, number);
            }
            Step::SyncAll => {
                durable.all.push((number, true));
                durable.newest_of_all = number;
            }
            Step::DropAll => durable.all.push((number, false)),
            _ => {}
        }
    }
    durable
}

impl After {
    fn apply(&mut self, number: usize, step: &Step, durable: &Durable<'_>, choice: &Choice) {
        let keeps_name =
            |path: &Path| durable.has_name(number, path) || choice.keeps(number, (usize::MAX, number as u64));
        match step {
            Step::Create(path, inode) if keeps_name(path) => self.add(path, Node::File(*inode)),
            Step::MakeDirectory(path) if keeps_name(path) => self.add(path, Node::Directory),
            Step::Rename(from, to) if keeps_name(to) => {
                if let Some(node) = self.names.remove(from) {
                    self.add(to, node);
                }
            }
            Step::Remove(path) if keeps_name(path) => {
                self.names.remove(path);
            }
            Step::RemoveDirectory(path) if keeps_name(path) => {
                self.names.retain(|name, _| !name.starts_with(path));
            }
            Step::Write(inode, at, bytes) => {
                let is_durable = durable.has_file(number, *inode);
                self.change(
                    *inode,
                    (*at, at + bytes.len() as u64),
                    |sector| is_durable || choice.keeps(number, (*inode, sector)),
                    Some((*at, bytes)),
                );
                if is_durable || choice.keeps(number, (*inode, u64::MAX)) {
                    self.grow(*inode, at + bytes.len() as u64);
                }
            }
            Step::Clear(inode, from, to) => {
                let is_durable = durable.has_file(number, *inode);
                self.change(
                    *inode,
                    (*from, *to),
                    |sector| is_durable || choice.keeps(number, (*inode, sector)),
                    None,
                );
            }
            Step::SetLength(inode, length)
                if durable.has_file(number, *inode) || choice.keeps(number, (*inode, u64::MAX)) =>
            {
                if let Some(place) = self.lengths.get_mut(*inode) {
                    *place = *length;
                }
                if let Some(inode) = self.inodes.get_mut(*inode) {
                    // Bytes that were cut off are gone for good.
                    clear(inode, *length, u64::MAX);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, path: &Path, node: Node) {
        let is_there = path
            .parent()
            .is_some_and(|parent| self.names.get(parent) == Some(&Node::Directory));
        if is_there {
            self.names.insert(path.to_owned(), node);
        }
    }

    fn grow(&mut self, inode: usize, length: u64) {
        if let Some(place) = self.lengths.get_mut(inode) {
            *place = (*place).max(length);
        }
    }

    /// Writes bytes, or zeros without any, to the sectors of a range that are kept.
    fn change(
        &mut self,
        inode: usize,
        (from, to): (u64, u64),
        keeps: impl Fn(u64) -> bool,
        bytes: Option<(u64, &[u8])>,
    ) {
        let Some(inode) = self.inodes.get_mut(inode) else {
            return;
        };
        let mut at = from;
        while at < to {
            let sector = at / SECTOR;
            let end = ((sector + 1) * SECTOR).min(to);
            if keeps(sector) {
                match bytes {
                    Some((start, bytes)) => {
                        let part = bytes.get(size(at - start)..size(end - start));
                        write(inode, at, part.unwrap_or_default());
                    }
                    None => clear(inode, at, end),
                }
            }
            at = end;
        }
    }

    fn finish(mut self, world: &World) -> SimDisk {
        for (number, (inode, length)) in self.inodes.iter_mut().zip(&self.lengths).enumerate() {
            inode.bytes.resize(size(*length), 0);
            inode.modified_ms = world.inodes.get(number).map_or(0, |inode| inode.modified_ms);
        }
        // A name whose directory was lost is gone too.
        let names = self.names.clone();
        self.names
            .retain(|name, _| name.ancestors().all(|above| names.contains_key(above)));
        let disk = SimDisk::with(self.names, self.inodes, world.now_ms);
        disk.set_syncs_all(world.syncs_all);
        disk.world().boot = world.boot + 1;
        disk
    }
}
