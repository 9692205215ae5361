//! The settings of a client, with Apache's names and defaults (`ClientConfig`, `DefaultMQProducer`).

use crate::error::ClientError;
use crate::session::address_server::AddressServer;
use crate::session::connections::{Connections, Identity, Role, system_resolver};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::message::compress::Codec;
use pyrmq_remoting::names::TEMPLATE_TOPIC;
use pyrmq_remoting::net::{Client, Resolve, Table};
use pyrmq_routing::fault::Schedule;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Longest group name (Apache `Validators.CHARACTER_MAX_LENGTH` of groups is 255; brokers take 120).
const GROUP_BYTES: usize = 120;

/// Answers after which another broker may do better (Apache `DefaultMQProducer.retryResponseCodes`).
const RETRY_CODES: [i32; 8] = [
    response::TOPIC_NOT_EXIST,
    response::SERVICE_NOT_AVAILABLE,
    response::SYSTEM_ERROR,
    response::SYSTEM_BUSY,
    response::NO_PERMISSION,
    response::NO_BUYER_ID,
    response::NOT_IN_CURRENT_UNIT,
    response::GO_AWAY,
];

/// No group of a user's (Apache `MixAll.DEFAULT_PRODUCER_GROUP`).
const DEFAULT_PRODUCER: &str = "DEFAULT_PRODUCER";

/// Reads `host:port;host:port`, each once.
pub(crate) fn split_addresses(text: &str) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for part in text.split(';').map(str::trim) {
        if !part.is_empty() && !addresses.iter().any(|known| known == part) {
            addresses.push(part.to_owned());
        }
    }
    addresses
}

/// What producers and pullers share.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Name servers as `host:port`, without duplicates. Apache `namesrvAddr`.
    pub name_servers: Vec<String>,
    /// Server that lists the name servers when none is given. Apache `rocketmq.namesrv.domain`.
    pub address_server: Option<AddressServer>,
    /// Group name. Apache `producerGroup`, `consumerGroup`.
    pub group: String,
    /// Distinguishes clients of one process. Empty: process id and a counter, as Apache's `DEFAULT` becomes.
    pub instance_name: String,
    /// The unit that this client belongs to; empty: none. Apache `unitName`.
    pub unit_name: String,
    /// Goes before the names of group and topics (`namespace%topic`); empty: none. Apache `namespace`.
    pub namespace: String,
    /// Time for one control request (route, offset, heartbeat). Apache `mqClientApiTimeout`: 3 s.
    pub request_timeout: Duration,
    /// How often a known route is asked for again. Apache `pollNameServerInterval`: 30 s.
    pub route_interval: Duration,
    /// How long an unused route is kept. Kafka `metadata.max.idle.ms`: 5 min; Apache keeps it for ever.
    pub route_idle: Duration,
    /// How old the list of name servers may be. Apache `MQClientInstance.startScheduledTask`: 2 min.
    pub name_server_interval: Duration,
    /// How often brokers get a heartbeat. Apache `heartbeatBrokerInterval`: 30 s.
    pub heartbeat_interval: Duration,
    /// Resolves host names.
    pub resolver: Arc<dyn Resolve>,
    /// The connections, which clients with the same object here share.
    pub connections: Arc<Connections>,
}

