//! The columns there are, and the buffers of a finished one.

/// One column of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the columns")]
pub enum Column {
    Topic,
    BrokerName,
    QueueId,
    QueueOffset,
    Body,
    Keys,
    Tags,
    Properties,
    MsgId,
    BornTimestamp,
    StoreTimestamp,
    BornHost,
    StoreHost,
    Flag,
    SysFlag,
    ReconsumeTimes,
    CommitLogOffset,
}

impl Column {
    const NAMES: [(&'static str, Self); 17] = [
        ("topic", Self::Topic),
        ("brokerName", Self::BrokerName),
        ("queueId", Self::QueueId),
        ("queueOffset", Self::QueueOffset),
        ("body", Self::Body),
        ("keys", Self::Keys),
        ("tags", Self::Tags),
        ("properties", Self::Properties),
        ("msgId", Self::MsgId),
        ("bornTimestamp", Self::BornTimestamp),
        ("storeTimestamp", Self::StoreTimestamp),
        ("bornHost", Self::BornHost),
        ("storeHost", Self::StoreHost),
        ("flag", Self::Flag),
        ("sysFlag", Self::SysFlag),
        ("reconsumeTimes", Self::ReconsumeTimes),
        ("commitLogOffset", Self::CommitLogOffset),
    ];

    /// The column of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, column)| *column)
    }
}

/// One buffer, aligned for what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Buffer {
    /// Text, bytes, or bits.
    Bytes(Vec<u8>),
    /// Values or offsets.
    Int32(Vec<i32>),
    /// Values.
    Int64(Vec<i64>),
}

/// A finished column: its buffers in the order of the layout above, the first one the validity.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnData {
    /// How many rows are null.
    pub nulls: usize,
    /// Validity (absent without nulls), then what the type has.
    pub buffers: Vec<Option<Buffer>>,
}
