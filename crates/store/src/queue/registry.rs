//! All consume queues of a store (Apache `ConsumeQueueStore`).

use crate::checkpoint::LastStop;
use crate::descriptors::Shares;
use crate::error::StoreError;
use crate::format::{CONSUME_QUEUE, queue_directory};
use crate::fs::{Context, FileSystem, Fs};
use crate::log::commit_log::CommitLog;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::deleted_topics::Positions;
use crate::queue::files::{Handles, Shape};
use crate::queue::manifest::QueueRange;
use crate::queue::table::QueueTable;
use crate::sync::{lock, read, write};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// The queues whose directories are there.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredQueues(Vec<(Arc<ConsumeQueue>, Shape)>);

impl DiscoveredQueues {
    /// Short files are no longer what a crash may leave: they are made again, not mended.
    pub(crate) fn distrust_short(&mut self) {
        for (_, shape) in &mut self.0 {
            shape.has_gap |= shape.is_short;
        }
    }

    /// The queues whose newest file a crash left short.
    pub(crate) fn short(&self) -> Vec<&Arc<ConsumeQueue>> {
        let short = self.0.iter().filter(|(_, shape)| shape.is_short);
        short.map(|(queue, _)| queue).collect()
    }

    /// True when the files were made with another length, and are not damaged: none has the configured one. After a
    /// clean stop every file has the length that it was made with. A crash may leave a file shorter than that, never
    /// longer; which length that was the abort file knows if the store was ours, and else the names of files that
    /// follow one another. Where neither does, files of one common length were made with it.
    fn is_of_other_size(&self, file_bytes: u64, last_stop: LastStop) -> bool {
        let shapes = || self.0.iter().map(|(_, shape)| shape);
        let mut lengths = shapes().flat_map(|shape| &shape.lengths);
        let Some(longest) = lengths.clone().max().copied() else {
            return false;
        };
        if lengths.clone().any(|length| *length == file_bytes) {
            return false;
        }
        match last_stop {
            LastStop::Clean => true,
            LastStop::Crash { .. } if longest > file_bytes => true,
            LastStop::Crash { abort, .. } => match abort.queue_file_bytes {
                Some(made_with) => made_with != file_bytes,
                None => {
                    longest > 0
                        && lengths.all(|length| *length == longest)
                        && !shapes().any(|shape| shape.has_neighbours)
                }
            },
        }
    }
}

/// From so many queues on, looking at them is shared between threads. Below it everything happens in order, so that a
/// test can replay it.
const PARALLEL_FROM: usize = 256;

/// Does something with every item, in the order of the items, or with many of them on all processors; the first error
/// ends it.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, StoreError> + Sync,
) -> Result<Vec<R>, StoreError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    if items.len() < PARALLEL_FROM || threads == 1 {
        return items.iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(items.len().div_ceil(threads))
            .map(|part| scope.spawn(|| part.iter().map(&work).collect::<Result<Vec<R>, StoreError>>()))
            .collect();
        let mut all = Vec::with_capacity(items.len());
        for part in parts {
            all.extend(
                part.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            );
        }
        Ok(all)
    })
}

/// Rounds of rest after which a queue without puts is at rest, or after which all have been visited once.
const IDLE_ROUNDS: usize = 10;
/// Slots of the table that a round visits at least.
const MIN_SLOTS_PER_ROUND: usize = 1024;
/// Visits without a put that it takes at least: a first one says nothing about the time since that put.
const MIN_IDLE_VISITS: usize = 2;

/// How often those who wait are told how far writing the queues has come: a stop with a million new ones takes most of
/// a minute.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// From so many queues on, one fsync of the whole file system takes less time than theirs.
const SYNC_FILE_SYSTEM_FROM: usize = 64;

