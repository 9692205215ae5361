//! Which queues there are: by topic for those who list them, and flat for those who put.
//!
//! With a million queues each step of a look-up waits for memory. The flat map takes one step to the queue itself; its keys are
//! hashes, and where two queues have the same one the second is found by its topic.

use crate::consume_queue::ConsumeQueue;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

/// The queues of a topic by their ids.
type TopicQueues = BTreeMap<i32, Arc<ConsumeQueue>>;

/// Queues by topic and id.
#[derive(Debug, Default)]
pub(crate) struct QueueTable<S = RandomState> {
    topics: HashMap<Arc<str>, TopicQueues>,
    places: HashMap<u64, Arc<ConsumeQueue>, BuildHasherDefault<Hashed>>,
    hasher: S,
    /// A queue found its place taken: one that is not in `places` may be there all the same.
    has_doubles: bool,
}

/// Keys that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

impl<S: BuildHasher> QueueTable<S> {
    fn place(&self, topic: &str, id: i32) -> u64 {
        self.hasher.hash_one((topic, id))
    }

    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<&Arc<ConsumeQueue>> {
        match self.places.get(&self.place(topic, id)) {
            Some(queue) if queue.id == id && *queue.topic == *topic => Some(queue),
            _ if self.has_doubles => self.topics.get(topic)?.get(&id),
            _ => None,
        }
    }

    /// The queue, made if it is not there.
    pub(crate) fn get_or_add(
        &mut self,
        topic: &str,
        id: i32,
        make: impl FnOnce(&Arc<str>) -> ConsumeQueue,
    ) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, id) {
            return Arc::clone(queue);
        }
        let name = self
            .topics
            .get_key_value(topic)
            .map_or_else(|| Arc::from(topic), |(name, _)| Arc::clone(name));
        let queue = Arc::new(make(&name));
        match self.places.entry(self.place(topic, id)) {
            Entry::Occupied(_) => self.has_doubles = true,
            Entry::Vacant(free) => drop(free.insert(Arc::clone(&queue))),
        }
        self.topics
            .entry(name)
            .or_default()
            .insert(id, Arc::clone(&queue));
        queue
    }

    pub(crate) fn remove(&mut self, topic: &str, id: i32) {
        let Some(queues) = self.topics.get_mut(topic) else {
            return;
        };
        let removed = queues.remove(&id);
        if queues.is_empty() {
            self.topics.remove(topic);
        }
        let place = self.place(topic, id);
        if let (Some(there), Some(removed)) = (self.places.get(&place), removed)
            && Arc::ptr_eq(there, &removed)
        {
            self.places.remove(&place);
        }
    }

    /// The queues of a topic.
    pub(crate) fn of(&self, topic: &str) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
        self.topics.get(topic).into_iter().flat_map(BTreeMap::values)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
        self.topics.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn count(&self) -> usize {
        self.topics.values().map(BTreeMap::len).sum()
    }

    /// The topics with their queues' ids, in no order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&str, Vec<i32>)> {
        self.topics
            .iter()
            .map(|(topic, queues)| (&**topic, queues.keys().copied().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_files::Handles;
    use std::path::PathBuf;

    /// Gives every queue the same place.
    #[derive(Debug, Default)]
    struct One;

    impl Hasher for One {
        fn finish(&self) -> u64 {
            1
        }

        fn write(&mut self, _: &[u8]) {}
    }

    fn add<S: BuildHasher>(table: &mut QueueTable<S>, topic: &str, id: i32) -> Arc<ConsumeQueue> {
        let handles = Arc::new(Handles::new(1));
        table.get_or_add(topic, id, |name| {
            ConsumeQueue::new(name, id, PathBuf::new(), 20, &handles)
        })
    }

    fn each_is_found_until_it_is_removed<S: BuildHasher + Default>() {
        let mut table = QueueTable::<S>::default();
        let keys = [("a", 0), ("a", 1), ("b", 0), ("c", 7)];
        let queues = keys.map(|(topic, id)| add(&mut table, topic, id));
        for gone in 0..=keys.len() {
            for (number, (topic, id)) in keys.iter().enumerate() {
                let found = table.get(topic, *id);
                assert_eq!(
                    found.map(Arc::as_ptr),
                    (number >= gone).then(|| Arc::as_ptr(&queues[number]))
                );
            }
            assert_eq!(
                (table.count(), table.all().count()),
                (keys.len() - gone, keys.len() - gone)
            );
            if let Some((topic, id)) = keys.get(gone) {
                assert!(Arc::ptr_eq(&add(&mut table, topic, *id), &queues[gone]));
                table.remove(topic, *id);
            }
        }
        assert!(table.places.is_empty() && table.topics.is_empty());
    }

    #[test]
    fn queues_with_places_of_their_own_are_found() {
        each_is_found_until_it_is_removed::<RandomState>();
    }

    #[test]
    fn queues_that_share_a_place_are_found() {
        each_is_found_until_it_is_removed::<BuildHasherDefault<One>>();
    }
}
