//! All consume queues of a store (Apache `ConsumeQueueStore`).

use crate::error::StoreError;
use crate::format::{CONSUME_QUEUE, queue_directory};
use crate::fs::{Context, FileSystem, Fs};
use crate::queue::backlog::QueueBacklog;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::files::handles::Handles;
use crate::queue::manifest::QueueRange;
use crate::queue::table::QueueTable;
use crate::queue::wait_list::WaitList;
use crate::sync::{lock, read, write};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// Number of release rounds after which a queue without puts is idle, and after which all queues were visited once.
const IDLE_ROUNDS: usize = 10;
/// Minimum number of table slots that a round visits.
const MIN_SLOTS_PER_ROUND: usize = 1024;
/// Minimum number of visits without a put: the first shows nothing about the time since that put.
const MIN_IDLE_VISITS: usize = 2;

/// How often progress is logged while queues are written: stopping with a million new ones takes most of a minute.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Number of queues at which one fsync of the whole file system is faster than one for each.
const SYNC_FILE_SYSTEM_FROM: usize = 64;

/// Queues by topic and id.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) root: PathBuf,
    pub(super) file_bytes: u64,
    pub(super) handles: Arc<Handles>,
    /// Whether the previous store was not closed. One of its fsyncs may have failed: pages that the system considers
    /// clean may not be on the disk.
    pub(super) writes_again: bool,
    /// The queues' file system, kept open.
    pub(super) file_system: Option<Arc<dyn FileSystem>>,
    /// Whether the directory of a topic or queue is a link or a mount, so that one fsync does not reach them all.
    pub(super) is_spread: bool,
    pub(super) table: RwLock<QueueTable>,
    /// The queues with units that are only in memory.
    pub(super) unwritten: WaitList<ConsumeQueue>,
    /// The queues that were written since the last fsync.
    pub(super) unsynced: WaitList<ConsumeQueue>,
    /// The queues of which much waits to be written.
    pub(crate) backlog: QueueBacklog,
    /// Held while queues are fsynced. Taken before `rounds`.
    pub(super) syncs: Mutex<()>,
    /// Held while queues are written: a thread that finds the list of unwritten ones empty may rely on its previous
    /// content being written. Once the store runs, directories of topics and queues are created under this lock only.
    /// Not held during an fsync of queues, so that writing continues while that hangs.
    pub(super) rounds: Mutex<()>,
    /// The slot of the table at which the next release round begins.
    pub(super) release_cursor: Mutex<usize>,
}

impl Queues {
    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<Arc<ConsumeQueue>> {
        read(&self.table).get(topic, id).cloned()
    }

    /// The first index of a queue, and the index after its last one.
    pub(crate) fn range_of(&self, topic: &str, id: i32) -> Option<(i64, i64)> {
        self.get(topic, id).map(|queue| (queue.min(), queue.end()))
    }

