//! Messages of one sharding key are handed out one after the other, in their order, those of different keys in
//! parallel.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

/// Messages that wait because an earlier one of their key is in flight. `T` names a message.
#[derive(Debug)]
pub(crate) struct KeyOrder<T> {
    // Keys with a message in flight, each with its later messages.
    busy: HashMap<Box<str>, VecDeque<T>>,
    waiting: usize,
}

impl<T> Default for KeyOrder<T> {
    fn default() -> Self {
        Self {
            busy: HashMap::new(),
            waiting: 0,
        }
    }
}

impl<T> KeyOrder<T> {
    /// Returns the message if it can be handed out now. Otherwise keeps it until the earlier ones of its key are
    /// finished.
    pub(crate) fn offer(&mut self, key: &str, message: T) -> Option<T> {
        if let Some(later) = self.busy.get_mut(key) {
            later.push_back(message);
            self.waiting += 1;
            return None;
        }
        self.busy.insert(key.into(), VecDeque::new());
        Some(message)
    }

    /// The key's next message, which can be handed out now that the one in flight is finished.
    pub(crate) fn finish(&mut self, key: &str) -> Option<T> {
        let Entry::Occupied(mut later) = self.busy.entry(key.into()) else {
            return None;
        };
        let next = later.get_mut().pop_front();
        match next {
            Some(_) => self.waiting -= 1,
            None => {
                later.remove();
            }
        }
        next
    }

    /// The messages that wait.
    pub(crate) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.busy.values_mut().flatten()
    }

    /// Messages that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::KeyOrder;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn messages_of_a_key_come_one_after_the_other() {
        let mut order = KeyOrder::default();
        assert_eq!(order.offer("a", 1), Some(1));
        assert_eq!(order.offer("a", 2), None);
        assert_eq!(order.offer("b", 3), Some(3), "another key does not wait");
        assert_eq!(order.offer("a", 4), None);
        assert_eq!(order.waiting(), 2);
        assert_eq!(order.finish("a"), Some(2));
        assert_eq!(order.finish("a"), Some(4));
        assert_eq!(order.finish("a"), None);
        assert_eq!(order.offer("a", 5), Some(5), "the key is free again");
        assert_eq!(order.finish("unknown"), None);
    }

    proptest! {
        #[test]
        fn each_key_keeps_its_order_and_nothing_is_left(keys in prop::collection::vec(0_u8..5, 1..80)) {
            let mut order = KeyOrder::default();
            let mut running: Vec<(String, usize)> = Vec::new();
            let mut seen: HashMap<String, Vec<usize>> = HashMap::new();
            for (number, key) in keys.iter().enumerate() {
                let key = key.to_string();
                if let Some(number) = order.offer(&key, number) {
                    prop_assert!(running.iter().all(|(other, _)| *other != key), "two of a key at once");
                    running.push((key, number));
                }
                if running.len() > 3 {
                    let (key, number) = running.remove(number % 3);
                    seen.entry(key.clone()).or_default().push(number);
                    if let Some(next) = order.finish(&key) {
                        running.push((key, next));
                    }
                }
            }
            while let Some((key, number)) = running.pop() {
                seen.entry(key.clone()).or_default().push(number);
                if let Some(next) = order.finish(&key) {
                    running.push((key, next));
                }
            }
            prop_assert_eq!(order.waiting(), 0);
            prop_assert_eq!(seen.values().map(Vec::len).sum::<usize>(), keys.len());
            for numbers in seen.values() {
                prop_assert!(numbers.is_sorted(), "{:?}", numbers);
            }
        }
    }
}
