//! The table of queues: by topic for listing them, and flat for puts.
//!
//! With a million queues each step of a look-up waits for memory. The flat table takes one step: a slot has the id, the
//! topic and the queue, so that the compared name and the queue itself are loaded at the same time. Its length is a
//! power of two. A queue takes the first free slot from its home slot on; at most three quarters of the slots are
//! taken.

use crate::queue::consume_queue::ConsumeQueue;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

/// The queues of a topic by their ids.
type TopicQueues = BTreeMap<i32, Arc<ConsumeQueue>>;

/// Seeded, so that names cannot be chosen to collide.
#[cfg(not(debug_assertions))]
type HashState = pyrmq_remoting::hash::NameState;
/// Not seeded, so that a test that replays its threads' seed visits the queues in the same order.
#[cfg(debug_assertions)]
type HashState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// Minimum number of slots of a table that is not empty.
const MIN_SLOTS: usize = 16;

/// Queues by topic and id.
#[derive(Debug, Default)]
pub(crate) struct QueueTable<S = HashState> {
    topics: HashMap<Arc<str>, TopicQueues, S>,
    slots: Vec<Option<TableSlot>>,
    used: usize,
    hasher: S,
}

#[derive(Debug)]
struct TableSlot {
    topic: Arc<str>,
    queue: Arc<ConsumeQueue>,
    id: i32,
    /// Hash of topic and id; its low bits are the home slot.
    hash: u32,
}

impl<S: BuildHasher> QueueTable<S> {
    fn hash(&self, topic: &str, id: i32) -> u32 {
        let [a, b, c, d, ..] = self.hasher.hash_one((topic, id)).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn home(&self, hash: u32) -> usize {
        usize::try_from(hash).unwrap_or_default() & self.mask()
    }

    fn find(&self, topic: &str, id: i32) -> Option<(usize, &TableSlot)> {
        let hash = self.hash(topic, id);
        let mut at = self.home(hash);
        while let Some(Some(slot)) = self.slots.get(at) {
            if slot.hash == hash && slot.id == id {
                // Loads what the caller reads next while the name is compared.
                slot.queue.warm();
                if *slot.topic == *topic {
                    return Some((at, slot));
                }
            }
            at = (at + 1) & self.mask();
        }
        None
    }

    pub(crate) fn get(&self, topic: &str, id: i32) -> Option<&Arc<ConsumeQueue>> {
        self.find(topic, id).map(|(_, slot)| &slot.queue)
    }

    /// Finds a queue, or creates it.
    pub(crate) fn get_or_add(
        &mut self,
        topic: &str,
        id: i32,
        make: impl FnOnce(&Arc<str>) -> ConsumeQueue,
    ) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.get(topic, id) {
            return Arc::clone(queue);
        }
        let topic = self
            .topics
            .get_key_value(topic)
            .map_or_else(|| Arc::from(topic), |(name, _)| Arc::clone(name));
        let queue = Arc::new(make(&topic));
        self.make_room();
        self.used += 1;
        self.place(TableSlot {
            hash: self.hash(&topic, id),
            topic: Arc::clone(&topic),
            queue: Arc::clone(&queue),
            id,
        });
        self.topics
            .entry(topic)
            .or_default()
            .insert(id, Arc::clone(&queue));
        queue
    }

    /// Doubles the table if one more queue would fill more than three quarters.
    fn make_room(&mut self) {
        if (self.used + 1) * 4 <= self.slots.len() * 3 {
            return;
        }
        let mut larger = Vec::new();
        larger.resize_with((self.slots.len() * 2).max(MIN_SLOTS), || None);
        let before = std::mem::replace(&mut self.slots, larger);
        for slot in before.into_iter().flatten() {
            self.place(slot);
        }
    }

    /// Moves a slot to the first free place from its home on; there is one.
    fn place(&mut self, slot: TableSlot) {
        let mut at = self.home(slot.hash);
        while self.slots.get(at).is_some_and(Option::is_some) {
            at = (at + 1) & self.mask();
        }
        if let Some(free) = self.slots.get_mut(at) {
            *free = Some(slot);
        }
    }

    pub(crate) fn remove(&mut self, topic: &str, id: i32) {
        let Some((at, _)) = self.find(topic, id) else {
            return;
        };
        self.used -= 1;
        self.free_slot(at);
        if let Some(queues) = self.topics.get_mut(topic) {
            queues.remove(&id);
            if queues.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// Frees a slot, and moves up later slots that could no longer be found.
    fn free_slot(&mut self, at: usize) {
        let mask = self.mask();
        let (mut free, mut next) = (at, (at + 1) & mask);
        while let Some(slot) = self.slots.get(next).and_then(Option::as_ref) {
            let from_home = next.wrapping_sub(self.home(slot.hash)) & mask;
            if from_home >= next.wrapping_sub(free) & mask {
                self.slots.swap(free, next);
                free = next;
            }
            next = (next + 1) & mask;
        }
        if let Some(place) = self.slots.get_mut(free) {
            *place = None;
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
        self.used
    }

    /// Number of slots, not all of which have a queue.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The queues of a range of slots.
    pub(crate) fn part(&self, slots: Range<usize>) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
        let part = self.slots.get(slots).unwrap_or_default();
        part.iter().flatten().map(|slot| &slot.queue)
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
    use crate::queue::files::handles::Handles;
    use pyrmq_remoting::hash::NameState;
    use std::hash::{BuildHasherDefault, Hasher};
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
        assert!(table.slots.iter().all(Option::is_none) && table.topics.is_empty());
    }

    /// Adds many, removes every third, adds those again.
    fn none_is_lost_where_others_go<S: BuildHasher + Default>(count: i32) {
        let mut table = QueueTable::<S>::default();
        let there = |table: &QueueTable<S>| -> Vec<i32> {
            let found = (0..count).filter(|id| table.get("t", *id).is_some_and(|queue| queue.id == *id));
            found.collect()
        };
        let all: Vec<i32> = (0..count).collect();
        let (thirds, others): (Vec<i32>, Vec<i32>) = all.iter().partition(|id| **id % 3 == 0);
        for id in &all {
            add(&mut table, "t", *id);
        }
        assert_eq!(there(&table), all);
        for id in &thirds {
            table.remove("t", *id);
        }
        assert_eq!(there(&table), others);
        assert_eq!(table.part(0..table.slots()).count(), others.len());
        for id in &thirds {
            add(&mut table, "t", *id);
        }
        assert_eq!(there(&table), all);
    }

    #[test]
    fn queues_stay_where_they_are_found_when_others_go() {
        none_is_lost_where_others_go::<NameState>(5000);
        none_is_lost_where_others_go::<BuildHasherDefault<One>>(100);
    }

    #[test]
    fn queues_with_places_of_their_own_are_found() {
        each_is_found_until_it_is_removed::<NameState>();
    }

    #[test]
    fn queues_that_share_a_place_are_found() {
        each_is_found_until_it_is_removed::<BuildHasherDefault<One>>();
    }
}
