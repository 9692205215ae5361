//! `_core.NameServer`: a name server of this process, and what its Python rows ask of the tables.

use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owner};
use crate::security::ServerSecurity;
use crate::server::requests::{RequestQueue, rows_of};
use crate::server::stop::{DRAIN, Stop};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyrmq_nameserver::{NameServerError, Options};
use pyrmq_remoting::body::{Body, Style};
use pyrmq_remoting::net::Requests;
use pyrmq_routing::table::{BrokerView, UnitTopics};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A running name server.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct NameServer {
    server: Arc<pyrmq_nameserver::NameServer>,
    requests: Arc<Requests>,
    owner: Owner,
    stop: Stop,
}

impl NameServer {
    fn here(&self, py: Python<'_>) -> PyResult<&pyrmq_nameserver::NameServer> {
        self.owner.check_in(py)?;
        Ok(&self.server)
    }
}

/// An address to listen on as one to dial: the wildcard address as the loopback one.
fn dialled(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address.to_string()
}

fn shown<'py>(py: Python<'py>, broker: &BrokerView) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("cluster", &broker.cluster)?;
    all.set_item("name", &broker.name)?;
    all.set_item("broker_id", broker.id)?;
    all.set_item("address", &broker.address)?;
    all.set_item("advertised", &broker.advertised)?;
    all.set_item("ha_address", &broker.ha_address)?;
    all.set_item("zone", &broker.zone)?;
    all.set_item("software", broker.software)?;
    all.set_item("silent_ms", broker.silent_ms)?;
    all.set_item("timeout_ms", broker.timeout_ms)?;
    all.set_item("topics", broker.topics)?;
    all.set_item("acting_master", broker.acting_master)?;
    all.set_item("table_version", broker.version)?;
    all.set_item("replaced_address", &broker.replaced_address)?;
    Ok(all)
}

fn read(pairs: &[(String, String)]) -> Result<Options, NameServerError> {
    let mut options = Options::default();
    for (key, value) in pairs {
        options.set(key, value)?;
    }
    options.validate()?;
    Ok(options)
}