impl ClientOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            name_servers,
            address_server: None,
            group: group.into(),
            instance_name: String::new(),
            unit_name: String::new(),
            namespace: String::new(),
            request_timeout: Duration::from_secs(3),
            route_interval: Duration::from_secs(30),
            route_idle: Duration::from_mins(5),
            name_server_interval: Duration::from_mins(2),
            heartbeat_interval: Duration::from_secs(30),
            resolver: system_resolver(),
            connections: Connections::new(),
        }
    }

    /// Connections for a client of this role, whose `table` answers what brokers ask it.
    pub(crate) fn connect(&self, handle: &Handle, table: Table, role: Role) -> Result<Client, ClientError> {
        let identity = Identity {
            instance_name: self.instance_name.clone(),
            unit_name: self.unit_name.clone(),
            resolver: self.resolver.clone(),
        };
        self.connections
            .join(handle, table, identity, (role, self.group.clone()))
    }

    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ClientError> {
        if self.name_servers.is_empty() && self.address_server.is_none() {
            return Err(ClientError::Option {
                option: "name_server",
                value: String::new(),
                range: "at least one `host:port`",
            });
        }
        for address in &self.name_servers {
            let port = address.rsplit_once(':').and_then(|(host, port)| {
                let port = port.parse::<u16>().ok()?;
                (!host.is_empty() && port > 0).then_some(port)
            });
            if port.is_none() {
                return Err(ClientError::Option {
                    option: "name_server",
                    value: address.clone(),
                    range: "`host:port;host:port`",
                });
            }
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
        if self.group.is_empty() || self.group.len() > GROUP_BYTES || !self.group.bytes().all(legal) {
            return Err(ClientError::Option {
                option: "group",
                value: self.group.clone(),
                range: "1 to 120 of the characters a-z A-Z 0-9 % | _ -",
            });
        }
        if self.group == DEFAULT_PRODUCER {
            return Err(ClientError::Option {
                option: "group",
                value: self.group.clone(),
                range: "another one: this name is RocketMQ's own",
            });
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !self.namespace.bytes().all(legal) {
            return Err(ClientError::Option {
                option: "namespace",
                value: self.namespace.clone(),
                range: "of the characters a-z A-Z 0-9 _ -",
            });
        }
        let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'@';
        for (option, value) in [
            ("instance_name", &self.instance_name),
            ("unit_name", &self.unit_name),
        ] {
            if !value.bytes().all(legal) {
                return Err(ClientError::Option {
                    option,
                    value: value.clone(),
                    range: "of printable characters of ASCII without a space and `@`",
                });
            }
        }
        Ok(())
    }
}

/// How long bodies get smaller on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Bodies of at least this many bytes are compressed. Apache `compressMsgBodyOverHowmuch`: 4096.
    pub over_bytes: usize,
    /// How. Apache `rocketmq.message.compressType`: ZLIB. Brokers and consumers before 5.0 read no other.
    pub codec: Codec,
    /// The codec's level, 0 to 9. Apache `rocketmq.message.compressLevel`: 5.
    pub level: u32,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            over_bytes: 4096,
            codec: Codec::Zlib,
            level: 5,
        }
    }
}

/// Settings of a producer.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as in Apache's"
)]
pub struct ProducerOptions {
    /// What every client has.
    pub client: ClientOptions,
    /// Time for a whole send with its retries. Apache `sendMsgTimeout`: 3 s.
    pub send_timeout: Duration,
    /// Further attempts after the first. Apache `retryTimesWhenSendFailed`: 2.
    pub retries: u32,
    /// Try another broker when a message was stored but not to the level asked for. Apache
    /// `retryAnotherBrokerWhenNotStoreOK`: off, because it makes duplicates.
    pub retry_not_stored_ok: bool,
    /// `None`: bodies go as they are.
    pub compression: Option<Compression>,
    /// Largest body. Apache `maxMessageSize`: 4 MiB.
    pub max_message_bytes: usize,
    /// Queues of a topic that the first send creates. Apache `defaultTopicQueueNums`: 4.
    pub default_queues: i32,
    /// The topic whose brokers may create others. Apache `createTopicKey`: TBW102.
    pub create_topic_key: String,
    /// Answers after which another broker may do better. Apache `retryResponseCodes`.
    pub retry_codes: Vec<i32>,
    /// Leave out brokers that were slow or failed. Apache `sendLatencyFaultEnable`: off.
    pub latency_fault: bool,
    /// From which latency on, and for how long. Apache `latencyMax`, `notAvailableDuration`.
    pub fault_schedule: Schedule,
    /// Ask brokers that failed whether they are back; until they answer, others come first. Apache
    /// `startDetectorEnable`: off.
    pub detect: bool,
    /// Time for the answer. Apache `detectTimeout`: 200 ms.
    pub detect_timeout: Duration,
    /// How often is asked. Apache `detectInterval`: 2 s.
    pub detect_interval: Duration,
    /// Topic of message traces; `None`: none. Apache `enableTrace`, `traceTopic`: off.
    pub trace_topic: Option<String>,
    /// How safe a message shall be before its answer; `None`: as the broker does it. Ours says in the answer what was
    /// reached. `Memory` clears `WAIT` (Apache `waitStoreMsgOK`), so that Apache's do not wait for their disks either.
    pub durability: Option<Durability>,
    /// Send to the brokers' fast port. Apache `vipChannelEnabled`: off.
    pub vip_channel: bool,
    /// Say in each send that it belongs to a unit. Apache `unitMode`: off.
    pub unit_mode: bool,
    /// Messages that may be on their way; one more waits.
    pub max_in_flight: usize,
    /// Bytes of bodies that may be on their way; one more waits (a single larger body still goes).
    pub max_in_flight_bytes: usize,
}