/// Queues by topic and id.
#[derive(Debug)]
pub(crate) struct Queues {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    file_bytes: u64,
    handles: Arc<Handles>,
    /// The store before this one was not closed. An fsync of its may have failed: pages that the system holds as clean
    /// may not be on the disk.
    writes_again: bool,
    /// Their file system, kept open.
    file_system: Option<Arc<dyn FileSystem>>,
    /// The directory of a topic or of a queue is a link or a mount: one fsync does not reach them all.
    is_spread: bool,
    table: RwLock<QueueTable>,
    /// Those with units that are only in memory.
    unwritten: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Those that were written since the last fsync.
    unsynced: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Held by who takes these lists: who finds them empty must know that nobody still works on what stood there.
    rounds: Mutex<()>,
    /// The slot of the table with which the next round of rest begins.
    release_cursor: Mutex<usize>,
}

impl Queues {
    /// Looks at every queue directory and changes nothing. Files whose length is not the configured one are an error,
    /// unless others are right: then they are damaged, and the queue is built again.
    pub(crate) fn look(
        fs: &Arc<dyn Fs>,
        root: PathBuf,
        file_bytes: u64,
        last_stop: LastStop,
    ) -> Result<(Self, DiscoveredQueues), StoreError> {
        let crashed = last_stop.is_crash();
        let mut home = root.join(CONSUME_QUEUE);
        if !fs.exists(&home).at("look for", &home)? {
            home.clone_from(&root);
        }
        let mut queues = Self {
            fs: Arc::clone(fs),
            file_system: fs.file_system(&home).at("open", &home)?,
            is_spread: false,
            root,
            file_bytes,
            handles: Arc::new(Handles::new(Shares::of_process().queue_files)),
            writes_again: crashed,
            table: RwLock::default(),
            unwritten: Mutex::default(),
            unsynced: Mutex::default(),
            rounds: Mutex::default(),
            release_cursor: Mutex::default(),
        };
        let mut found = Vec::new();
        let entries = fs.list(&queues.root).at("list", &queues.root)?;
        let own = entries.iter().find(|entry| entry.name == CONSUME_QUEUE);
        let device = own.map(|entry| entry.device);
        let directory = queues.root.join(CONSUME_QUEUE);
        for topic in fs.list(&directory).at("list", &directory)? {
            if !topic.is_directory {
                continue;
            }
            let directory = directory.join(&topic.name);
            for queue in fs.list(&directory).at("list", &directory)? {
                if let Ok(id) = queue.name.parse::<i32>()
                    && queue.is_directory
                {
                    queues.is_spread |= device != Some(queue.device);
                    found.push(queues.get_or_add(&topic.name, id));
                }
            }
        }
        let shapes = in_parallel(&found, |queue| queue.look(fs.as_ref(), crashed))?;
        let discovered = DiscoveredQueues(found.into_iter().zip(shapes).collect());
        let wrong = discovered.0.iter().find_map(|(_, shape)| shape.wrong.clone());
        if let Some((path, length)) = wrong
            && discovered.is_of_other_size(file_bytes, last_stop)
        {
            return Err(StoreError::FileLength {
                path,
                length,
                expected: file_bytes,
                key: "mappedFileSizeConsumeQueue",
            });
        }
        Ok((queues, discovered))
    }

    /// Loads what [`Queues::look`] saw; after a crash it only mends it, because [`Queues::cut`] looks at every unit
    /// anyway. True when a queue is so damaged that the queues must be built from the log's start.
    pub(crate) fn load(&self, discovered: &DiscoveredQueues, crashed: bool) -> Result<bool, StoreError> {
        in_parallel(&discovered.0, |(queue, shape)| {
            if shape.is_damaged() {
                return Ok(());
            }
            queue.mend(self.fs.as_ref(), shape)?;
            if crashed {
                return Ok(());
            }
            queue.load(self.fs.as_ref())
        })?;
        Ok(discovered.0.iter().any(|(_, shape)| shape.is_damaged()))
    }

