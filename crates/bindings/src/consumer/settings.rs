//! The settings of a consumer, as Python gives them.

use crate::errors::Error;
use crate::producer::options::server_of;
use pyo3::prelude::*;
use pyrmq_client::PullerOptions;
use pyrmq_client::consumer::puller::Start;
use pyrmq_client::options::Order;
use std::time::Duration;

/// One item for each option of `pyrmq._client.options.ListenerOptions.native`, where the defaults are.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConsumerSettings {
    name_servers: Vec<String>,
    group: String,
    instance_name: String,
    start: String,
    start_timestamp_ms: i64,
    batch: i32,
    suspend_ms: u64,
    ahead_bytes: usize,
    commit_interval_ms: Option<u64>,
    namespace: String,
    rebalance_interval_ms: u64,
    unit_name: String,
    address_server: Option<String>,
    order: String,
    max_tries: Option<i32>,
    suspend_pause_ms: u64,
}

impl ConsumerSettings {
    /// The options of a consumer with listeners, and where its group begins.
    pub(crate) fn listening(self) -> Result<(PullerOptions, Start), Error> {
        let mut options = PullerOptions::new(self.name_servers, self.group);
        options.client.instance_name = self.instance_name;
        options.client.address_server = server_of(self.address_server.as_deref(), &self.unit_name)?;
        options.client.unit_name = self.unit_name;
        options.client.namespace = self.namespace;
        options.batch = self.batch;
        options.suspend = Duration::from_millis(self.suspend_ms);
        options.ahead_bytes = self.ahead_bytes;
        options.commit_interval = self.commit_interval_ms.map(Duration::from_millis);
        options.rebalance_interval = Duration::from_millis(self.rebalance_interval_ms);
        options.is_listening = true;
        options.order = match self.order.as_str() {
            "queue" => Order::Queue,
            "key" => Order::Key,
            _ => Order::None,
        };
        options.max_tries = self.max_tries;
        options.suspend_pause = Duration::from_millis(self.suspend_pause_ms);
        options.validate()?;
        let start = match self.start.as_str() {
            "last" => Start::Last,
            "timestamp" => Start::Time(self.start_timestamp_ms),
            _ => Start::First,
        };
        Ok((options, start))
    }
}
