//! The parameters of a search by key.

/// Which entries of the key index are meant (5.5 `indexType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// `KEYS` and `UNIQ_KEY`.
    #[default]
    Key,
    /// `UNIQ_KEY` only.
    Unique,
    /// `TAGS`.
    Tag,
}

/// A search by key.
#[derive(Debug, Clone, Copy)]
pub struct KeyQuery<'a> {
    /// Topic.
    pub topic: &'a str,
    /// The key, the unique id or the tag.
    pub key: &'a str,
    /// Which of them it is.
    pub kind: KeyKind,
    /// Maximum number of messages in the answer; the store also limits it.
    pub max_count: usize,
    /// Oldest store time, ms.
    pub begin_ms: i64,
    /// Newest store time, ms.
    pub end_ms: i64,
}
