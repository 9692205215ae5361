//! A producer's options as Python passes them.

use crate::connections::ClientSettings;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_client::{Compression, ProducerOptions};
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::message::compress::Codec;
use pyrmq_routing::fault::Schedule;
use std::time::Duration;

/// The dict that Python's `ProducerOptions.native` returns. Python has the defaults and checks the ranges.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(clippy::struct_excessive_bools, reason = "one field for each option")]
pub(crate) struct NativeOptions {
    client: ClientSettings,
    send_timeout_ms: u64,
    retries: u32,
    retry_not_stored_ok: bool,
    compress_over_bytes: Option<usize>,
    compression: String,
    compress_level: u32,
    max_message_bytes: usize,
    default_queues: i32,
    create_topic_key: String,
    retry_codes: Option<Vec<i32>>,
    latency_fault: bool,
    fault_schedule: Option<Vec<(u64, u64)>>,
    detect: bool,
    detect_timeout_ms: u64,
    detect_interval_ms: u64,
    trace_topic: Option<String>,
    durability: Option<String>,
    vip_channel: bool,
    unit_mode: bool,
    max_in_flight: usize,
    max_in_flight_bytes: usize,
}

impl NativeOptions {
    /// The options of the native producer.
    pub(crate) fn read(self) -> Result<ProducerOptions, Error> {
        let mut options = ProducerOptions::new(Vec::new(), "");
        options.client = self.client.options()?;
        options.send_timeout = Duration::from_millis(self.send_timeout_ms);
        options.retries = self.retries;
        options.retry_not_stored_ok = self.retry_not_stored_ok;
        options.compression = self.compress_over_bytes.map(|over_bytes| Compression {
            over_bytes,
            codec: match self.compression.as_str() {
                "lz4" => Codec::Lz4,
                "zstd" => Codec::Zstd,
                _ => Codec::Zlib,
            },
            level: self.compress_level,
        });
        options.max_message_bytes = self.max_message_bytes;
        options.default_queues = self.default_queues;
        options.create_topic_key = self.create_topic_key;
        options.retry_codes = self.retry_codes.unwrap_or(options.retry_codes);
        options.latency_fault = self.latency_fault;
        if let Some(rows) = self.fault_schedule {
            options.fault_schedule = Schedule::new(&rows).ok_or_else(|| Error::Config {
                text: format!("option `fault_schedule` is {rows:?}, its latencies must ascend"),
            })?;
        }
        options.detect = self.detect;
        options.detect_timeout = Duration::from_millis(self.detect_timeout_ms);
        options.detect_interval = Duration::from_millis(self.detect_interval_ms);
        options.trace_topic = self.trace_topic;
        options.durability = self.durability.as_deref().and_then(Durability::of_name);
        options.vip_channel = self.vip_channel;
        options.unit_mode = self.unit_mode;
        options.max_in_flight = self.max_in_flight;
        options.max_in_flight_bytes = self.max_in_flight_bytes;
        Ok(options)
    }
}
