//! The rebalance events of a polled consumer: Python takes each event, calls the application, and ends the event.

use crate::completion::{self, QueueRef, ReplyTo};
use crate::consumer::control::{keys_of, queue_ref_of};
use crate::runtime::Owned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrmq_client::consumer::puller::Puller;
use pyrmq_client::consumer::rebalance_events::RebalanceKind;
use std::sync::Arc;

/// The events of one consumer. Frozen and shared by threads.
#[pyclass(frozen, name = "RebalanceEvents", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyRebalanceEvents {
    puller: Owned<Puller>,
}

fn kind_of(name: &str) -> PyResult<RebalanceKind> {
    match name {
        "assigned" => Ok(RebalanceKind::Assigned),
        "revoked" => Ok(RebalanceKind::Revoked),
        "lost" => Ok(RebalanceKind::Lost),
        other => Err(PyValueError::new_err(format!("unknown event {other:?}"))),
    }
}

fn name_of(kind: RebalanceKind) -> &'static str {
    match kind {
        RebalanceKind::Assigned => "assigned",
        RebalanceKind::Revoked => "revoked",
        RebalanceKind::Lost => "lost",
    }
}

impl PyRebalanceEvents {
    pub(crate) fn new(puller: Arc<Puller>) -> Self {
        Self {
            puller: Owned::new("this consumer", puller),
        }
    }
}

#[pymethods]
impl PyRebalanceEvents {
    /// The next event: its kind and its queues. With `all_done`, messages handed out from revoked queues are done.
    fn next(&self, py: Python<'_>, all_done: bool) -> PyResult<Option<(&'static str, Vec<QueueRef>)>> {
        self.puller.check_in(py)?;
        let event = self.puller.next_rebalance_event(all_done);
        Ok(event.map(|event| {
            let queue_refs = event.queues.iter().map(|key| queue_ref_of(&self.puller, key));
            (name_of(event.kind), queue_refs.collect())
        }))
    }

    /// Ends an event whose callback has ended. With `to` the outcome goes there: see `completion::run`.
    #[pyo3(signature = (kind, queues, has_returned, to=None))]
    fn end(
        &self,
        py: Python<'_>,
        kind: &str,
        queues: Vec<QueueRef>,
        has_returned: bool,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.puller.check_in(py)?;
        let keys = keys_of(&self.puller, queues);
        let kind = kind_of(kind)?;
        let puller = self.puller.clone();
        completion::run(py, to, async move {
            puller.end_rebalance_event(kind, &keys, has_returned).await
        })
    }

    /// Revokes the queues of a topic that is being left. Returns False if the topic is not subscribed to.
    fn retire(&self, py: Python<'_>, topic: &str) -> PyResult<bool> {
        self.puller.check_in(py)?;
        Ok(self.puller.retire(&self.puller.options().client.wrap(topic)))
    }

    /// Revokes all queues, since the consumer ends. In a forked child nothing is done: the queues are the parent's.
    fn retire_all(&self) {
        if self.puller.is_here() {
            self.puller.retire_all();
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRebalanceEvents>()
}
