//! How a transaction ended, for its broker and for the trace.

/// How a transaction ended.
#[derive(Debug, Clone)]
pub struct EndTransaction {
    /// The message's topic.
    pub topic: String,
    /// Name of the broker that stored the half.
    pub broker: String,
    /// Address of that broker, if it asked.
    pub address: Option<String>,
    /// The half's offset in its queue.
    pub queue_offset: i64,
    /// The half's position in the log.
    pub commit_log_offset: i64,
    /// The message's unique id, which is the transaction's.
    pub message_id: String,
    /// 8 commit, 12 rollback, 0 not known yet.
    pub state: i32,
    /// Whether this answers a check by the broker.
    pub from_check: bool,
    /// The region of the broker that asked, for the trace.
    pub region: Option<String>,
    /// The message's tag, for its trace.
    pub tags: Option<String>,
    /// The message's keys, for its trace.
    pub keys: Option<String>,
}
