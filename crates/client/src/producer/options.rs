//! The settings of a producer, with Apache's names and defaults (`DefaultMQProducer`).

use crate::error::ClientError;
use crate::session::options::ClientOptions;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::message::compress::Codec;
use pyrmq_remoting::names::TEMPLATE_TOPIC;
use pyrmq_routing::fault::Schedule;
use std::time::Duration;

/// Response codes after which another broker is tried (Apache `DefaultMQProducer.retryResponseCodes`).
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

/// Which bodies are compressed, and how.
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
    /// Try another broker when a message was stored, but not as durably as requested. Apache
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
    /// Response codes after which another broker is tried. Apache `retryResponseCodes`.
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
    /// Interval of the probes. Apache `detectInterval`: 2 s.
    pub detect_interval: Duration,
    /// Topic of message traces; `None`: none. Apache `enableTrace`, `traceTopic`: off.
    pub trace_topic: Option<String>,
    /// How durable a message must be before its answer; `None`: as the broker is configured. A pyrmq broker reports in
    /// the answer what was reached. `Memory` sends `WAIT=false` (Apache `waitStoreMsgOK`), so that Apache's brokers do
    /// not wait for their disks either.
    pub durability: Option<Durability>,
    /// Send to the brokers' fast port. Apache `vipChannelEnabled`: off.
    pub vip_channel: bool,
    /// Say in each send that it belongs to a unit. Apache `unitMode`: off.
    pub unit_mode: bool,
    /// Messages that may be in flight; further ones wait.
    pub max_in_flight: usize,
    /// Bytes of bodies that may be in flight; further ones wait (a single larger body is still sent).
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
