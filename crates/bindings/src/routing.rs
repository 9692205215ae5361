//! Queue selection, latency fault tolerance, filters and queue allocation, usable on their own as `pyrmq.routing`.
#![allow(
    clippy::needless_pass_by_value,
    reason = "pyo3 creates the lists for the call and passes them by value"
)]

use crate::errors::Error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyString;
use pyrmq_routing::allocate::{self, AllocateError, AllocatedQueue};
use pyrmq_routing::fault::{LatencyFaultTolerance, OnBroker, Schedule};
use pyrmq_routing::filter::Filter;
use pyrmq_routing::select::{self, QueueSelector};

/// A queue from Python: broker name and queue id.
struct Named {
    broker: String,
    index: usize,
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

    /// The index of the chosen queue in `brokers`, the broker names of the queues; `None` if there are none.
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
            .map(|(index, broker)| Named { broker, index })
            .collect();
        let chosen = match faults {
            Some(faults) => self
                .selector
                .select_available(&queues, last_broker, &faults.faults, now_ms),
            None => self.selector.select(&queues, last_broker),
        };
        chosen.map(|queue| queue.index)
    }
}

/// Which brokers were slow or unreachable.
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
            Some(rows) => Schedule::new(&rows).ok_or_else(|| {
                PyValueError::new_err(format!("a schedule's latencies must ascend: {rows:?}"))
            })?,
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

    /// (latency in ms, avoided until ms, reachable); `None` for an unknown broker.
    fn get(&self, broker: &str) -> Option<(u64, i64, bool)> {
        let fault = self.faults.get(broker)?;
        Some((fault.latency_ms, fault.until_ms, fault.reachable))
    }
}

/// The index of a key's queue among `count` queues, as Apache's hash selector computes it.
#[pyfunction]
fn queue_by_hash(key: &str, count: usize) -> Option<usize> {
    select::by_hash(key, count)
}

/// Java's `String.hashCode`.
#[pyfunction]
fn java_hash(text: &str) -> i32 {
    pyrmq_remoting::message::java_hash::hash(text)
}

/// A compiled SQL92 filter.
#[pyclass(frozen, name = "Filter", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyFilter {
    filter: Filter,
}

#[pymethods]
impl PyFilter {
    #[new]
    fn new(py: Python<'_>, expression: &Bound<'_, PyString>) -> PyResult<Self> {
        // No message can contain a lone surrogate, so it becomes a replacement character.
        let text = expression.to_string_lossy();
        match Filter::compile(&text) {
            Ok(filter) => Ok(Self { filter }),
            Err(error) => Err(Error::Filter(error).into_py(py)),
        }
    }

    /// The properties that the filter names.
    fn names(&self) -> Vec<&str> {
        self.filter.names().iter().map(|name| &**name).collect()
    }

    /// Evaluates the filter for the values of `names()`, in their order.
    fn evaluate(&self, py: Python<'_>, values: Vec<Bound<'_, PyAny>>) -> PyResult<Option<bool>> {
        let texts = self.texts(&values)?;
        self.filter
            .evaluate_with(|slot| texts.get(slot)?.as_deref())
            .map_err(|error| {
                let position = self.filter.position(error.offset);
                Error::NoResult {
                    position,
                    mismatch: error.mismatch,
                }
                .into_py(py)
            })
    }

    /// Whether `evaluate` returns true. Values that cannot be compared do not match.
    fn matches(&self, values: Vec<Bound<'_, PyAny>>) -> PyResult<bool> {
        let texts = self.texts(&values)?;
        Ok(self.filter.evaluate_with(|slot| texts.get(slot)?.as_deref()) == Ok(Some(true)))
    }
}

