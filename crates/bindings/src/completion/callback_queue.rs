//! The queue of an event loop's due future callbacks.
//!
//! It keeps asyncio's guarantees: a callback never runs inside the call that adds it or that ends the future; callbacks
//! run in the order in which they became due, each in its own context; their exceptions go to the loop's exception
//! handler.
//!
//! No lock is held while Python runs or while a Python object is dropped.

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyrmq_remoting::sync::lock;
use std::sync::Mutex;

/// Reports an error to the loop's exception handler.
pub(crate) fn call_exception_handler(
    event_loop: &Bound<'_, PyAny>,
    message: &str,
    error: PyErr,
    future: Option<&Py<PyAny>>,
) -> PyResult<()> {
    let context = PyDict::new(event_loop.py());
    context.set_item("message", message)?;
    context.set_item("exception", error)?;
    if let Some(future) = future {
        context.set_item("future", future)?;
    }
    event_loop.call_method1("call_exception_handler", (context,))?;
    Ok(())
}

/// The callbacks that a loop is to call soon. One loop handle serves them all, which is cheaper than one handle for
/// each.
#[pyclass(frozen, name = "CallbackQueue", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct CallbackQueue {
    pub(crate) event_loop: Py<PyAny>,
    // Guards the due callbacks. The loop has a handle for this queue while it is not empty.
    due: Mutex<Vec<Due>>,
}

#[derive(Debug)]
struct Due {
    call: Py<PyAny>,
    context: Py<PyAny>,
    future: Py<PyAny>,
}

impl CallbackQueue {
    /// Adds a callback that is due.
    pub(crate) fn push(
        slf: &Bound<'_, Self>,
        call: Py<PyAny>,
        context: Py<PyAny>,
        future: Py<PyAny>,
    ) -> PyResult<()> {
        let mut due = lock(&slf.get().due);
        let first = due.is_empty();
        due.push(Due {
            call,
            context,
            future,
        });
        drop(due);
        if first { Self::schedule(slf) } else { Ok(()) }
    }

    fn schedule(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.get().call(py, &slf.getattr(intern!(py, "run"))?)
    }

    /// Makes the loop call `call` after the handles that it is running now.
    pub(crate) fn call(&self, py: Python<'_>, call: &Bound<'_, PyAny>) -> PyResult<()> {
        let event_loop = self.event_loop.bind(py);
        event_loop.call_method1(intern!(py, "call_soon"), (call,))?;
        Ok(())
    }
}

#[pymethods]
impl CallbackQueue {
    #[new]
    fn new(event_loop: Py<PyAny>) -> Self {
        Self {
            event_loop,
            due: Mutex::default(),
        }
    }

    /// Calls what is due. Callbacks that become due meanwhile run after the loop's other handles.
    fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let due = std::mem::take(&mut *lock(&slf.get().due));
        let mut due = due.into_iter();
        while let Some(one) = due.next() {
            let context = one.context.bind(py);
            let Err(error) = context.call_method1(intern!(py, "run"), (&one.call, &one.future)) else {
                continue;
            };
            if error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py) {
                let mut rest: Vec<Due> = due.collect();
                if !rest.is_empty() {
                    let mut came = lock(&slf.get().due);
                    rest.append(&mut came);
                    *came = rest;
                    drop(came);
                    Self::schedule(slf)?;
                }
                return Err(error);
            }
            let event_loop = slf.get().event_loop.bind(py);
            let message = format!("Exception in callback {}", one.call.bind(py).repr()?);
            call_exception_handler(event_loop, &message, error, Some(&one.future))?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        if let Ok(due) = self.due.try_lock() {
            for one in &*due {
                visit.call(&one.call)?;
                visit.call(&one.context)?;
                visit.call(&one.future)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let due = std::mem::take(&mut *lock(&self.due));
        drop(due);
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Python's type hints present `SendFuture` as an asyncio future, and only the accumulator creates one, so its class
    // is not registered.
    module.add_class::<CallbackQueue>()
}