#[pymethods]
impl NameServer {
    /// Opens the port and serves. Options are texts by Apache's keys.
    #[staticmethod]
    #[pyo3(signature = (options, python_codes, security=None))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn start(
        py: Python<'_>,
        options: Vec<(String, String)>,
        python_codes: Vec<i32>,
        security: Option<&ServerSecurity>,
    ) -> PyResult<Self> {
        let security = security.map(ServerSecurity::inner).unwrap_or_default();
        enter::compute(py, || {
            let runtime = runtime::current()?;
            let _context = runtime.enter();
            let options = read(&options)?;
            let waiting = usize::try_from(options.default_thread_pool_queue_capacity).unwrap_or(usize::MAX);
            let requests = Arc::new(Requests::new(waiting));
            let rows = (Some(&requests), &*python_codes);
            let server =
                pyrmq_nameserver::NameServer::start_secured(options, runtime.handle(), rows, &security)?;
            Ok::<_, Error>(Self {
                server,
                requests,
                owner: Owner::new("the name server"),
                stop: Stop::default(),
            })
        })
    }

    /// Where it listens, as `host:port`; the wildcard address as the loopback one, which can be dialled.
    #[getter]
    fn address(&self) -> String {
        dialled(self.server.address())
    }

    /// The queue of the requests for Python.
    #[getter]
    fn requests(&self) -> RequestQueue {
        RequestQueue::new(self.requests.clone())
    }

    /// The state of the name server.
    fn health<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let health = self.here(py)?.health();
        let all = PyDict::new(py);
        all.set_item("address", self.address())?;
        all.set_item("brokers", health.brokers)?;
        all.set_item("topics", health.topics)?;
        all.set_item("connections", health.connections)?;
        let listeners = PyDict::new(py);
        for (set, address) in self.server.set_listeners() {
            listeners.set_item(set, dialled(*address))?;
        }
        all.set_item("listeners", listeners)?;
        Ok(all)
    }

    /// The counters by name.
    fn stats(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        Ok(self.here(py)?.stats())
    }

    /// Begins the stop; returns at once.
    fn begin_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.here(py)?;
        let runtime = runtime::current().map_err(|error| error.into_py(py))?;
        let server = self.server.clone();
        self.stop.begin(runtime.handle(), async move {
            server.stop(DRAIN).await;
            Ok(())
        });
        Ok(())
    }

    /// Ends the drain of a stop that has begun.
    fn hurry(&self) {
        if self.owner.is_here() {
            self.server.hurry();
        }
    }

    /// Waits for the end of the stop. Returns False if it has not ended in time.
    fn wait_stopped(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        self.here(py)?;
        self.stop.wait(py, Duration::from_millis(timeout_ms))
    }

    /// Changes options while it runs: all of them or none.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn reconfigure(&self, py: Python<'_>, options: Vec<(String, String)>) -> PyResult<()> {
        let server = self.here(py)?;
        enter::compute(py, || server.reconfigure(&options))
    }

    /// Replaces the order configuration (namespace `ORDER_TOPIC_CONFIG`); None where there is no such namespace.
    #[pyo3(signature = (order=None))]
    fn set_order_config(&self, py: Python<'_>, order: Option<BTreeMap<String, String>>) -> PyResult<()> {
        let server = self.here(py)?;
        enter::compute(py, || {
            server.set_order_config(order);
            Ok::<_, Error>(())
        })
    }

    /// All topics, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.topics()))
    }

    /// The topics of a cluster, sorted.
    fn topics_of_cluster(&self, py: Python<'_>, cluster: &str) -> PyResult<Vec<String>> {
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.topics_of_cluster(cluster)))
    }

    /// Cluster and broker names, and the address of any broker.
    fn system_topics(&self, py: Python<'_>) -> PyResult<(Vec<String>, Option<String>)> {
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.system_topics()))
    }

    /// Topics by their unit flags, sorted: `unit`, `has_unit_sub` or `has_unit_sub_ununit`.
    fn unit_topics(&self, py: Python<'_>, which: &str) -> PyResult<Vec<String>> {
        let units = match which {
            "unit" => UnitTopics::Unit,
            "has_unit_sub" => UnitTopics::Subscribed,
            _ => UnitTopics::SubscribedNotUnit,
        };
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.unit_topics(units)))
    }

    /// Removes a topic everywhere or from one cluster.
    #[pyo3(signature = (topic, cluster=None))]
    fn delete_topic(&self, py: Python<'_>, topic: &str, cluster: Option<&str>) -> PyResult<()> {
        let server = self.here(py)?;
        enter::compute(py, || {
            server.delete_topic(topic, cluster);
            Ok::<_, Error>(())
        })
    }

    /// Stops writes to a broker. Returns the number of topics that changed.
    fn wipe_write_perm(&self, py: Python<'_>, broker: &str) -> PyResult<usize> {
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.wipe_write_perm(broker)))
    }

    /// Allows writes to a broker again. Returns the number of topics that changed.
    fn add_write_perm(&self, py: Python<'_>, broker: &str) -> PyResult<usize> {
        let server = self.here(py)?;
        enter::compute(py, || Ok::<_, Error>(server.add_write_perm(broker)))
    }

    /// Every broker process that lives, each as a dict.
    fn brokers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let server = self.here(py)?;
        let brokers = enter::compute(py, || Ok::<_, Error>(server.brokers()))?;
        brokers.into_iter().map(|broker| shown(py, &broker)).collect()
    }

    /// The newest brokers that ended without unregistering: name, cluster, address, milliseconds since then.
    fn lost_brokers(&self, py: Python<'_>) -> PyResult<Vec<(String, String, String, i64)>> {
        let server = self.here(py)?;
        let now_ms = server.uptime_ms();
        let lost = server.lost_brokers().into_iter();
        Ok(lost
            .map(|one| (one.name, one.cluster, one.address, now_ms - one.at_ms))
            .collect())
    }

    /// The route of a topic as its body, fastjson's compact form with quoted names. None: no broker has it.
    fn route<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let server = self.here(py)?;
        let route = enter::compute(py, || Ok::<_, Error>(server.route(topic)))?;
        Ok(route.map(|route| PyBytes::new(py, &route.encode_as(Style::STANDARD))))
    }

    /// Requests of the native rows: kind, counts by duration (up to 1, 2, 4 ... microseconds, then longer),
    /// microseconds of all together.
    fn latencies(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, Vec<u64>, u64)>> {
        let latencies = self.here(py)?.latencies().into_iter();
        Ok(latencies
            .map(|latency| (latency.name, latency.buckets, latency.sum_us))
            .collect())
    }

    /// Milliseconds since the start.
    fn uptime_ms(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.here(py)?.uptime_ms())
    }
}

/// Every request code that the name server knows: code, `native` or `python` or `refused`, note.
#[pyfunction]
fn name_server_rows() -> Vec<(i32, &'static str, &'static str)> {
    rows_of(pyrmq_nameserver::rows())
}

/// Apache's keys of all options that the core of the name server knows.
#[pyfunction]
fn name_server_keys() -> Vec<&'static str> {
    Options::KEYS.to_vec()
}

/// Checks options, texts by Apache's keys, as a start does. Gives the keys whose value is not the default.
#[pyfunction]
fn name_server_check(py: Python<'_>, options: Vec<(String, String)>) -> PyResult<Vec<String>> {
    enter::compute(py, || {
        read(&options)?;
        let mut changed = Vec::new();
        for (key, value) in options {
            let mut alone = Options::default();
            alone.set(&key, &value)?;
            if alone != Options::default() {
                changed.push(key);
            }
        }
        Ok::<_, NameServerError>(changed)
    })
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NameServer>()?;
    module.add_function(wrap_pyfunction!(name_server_rows, module)?)?;
    module.add_function(wrap_pyfunction!(name_server_keys, module)?)?;
    module.add_function(wrap_pyfunction!(name_server_check, module)?)
}