impl PyFilter {
    fn texts(&self, values: &[Bound<'_, PyAny>]) -> PyResult<Vec<Option<PyBackedStr>>> {
        let names = self.filter.names().iter();
        let text = |(name, value): (_, &Bound<'_, PyAny>)| match value.cast::<PyString>() {
            Ok(text) => Ok(Some(PyBackedStr::try_from(text.clone())?)),
            Err(_) if value.is_none() => Ok(None),
            Err(_) => Err(PyTypeError::new_err(format!(
                "the property `{name}` is {}, not text: pass str(value)",
                value.get_type().name()?
            ))),
        };
        names.zip(values).map(text).collect()
    }
}

/// The client's index in the group, which all strategies need.
fn client_index(
    py: Python<'_>,
    client: &str,
    queues: usize,
    clients: &[PyBackedStr],
) -> PyResult<Option<usize>> {
    allocate::check(client, queues, clients).map_err(|error| refused(py, error))
}

fn refused(py: Python<'_>, error: AllocateError) -> PyErr {
    Error::Allocate(error).into_py(py)
}

/// The indexes in `queues` of the client's queues: a contiguous block.
#[pyfunction]
fn allocate_average(
    py: Python<'_>,
    client: &str,
    queues: usize,
    clients: Vec<PyBackedStr>,
) -> PyResult<Vec<usize>> {
    let index = client_index(py, client, queues, &clients)?;
    let mine = index.map(|index| allocate::average(queues, clients.len(), index));
    Ok(mine.into_iter().flatten().collect())
}

/// The indexes in `queues` of the client's queues: every n-th, for n clients.
#[pyfunction]
fn allocate_average_by_circle(
    py: Python<'_>,
    client: &str,
    queues: usize,
    clients: Vec<PyBackedStr>,
) -> PyResult<Vec<usize>> {
    let index = client_index(py, client, queues, &clients)?;
    let mine = index.map(|index| allocate::average_by_circle(queues, clients.len(), index));
    Ok(mine.into_iter().flatten().collect())
}

/// The indexes of the client's queues on the hash ring; `queues` are topic, broker name and queue id.
#[pyfunction]
fn allocate_consistent_hash(
    py: Python<'_>,
    client: &str,
    queues: Vec<(PyBackedStr, PyBackedStr, i32)>,
    clients: Vec<PyBackedStr>,
    virtual_nodes: usize,
) -> PyResult<Vec<usize>> {
    if client_index(py, client, queues.len(), &clients)?.is_none() {
        return Ok(Vec::new());
    }
    let queues: Vec<AllocatedQueue<'_>> = queues
        .iter()
        .map(|(topic, broker, queue_id)| AllocatedQueue {
            topic,
            broker,
            queue_id: *queue_id,
        })
        .collect();
    allocate::consistent_hash(&queues, &clients, client, virtual_nodes).map_err(|error| refused(py, error))
}

/// The indexes of the client's queues among those whose broker is in `rooms`; `brokers` names each queue's broker.
#[pyfunction]
fn allocate_machine_room(
    py: Python<'_>,
    client: &str,
    brokers: Vec<PyBackedStr>,
    clients: Vec<PyBackedStr>,
    rooms: Vec<PyBackedStr>,
) -> PyResult<Vec<usize>> {
    let index = client_index(py, client, brokers.len(), &clients)?;
    let mine = index.map(|index| allocate::machine_room(&brokers, &rooms, clients.len(), index));
    Ok(mine.unwrap_or_default())
}

/// Groups of queues, as indexes, with the clients that share each group.
#[pyfunction]
fn allocate_nearby(
    py: Python<'_>,
    client: &str,
    queue_rooms: Vec<PyBackedStr>,
    clients: Vec<PyBackedStr>,
    client_rooms: Vec<PyBackedStr>,
) -> PyResult<Vec<(Vec<usize>, Vec<usize>)>> {
    let Some(index) = client_index(py, client, queue_rooms.len(), &clients)? else {
        return Ok(Vec::new());
    };
    let shares = allocate::nearby(&queue_rooms, &client_rooms, index).map_err(|error| refused(py, error))?;
    Ok(shares
        .into_iter()
        .map(|share| (share.queues, share.clients))
        .collect())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyQueueSelector>()?;
    module.add_class::<PyLatencyFaultTolerance>()?;
    module.add_function(wrap_pyfunction!(queue_by_hash, module)?)?;
    module.add_function(wrap_pyfunction!(java_hash, module)?)?;
    module.add_class::<PyFilter>()?;
    module.add_function(wrap_pyfunction!(allocate_average, module)?)?;
    module.add_function(wrap_pyfunction!(allocate_average_by_circle, module)?)?;
    module.add_function(wrap_pyfunction!(allocate_consistent_hash, module)?)?;
    module.add_function(wrap_pyfunction!(allocate_machine_room, module)?)?;
    module.add_function(wrap_pyfunction!(allocate_nearby, module)?)
}