    /// Makes the files of damaged queues such that they can be built again.
    pub(crate) fn straighten_damaged(&self, discovered: &DiscoveredQueues) -> Result<(), StoreError> {
        for (queue, _) in discovered.0.iter().filter(|(_, shape)| shape.is_damaged()) {
            tracing::warn!(topic = %queue.topic, queue = queue.id, "damaged queue files: to be made again from the log");
            queue.straighten(self.fs.as_ref())?;
            self.note_unsynced(queue);
        }
        Ok(())
    }

    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<Arc<ConsumeQueue>> {
        read(&self.table).get(topic, id).cloned()
    }

    /// From which index to behind which one a queue reaches.
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

    /// All queues by topic and id, so that two runs do the same things in the same order.
    fn sorted(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut all = self.all();
        all.sort_unstable_by(|one, other| (&one.topic, one.id).cmp(&(&other.topic, other.id)));
        all
    }

    /// True where the first file of a queue is not there.
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

    /// Remembers that a queue has units to be written.
    pub(crate) fn note_unwritten(&self, queue: &Arc<ConsumeQueue>) {
        if queue.list_once() {
            lock(&self.unwritten).push(Arc::clone(queue));
        }
    }

    /// Remembers that a queue's files are to be fsynced.
    pub(crate) fn note_unsynced(&self, queue: &Arc<ConsumeQueue>) {
        if queue.list_for_sync_once() {
            lock(&self.unsynced).push(Arc::clone(queue));
        }
    }

