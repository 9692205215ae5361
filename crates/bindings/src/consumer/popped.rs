//! A message that was handed out for a time: `pyrmq.PoppedMessage`, and its `pyrmq.Receipt`.

use crate::errors::Error;
use crate::received::PyReceived;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::ClientOptions;
use pyrmq_client::consumer::pop::answer::Popped;
use pyrmq_client::consumer::pop::receipt::Receipt;
use std::sync::Arc;
use std::time::Instant;

/// What acknowledges a message.
#[pyclass(frozen, name = "Receipt", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PyReceipt {
    receipt: Arc<Receipt>,
}

#[pymethods]
impl PyReceipt {
    #[new]
    fn new(py: Python<'_>, topic: &str, handle: &str) -> PyResult<Self> {
        let receipt = Receipt::parse(topic, handle).map_err(|error| Error::from(error).into_py(py))?;
        Ok(Self {
            receipt: Arc::new(receipt),
        })
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.receipt.topic
    }

    #[getter]
    fn broker(&self) -> &str {
        &self.receipt.broker
    }

    #[getter]
    fn handle(&self) -> String {
        self.receipt.handle()
    }

    #[getter]
    fn time_left(&self) -> f64 {
        let left = self.receipt.until().saturating_duration_since(Instant::now());
        left.as_secs_f64()
    }

    #[getter]
    fn is_used(&self) -> bool {
        self.receipt.is_used()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String, String)) {
        let receipt = &slf.get().receipt;
        (
            slf.get_type().into_any(),
            (receipt.topic.to_string(), receipt.handle()),
        )
    }

    fn __repr__(&self) -> String {
        format!(
            "Receipt(topic={:?}, handle={:?})",
            &*self.receipt.topic,
            self.receipt.handle()
        )
    }
}

/// A message with its receipt.
#[pyclass(frozen, extends = PyReceived, name = "PoppedMessage", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PyPopped {
    receipt: Arc<Receipt>,
}

#[pymethods]
impl PyPopped {
    #[getter]
    fn receipt(&self) -> PyReceipt {
        PyReceipt {
            receipt: self.receipt.clone(),
        }
    }
}

/// A message, or its receipt.
#[derive(FromPyObject)]
pub(crate) enum MessageOrReceipt<'py> {
    Message(PyRef<'py, PyPopped>),
    Receipt(PyRef<'py, PyReceipt>),
}

impl MessageOrReceipt<'_> {
    pub(crate) fn into_receipt(self) -> Arc<Receipt> {
        match self {
            Self::Message(message) => message.receipt.clone(),
            Self::Receipt(receipt) => receipt.receipt.clone(),
        }
    }
}

/// Messages, in order.
pub(crate) fn to_list<'py>(
    py: Python<'py>,
    taken: Vec<Popped>,
    options: &ClientOptions,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for message in taken {
        let base = PyReceived::of_popped(message.chunk, message.index, message.tries, options);
        let receipt = message.receipt;
        let made = PyClassInitializer::from(base).add_subclass(PyPopped { receipt });
        list.append(Py::new(py, made)?)?;
    }
    Ok(list)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReceipt>()?;
    module.add_class::<PyPopped>()
}
