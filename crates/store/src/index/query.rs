//! What a search by key asks for.

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
    /// Most messages to answer with; the store caps it.
    pub max_count: usize,
    /// Oldest store time, ms.
    pub begin_ms: i64,
    /// Newest store time, ms.
    pub end_ms: i64,
}
