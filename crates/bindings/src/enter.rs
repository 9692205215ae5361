//! The one way from Python into calls that block or take long: there is no other `detach` in this crate.
//!
//! A thread waits detached from the interpreter, in slices, and checks for signals between them. So other Python
//! threads run meanwhile, and Ctrl-C ends every wait within a slice.

use crate::errors::Error;
use crate::runtime;
use pyo3::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a thread waits before it checks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// How long one of the package's own threads waits before it checks what it waits for. Signals are handled in the main
/// thread and a result wakes its waiter, so the check only makes up for a lost wake-up.
const LONG_SLICE: Duration = Duration::from_secs(5);

/// Runs bounded work (computing or copying) detached from the interpreter.
pub(crate) fn compute<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| error.into().into_py(py))
}

/// Calls `poll` until it returns a value. Each call may wait no longer than the slice that it is given.
pub(crate) fn wait<T: Send>(py: Python<'_>, poll: impl FnMut(Duration) -> Option<T> + Send) -> PyResult<T> {
    wait_in(py, SLICE, poll)
}

/// Calls `poll` like [`wait`], but in long slices: for a thread that gets no signals and should rarely wake up.
pub(crate) fn wait_quietly<T: Send>(
    py: Python<'_>,
    poll: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<T> {
    wait_in(py, LONG_SLICE, poll)
}

fn wait_in<T: Send>(
    py: Python<'_>,
    slice: Duration,
    mut poll: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(|| poll(slice)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// A task of the runtime that ends with the wait for it.
struct Awaited<T>(JoinHandle<T>);

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Drives a future on this thread for a slice, then on the runtime, and waits for its outcome. So a quick call costs no
/// change of threads, and a slow one continues while the handler of a signal runs in this thread. The handler may call
/// the object whose locks the future holds; an exception that it raises ends the future.
pub(crate) fn run<T: Send + 'static, E: Into<Error> + Send + 'static>(
    py: Python<'_>,
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> PyResult<T> {
    run_boxed(py, Box::pin(future))
}

/// Drives a future like [`run`]. What is compiled for each type of outcome would otherwise be compiled for each call.
fn run_boxed<T: Send + 'static, E: Into<Error> + Send + 'static>(
    py: Python<'_>,
    mut future: Pin<Box<dyn Future<Output = Result<T, E>> + Send>>,
) -> PyResult<T> {
    let runtime = runtime::current().map_err(|error| error.into_py(py))?;
    let finished = py.detach(|| runtime.block_on(async { timeout(SLICE, future.as_mut()).await.ok() }));
    if let Some(outcome) = finished {
        return outcome.map_err(|error| error.into().into_py(py));
    }
    let mut task = Awaited(runtime.spawn(future));
    py.check_signals()?;
    let ended = wait(py, |slice| {
        runtime.block_on(async { timeout(slice, &mut task.0).await.ok() })
    })?;
    match ended {
        Ok(outcome) => outcome.map_err(|error| error.into().into_py(py)),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Closed { what: "the runtime" }.into_py(py)),
    }
}

/// Drives a future on this thread, with the runtime's timers and sockets. A signal drops the future where it is. While
/// the handler of a signal runs, the future does not continue: it must hold no lock across an await (see [`run`]).
pub(crate) fn block_on<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    future: impl Future<Output = Result<T, E>> + Send,
) -> PyResult<T> {
    block_on_pinned(py, std::pin::pin!(future))
}

fn block_on_pinned<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    mut future: Pin<&mut (dyn Future<Output = Result<T, E>> + Send + '_)>,
) -> PyResult<T> {
    let runtime = runtime::current().map_err(|error| error.into_py(py))?;
    wait(py, |slice| {
        runtime.block_on(async { timeout(slice, future.as_mut()).await.ok() })
    })?
    .map_err(|error| error.into().into_py(py))
}
