//! Transactions: requests 37, 39, 323.

crate::header! {
    /// Commits or rolls back a half message (Apache `EndTransactionRequestHeader`).
    pub struct EndTransactionRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Producer group.
        pub producer_group: &'a str => "producerGroup",
        /// The half message's queue offset.
        pub tran_state_table_offset: i64 => "tranStateTableOffset",
        /// The half message's commit log offset.
        pub commit_log_offset: i64 => "commitLogOffset",
        /// 8 commit, 12 rollback, 0 unknown.
        pub commit_or_rollback: i32 => "commitOrRollback",
        /// Whether this answers a check.
        pub from_transaction_check: Option<bool> => "fromTransactionCheck",
        /// Message id.
        pub msg_id: &'a str => "msgId",
        /// Transaction id.
        pub transaction_id: Option<&'a str> => "transactionId",
    }

    /// Asks a producer how its transaction ended (Apache `CheckTransactionStateRequestHeader`).
    pub struct CheckTransactionStateRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// The half message's queue offset.
        pub tran_state_table_offset: i64 => "tranStateTableOffset",
        /// The half message's commit log offset.
        pub commit_log_offset: i64 => "commitLogOffset",
        /// Message id.
        pub msg_id: Option<&'a str> => "msgId",
        /// Transaction id.
        pub transaction_id: Option<&'a str> => "transactionId",
        /// Id composed of host and commit log offset.
        pub offset_msg_id: Option<&'a str> => "offsetMsgId",
        /// Broker name, as 5.x clients send it.
        pub broker_name: Option<&'a str> => "bname",
    }

    /// Resumes the checks of a half message (Apache `ResumeCheckHalfMessageRequestHeader`).
    pub struct ResumeCheckHalfMessageRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Message id.
        pub msg_id: Option<&'a str> => "msgId",
    }
}
