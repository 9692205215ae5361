//! All consume queues of a store (Apache `ConsumeQueueStore`).

use crate::consume_queue::ConsumeQueue;
use crate::error::StoreError;
use crate::format::{CONSUME_QUEUE, queue_directory};
use crate::fs::{Context, Fs};
use crate::sync::{lock, read, write};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

/// The queues of a topic by their ids.
type TopicQueues = BTreeMap<i32, Arc<ConsumeQueue>>;

/// Queues by topic and id.
#[derive(Debug)]
pub(crate) struct Queues {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    file_bytes: u64,
    topics: RwLock<HashMap<Arc<str>, TopicQueues>>,
    /// Those with units that are only in memory.
    unwritten: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Those that were written since the last fsync.
    unsynced: Mutex<Vec<Arc<ConsumeQueue>>>,
}

impl Queues {
    /// Opens every queue directory that is there.
    pub(crate) fn load(fs: &Arc<dyn Fs>, root: PathBuf, file_bytes: u64) -> Result<Self, StoreError> {
        let queues = Self {
            fs: Arc::clone(fs),
            root,
            file_bytes,
            topics: RwLock::default(),
            unwritten: Mutex::default(),
            unsynced: Mutex::default(),
        };
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
                    queues.get_or_add(&topic.name, id).load(fs.as_ref())?;
                }
            }
        }
        Ok(queues)
    }

    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<Arc<ConsumeQueue>> {
        read(&self.topics).get(topic)?.get(&id).cloned()
    }

    pub(crate) fn get_or_add(&self, topic: &str, id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, id) {
            return queue;
        }
        let mut topics = write(&self.topics);
        let name = topics
            .get_key_value(topic)
            .map_or_else(|| Arc::from(topic), |(name, _)| Arc::clone(name));
        let queues = topics.entry(Arc::clone(&name)).or_default();
        let queue = queues.entry(id).or_insert_with(|| {
            let directory = queue_directory(&self.root, topic, id);
            Arc::new(ConsumeQueue::new(&name, id, directory, self.file_bytes))
        });
        Arc::clone(queue)
    }

    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        read(&self.topics)
            .values()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    pub(crate) fn count(&self) -> usize {
        read(&self.topics).values().map(BTreeMap::len).sum()
    }

    pub(crate) fn topics(&self) -> Vec<(String, Vec<i32>)> {
        let mut topics: Vec<_> = read(&self.topics)
            .iter()
            .map(|(topic, queues)| (topic.to_string(), queues.keys().copied().collect()))
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

    /// Brings all units that are only in memory to the files.
    pub(crate) fn write_out(&self) -> Result<(), StoreError> {
        let queues = std::mem::take(&mut *lock(&self.unwritten));
        for queue in &queues {
            self.note_unsynced(queue);
            queue.write_out(self.fs.as_ref())?;
        }
        Ok(())
    }

    /// Writes and fsyncs everything.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.write_out()?;
        for queue in std::mem::take(&mut *lock(&self.unsynced)) {
            queue.sync(self.fs.as_ref())?;
        }
        Ok(())
    }

    /// Drops the units of records at or behind `position` in all queues. Only before the store runs.
    pub(crate) fn cut(&self, position: i64, clear: bool) -> Result<(), StoreError> {
        self.write_out()?;
        for queue in self.all() {
            if queue.cut(self.fs.as_ref(), position, clear)? {
                self.note_unsynced(&queue);
            }
        }
        Ok(())
    }

    /// Gives back memory and files of queues without puts.
    pub(crate) fn rest(&self) {
        for queue in self.all() {
            queue.rest();
        }
    }

    /// Deletes the files of queues whose records are gone. Says how many.
    pub(crate) fn trim(&self, log_start: i64) -> Result<u64, StoreError> {
        let mut removed = 0;
        for queue in self.all() {
            removed += queue.trim(self.fs.as_ref(), log_start)?;
        }
        Ok(removed)
    }

    /// Forgets a topic and deletes its queues' files.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        let mut topics = write(&self.topics);
        let Some(queues) = topics.remove(topic) else {
            return Ok(());
        };
        for queue in queues.values() {
            queue.delete(self.fs.as_ref())?;
        }
        let directory = self.root.join(CONSUME_QUEUE).join(topic);
        if self.fs.exists(&directory) && self.fs.list(&directory).at("list", &directory)?.is_empty() {
            self.fs.remove_directory(&directory).at("remove", &directory)?;
        }
        Ok(())
    }
}
