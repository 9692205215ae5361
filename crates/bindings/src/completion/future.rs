//! The event loop's future for a message's outcome.
//!
//! asyncio knows a future by a protocol (`_asyncio_future_blocking`), so tasks, `gather`, `wait` and `shield` take a
//! [`SendFuture`]. It hands its callbacks to the loop's [`CallbackQueue`], which is why it costs less than an
//! `asyncio.Future` (docs/decisions/0006-send-futures.md).
//!
//! No lock is held while Python runs or while a Python object is dropped.

use crate::completion::callback_queue::{CallbackQueue, call_exception_handler};
use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyrmq_remoting::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// How a future ended.
#[derive(Debug)]
pub(crate) enum End {
    Value(Py<PyAny>),
    Error(Py<PyAny>),
    Cancelled(Option<Py<PyAny>>),
}

/// The future of one message.
#[pyclass(frozen, weakref, name = "Delivery", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct SendFuture {
    callback_queue: Py<CallbackQueue>,
    end: OnceLock<End>,
    // Guards the callbacks that wait for the end; empty once the future has ended.
    waiting: Mutex<Waiting>,
    // asyncio's flag: true from `yield` until the task has seen it.
    blocking: AtomicBool,
    // Whether the error was retrieved; one that never is gets reported.
    retrieved: AtomicBool,
}

/// The callbacks of a future. There is nearly always one, which needs no allocation.
#[derive(Debug, Default)]
struct Waiting {
    first: Option<(Py<PyAny>, Py<PyAny>)>,
    more: Vec<(Py<PyAny>, Py<PyAny>)>,
}

impl SendFuture {
    pub(crate) fn new(callback_queue: Py<CallbackQueue>) -> Self {
        Self {
            callback_queue,
            end: OnceLock::new(),
            waiting: Mutex::default(),
            blocking: AtomicBool::new(false),
            retrieved: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.end.get().is_some()
    }

    /// Ends the future. False: it had ended before.
    pub(crate) fn complete(slf: &Bound<'_, Self>, end: End) -> PyResult<bool> {
        let this = slf.get();
        if this.end.set(end).is_err() {
            return Ok(false);
        }
        let waiting = std::mem::take(&mut *lock(&this.waiting));
        for (call, context) in waiting.first.into_iter().chain(waiting.more) {
            CallbackQueue::push(
                this.callback_queue.bind(slf.py()),
                call,
                context,
                slf.clone().into_any().unbind(),
            )?;
        }
        Ok(true)
    }

    /// The value, or the error to raise.
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.end.get() {
            Some(End::Value(value)) => Ok(value.clone_ref(py)),
            Some(End::Error(error)) => {
                self.retrieved.store(true, Ordering::Release);
                Err(PyErr::from_value(error.bind(py).clone()))
            }
            Some(End::Cancelled(message)) => Err(cancelled(py, message.as_ref())?),
            None => Err(not_ready(py, "Result is not ready.")?),
        }
    }
}

fn cancelled(py: Python<'_>, message: Option<&Py<PyAny>>) -> PyResult<PyErr> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let kind = KIND.import(py, "asyncio", "CancelledError")?;
    let error = match message {
        None => kind.call0()?,
        Some(message) => kind.call1((message,))?,
    };
    Ok(PyErr::from_value(error))
}

fn not_ready(py: Python<'_>, text: &str) -> PyResult<PyErr> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let kind = KIND.import(py, "asyncio", "InvalidStateError")?;
    Ok(PyErr::from_value(kind.call1((text,))?))
}

fn current_context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    static COPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(COPY.import(py, "contextvars", "copy_context")?.call0()?.unbind())
}

#[pymethods]
impl SendFuture {
    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> bool {
        self.blocking.load(Ordering::Acquire)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.blocking.store(blocking, Ordering::Release);
    }

    #[getter(_cancel_message)]
    fn message(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match self.end.get() {
            Some(End::Cancelled(message)) => message.as_ref().map(|message| message.clone_ref(py)),
            _ => None,
        }
    }

