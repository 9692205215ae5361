//! What a start does with all consume queues: it finds them, repairs their files, and drops units that the log does not
//! have.

use crate::checkpoint::abort::LastStop;
use crate::descriptors::Shares;
use crate::error::StoreError;
use crate::format::CONSUME_QUEUE;
use crate::fs::{Context, Fs};
use crate::log::commit_log::CommitLog;
use crate::queue::backlog::QueueBacklog;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::deleted_topics::Positions;
use crate::queue::files::handles::Handles;
use crate::queue::files::start::Shape;
use crate::queue::registry::Queues;
use crate::queue::wait_list::WaitList;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

/// The queues whose directories exist.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredQueues(Vec<(Arc<ConsumeQueue>, Shape)>);

impl DiscoveredQueues {
    /// Marks queues with a short file as damaged: they are rebuilt instead of being repaired as a crash leaves them.
    pub(crate) fn mark_short_damaged(&mut self) {
        for (_, shape) in &mut self.0 {
            shape.has_gap |= shape.is_short;
        }
    }

    /// The queues whose newest file a crash left short.
    pub(crate) fn short(&self) -> Vec<&Arc<ConsumeQueue>> {
        let short = self.0.iter().filter(|(_, shape)| shape.is_short);
        short.map(|(queue, _)| queue).collect()
    }

    /// Whether the files were created with another length, rather than damaged: none has the configured one. After a
    /// clean stop every file has the length with which it was created. A crash may leave a file shorter, never longer.
    /// The intended length is known from the abort file if the store was ours, otherwise from the names of consecutive
    /// files. If neither tells, files of one common length were created with it.
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

/// Number of queues at which several threads inspect them. Below it, everything happens in order, so that a test can
/// replay it.
const PARALLEL_FROM: usize = 256;

/// Calls a function for every item: in order, or on all processors if there are many. The first error ends it.
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

impl Queues {
    /// Inspects every queue directory without changing anything. Files of another length than the configured one are an
    /// error, unless some have the right one: then they are damaged, and the queue is rebuilt.
    pub(crate) fn discover(
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
            unwritten: WaitList::default(),
            unsynced: WaitList::default(),
            backlog: QueueBacklog::default(),
            syncs: Mutex::default(),
            rounds: Mutex::default(),
            release_cursor: Mutex::default(),
        };
        let mut found = Vec::new();
        let entries = fs.list(&queues.root).at("list", &queues.root)?;
        let own = entries.iter().find(|entry| entry.name == CONSUME_QUEUE);
        let device = own.map(|entry| entry.device);
        let directory = queues.root.join(CONSUME_QUEUE);
        let topics = fs.list(&directory).at("list", &directory)?;
        for topic in topics.iter().filter(|topic| topic.is_directory) {
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
        let shapes = in_parallel(&found, |queue| queue.list_files(fs.as_ref(), crashed))?;
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

    /// Loads what [`Queues::discover`] found. After a crash it only repairs the files, because [`Queues::cut`] checks
    /// every unit anyway. True: a queue is so damaged that the queues must be rebuilt from the log's start.
    pub(crate) fn load(&self, discovered: &DiscoveredQueues, crashed: bool) -> Result<bool, StoreError> {
        in_parallel(&discovered.0, |(queue, shape)| {
            if shape.is_damaged() {
                return Ok(());
            }
            queue.repair_half_made(self.fs.as_ref(), shape)?;
            if crashed {
                return Ok(());
            }
            queue.load(self.fs.as_ref())
        })?;
        Ok(discovered.0.iter().any(|(_, shape)| shape.is_damaged()))
    }

    /// Repairs the files of damaged queues, so that the queues can be rebuilt.
    pub(crate) fn repair_damaged(&self, discovered: &DiscoveredQueues) -> Result<(), StoreError> {
        for (queue, _) in discovered.0.iter().filter(|(_, shape)| shape.is_damaged()) {
            tracing::warn!(topic = %queue.topic, queue = queue.id, "damaged queue files: to be rebuilt from the log");
            queue.repair_for_rebuild(self.fs.as_ref())?;
            self.list_unsynced(queue);
        }
        Ok(())
    }

    /// Drops the units of records at or after `position` in all queues. Only before the store runs.
    pub(crate) fn cut(&self, log: &CommitLog, position: i64) -> Result<(), StoreError> {
        self.write_out()?;
        in_parallel(&self.sorted(), |queue| {
            if queue.cut(self.fs.as_ref(), log, position, self.writes_again)? {
                self.list_unsynced(queue);
            }
            Ok(())
        })
        .map(drop)
    }

    /// Clears the units that no replayed record explains. Returns whether some queue had such units.
    pub(crate) fn drop_unexplained_units(&self) -> Result<bool, StoreError> {
        let mut found = false;
        for queue in self.sorted() {
            found |= queue.drop_unexplained_units(self.fs.as_ref())?;
        }
        Ok(found)
    }

    /// Completes deletions that a crash interrupted: the old queues of these topics are removed.
    pub(crate) fn finish_deletions(
        &self,
        discovered: &mut DiscoveredQueues,
        deleted: &Positions,
    ) -> Result<(), StoreError> {
        let topics: BTreeSet<_> = deleted.iter().collect();
        for (topic, position) in topics {
            let mut left = Vec::new();
            for queue in self.of(topic) {
                if !queue.begins_at_or_after(self.fs.as_ref(), *position)? {
                    left.push(queue);
                }
            }
            if !left.is_empty() {
                tracing::info!(topic, queues = left.len(), "completing the deletion of a topic");
                self.delete(topic, &left)?;
                discovered
                    .0
                    .retain(|(queue, _)| !left.iter().any(|gone| Arc::ptr_eq(gone, queue)));
            }
        }
        Ok(())
    }
}
