//! `_core.Broker`: a broker of this process, and what its request codes are served by.

use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owner};
use crate::security::ServerSecurity;
use crate::server::metrics;
use crate::server::requests::{RequestQueue, rows_of};
use crate::server::stop::{DRAIN, Stop};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyrmq_broker::Options;
use pyrmq_remoting::net::{Requests, Security};
use pyrmq_store::fs::{DiskFaults, FaultyFs};
use pyrmq_store::{Fs, RealFs};
use std::sync::Arc;
use std::time::Duration;

/// A running broker.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Broker {
    inner: Arc<pyrmq_broker::Broker>,
    requests: Arc<Requests>,
    owner: Owner,
    stop: Stop,
}

impl Broker {
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn start_over(
        py: Python<'_>,
        fs: Arc<dyn Fs>,
        options: Vec<(String, String)>,
        python_codes: Vec<i32>,
        security: Security,
    ) -> PyResult<Self> {
        enter::compute(py, || {
            let runtime = runtime::current()?;
            let _context = runtime.enter();
            let pairs = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let (options, _) = Options::read(pairs)?;
            let waiting = usize::try_from(options.admin_broker_thread_pool_queue_capacity).unwrap_or(1);
            let requests = Arc::new(Requests::new(waiting));
            let rows = (Some(&requests), &*python_codes);
            let inner = pyrmq_broker::Broker::start_secured(&fs, options, runtime.handle(), rows, &security)?;
            Ok::<_, Error>(Self {
                inner,
                requests,
                owner: Owner::new("the broker"),
                stop: Stop::default(),
            })
        })
    }
}

#[pymethods]
impl Broker {
    /// Opens the store and the ports, and serves. Options are texts by Apache's keys.
    #[staticmethod]
    #[pyo3(signature = (options, python_codes, security=None))]
    fn start(
        py: Python<'_>,
        options: Vec<(String, String)>,
        python_codes: Vec<i32>,
        security: Option<&ServerSecurity>,
    ) -> PyResult<Self> {
        Self::start_over(
            py,
            Arc::new(RealFs),
            options,
            python_codes,
            security.map(ServerSecurity::inner).unwrap_or_default(),
        )
    }

    /// Starts a broker on a disk that fails on command, for `pyrmq.testing` alone; see [`Broker::start`].
    #[staticmethod]
    fn start_on(
        py: Python<'_>,
        disk: &Disk,
        options: Vec<(String, String)>,
        python_codes: Vec<i32>,
    ) -> PyResult<Self> {
        let fs = Arc::new(disk.fs.clone());
        Self::start_over(py, fs, options, python_codes, Security::default())
    }

    /// The address that clients get from name servers, as `host:port`.
    #[getter]
    fn address(&self) -> String {
        self.inner.address()
    }

    /// Waits until the first registration has succeeded or failed at every name server; `timeout` in seconds.
    fn await_first_round(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.owner.check_in(py)?;
        let limit = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        enter::block_on(py, async {
            self.inner.context().announcements.first_round(limit).await;
            Ok::<_, Error>(())
        })
    }

