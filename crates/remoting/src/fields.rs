//! `extFields`: the string pairs of a header (Apache `RemotingCommand.extFields`).
//!
//! ```text
//! text     consumerGroupGtopicTqueueId0...      one String holds the text of all keys and values
//! entries  [(0..13, 13..14) (14..19, 19..20) ...]  where a key and its value are in it
//! ```
//! One arena instead of a map of strings: a decoded header costs two allocations however many fields it has, and
//! header structures borrow their text from it. A reader may hand over the header's own text as the arena, so entries
//! need not be contiguous.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::chunk::CHUNK;
use std::cell::RefCell;
use std::mem;

/// Number of arenas that a thread keeps for the next headers, and the maximum size of each: the pairs of a usual
/// header.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 512;
const SPARE_ENTRIES: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<(String, Vec<Entry>)>> = const { RefCell::new(Vec::new()) };
}

/// An empty arena and its entries, often reused from earlier fields.
pub(crate) fn arena() -> (String, Vec<Entry>) {
    let spare = SPARE.try_with(|spares| spares.try_borrow_mut().ok()?.pop());
    spare.ok().flatten().unwrap_or_default()
}

/// Ordered string pairs in one arena. A later pair with the same key hides an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: String,
    entries: Vec<Entry>,
    present: bool,
}

/// Byte positions of one pair in the arena.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) key: Span,
    pub(crate) value: Span,
}

/// A range of bytes in the arena. A header's text is capped far below 4 GiB, so positions fit 32 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// The range from `start` to `end`; `None` beyond 32 bits.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Option<Self> {
        Some(Self {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
        })
    }

    /// The range from `start` to `end` in a text whose length is known to fit.
    #[inline]
    pub(crate) fn saturated(start: usize, end: usize) -> Self {
        let fit = |position| u32::try_from(position).unwrap_or(u32::MAX);
        Self {
            start: fit(start),
            end: fit(end),
        }
    }

    /// The range with its positions counted from `base`.
    #[inline]
    pub(crate) fn since(self, base: usize) -> Self {
        let (start, end) = (self.start as usize, self.end as usize);
        Self::saturated(start.wrapping_sub(base), end.wrapping_sub(base))
    }

    #[inline]
    fn length(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    #[inline]
    fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    #[inline]
    fn front(self, text: &[u8]) -> Front<'_> {
        Front::new(text.get(self.start as usize..).unwrap_or_default(), self.length())
    }
}

/// A text and what follows it in its arena, so that a short text can be moved by a copy of fixed size.
#[derive(Clone, Copy)]
pub(crate) struct Front<'a> {
    bytes: &'a [u8],
    length: usize,
}

impl<'a> Front<'a> {
    /// The first `length` bytes, or all if there are fewer.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], length: usize) -> Self {
        let length = length.min(bytes.len());
        Self { bytes, length }
    }

    /// The text.
    #[inline]
    pub(crate) fn text(self) -> &'a [u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// A chunk that begins with the text, and the text's length, if it is short enough.
    #[inline]
    pub(crate) fn short(self) -> Option<(&'a [u8; CHUNK], usize)> {
        let chunk = self.bytes.first_chunk()?;
        (self.length <= CHUNK).then_some((chunk, self.length))
    }
}

/// A header structure that can be written into fields.
pub trait EncodeHeader {
    /// Appends this structure's fields; absent options are skipped.
    fn encode(&self, fields: &mut Fields);
}

impl Fields {
    /// No fields; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Capacity for `count` pairs with `bytes` bytes in total.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        let (mut text, mut entries) = arena();
        text.reserve(bytes);
        entries.reserve(count);
        Self {
            text,
            entries,
            present: false,
        }
    }

    /// Reserves capacity for `count` more pairs with `bytes` bytes in total.
    pub fn reserve(&mut self, count: usize, bytes: usize) {
        self.entries.reserve(count);
        self.text.reserve(bytes);
    }

    /// Fields over a text that already contains every pair.
    pub(crate) fn from_parts(text: String, entries: Vec<Entry>) -> Self {
        Self {
            text,
            entries,
            present: true,
        }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a JSON header has the member `extFields`, if only as `{}`. Apache writes the empty object for a command
    /// whose header structure has no values, and omits the member for a command without one.
    pub fn is_present(&self) -> bool {
        self.present || !self.entries.is_empty()
    }

    /// Makes a JSON header carry the member `extFields` even without pairs.
    pub fn set_present(&mut self) {
        self.present = true;
    }

    /// Bytes of all keys and values without escapes: what a writer should reserve.
    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Appends a pair. A header's text is capped far below 4 GiB, so positions fit 32 bits; a pair beyond that is
    /// skipped rather than stored wrongly.
    #[inline]
    pub fn push(&mut self, key: &str, value: &str) {
        self.text.reserve(key.len().saturating_add(value.len()));
        self.push_with(key, |text| text.push_str(value));
    }

    /// Appends a pair whose value is written by `write` straight into the arena.
    #[inline]
    pub fn push_with(&mut self, key: &str, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        self.text.push_str(key);
        let middle = self.text.len();
        write(&mut self.text);
        let (Some(key), Some(value)) = (Span::new(start, middle), Span::new(middle, self.text.len())) else {
            self.text.truncate(start);
            return;
        };
        self.entries.push(Entry { key, value });
    }

    /// The value of the last pair with this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries
            .iter()
            .rev()
            .find(|entry| entry.key.length() == key.len() && entry.key.of(&self.text) == key)
            .map(|entry| entry.value.of(&self.text))
    }

    /// The pairs whose key is one byte, in the order they came.
    #[inline]
    pub(crate) fn letters(&self) -> impl Iterator<Item = (u8, &str)> {
        self.entries
            .iter()
            .filter(|entry| entry.key.length() == 1)
            .filter_map(|entry| {
                let letter = self.text.as_bytes().get(entry.key.start as usize)?;
                Some((*letter, entry.value.of(&self.text)))
            })
    }

    /// Removes every pair with this key.
    pub fn remove(&mut self, key: &str) {
        let text = &self.text;
        self.entries.retain(|entry| entry.key.of(text) != key);
    }

    /// Sets a key to one value, replacing all its values.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.push(key, value);
    }

    /// All pairs for a writer, each text with what follows it in the arena.
    #[inline]
    pub(crate) fn fronts(&self) -> impl ExactSizeIterator<Item = (Front<'_>, Front<'_>)> {
        let text = self.text.as_bytes();
        self.entries
            .iter()
            .map(move |entry| (entry.key.front(text), entry.value.front(text)))
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> + ExactSizeIterator {
        self.entries
            .iter()
            .map(|entry| (entry.key.of(&self.text), entry.value.of(&self.text)))
    }
}

/// Headers are read for each message, so the arena is kept for the next one.
impl Drop for Fields {
    fn drop(&mut self) {
        let (bytes, entries) = (self.text.capacity(), self.entries.capacity());
        if bytes.max(entries) == 0 || bytes > SPARE_BYTES || entries > SPARE_ENTRIES {
            return;
        }
        // Keeps nothing while the thread ends.
        let kept = SPARE.try_with(|spares| {
            if let Ok(mut spares) = spares.try_borrow_mut()
                && spares.len() < SPARES
            {
                self.text.clear();
                self.entries.clear();
                spares.push((mem::take(&mut self.text), mem::take(&mut self.entries)));
            }
        });
        kept.unwrap_or_default();
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