    /// Brings all units that are only in memory to the files. What cannot be written stays in the list.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let _one = lock(&self.rounds);
        self.write_listed()
    }

    fn write_listed(&self) -> Result<(), StoreError> {
        let mut queues = std::mem::take(&mut *lock(&self.unwritten));
        let (all, mut told) = (queues.len(), Instant::now());
        while let Some(queue) = queues.pop() {
            if told.elapsed() >= PROGRESS_INTERVAL {
                tracing::warn!(left = queues.len() + 1, of = all, "writing consume queues");
                told = Instant::now();
            }
            self.note_unsynced(&queue);
            queue.unlist();
            if let Err(error) = queue.write_out(self.fs.as_ref()) {
                self.note_unwritten(&queue);
                lock(&self.unwritten).append(&mut queues);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes and fsyncs everything. Says how far queues with new files reach.
    pub(crate) fn sync(&self) -> Result<Vec<QueueRange>, StoreError> {
        let _one = lock(&self.rounds);
        self.write_listed()?;
        self.sync_listed()
    }

    fn sync_listed(&self) -> Result<Vec<QueueRange>, StoreError> {
        let queues = std::mem::take(&mut *lock(&self.unsynced));
        for queue in &queues {
            queue.unlist_for_sync();
        }
        self.sync_all_of(&queues).inspect_err(|_| {
            // None of it is known to be durable: all of it is dirty again.
            for queue in &queues {
                queue.all_dirty();
                self.note_unsynced(queue);
            }
        })
    }

    fn sync_all_of(&self, queues: &[Arc<ConsumeQueue>]) -> Result<Vec<QueueRange>, StoreError> {
        let mut made = Vec::new();
        if queues.len() >= SYNC_FILE_SYSTEM_FROM {
            // What is written from here on is dirty again.
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

    /// Makes everything durable that is on the queues' file system, which need not be the one of the root:
    /// `consumequeue` may be a mount or a link. False where the system cannot say whether that went well.
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

    /// Makes durable what queues have of records in front of a position, and all that was written, where there may be
    /// no space for the rest.
    pub(crate) fn sync_in_front_of(&self, position: i64) -> Result<(), StoreError> {
        let _one = lock(&self.rounds);
        let unwritten = lock(&self.unwritten).clone();
        for queue in unwritten {
            if queue.first_unwritten().is_some_and(|first| first < position) {
                self.note_unsynced(&queue);
                queue.write_out(self.fs.as_ref())?;
            }
        }
        self.sync_listed().map(drop)
    }

    /// Descriptors that queue files may still take and keep.
    pub(crate) fn spare_handles(&self) -> usize {
        self.handles.spare()
    }

    /// How far the files of all queues reach.
    pub(crate) fn range(&self) -> Vec<QueueRange> {
        self.sorted().iter().filter_map(|queue| queue.range()).collect()
    }

    /// Drops the units of records at or behind `position` in all queues. Only before the store runs.
    pub(crate) fn cut(&self, log: &CommitLog, position: i64) -> Result<(), StoreError> {
        self.write_out()?;
        in_parallel(&self.sorted(), |queue| {
            if queue.cut(self.fs.as_ref(), log, position, self.writes_again)? {
                self.note_unsynced(queue);
            }
            Ok(())
        })
        .map(drop)
    }

    /// Clears the units of records that the log does not have. True when there were such in any queue.
    pub(crate) fn drop_found(&self) -> Result<bool, StoreError> {
        let mut found = false;
        for queue in self.sorted() {
            found |= queue.drop_found(self.fs.as_ref())?;
        }
        Ok(found)
    }

    /// One of ten rounds that give back memory and files of queues without puts. Where there are many queues a round
    /// visits a tenth of the table, so that a million of them cost no more than a hundred thousand.
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

    /// Deletes the files of queues whose records are gone. Says how many. Told before is how far these queues reach
    /// then.
    pub(crate) fn trim(
        &self,
        log_start: i64,
        before_removal: impl FnOnce(&[QueueRange]) -> Result<(), StoreError>,
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
        before_removal(&old.iter().filter_map(|queue| queue.range()).collect::<Vec<_>>())?;
        let mut removed = 0;
        for queue in old {
            removed += queue.trim(self.fs.as_ref())?;
            self.note_unsynced(&queue);
        }
        Ok(removed)
    }

    /// The queues of a topic.
    pub(crate) fn of(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        read(&self.table).of(topic).cloned().collect()
    }

    /// Deletes the files of queues of a topic and forgets them. No put may be under way to any of them.
    pub(crate) fn delete(&self, topic: &str, queues: &[Arc<ConsumeQueue>]) -> Result<(), StoreError> {
        for queue in queues {
            queue.delete(self.fs.as_ref())?;
        }
        let mut table = write(&self.table);
        for queue in queues {
            table.remove(topic, queue.id);
        }
        // Under the lock: a put that makes the topic again does not meet a directory on its way out. One that came
        // before has a queue here, whose files are made at any moment.
        let directory = self.root.join(CONSUME_QUEUE).join(topic);
        let is_over = table.of(topic).next().is_none();
        if is_over
            && self.fs.exists(&directory).at("look for", &directory)?
            && self.fs.list(&directory).at("list", &directory)?.is_empty()
        {
            self.fs.remove_directory(&directory).at("remove", &directory)?;
        }
        drop(table);
        let directory = self.root.join(CONSUME_QUEUE);
        if self.fs.exists(&directory).at("look for", &directory)? {
            self.fs.sync_directory(&directory).at("flush", &directory)?;
        }
        Ok(())
    }

    /// Ends deletions that a crash interrupted: what is there of the topics' queues from before goes.
    pub(crate) fn finish_deletions(
        &self,
        discovered: &mut DiscoveredQueues,
        deleted: &Positions,
    ) -> Result<(), StoreError> {
        let topics: BTreeSet<_> = deleted.iter().collect();
        for (topic, position) in topics {
            let mut left = Vec::new();
            for queue in self.of(topic) {
                if !queue.begins_behind(self.fs.as_ref(), *position)? {
                    left.push(queue);
                }
            }
            if !left.is_empty() {
                tracing::info!(
                    topic,
                    queues = left.len(),
                    "the deletion of a topic is brought to its end"
                );
                self.delete(topic, &left)?;
                discovered
                    .0
                    .retain(|(queue, _)| !left.iter().any(|gone| Arc::ptr_eq(gone, queue)));
            }
        }
        Ok(())
    }
}
