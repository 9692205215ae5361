//! `_core.Links`: relays that fail on command, for `pyrmq.testing` alone.
//!
//! They run on a thread and a runtime of their own: neither the interpreter's lock nor a server that waits for its disk
//! makes a link slower than its test asks for.

use crate::enter;
use crate::errors::Error;
use crate::runtime::Owner;
use pyo3::prelude::*;
use pyrmq_remoting::net::{Direction, FaultyLink, Passage, Shutdown, Tracker};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::time::timeout;

/// A thread that carries the bytes of links; it ends with this object.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Links {
    owner: Owner,
    handle: Handle,
    stop: Shutdown,
}

/// One relay.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Link {
    owner: Owner,
    handle: Handle,
    relay: FaultyLink,
}

fn cannot(what: &str, cause: &std::io::Error) -> Error {
    Error::Config {
        text: format!("cannot {what}: {cause}"),
    }
}

fn address(text: &str) -> Result<SocketAddr, Error> {
    text.parse().map_err(|_| Error::Config {
        text: format!("a link's address is an IP address and a port: `{text}`"),
    })
}

#[pymethods]
impl Links {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        enter::compute(py, || {
            let stop = Shutdown::new();
            let stopped = stop.clone();
            let (ready, handle) = mpsc::sync_channel(1);
            let run = move || match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    drop(ready.send(Ok(runtime.handle().clone())));
                    runtime.block_on(stopped.stopped());
                }
                Err(cause) => drop(ready.send(Err(cause))),
            };
            let thread = std::thread::Builder::new()
                .name("pyrmq-links".to_owned())
                .spawn(run);
            thread.map_err(|cause| Error::Runtime { cause })?;
            let handle = handle.recv().map_err(|_| Error::Closed {
                what: "the thread of the links",
            })?;
            Ok::<_, Error>(Self {
                owner: Owner::new("a test's links"),
                handle: handle.map_err(|cause| Error::Runtime { cause })?,
                stop,
            })
        })
    }

    /// Listens on `listen` and relays to `target`.
    fn open(&self, py: Python<'_>, listen: &str, target: &str) -> PyResult<Link> {
        enter::compute(py, || {
            self.owner.check()?;
            let (listen, target) = (address(listen)?, address(target)?);
            let relay = FaultyLink::bind(listen, target, &Tracker::new(self.handle.clone()))
                .map_err(|cause| cannot(&format!("listen on {listen}"), &cause))?;
            Ok::<_, Error>(Link {
                owner: self.owner,
                handle: self.handle.clone(),
                relay,
            })
        })
    }

    /// Ends all links at once.
    fn close(&self) {
        if self.owner.is_here() {
            self.stop.stop();
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.close();
    }
}

#[pymethods]
impl Link {
    /// The address on which the link listens.
    #[getter]
    fn address(&self) -> String {
        self.relay.address().to_string()
    }

    /// Delays each piece of bytes of a direction (`requests`, `answers` or `both`) by `micros`.
    fn delay(&self, py: Python<'_>, direction: &str, micros: u64) -> PyResult<()> {
        self.change(py, direction, |way| way.delay = Duration::from_micros(micros))
    }

    /// Limits the bytes per second; 0: no limit.
    fn rate(&self, py: Python<'_>, direction: &str, bytes: u64) -> PyResult<()> {
        self.change(py, direction, |way| way.rate = (bytes > 0).then_some(bytes))
    }

    /// Holds the bytes of a direction back.
    fn hold(&self, py: Python<'_>, direction: &str) -> PyResult<()> {
        self.change(py, direction, |way| way.passage = Passage::Hold)
    }

    /// Drops the bytes of a direction.
    fn lose(&self, py: Python<'_>, direction: &str) -> PyResult<()> {
        self.change(py, direction, |way| way.passage = Passage::Drop)
    }

    /// Resets connections.
    fn cut(&self, py: Python<'_>) -> PyResult<()> {
        self.relay.cut();
        self.settle(py)
    }

    /// Resets connections and refuses new ones, or accepts them again.
    fn refuse(&self, py: Python<'_>, refuses: bool) -> PyResult<()> {
        self.relay.refuse(refuses);
        self.settle(py)
    }

    /// Answers sends with SYSTEM_BUSY for `millis`.
    fn busy(&self, millis: u64) {
        self.relay.busy(Duration::from_millis(millis));
    }

    /// Ends all faults but a refusal of connections.
    fn heal(&self, py: Python<'_>) -> PyResult<()> {
        self.relay.heal();
        self.settle(py)
    }
}

impl Link {
    fn change(
        &self,
        py: Python<'_>,
        direction: &str,
        change: impl Fn(&mut pyrmq_remoting::net::DirectionFaults),
    ) -> PyResult<()> {
        let directions: &[Direction] = match direction {
            "requests" => &[Direction::Requests],
            "answers" => &[Direction::Answers],
            "both" => &[Direction::Requests, Direction::Answers],
            other => {
                let text = format!("`direction` is requests, answers or both: `{other}`");
                return Err(Error::Config { text }.into_py(py));
            }
        };
        for one in directions {
            self.relay.change(*one, &change);
        }
        self.settle(py)
    }

    /// Waits until the change is in force, so that a test continues from a known state.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check_in(py)?;
        enter::wait(py, |slice| {
            let _runtime = self.handle.enter();
            self.handle
                .block_on(async { timeout(slice, self.relay.settle()).await.ok() })
        })
    }
}

/// Adds this file's classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Links>()?;
    module.add_class::<Link>()
}
