//! A producer's options as Python passes them.

use crate::errors::Error;
use crate::security::Credentials;
use crate::tls::ClientTls;
use pyo3::prelude::*;
use pyrmq_client::session::address_server::AddressServer;
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
    name_servers: Vec<String>,
    group: String,
    instance_name: String,
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
    namespace: String,
    latency_fault: bool,
    fault_schedule: Option<Vec<(u64, u64)>>,
    detect: bool,
    detect_timeout_ms: u64,
    detect_interval_ms: u64,
    trace_topic: Option<String>,
    durability: Option<String>,
    vip_channel: bool,
    unit_mode: bool,
    unit_name: String,
    address_server: Option<String>,
    max_in_flight: usize,
    max_in_flight_bytes: usize,
    credentials: Option<Py<Credentials>>,
    tls: Option<Py<ClientTls>>,
}

impl NativeOptions {
    /// The options of the native producer.
    pub(crate) fn read(self) -> Result<ProducerOptions, Error> {
        let mut options = ProducerOptions::new(self.name_servers, self.group);
        options.client.instance_name = self.instance_name;
        options.client.namespace = self.namespace;
        options.client.address_server = self
            .address_server
            .as_deref()
            .map(|text| AddressServer::new(text, &self.unit_name))
            .transpose()?;
        options.client.unit_name = self.unit_name;
        options.client.credentials = self.credentials.map(|credentials| credentials.get().inner());
        options.client.tls = self.tls.map(|tls| tls.get().inner());
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
