//! The settings of a consumer, as Python gives them.

use crate::connections::ClientSettings;
use crate::errors::Error;
use crate::runtime::{self, Owned};
use pyo3::prelude::*;
use pyrmq_client::PullerOptions;
use pyrmq_client::consumer::options::{Allocation, Order, OutOfRange};
use pyrmq_client::consumer::pop::options::SimpleOptions;
use pyrmq_client::consumer::puller::{Puller, Start};
use std::sync::Arc;
use std::time::Duration;

/// One item for each option of `pyrmq._client.options.consumer.ConsumerOptions.native`, where the defaults are.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConsumerSettings {
    client: ClientSettings,
    start: String,
    start_timestamp_ms: i64,
    batch: i32,
    suspend_ms: u64,
    ahead_bytes: usize,
    ahead_messages: Option<usize>,
    commit_interval_ms: Option<u64>,
    rebalance_interval_ms: u64,
    allocation: String,
    virtual_nodes: usize,
    is_broadcasting: bool,
    announces_rebalances: bool,
    out_of_range: String,
    listening: Option<ListenerSettings>,
}

/// The further settings of consumers with listeners.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ListenerSettings {
    order: String,
    max_tries: Option<i32>,
    suspend_pause_ms: u64,
    threads: usize,
    max_span: usize,
    invisible_ms: u64,
    client_rebalance: bool,
}

impl ConsumerSettings {
    /// A consumer on the connections that this process's clients share.
    pub(crate) fn puller(self, py: Python<'_>) -> PyResult<Owned<Puller>> {
        let made = self.options().and_then(|(mut options, start)| {
            let runtime = runtime::current()?;
            options.client.connections = runtime::connections()?;
            Ok(Puller::new(runtime.handle(), options, start)?)
        });
        let puller = made.map_err(|error| error.into_py(py))?;
        Ok(Owned::new("this consumer", Arc::new(puller)))
    }

    /// The options of a consumer, and where its group begins.
    fn options(self) -> Result<(PullerOptions, Start), Error> {
        let mut options = PullerOptions::new(Vec::new(), "");
        options.client = self.client.options()?;
        options.batch = self.batch;
        options.suspend = Duration::from_millis(self.suspend_ms);
        options.ahead_bytes = self.ahead_bytes;
        options.ahead_messages = self.ahead_messages;
        options.commit_interval = self.commit_interval_ms.map(Duration::from_millis);
        options.rebalance_interval = Duration::from_millis(self.rebalance_interval_ms);
        options.allocation = match self.allocation.as_str() {
            "average" => Allocation::Average,
            "circle" => Allocation::Circle,
            "consistent_hash" => Allocation::ConsistentHash {
                virtual_nodes: self.virtual_nodes,
            },
            _ => Allocation::Custom,
        };
        options.is_broadcasting = self.is_broadcasting;
        options.announces_rebalances = self.announces_rebalances;
        options.out_of_range = match self.out_of_range.as_str() {
            "first" => OutOfRange::First,
            "last" => OutOfRange::Last,
            "error" => OutOfRange::Error,
            _ => OutOfRange::Nearest,
        };
        if let Some(listening) = self.listening {
            options.is_listening = true;
            options.order = match listening.order.as_str() {
                "queue" => Order::Queue,
                "key" => Order::Key,
                _ => Order::None,
            };
            options.max_tries = listening.max_tries;
            options.suspend_pause = Duration::from_millis(listening.suspend_pause_ms);
            options.threads = listening.threads;
            options.max_span = listening.max_span;
            options.invisible = Duration::from_millis(listening.invisible_ms);
            options.is_client_rebalance = listening.client_rebalance;
        }
        options.validate()?;
        let start = match self.start.as_str() {
            "last" => Start::Last,
            "timestamp" => Start::Time(self.start_timestamp_ms),
            _ => Start::First,
        };
        Ok((options, start))
    }
}

/// One item for each option of `pyrmq._client.options.simple.SimpleConsumerOptions.native`, where the defaults are.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SimpleSettings {
    client: ClientSettings,
    start: String,
    is_ordered: bool,
    max_tries: Option<i32>,
}

impl SimpleSettings {
    /// The options of a consumer by POP.
    pub(crate) fn options(self) -> Result<SimpleOptions, Error> {
        let mut options = SimpleOptions::new(Vec::new(), "");
        options.client = self.client.options()?;
        options.is_ordered = self.is_ordered;
        options.max_tries = self.max_tries;
        options.start = if self.start == "last" {
            Start::Last
        } else {
            Start::First
        };
        options.validate()?;
        Ok(options)
    }
}