    /// Applies the live options among these, texts by Apache's keys.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn reconfigure(&self, py: Python<'_>, options: Vec<(String, String)>) -> PyResult<()> {
        self.owner.check_in(py)?;
        enter::compute(py, || {
            let pairs = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let (options, _) = Options::read(pairs)?;
            self.inner.reconfigure(&options)?;
            Ok::<_, Error>(())
        })
    }

    /// The queue of the requests for Python.
    #[getter]
    fn requests(&self) -> RequestQueue {
        RequestQueue::new(self.requests.clone())
    }

    /// The state of the broker and its store.
    fn health<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.owner.check_in(py)?;
        let health = self.inner.health();
        let store = PyDict::new(py);
        store.set_item("min_physical_offset", health.store.min_physical_offset)?;
        store.set_item("max_physical_offset", health.store.max_physical_offset)?;
        store.set_item("flushed_offset", health.store.flushed_offset)?;
        store.set_item("dispatch_behind_bytes", health.store.dispatch_behind_bytes)?;
        store.set_item("disk_ratio", health.store.disk_ratio)?;
        store.set_item("disk_free_bytes", health.store.disk_free_bytes)?;
        store.set_item("read_only", health.store.read_only)?;
        store.set_item("has_failed", health.store.has_failed)?;
        store.set_item("damage", health.store.damage)?;
        store.set_item("durability", health.store.durability.name())?;
        let busy = PyDict::new(py);
        busy.set_item("held", health.store.busy.held)?;
        busy.set_item("waited", health.store.busy.waited)?;
        busy.set_item("overload", health.store.busy.overload)?;
        busy.set_item("longest_ms", health.store.busy.longest_ms)?;
        busy.set_item("waiting_for_lock", health.store.busy.waiting_for_lock)?;
        busy.set_item("waiting_for_disk", health.store.busy.waiting_for_disk)?;
        busy.set_item("oldest_ms", health.store.busy.oldest_ms)?;
        store.set_item("busy", busy)?;
        store.set_item("queues", health.store.queues)?;
        store.set_item("recovered_from_crash", health.store.recovered_from_crash)?;
        let descriptors = PyDict::new(py);
        descriptors.set_item("limit", health.descriptors.limit)?;
        descriptors.set_item("reserved", health.descriptors.reserved)?;
        descriptors.set_item("connections", health.descriptors.connections)?;
        descriptors.set_item("refused", health.descriptors.refused)?;
        let unfinished = PyDict::new(py);
        unfinished.set_item("bytes", health.unfinished.bytes)?;
        unfinished.set_item("limit", health.unfinished.limit)?;
        unfinished.set_item("closed", health.unfinished.closed)?;
        let all = PyDict::new(py);
        all.set_item("descriptors", descriptors)?;
        all.set_item("unfinished_requests", unfinished)?;
        all.set_item("address", self.inner.address())?;
        all.set_item("name_servers", health.name_servers)?;
        all.set_item("registered", health.registered)?;
        all.set_item("consumers", health.consumers)?;
        all.set_item("producers", health.producers)?;
        all.set_item("waiting_pulls", health.waiting_pulls)?;
        all.set_item("store", store)?;
        Ok(all)
    }

    /// What the metrics port reads, by kind.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.owner.check_in(py)?;
        metrics::read(py, self.inner.context())
    }

    /// For how long the oldest message that waits for each (group, topic) has been stored, ms.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn lag_ms(&self, py: Python<'_>, pairs: Vec<(String, String)>) -> PyResult<Vec<i64>> {
        self.owner.check_in(py)?;
        enter::compute(py, || {
            Ok::<_, Error>(metrics::lag_ms(self.inner.context(), &pairs))
        })
    }

    /// Begins the stop; returns at once.
    fn begin_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check_in(py)?;
        let runtime = runtime::current().map_err(|error| error.into_py(py))?;
        let broker = self.inner.clone();
        self.stop
            .begin(runtime.handle(), async move { Ok(broker.stop(DRAIN).await?) });
        Ok(())
    }

    /// Ends the drain of a stop that has begun.
    fn hurry(&self) {
        if self.owner.is_here() {
            self.inner.hurry();
        }
    }

    /// Waits for the end of the stop. Returns False if it has not ended in time.
    fn wait_stopped(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        self.owner.check_in(py)?;
        self.stop.wait(py, Duration::from_millis(timeout_ms))
    }
}

/// A disk that fails on command, for `pyrmq.testing` alone.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Disk {
    fs: FaultyFs,
}

#[pymethods]
impl Disk {
    #[new]
    fn new() -> Self {
        Self {
            fs: FaultyFs::new(Arc::new(RealFs)),
        }
    }

    /// Sets how many bytes may still be written before the disk is full.
    fn full(&self, free_bytes: u64) {
        self.fs.change(|faults| faults.free_bytes = Some(free_bytes));
    }

    /// Delays each write and each fsync by this time.
    fn slow(&self, micros: u64) {
        self.fs
            .change(|faults| faults.slow = Duration::from_micros(micros));
    }

    /// Lets writes fail.
    fn fail_writes(&self) {
        self.fs.change(|faults| faults.fail_writes = true);
    }

    /// Lets every fsync fail.
    fn fail_syncs(&self) {
        self.fs.change(|faults| faults.fail_syncs = true);
    }

    /// Lets reads fail.
    fn fail_reads(&self) {
        self.fs.change(|faults| faults.fail_reads = true);
    }

    /// Ends all faults.
    fn heal(&self) {
        self.fs.change(|faults| *faults = DiskFaults::default());
    }
}

/// Every request code that the broker knows: code, `native` or `python` or `refused`, note.
#[pyfunction]
fn broker_rows() -> Vec<(i32, &'static str, &'static str)> {
    rows_of(pyrmq_broker::rows())
}

/// Apache's keys of all options that the broker and its store know.
#[pyfunction]
fn broker_keys() -> Vec<&'static str> {
    Options::KEYS
        .iter()
        .chain(pyrmq_store::Options::KEYS)
        .copied()
        .collect()
}

/// Checks options, texts by Apache's keys, as a start does. Gives the keys whose value is not the default.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
fn broker_check(py: Python<'_>, options: Vec<(String, String)>) -> PyResult<Vec<String>> {
    enter::compute(py, || {
        let mut changed = Vec::new();
        for (key, value) in &options {
            let (alone, _) = Options::read([(key.as_str(), value.as_str())])?;
            if alone != Options::default() {
                changed.push(key.clone());
            }
        }
        Options::read(options.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        Ok::<_, Error>(changed)
    })
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Broker>()?;
    module.add_class::<Disk>()?;
    module.add_function(wrap_pyfunction!(broker_rows, module)?)?;
    module.add_function(wrap_pyfunction!(broker_keys, module)?)?;
    module.add_function(wrap_pyfunction!(broker_check, module)?)
}
