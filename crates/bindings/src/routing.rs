//! Queue selection and latency fault tolerance as plain classes: `pyrmq.routing`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrmq_routing::fault::{LatencyFaultTolerance, Schedule};
use pyrmq_routing::select::{self, OnBroker, QueueSelector};

/// A queue of Python's: broker name and number.
struct Named {
    broker: String,
    place: usize,
}

impl OnBroker for Named {
    fn broker(&self) -> &str {
        &self.broker
    }
}

/// Round robin over queues.
#[pyclass(frozen, name = "QueueSelector", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyQueueSelector {
    selector: QueueSelector,
}

#[pymethods]
impl PyQueueSelector {
    #[new]
    fn new(start: usize) -> Self {
        Self {
            selector: QueueSelector::new(start),
        }
    }

    /// The place of the chosen queue among `brokers`, the broker names of the queues; `None` without queues.
    #[pyo3(signature = (brokers, last_broker=None, faults=None, now_ms=0))]
    fn select(
        &self,
        brokers: Vec<String>,
        last_broker: Option<&str>,
        faults: Option<&PyLatencyFaultTolerance>,
        now_ms: i64,
    ) -> Option<usize> {
        let queues: Vec<Named> = brokers
            .into_iter()
            .enumerate()
            .map(|(place, broker)| Named { broker, place })
            .collect();
        let chosen = match faults {
            Some(faults) => self
                .selector
                .select_available(&queues, last_broker, &faults.faults, now_ms),
            None => self.selector.select(&queues, last_broker),
        };
        chosen.map(|queue| queue.place)
    }
}

/// Which brokers were slow or failed.
#[pyclass(frozen, name = "LatencyFaultTolerance", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyLatencyFaultTolerance {
    faults: LatencyFaultTolerance,
}

#[pymethods]
impl PyLatencyFaultTolerance {
    #[new]
    #[pyo3(signature = (schedule=None))]
    fn new(schedule: Option<Vec<(u64, u64)>>) -> PyResult<Self> {
        let schedule = match schedule {
            None => Schedule::default(),
            Some(rows) => Schedule::new(&rows)
                .ok_or_else(|| PyValueError::new_err(format!("latencies of a schedule ascend: {rows:?}")))?,
        };
        Ok(Self {
            faults: LatencyFaultTolerance::new(schedule),
        })
    }

    fn update(&self, broker: &str, latency_ms: u64, isolate: bool, reachable: bool, now_ms: i64) {
        self.faults.update(broker, latency_ms, isolate, reachable, now_ms);
    }

    fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        self.faults.is_available(broker, now_ms)
    }

    fn is_reachable(&self, broker: &str) -> bool {
        self.faults.is_reachable(broker)
    }

    fn remove(&self, broker: &str) {
        self.faults.remove(broker);
    }

    /// (latency ms, left out until ms, reachable), or `None` for a broker never heard of.
    fn get(&self, broker: &str) -> Option<(u64, i64, bool)> {
        let fault = self.faults.get(broker)?;
        Some((fault.latency_ms, fault.until_ms, fault.reachable))
    }
}

/// The place of a key among `count` queues, as Apache's hash selector computes it.
#[pyfunction]
fn queue_by_hash(key: &str, count: usize) -> Option<usize> {
    select::by_hash(key, count)
}

/// Java's `String.hashCode`.
#[pyfunction]
fn java_hash(text: &str) -> i32 {
    pyrmq_remoting::message::java_hash::hash(text)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyQueueSelector>()?;
    module.add_class::<PyLatencyFaultTolerance>()?;
    module.add_function(wrap_pyfunction!(queue_by_hash, module)?)?;
    module.add_function(wrap_pyfunction!(java_hash, module)?)
}