    pub(crate) fn get_or_add(&self, topic: &str, id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, id) {
            return queue;
        }
        write(&self.table).get_or_add(topic, id, |name| {
            let directory = queue_directory(&self.root, topic, id);
            ConsumeQueue::new(name, id, directory, self.file_bytes, &self.handles)
        })
    }

    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        read(&self.table).all().cloned().collect()
    }

    /// All queues by topic and id, so that two runs process them in the same order.
    pub(super) fn sorted(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut all = self.all();
        all.sort_unstable_by(|one, other| (&one.topic, one.id).cmp(&(&other.topic, other.id)));
        all
    }

    /// Whether a queue's first file is missing.
    pub(crate) fn any_begins_late(&self) -> bool {
        self.all().iter().any(|queue| queue.begins_late())
    }

    pub(crate) fn count(&self) -> usize {
        read(&self.table).count()
    }

    pub(crate) fn topics(&self) -> Vec<(String, Vec<i32>)> {
        let mut topics: Vec<_> = read(&self.table)
            .topics()
            .map(|(topic, queues)| (topic.to_owned(), queues))
            .collect();
        topics.sort_unstable();
        topics
    }

    /// Lists a queue that has units to be written.
    pub(crate) fn list_unwritten(&self, queue: &Arc<ConsumeQueue>) {
        self.unwritten.add(queue, &queue.in_unwritten);
    }

    /// Lists a queue whose files need an fsync.
    pub(crate) fn list_unsynced(&self, queue: &Arc<ConsumeQueue>) {
        self.unsynced.add(queue, &queue.in_unsynced);
    }

    /// Lists all queues for an fsync of their files.
    pub(crate) fn list_all_unsynced(&self) {
        for queue in self.sorted() {
            queue.all_dirty();
            self.list_unsynced(&queue);
        }
    }

    /// Writes all units that are only in memory to the files. A queue that cannot be written stays in the list.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let _one = lock(&self.rounds);
        self.write_listed()
    }

    fn write_listed(&self) -> Result<(), StoreError> {
        let mut large = self.backlog.take();
        let mut queues = self.unwritten.take();
        let (all, mut logged) = (queues.len(), Instant::now());
        while let Some(queue) = queues.pop() {
            if logged.elapsed() >= PROGRESS_INTERVAL {
                tracing::warn!(left = queues.len() + 1, of = all, "writing consume queues");
                logged = Instant::now();
            }
            queue.in_unwritten.leave();
            if let Err(error) = self.write_one(&queue) {
                self.list_unwritten(&queue);
                self.unwritten.put_back(&mut queues);
                self.backlog.put_back(&mut large);
                return Err(error);
            }
        }
        self.backlog.done(&large);
        Ok(())
    }

    /// Writes a queue, then lists it for an fsync, also if the write failed in the middle. Not before: an fsync at that
    /// time could take it out of the list and see nothing of what is written then.
    fn write_one(&self, queue: &Arc<ConsumeQueue>) -> Result<(), StoreError> {
        let done = queue.write_out(self.fs.as_ref());
        self.list_unsynced(queue);
        done
    }

    /// Writes the queues of which much waits to be written. The other ones keep their units until the next round.
    pub(crate) fn write_backlog(&self) -> Result<(), StoreError> {
        let _one = lock(&self.rounds);
        let mut large = self.backlog.take();
        for (queue, _) in &large {
            if let Err(error) = self.write_one(queue) {
                self.backlog.put_back(&mut large);
                return Err(error);
            }
        }
        self.backlog.done(&large);
        Ok(())
    }

    /// Writes and fsyncs everything. Returns how far queues with new files reach; with `of_all`, how far all queues do.
    /// What is written meanwhile counts for neither.
    pub(crate) fn sync(&self, of_all: bool) -> Result<Vec<QueueRange>, StoreError> {
        let _one = lock(&self.syncs);
        let (queues, all) = {
            let _one = lock(&self.rounds);
            self.write_listed()?;
            (self.take_unsynced(), of_all.then(|| self.ranges()))
        };
        let made = self.sync_taken(&queues)?;
        let Some(mut all) = all else { return Ok(made) };
        // Except those whose topic was deleted meanwhile.
        all.retain(|(queue, _)| queue.range().is_some());
        Ok(all.into_iter().map(|(_, range)| range).collect())
    }

    /// All queues with files, and how far these reach.
    fn ranges(&self) -> Vec<(Arc<ConsumeQueue>, QueueRange)> {
        let queues = self.sorted().into_iter();
        queues
            .filter_map(|queue| queue.range().map(|range| (queue, range)))
            .collect()
    }

    /// Takes the queues out of the list of those to be fsynced.
    fn take_unsynced(&self) -> Vec<Arc<ConsumeQueue>> {
        let queues = self.unsynced.take();
        for queue in &queues {
            queue.in_unsynced.leave();
        }
        queues
    }

    fn sync_taken(&self, queues: &[Arc<ConsumeQueue>]) -> Result<Vec<QueueRange>, StoreError> {
        self.sync_all_of(queues).inspect_err(|_| {
            // None of it is known to be durable, so everything is listed again.
            for queue in queues {
                queue.all_dirty();
                self.list_unsynced(queue);
            }
        })
    }

    fn sync_all_of(&self, queues: &[Arc<ConsumeQueue>]) -> Result<Vec<QueueRange>, StoreError> {
        let mut made = Vec::new();
        if queues.len() >= SYNC_FILE_SYSTEM_FROM {
            // Anything written from here on is listed again.
            made.extend(queues.iter().filter_map(|queue| queue.forget_dirty()));
            if self.sync_file_system()? {
                return Ok(made);
            }
            for queue in queues {
                queue.all_dirty();
            }
        }
        let mut directories = BTreeSet::new();
        for queue in queues {
            made.extend(queue.sync(self.fs.as_ref(), &mut directories)?);
        }
        for directory in directories {
            match self.fs.sync_directory(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                done => done.at("flush", &directory)?,
            }
        }
        Ok(made)
    }

    /// Makes everything on the queues' file system durable. It may differ from the root's, since `consumequeue` may be
    /// a mount or a link. False: the system cannot say whether that succeeded.
    pub(crate) fn sync_file_system(&self) -> Result<bool, StoreError> {
        if self.is_spread {
            return Ok(false);
        }
        let directory = self.root.join(CONSUME_QUEUE);
        let done = match &self.file_system {
            Some(held) => held.sync(),
            None => self.fs.sync_all(&directory),
        };
        match done {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(false),
            done => done.at("flush", &directory).map(|()| true),
        }
    }

    /// Makes the queues' units of records before a position durable, and everything that was written, if there may be
    /// no space for the rest.
    pub(crate) fn sync_before(&self, position: i64) -> Result<(), StoreError> {
        let _one = lock(&self.syncs);
        let queues = {
            let _one = lock(&self.rounds);
            for queue in self.unwritten.waiting() {
                if queue.first_unwritten().is_some_and(|first| first < position) {
                    self.write_one(&queue)?;
                }
            }
            self.take_unsynced()
        };
        self.sync_taken(&queues).map(drop)
    }

    /// Number of descriptors that queue files may still take and keep.
    pub(crate) fn spare_handles(&self) -> usize {
        self.handles.spare()
    }

    /// One of ten rounds that release memory and files of queues without puts. With many queues a round visits a tenth
    /// of the table, so that a million queues cost no more than a hundred thousand.
    pub(crate) fn release_idle(&self) {
        let mut next = lock(&self.release_cursor);
        let (part, visits) = {
            let table = read(&self.table);
            let slots = table.slots();
            let size = slots.div_ceil(IDLE_ROUNDS).max(MIN_SLOTS_PER_ROUND);
            let from = if *next < slots { *next } else { 0 };
            *next = from + size;
            let rounds = slots.div_ceil(size).max(1);
            let part: Vec<_> = table.part(from..(from + size).min(slots)).cloned().collect();
            (part, (IDLE_ROUNDS / rounds).max(MIN_IDLE_VISITS))
        };
        let visits = u8::try_from(visits).unwrap_or(u8::MAX);
        for queue in part {
            queue.release_memory(visits);
        }
    }

    /// Deletes the files of queues whose records are gone. Returns how many it deleted. `before_removal` is called
    /// first, with what tells how far these queues reach.
    pub(crate) fn trim(
        &self,
        log_start: i64,
        before_removal: impl FnOnce(&dyn Fn() -> Vec<QueueRange>) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let mut old = Vec::new();
        for queue in self.sorted() {
            if queue.follow(self.fs.as_ref(), log_start)? {
                old.push(queue);
            }
        }
        if old.is_empty() {
            return Ok(0);
        }
        before_removal(&|| old.iter().filter_map(|queue| queue.range()).collect())?;
        let mut removed = 0;
        for queue in old {
            removed += queue.trim(self.fs.as_ref())?;
            self.list_unsynced(&queue);
        }
        Ok(removed)
    }

    /// The queues of a topic.
    pub(crate) fn of(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        read(&self.table).of(topic).cloned().collect()
    }

    /// Deletes the files of a topic's queues and removes the queues. No put to them may be in progress.
    pub(crate) fn delete(&self, topic: &str, queues: &[Arc<ConsumeQueue>]) -> Result<(), StoreError> {
        for queue in queues {
            queue.delete(self.fs.as_ref())?;
        }
        {
            let mut table = write(&self.table);
            for queue in queues {
                table.remove(topic, queue.id);
            }
        }
        let home = self.root.join(CONSUME_QUEUE);
        self.remove_if_empty(topic, &home.join(topic))?;
        if self.fs.exists(&home).at("look for", &home)? {
            self.fs.sync_directory(&home).at("flush", &home)?;
        }
        Ok(())
    }

    /// Removes the directory of a topic that has no queue. Not under the lock of the table, which every put and every
    /// pull needs. A put that creates the topic again meanwhile needs no directory: its queue is written, and the
    /// directory created, in a later round.
    fn remove_if_empty(&self, topic: &str, directory: &Path) -> Result<(), StoreError> {
        let _one = lock(&self.rounds);
        let is_over = read(&self.table).of(topic).next().is_none();
        if is_over
            && self.fs.exists(directory).at("look for", directory)?
            && self.fs.list(directory).at("list", directory)?.is_empty()
        {
            self.fs.remove_directory(directory).at("remove", directory)?;
        }
        Ok(())
    }
}
