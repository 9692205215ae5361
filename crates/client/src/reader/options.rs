//! How ranges are read.

use pyrmq_columns::Column;
use std::collections::HashSet;
use std::time::Duration;

/// What to do with a message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadMessage {
    /// The read fails.
    Fail,
    /// A body that cannot be decompressed becomes null; a record without readable fields is left out.
    Null,
    /// The message is left out.
    Skip,
}

/// How to read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Consumer group that the requests name; the broker keeps nothing for it.
    pub group: String,
    /// `*`, or tags separated by `||`.
    pub tags: String,
    /// A SQL92 condition that the broker evaluates; `tags` is `*` then.
    pub sql: Option<String>,
    /// Topics with compaction: the broker removes older messages of a key, so that gaps are no loss.
    pub compacted: HashSet<String>,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// Most rows of a block.
    pub max_rows: usize,
    /// Bytes at which a block ends, approximately.
    pub max_bytes: usize,
    /// Requests kept on their way.
    pub pulls_in_flight: usize,
    /// How long a temporary failure is retried.
    pub timeout: Duration,
    /// How long a broker may give no answer before the read fails as unreachable; at most `timeout`.
    pub unreachable_after: Duration,
    /// Continue with the remaining messages where some have expired.
    pub skip_lost: bool,
    /// What to do with a message that cannot be read.
    pub on_bad: OnBadMessage,
}
