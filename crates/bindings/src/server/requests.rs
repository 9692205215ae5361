//! Requests of the control plane on their way to Python workers: `_core.RequestQueue` and `_core.Request`.
//!
//! Rust never calls Python: a worker thread sleeps in [`RequestQueue::take`] and comes back with a batch. A request
//! that is dropped unanswered answers SYSTEM_ERROR by itself (`pyrmq_remoting::net::Reply`), so no peer waits for a
//! worker that died. Workers are never the main thread, so a take waits its whole time detached, without slices.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::command::Command;
use pyrmq_remoting::net::table::{Kind, RowInfo};
use pyrmq_remoting::net::{PythonRequest, Reply, Requests};
use pyrmq_remoting::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The queue between a server's connections and its Python workers.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct RequestQueue {
    requests: Arc<Requests>,
}

impl RequestQueue {
    /// Python's end of a server's queue.
    pub(crate) fn new(requests: Arc<Requests>) -> Self {
        Self { requests }
    }
}

#[pymethods]
impl RequestQueue {
    /// Waits for a request, then returns it and those after it, at most `most`. The list is empty if no request
    /// arrived in time or the queue is closed.
    fn take(&self, py: Python<'_>, most: usize, timeout_ms: u64) -> PyResult<Vec<Request>> {
        let taken = enter::compute(py, || {
            let first = self.requests.take(Duration::from_millis(timeout_ms));
            let mut taken = Vec::with_capacity(first.is_some().into());
            taken.extend(first);
            while !taken.is_empty() && taken.len() < most {
                let Some(next) = self.requests.take(Duration::ZERO) else {
                    break;
                };
                taken.push(next);
            }
            Ok::<_, Error>(taken)
        })?;
        let request = |taken| Request::new(taken, self.requests.clone());
        Ok(taken.into_iter().map(request).collect())
    }

    /// Takes no more requests and wakes every worker.
    fn close(&self) {
        self.requests.close();
    }

    /// True once closed: workers end when they see it and nothing waits.
    #[getter]
    fn closed(&self) -> bool {
        self.requests.is_closed()
    }
}

/// One request, with the right to answer it once.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Request {
    command: Command,
    remote: String,
    // Guards the reply, which is there until the request is answered.
    reply: Mutex<Option<Reply>>,
    at: Instant,
    taken_at: Instant,
    requests: Arc<Requests>,
}

impl Request {
    fn new(request: PythonRequest, requests: Arc<Requests>) -> Self {
        Self {
            remote: request.peer.remote().to_string(),
            command: request.command,
            reply: Mutex::new(Some(request.reply)),
            at: request.at,
            taken_at: Instant::now(),
            requests,
        }
    }
}

#[pymethods]
impl Request {
    /// Request code.
    #[getter]
    fn code(&self) -> i32 {
        self.command.code
    }

    /// The sender's version ordinal; 0 when it did not say.
    #[getter]
    fn version(&self) -> i32 {
        self.command.version
    }

    /// Name of the sender's language.
    #[getter]
    fn language(&self) -> &'static str {
        self.command.language.name()
    }

    /// Address of the sender.
    #[getter]
    fn remote(&self) -> &str {
        &self.remote
    }

    /// True when nobody waits for an answer.
    #[getter]
    fn oneway(&self) -> bool {
        self.command.is_oneway()
    }

    /// The header's fields as a new dict.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (key, value) in self.command.fields.iter() {
            fields.set_item(key, value)?;
        }
        Ok(fields)
    }

    /// One field of the header.
    fn get(&self, key: &str) -> Option<&str> {
        self.command.fields.get(key)
    }

    /// The payload.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.command.body.as_ref().map(|body| PyBytes::new(py, body))
    }

    /// Answers. False: it was answered before.
    #[pyo3(signature = (code, remark=None, fields=None, body=None))]
    fn reply(
        &self,
        code: i32,
        remark: Option<String>,
        fields: Option<&Bound<'_, PyDict>>,
        body: Option<&[u8]>,
    ) -> PyResult<bool> {
        let mut response = Command::response(code);
        response.remark = remark;
        for (key, value) in fields.into_iter().flatten() {
            response
                .fields
                .push(key.extract::<&str>()?, value.extract::<&str>()?);
        }
        response.body = body.map(|body| body.to_vec().into());
        let reply = lock(&self.reply).take();
        Ok(match reply {
            Some(reply) => {
                self.requests.meter().add(self.at.elapsed());
                let (from, times) = (reply.peer().remote(), reply.times(self.taken_at));
                let log = self.requests.log();
                log.served(&self.command, from, times);
                if code != response::SUCCESS {
                    let why = response.remark.as_deref().unwrap_or_default();
                    log.refused(&self.command, from, code, why);
                }
                reply.send(response);
                true
            }
            None => false,
        })
    }

    fn __repr__(&self) -> String {
        format!("Request(code={}, remote='{}')", self.command.code, self.remote)
    }
}

/// A server's rows for Python: code, how it is served, note.
pub(crate) fn rows_of(rows: Vec<RowInfo>) -> Vec<(i32, &'static str, &'static str)> {
    let kind = |kind| match kind {
        Kind::Native => "native",
        Kind::Python => "python",
        Kind::Refused => "refused",
    };
    let rows = rows.into_iter();
    rows.map(|row| (row.code, kind(row.kind), row.note)).collect()
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RequestQueue>()?;
    module.add_class::<Request>()
}
