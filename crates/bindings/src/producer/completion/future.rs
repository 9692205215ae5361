//! The future of a message's outcome in an event loop, and the callbacks that such futures owe.
//!
//! An `asyncio.Future` asks its loop for a handle for each callback, which costs more than the send. A [`SendFuture`]
//! is what asyncio calls a future by its protocol (`_asyncio_future_blocking`; tasks, `gather`, `wait`, `shield` take
//! it) and hands its callbacks to the loop's one [`CallbackQueue`], which has one handle for all that are due. What
//! asyncio promises holds: callbacks never run inside the call that adds them or ends the future, they run in the order
//! in which they came due, each in its context, and what they raise goes to the loop's exception handler.
//!
//! No lock is held while Python runs or an object of Python's is dropped.

use pyo3::exceptions::{PyKeyboardInterrupt, PyStopIteration, PySystemExit};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How a message's future ended.
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
    soon: Py<CallbackQueue>,
    end: OnceLock<End>,
    // Guards who is to be told of the end; empty once there is one.
    waiting: Mutex<Waiting>,
    // asyncio's: true from `yield` until the task has seen it.
    blocking: AtomicBool,
    // Somebody has looked at the error.
    retrieved: AtomicBool,
}

/// Nearly always one: it needs no memory of its own.
#[derive(Debug, Default)]
struct Waiting {
    first: Option<(Py<PyAny>, Py<PyAny>)>,
    more: Vec<(Py<PyAny>, Py<PyAny>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SendFuture {
    pub(crate) fn new(soon: Py<CallbackQueue>) -> Self {
        Self {
            soon,
            end: OnceLock::new(),
            waiting: Mutex::default(),
            blocking: AtomicBool::new(false),
            retrieved: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.end.get().is_some()
    }

    /// Ends it, unless it has ended: true when this was the end.
    pub(crate) fn complete(slf: &Bound<'_, Self>, end: End) -> PyResult<bool> {
        let this = slf.get();
        if this.end.set(end).is_err() {
            return Ok(false);
        }
        let told = std::mem::take(&mut *locked(&this.waiting));
        for (call, context) in told.first.into_iter().chain(told.more) {
            CallbackQueue::push(this.soon.bind(slf.py()), call, context, slf.clone().unbind())?;
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
        self.soon.get().event_loop.clone_ref(py)
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
            let mut waiting = locked(&this.waiting);
            if !this.is_done() {
                if waiting.first.is_none() && waiting.more.is_empty() {
                    waiting.first = Some((call, context));
                } else {
                    waiting.more.push((call, context));
                }
                return Ok(());
            }
        }
        CallbackQueue::push(this.soon.bind(py), call, context, slf.clone().unbind())
    }

    fn remove_done_callback(&self, py: Python<'_>, call: &Bound<'_, PyAny>) -> PyResult<usize> {
        // Comparing runs Python: out of the lock.
        let all = std::mem::take(&mut *locked(&self.waiting));
        let (mut kept, mut removed) = (Waiting::default(), Vec::new());
        for (other, context) in all.first.into_iter().chain(all.more) {
            if other.bind(py).eq(call)? {
                removed.push((other, context));
            } else {
                kept.more.push((other, context));
            }
        }
        let mut waiting = locked(&self.waiting);
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

    /// What awaits it gets the future itself while there is no outcome, then the outcome.
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
        visit.call(&self.soon)?;
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
        let told = std::mem::take(&mut *locked(&self.waiting));
        drop(told);
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
        // As asyncio's: a failed message that nobody asked for is told of all the same.
        Python::try_attach(|py| {
            let error = PyErr::from_value(error.bind(py).clone());
            let event_loop = self.soon.get().event_loop.bind(py);
            if let Err(raised) = told_of(
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

/// Tells the loop's exception handler.
fn told_of(
    event_loop: &Bound<'_, PyAny>,
    message: &str,
    error: PyErr,
    future: Option<&Py<SendFuture>>,
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

/// What a loop shall call soon: one handle for all callbacks that are due.
#[pyclass(frozen, name = "CallbackQueue", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct CallbackQueue {
    event_loop: Py<PyAny>,
    // Guards what is due; the loop has a handle while it is not empty.
    due: Mutex<Vec<Due>>,
}

#[derive(Debug)]
struct Due {
    call: Py<PyAny>,
    context: Py<PyAny>,
    future: Py<SendFuture>,
}

impl CallbackQueue {
    fn push(
        slf: &Bound<'_, Self>,
        call: Py<PyAny>,
        context: Py<PyAny>,
        future: Py<SendFuture>,
    ) -> PyResult<()> {
        let mut due = locked(&slf.get().due);
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

    /// Has the loop call something behind what it runs now.
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

    /// Calls what is due; what comes due meanwhile has its turn after the loop's others.
    fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let due = std::mem::take(&mut *locked(&slf.get().due));
        let mut due = due.into_iter();
        while let Some(one) = due.next() {
            let context = one.context.bind(py);
            let Err(error) = context.call_method1(intern!(py, "run"), (&one.call, &one.future)) else {
                continue;
            };
            if error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py) {
                let mut rest: Vec<Due> = due.collect();
                if !rest.is_empty() {
                    let mut came = locked(&slf.get().due);
                    rest.append(&mut came);
                    *came = rest;
                    drop(came);
                    Self::schedule(slf)?;
                }
                return Err(error);
            }
            let event_loop = slf.get().event_loop.bind(py);
            let message = format!("Exception in callback {}", one.call.bind(py).repr()?);
            told_of(event_loop, &message, error, Some(&one.future))?;
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
        let due = std::mem::take(&mut *locked(&self.due));
        drop(due);
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A `SendFuture` is made by the accumulator alone; to Python's types it is a future of asyncio.
    module.add_class::<CallbackQueue>()
}
