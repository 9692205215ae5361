//! The settings of a consumer, with Apache's names and defaults (`DefaultMQPushConsumer`, `DefaultLitePullConsumer`).

use crate::error::ClientError;
use crate::session::options::ClientOptions;
use std::time::Duration;

/// Longest invisible time: brokers keep a message back for up to three days by default, Apache's proxy for up to 12 h
/// (`maxInvisibleTimeMills`).
pub const MAX_INVISIBLE: Duration = Duration::from_hours(12);
/// Shortest invisible time of a message that is received: brokers look for messages to deliver again each second.
pub const MIN_INVISIBLE: Duration = Duration::from_secs(1);

/// What listeners may get of a queue while other messages of it are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Everything.
    #[default]
    None,
    /// Nothing, and only while the broker has locked the queue for this consumer.
    Queue,
    /// Messages of other sharding keys, and those without one.
    Key,
}

/// How the queues of a topic are shared by the members of a group. All of them must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Allocation {
    /// A block of neighbouring queues for each (Apache `AllocateMessageQueueAveragely`).
    #[default]
    Average,
    /// A queue in turn for each (Apache `AllocateMessageQueueAveragelyByCircle`).
    Circle,
    /// Queues and members on a ring (Apache `AllocateMessageQueueConsistentHash`).
    ConsistentHash {
        /// Points of each member on the ring.
        virtual_nodes: usize,
    },
    /// A function of the application chooses them.
    Custom,
}

/// Where a queue starts when nothing else is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The first message that is still there.
    First,
    /// What comes from now on.
    Last,
    /// The first message stored at this time (ms) or later.
    Time(i64),
}

/// Where a queue continues whose position the broker does not have: the messages there have expired, or never were
/// (Kafka `auto.offset.reset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfRange {
    /// Where the broker says: Apache's and pyrmq's name the nearer end.
    #[default]
    Nearest,
    /// At the first message that exists.
    First,
    /// At what comes from now on.
    Last,
    /// Nowhere: polls fail until the application calls `seek`.
    Error,
}

/// Settings of a puller.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct PullerOptions {
    /// What every client has.
    pub client: ClientOptions,
    /// Messages requested at once. Apache `pullBatchSize`: 32, which is also what its brokers give at most by default;
    /// ours give up to 1,024.
    pub batch: i32,
    /// How long a broker may hold a pull without a message. Apache `brokerSuspendMaxTimeMillis`: 15 s.
    pub suspend: Duration,
    /// Memory of what is fetched ahead for all queues together; each queue has the same share of it. A message that is
    /// larger than a share is fetched alone. 64 MiB; Apache `pullThresholdSizeForQueue`: 100 MiB for each queue.
    pub ahead_bytes: usize,
    /// Messages fetched ahead for all queues together, shared evenly; at least one for each queue. `None`: only
    /// `ahead_bytes` bounds them. Apache `pullThresholdForQueue`: 1,000 for each queue.
    pub ahead_messages: Option<usize>,
    /// How far a queue is handed out to listeners beyond its first unfinished message: after a crash, at most this many
    /// messages are delivered again. Apache `consumeConcurrentlyMaxSpan`: 2,000.
    pub max_span: usize,
    /// How often changed positions go to the broker (Apache `autoCommitIntervalMillis`: 5 s). `None`: only `commit`
    /// sends any, neither a timer nor the end nor a queue that is given back (Apache `autoCommit` false).
    pub commit_interval: Option<Duration>,
    /// How often the share of the queues is computed again. Apache `rebalanceInterval`: 20 s.
    pub rebalance_interval: Duration,
    /// How the group shares its queues.
    pub allocation: Allocation,
    /// Every member gets every message, and keeps its own offsets (Apache `BROADCASTING`).
    pub is_broadcasting: bool,
    /// What to do if a broker does not have a position.
    pub out_of_range: OutOfRange,
    /// Queues that are assigned or revoked wait until a poll has reported it (`Puller::next_rebalance_event`).
    pub announces_rebalances: bool,
    /// Threads that call listeners, which operators are shown.
    pub threads: usize,
    /// Listeners take the messages (`take_work`), not polls: the group counts as a pushing one.
    pub is_listening: bool,
    /// What listeners may get of a queue at the same time.
    pub order: Order,
    /// Tries of a message before it is a dead letter. `None`: the group's setting on the broker where messages are
    /// handed back to it, 16 where keys keep their order, without end for `Order::Queue` (all as Apache).
    pub max_tries: Option<i32>,
    /// Pause before a message that was not handled is tried again, if an order is kept (Apache
    /// `suspendCurrentQueueTimeMillis`: 1 s).
    pub suspend_pause: Duration,
    /// How long a message that was popped is hidden from other members. Apache `popInvisibleTime`: 60 s.
    pub invisible: Duration,
    /// The member always pulls its own share of the queues, also when its brokers have the group pop (Apache
    /// `clientRebalance`).
    pub is_client_rebalance: bool,
}

impl PullerOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            client: ClientOptions::new(name_servers, group),
            batch: 1024,
            suspend: Duration::from_secs(15),
            ahead_bytes: 64 * 1024 * 1024,
            ahead_messages: None,
            max_span: 65_536,
            commit_interval: Some(Duration::from_secs(5)),
            rebalance_interval: Duration::from_secs(20),
            allocation: Allocation::Average,
            is_broadcasting: false,
            out_of_range: OutOfRange::Nearest,
            announces_rebalances: false,
            threads: 0,
            is_listening: false,
            order: Order::None,
            max_tries: None,
            suspend_pause: Duration::from_secs(1),
            invisible: Duration::from_mins(1),
            is_client_rebalance: false,
        }
    }

    /// Whether the member pops when its brokers say so. What keeps an order pulls, as in Apache's client.
    pub(crate) fn may_pop(&self) -> bool {
        let is_shared = self.is_listening && !self.is_broadcasting;
        is_shared && self.order == Order::None && !self.is_client_rebalance
    }

    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ClientError> {
        self.client.validate()?;
        if !(1..=65_535).contains(&self.batch) {
            return Err(ClientError::Option {
                option: "batch",
                value: self.batch.to_string(),
                range: "1 to 65535",
            });
        }
        check_invisible(self.invisible, MIN_INVISIBLE)?;
        for (option, value) in [
            ("ahead_bytes", self.ahead_bytes),
            ("ahead_messages", self.ahead_messages.unwrap_or(1)),
            ("max_span", self.max_span),
        ] {
            if value == 0 {
                return Err(ClientError::Option {
                    option,
                    value: "0".to_owned(),
                    range: "at least 1",
                });
            }
        }
        Ok(())
    }
}

/// Refuses an invisible time that brokers cannot keep. `min` is zero where a message may be given back at once.
pub(crate) fn check_invisible(time: Duration, min: Duration) -> Result<(), ClientError> {
    if (min..=MAX_INVISIBLE).contains(&time) {
        return Ok(());
    }
    Err(ClientError::Option {
        option: "invisible",
        value: format!("{} s", time.as_secs_f64()),
        range: if min.is_zero() {
            "a time from 0 s to 12 h"
        } else {
            "a time from 1 s to 12 h"
        },
    })
}
