//! Cache of encoded routes with a limit on their bytes. It evicts those first that were not requested since the last
//! round.

use super::entries::{BrokerEntries, TopicEntry};
use bytes::Bytes;
use pyrmq_remoting::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of bytes of all cached answers.
const LIMIT: usize = 64 * 1024 * 1024;
/// Overhead of an answer in bytes.
const OVERHEAD: usize = 128;

/// The form of an answer: the JSON style and the address set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Index of its slot.
    pub(super) at: usize,
    /// Number of all slots.
    pub(super) all: usize,
}

impl Form {
    /// Returns the form of an answer with quoted or bare integer names, for one of `sets` address sets or for none.
    pub(super) fn new(quoted: bool, set: Option<usize>, sets: usize) -> Self {
        Self {
            at: set.map_or(0, |set| 2 * (set + 1)) + usize::from(quoted),
            all: 2 * (sets + 1),
        }
    }
}

/// An encoded answer and the versions that it was built from.
#[derive(Debug)]
pub(super) struct Encoded {
    body: Bytes,
    topic_entry: u64,
    settings_version: u64,
    /// No broker entry has changed since `brokers_version` had this value.
    brokers_version: AtomicU64,
    broker_entries: BrokerEntries,
    used: AtomicBool,
    _charge: Charge,
}

impl Encoded {
    pub(super) fn new(
        body: Bytes,
        topic_entry: u64,
        settings_version: u64,
        brokers_version: u64,
        broker_entries: BrokerEntries,
        charge: Charge,
    ) -> Self {
        Self {
            body,
            topic_entry,
            settings_version,
            brokers_version: AtomicU64::new(brokers_version),
            broker_entries,
            used: AtomicBool::new(false),
            _charge: charge,
        }
    }

    /// Returns true while encoding again would give the same answer.
    pub(super) fn holds(&self, topic_entry: u64, settings_version: u64, brokers_version: u64) -> bool {
        if (self.topic_entry, self.settings_version) != (topic_entry, settings_version) {
            return false;
        }
        if self.brokers_version.load(Ordering::Acquire) == brokers_version {
            return true;
        }
        let same = self
            .broker_entries
            .iter()
            .all(|(broker_entry, version)| broker_entry.version.load(Ordering::Acquire) == *version);
        if same {
            self.brokers_version.store(brokers_version, Ordering::Release);
        }
        same
    }

    pub(super) fn body(&self) -> Bytes {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.body.clone()
    }
}

/// Bytes that a cached answer holds; released on drop.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Enforces the limit on all cached answers.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    total: Arc<AtomicUsize>,
    // Guards the order in which answers were cached.
    queue: Mutex<CacheQueue>,
}

#[derive(Debug, Default)]
struct CacheQueue {
    entries: VecDeque<(Weak<TopicEntry>, Form)>,
    /// At this length, entries of removed topics are dropped.
    sweep_at: usize,
}

impl CacheQueue {
    fn push(&mut self, topic_entry: &Arc<TopicEntry>, form: Form) {
        if self.entries.len() >= self.sweep_at {
            self.entries
                .retain(|(topic_entry, _)| topic_entry.strong_count() > 0);
            self.sweep_at = (self.entries.len() * 2).max(1024);
        }
        self.entries.push_back((Arc::downgrade(topic_entry), form));
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            total: Arc::default(),
            queue: Mutex::default(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Stores an answer with its topic. `make` receives the charge that accounts for it.
    pub(super) fn store(
        &self,
        topic_entry: &Arc<TopicEntry>,
        form: Form,
        size: usize,
        make: impl FnOnce(Charge) -> Encoded,
    ) {
        let bytes = size + OVERHEAD;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge {
            bytes,
            total: self.total.clone(),
        };
        let before = topic_entry.encoded(form).replace(make(charge));
        if before.is_none() {
            lock(&self.queue).push(topic_entry, form);
        }
        drop(before);
        if self.bytes() > self.limit {
            self.shrink();
        }
    }

    fn shrink(&self) {
        let queue = &mut lock(&self.queue).entries;
        // Each answer gets a second chance; after two rounds nothing remains.
        let mut chances = queue.len().saturating_mul(2);
        while self.bytes() > self.limit && chances > 0 {
            chances -= 1;
            let Some((weak, form)) = queue.pop_front() else {
                return;
            };
            let Some(topic_entry) = weak.upgrade() else {
                continue;
            };
            let mut encoded = topic_entry.encoded(form);
            if encoded
                .as_ref()
                .is_some_and(|encoded| encoded.used.swap(false, Ordering::Relaxed))
            {
                queue.push_back((weak, form));
            } else {
                *encoded = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Form {
        Form::new(false, None, 0)
    }

    fn store(cache: &Cache, topic_entry: &Arc<TopicEntry>, size: usize) {
        cache.store(topic_entry, plain(), size, |charge| {
            Encoded::new(Bytes::from(vec![0; size]), 0, 0, 0, Box::default(), charge)
        });
    }

    #[test]
    fn cached_answers_stay_within_the_limit_and_requested_ones_stay_longest() {
        let cache = Cache::new(10_000);
        let topic_entries: Vec<Arc<TopicEntry>> = (0..20).map(|_| Arc::default()).collect();
        store(&cache, &topic_entries[0], 1000);
        for topic_entry in &topic_entries[1..] {
            drop(topic_entries[0].encoded(plain()).as_ref().map(Encoded::body));
            store(&cache, topic_entry, 1000);
            assert!(cache.bytes() <= 10_000, "{}", cache.bytes());
        }
        assert!(
            topic_entries[0].encoded(plain()).is_some(),
            "it was asked for all the time"
        );
        assert!(topic_entries[1].encoded(plain()).is_none());
        assert!(topic_entries[19].encoded(plain()).is_some());
        drop(topic_entries);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn an_answer_that_replaces_another_is_counted_once() {
        let cache = Cache::new(10_000);
        let topic_entry: Arc<TopicEntry> = Arc::default();
        for _ in 0..100 {
            store(&cache, &topic_entry, 500);
        }
        assert_eq!(cache.bytes(), 500 + OVERHEAD);
        assert_eq!(lock(&cache.queue).entries.len(), 1);
    }
}