    #[pyo3(name = "_make_cancelled_error")]
    fn make_cancelled_error(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let message = self.message(py);
        Ok(cancelled(py, message.as_ref())?.into_value(py).into_any())
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.callback_queue.get().event_loop.clone_ref(py)
    }

    fn done(&self) -> bool {
        self.is_done()
    }

    fn cancelled(&self) -> bool {
        matches!(self.end.get(), Some(End::Cancelled(_)))
    }

    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        Self::complete(slf, End::Cancelled(msg))
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome(py)
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.end.get() {
            Some(End::Value(_)) => Ok(None),
            Some(End::Error(error)) => {
                self.retrieved.store(true, Ordering::Release);
                Ok(Some(error.clone_ref(py)))
            }
            Some(End::Cancelled(message)) => Err(cancelled(py, message.as_ref())?),
            None => Err(not_ready(py, "Exception is not set.")?),
        }
    }

    #[pyo3(signature = (call, /, *, context=None))]
    fn add_done_callback(slf: &Bound<'_, Self>, call: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => context,
            None => current_context(py)?,
        };
        let this = slf.get();
        if !this.is_done() {
            let mut waiting = lock(&this.waiting);
            if !this.is_done() {
                if waiting.first.is_none() && waiting.more.is_empty() {
                    waiting.first = Some((call, context));
                } else {
                    waiting.more.push((call, context));
                }
                return Ok(());
            }
        }
        CallbackQueue::push(
            this.callback_queue.bind(py),
            call,
            context,
            slf.clone().into_any().unbind(),
        )
    }

    fn remove_done_callback(&self, py: Python<'_>, call: &Bound<'_, PyAny>) -> PyResult<usize> {
        // Comparing runs Python code, so the lock is released first.
        let all = std::mem::take(&mut *lock(&self.waiting));
        let (mut kept, mut removed) = (Waiting::default(), Vec::new());
        for (other, context) in all.first.into_iter().chain(all.more) {
            if other.bind(py).eq(call)? {
                removed.push((other, context));
            } else {
                kept.more.push((other, context));
            }
        }
        let mut waiting = lock(&self.waiting);
        kept.more.extend(waiting.first.take());
        kept.more.append(&mut waiting.more);
        *waiting = kept;
        drop(waiting);
        Ok(removed.len())
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// An awaiting task gets the future itself until there is an outcome, then the outcome.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        if this.is_done() {
            let value = this.outcome(py)?;
            return Err(PyStopIteration::new_err((value,)));
        }
        this.blocking.store(true, Ordering::Release);
        Ok(slf.clone().into_any().unbind())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.end.get() {
            None => "<Delivery pending>".to_owned(),
            Some(End::Value(value)) => format!("<Delivery result={}>", value.bind(py).repr()?),
            Some(End::Error(error)) => format!("<Delivery exception={}>", error.bind(py).repr()?),
            Some(End::Cancelled(_)) => "<Delivery cancelled>".to_owned(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callback_queue)?;
        match self.end.get() {
            Some(End::Value(object) | End::Error(object) | End::Cancelled(Some(object))) => {
                visit.call(object)?;
            }
            Some(End::Cancelled(None)) | None => {}
        }
        if let Ok(waiting) = self.waiting.try_lock() {
            for (call, context) in waiting.first.iter().chain(&waiting.more) {
                visit.call(call)?;
                visit.call(context)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        drop(waiting);
    }
}

impl Drop for SendFuture {
    fn drop(&mut self) {
        let Some(End::Error(error)) = self.end.get() else {
            return;
        };
        if *self.retrieved.get_mut() {
            return;
        }
        // As asyncio does: an error that was never retrieved is reported.
        Python::try_attach(|py| {
            let error = PyErr::from_value(error.bind(py).clone());
            let event_loop = self.callback_queue.get().event_loop.bind(py);
            if let Err(raised) = call_exception_handler(
                event_loop,
                "a message's exception was never retrieved",
                error,
                None,
            ) {
                raised.write_unraisable(py, None);
            }
        });
    }
}
