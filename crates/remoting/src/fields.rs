//! `extFields`: the string pairs of a header (Apache `RemotingCommand.extFields`).
//!
//! ```text
//! text     consumerGroupGtopicTqueueId0...      one String for all keys and values
//! entries  [(0,13,14) (14,19,20) (20,27,28) ...]  key start, key end = value start, value end
//! ```
//! One arena instead of a map of strings: a decoded header costs two allocations however many fields it has, and
//! header structures borrow their text from it.

/// Ordered string pairs in one arena. A later pair with the same key hides an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u32,
    value: u32,
    end: u32,
}

impl Fields {
    /// No fields, no allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for `count` pairs of together `bytes` bytes.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            entries: Vec::with_capacity(count),
        }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without any pair.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a pair. A header's text is capped far below 4 GiB, so positions fit 32 bits; beyond that the pair is
    /// left out rather than stored wrongly.
    pub fn push(&mut self, key: &str, value: &str) {
        self.push_with(key, |text| text.push_str(value));
    }

    /// Appends a pair whose value is written by `write` straight into the arena.
    pub fn push_with(&mut self, key: &str, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        self.text.push_str(key);
        let value = self.text.len();
        write(&mut self.text);
        let (Ok(key), Ok(value), Ok(end)) = (
            u32::try_from(start),
            u32::try_from(value),
            u32::try_from(self.text.len()),
        ) else {
            self.text.truncate(start);
            return;
        };
        self.entries.push(Entry { key, value, end });
    }

    /// The value of the last pair with this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries
            .iter()
            .rev()
            .map(|entry| self.pair(*entry))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// Takes a key out, every pair of it.
    pub fn remove(&mut self, key: &str) {
        let text = &self.text;
        self.entries
            .retain(|entry| text.get(entry.key as usize..entry.value as usize) != Some(key));
    }

    /// Sets a key to one value, replacing what it had.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.push(key, value);
    }

    /// All pairs in the order they came.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> + ExactSizeIterator {
        self.entries.iter().map(|entry| self.pair(*entry))
    }

    fn pair(&self, entry: Entry) -> (&str, &str) {
        let key = self
            .text
            .get(entry.key as usize..entry.value as usize)
            .unwrap_or_default();
        let value = self
            .text
            .get(entry.value as usize..entry.end as usize)
            .unwrap_or_default();
        (key, value)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut fields = Self::new();
        for (key, value) in pairs {
            fields.push(key, value);
        }
        fields
    }
}

/// Equal when the same keys have the same values, in any order.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().all(|(key, _)| other.get(key) == self.get(key))
            && other.iter().all(|(key, _)| self.get(key).is_some())
    }
}

impl Eq for Fields {}
