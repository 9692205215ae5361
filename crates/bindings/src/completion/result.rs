//! `pyrmq.SendResult`: where a message is stored.

use crate::errors::attempts_of;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyrmq_client::error::{Attempt, id_at};
use pyrmq_client::producer::{SendResult, SendStatus};
use pyrmq_remoting::message::Durability;
use std::sync::Arc;

/// One message's share of a frame's outcome. Its strings are created when they are read.
#[pyclass(frozen, name = "SendResult", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PySendResult {
    frame: Arc<SendResult>,
    // The message's index in its batch; `None` for a message that was sent alone.
    item: Option<u32>,
}

impl PySendResult {
    /// `item`: the message's index, when the frame is a batch.
    pub(crate) fn of(frame: Arc<SendResult>, item: Option<u32>) -> Self {
        Self { frame, item }
    }

    /// The values by which two results are compared.
    fn parts(&self) -> impl PartialEq + '_ {
        let frame = &*self.frame;
        (
            (frame.status, &frame.topic, &frame.broker, frame.queue_id),
            (self.queue_offset(), self.message_id(), self.offset_message_id()),
            (&frame.transaction_id, &frame.recall_handle, frame.durability),
            (frame.attempts, frame.may_be_duplicate, &frame.failed_attempts),
        )
    }
}

#[pymethods]
impl PySendResult {
    #[getter]
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let module = PyModule::import(py, "pyrmq.message")?;
        module.getattr("SendStatus")?.get_item(self.frame.status.name())
    }

    #[getter]
    fn message_id(&self) -> &str {
        id_at(&self.frame.message_id, self.item)
    }

    #[getter]
    fn offset_message_id(&self) -> &str {
        let ids = &self.frame.offset_message_id;
        let item = self.item.map(|item| item as usize);
        item.and_then(|item| ids.split(',').nth(item)).unwrap_or(ids)
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.frame.topic
    }

    #[getter]
    fn broker(&self) -> &str {
        &self.frame.broker
    }

    #[getter]
    fn queue_id(&self) -> i32 {
        self.frame.queue_id
    }

    #[getter]
    fn queue_offset(&self) -> i64 {
        self.frame.queue_offset + i64::from(self.item.unwrap_or(0))
    }

    #[getter]
    fn transaction_id(&self) -> Option<&str> {
        self.frame.transaction_id.as_deref()
    }

    #[getter]
    fn recall_handle(&self) -> Option<&str> {
        self.frame.recall_handle.as_deref()
    }

    #[getter]
    fn attempts(&self) -> u32 {
        self.frame.attempts
    }

    #[getter]
    fn durability(&self) -> Option<&'static str> {
        self.frame.durability.map(Durability::name)
    }

    #[getter]
    fn may_be_duplicate(&self) -> bool {
        self.frame.may_be_duplicate
    }

    /// The attempts that failed before this one succeeded.
    #[getter]
    fn failed_attempts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        attempts_of(py, &self.frame.failed_attempts)
    }

    /// For pickling and copying: the function that rebuilds the result, and its arguments.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Parts)> {
        let frame = &*self.frame;
        let failed_attempts = frame.failed_attempts.iter();
        let parts = (
            (
                frame.status.name().to_owned(),
                frame.topic.to_string(),
                frame.broker.to_string(),
                frame.queue_id,
                self.queue_offset(),
            ),
            (
                self.message_id().to_owned(),
                self.offset_message_id().to_owned(),
                frame.transaction_id.clone(),
                frame.recall_handle.clone(),
            ),
            (
                frame.attempts,
                frame.durability.map(|level| level.name().to_owned()),
                frame.may_be_duplicate,
            ),
            failed_attempts.map(unmade).collect(),
        );
        Ok((
            PyModule::import(py, "pyrmq._core")?.getattr("remade_result")?,
            parts,
        ))
    }

    fn __repr__(&self) -> String {
        let mut again = String::new();
        if self.frame.attempts > 1 {
            let failed_attempts: Vec<String> = self
                .frame
                .failed_attempts
                .iter()
                .map(ToString::to_string)
                .collect();
            again = format!(
                ", attempts={}, failed=[{}]",
                self.frame.attempts,
                failed_attempts.join("; ")
            );
        }
        let level = match self.frame.durability {
            Some(level) => format!(", durability={:?}", level.name()),
            None => String::new(),
        };
        let twice = if self.frame.may_be_duplicate {
            ", may_be_duplicate=True"
        } else {
            ""
        };
        format!(
            "SendResult({}, topic={:?}, broker={:?}, queue_id={}, queue_offset={}, message_id={:?}{level}{again}{twice})",
            self.frame.status.name(),
            &*self.frame.topic,
            &*self.frame.broker,
            self.queue_id(),
            self.queue_offset(),
            self.message_id(),
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| self.parts() == other.get().parts())
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.message_id().hash(&mut hasher);
        self.queue_offset().hash(&mut hasher);
        hasher.finish()
    }
}

/// A pickled result: where it is stored, its ids, its status, and the failed attempts.
type Parts = (
    (String, String, String, i32, i64),
    (String, String, Option<String>, Option<String>),
    (u32, Option<String>, bool),
    Vec<AttemptParts>,
);

/// A pickled failed attempt.
type AttemptParts = (u32, String, i32, u64, u64, String, bool);

fn unmade(attempt: &Attempt) -> AttemptParts {
    (
        attempt.number,
        attempt.broker.to_string(),
        attempt.queue_id,
        attempt.began_ms,
        attempt.took_ms,
        attempt.cause.clone(),
        attempt.may_exist,
    )
}

/// Rebuilds a result from the arguments that `SendResult.__reduce__` returned.
#[pyfunction]
fn remade_result(
    outcome: (String, String, String, i32, i64),
    ids: (String, String, Option<String>, Option<String>),
    stored: (u32, Option<String>, bool),
    failed_attempts: Vec<AttemptParts>,
) -> PyResult<PySendResult> {
    let (status, topic, broker, queue_id, queue_offset) = outcome;
    let (message_id, offset_message_id, transaction_id, recall_handle) = ids;
    let (attempts, durability, may_be_duplicate) = stored;
    let status = SendStatus::from_name(&status)
        .ok_or_else(|| PyValueError::new_err(format!("{status:?} is not the status of a send")))?;
    let attempt = |(number, broker, queue_id, began_ms, took_ms, cause, may_exist): AttemptParts| Attempt {
        number,
        broker: broker.into(),
        queue_id,
        began_ms,
        took_ms,
        cause,
        may_exist,
    };
    let frame = SendResult {
        status,
        topic: topic.into(),
        broker: broker.into(),
        queue_id,
        queue_offset,
        message_id,
        offset_message_id,
        transaction_id,
        recall_handle,
        attempts,
        durability: durability.as_deref().and_then(Durability::of_name),
        may_be_duplicate,
        failed_attempts: failed_attempts.into_iter().map(attempt).collect(),
    };
    Ok(PySendResult::of(Arc::new(frame), None))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySendResult>()?;
    module.add_function(wrap_pyfunction!(remade_result, module)?)
}