impl ProducerOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            client: ClientOptions::new(name_servers, group),
            send_timeout: Duration::from_secs(3),
            retries: 2,
            retry_not_stored_ok: false,
            compression: Some(Compression::default()),
            max_message_bytes: 4 * 1024 * 1024,
            default_queues: 4,
            create_topic_key: TEMPLATE_TOPIC.to_owned(),
            retry_codes: RETRY_CODES.to_vec(),
            latency_fault: false,
            fault_schedule: Schedule::default(),
            detect: false,
            detect_timeout: Duration::from_millis(200),
            detect_interval: Duration::from_secs(2),
            trace_topic: None,
            durability: None,
            vip_channel: false,
            unit_mode: false,
            max_in_flight: 16_384,
            max_in_flight_bytes: 64 * 1024 * 1024,
        }
    }

    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ClientError> {
        self.client.validate()?;
        let refuse = |option, value: String, range| Err(ClientError::Option { option, value, range });
        if self.send_timeout.is_zero() {
            return refuse("send_timeout", "0".to_owned(), "more than 0 s");
        }
        if self.max_message_bytes == 0 || self.max_message_bytes > 16 * 1024 * 1024 - 65_536 {
            return refuse(
                "max_message_bytes",
                self.max_message_bytes.to_string(),
                "1 to 16711680 (a frame holds 16 MiB)",
            );
        }
        if self.max_in_flight == 0 || self.max_in_flight > 65_535 {
            return refuse("max_in_flight", self.max_in_flight.to_string(), "1 to 65535");
        }
        if self.max_in_flight_bytes == 0 {
            return refuse("max_in_flight_bytes", "0".to_owned(), "at least 1");
        }
        if self.detect_timeout.is_zero() || self.detect_interval.is_zero() {
            return refuse(
                "detect_timeout or detect_interval",
                "0".to_owned(),
                "more than 0 s",
            );
        }
        if self.default_queues < 1 {
            return refuse("default_queues", self.default_queues.to_string(), "at least 1");
        }
        Ok(())
    }
}

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
    /// As whoever takes this consumer's callbacks says.
    Custom,
}

/// Settings of a puller.
#[derive(Debug, Clone)]
pub struct PullerOptions {
    /// What every client has.
    pub client: ClientOptions,
    /// Messages asked for at once. Apache `pullBatchSize`: 32, which is also what its brokers give at most by default;
    /// ours give up to 1,024.
    pub batch: i32,
    /// How long a broker may hold a pull without a message. Apache `brokerSuspendMaxTimeMillis`: 15 s.
    pub suspend: Duration,
    /// Bytes fetched ahead for all queues together; each queue has the same share of it. A message that is larger than
    /// a share is fetched alone. 64 MiB; Apache `pullThresholdSizeForQueue`: 100 MiB for each queue.
    pub ahead_bytes: usize,
    /// How often changed positions go to the broker (Apache `autoCommitIntervalMillis`: 5 s). `None`: only `commit`
    /// sends any, neither a timer nor the end nor a queue that is given back (Apache `autoCommit` false).
    pub commit_interval: Option<Duration>,
    /// How often the share of the queues is looked at again. Apache `rebalanceInterval`: 20 s.
    pub rebalance_interval: Duration,
    /// How the group shares its queues.
    pub allocation: Allocation,
    /// Every member gets every message, and keeps its own offsets (Apache `BROADCASTING`).
    pub is_broadcasting: bool,
    /// Threads that call listeners, which operators are shown.
    pub threads: usize,
    /// Listeners take the messages (`take_work`), not polls: the group counts as a pushing one.
    pub is_listening: bool,
    /// What listeners may get of a queue at the same time.
    pub order: Order,
    /// Tries of a message before it is a dead letter. `None`: the group's setting on the broker where messages are
    /// handed back to it, 16 where keys keep their order, without end for `Order::Queue` (all as Apache).
    pub max_tries: Option<i32>,
    /// Pause before a message that was not handled is tried again, where an order is kept (Apache
    /// `suspendCurrentQueueTimeMillis`: 1 s).
    pub suspend_pause: Duration,
}

impl PullerOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            client: ClientOptions::new(name_servers, group),
            batch: 1024,
            suspend: Duration::from_secs(15),
            ahead_bytes: 64 * 1024 * 1024,
            commit_interval: Some(Duration::from_secs(5)),
            rebalance_interval: Duration::from_secs(20),
            allocation: Allocation::Average,
            is_broadcasting: false,
            threads: 0,
            is_listening: false,
            order: Order::None,
            max_tries: None,
            suspend_pause: Duration::from_secs(1),
        }
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
        if self.ahead_bytes == 0 {
            return Err(ClientError::Option {
                option: "ahead_bytes",
                value: "0".to_owned(),
                range: "at least 1",
            });
        }
        Ok(())
    }
}
