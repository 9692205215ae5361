//! The one way from Python into calls that block or take long: there is no other `detach` in this crate.
//!
//! A thread waits detached from the interpreter, in slices, and checks for signals between them. So other Python
//! threads run meanwhile, and Ctrl-C ends every wait within a slice.

use crate::errors::Error;
use crate::runtime;
use pyo3::prelude::*;
use std::future::Future;
use std::time::Duration;

/// How long a thread waits before it checks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Runs bounded work (computing or copying) detached from the interpreter.
pub(crate) fn compute<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| error.into().into_py(py))
}

/// Calls `poll` until it returns a value. Each call may wait no longer than the slice that it is given.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut poll: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(|| poll(SLICE)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// Drives a future on this thread, with the runtime's timers and sockets. A signal drops the future where it is.
pub(crate) fn block_on<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    future: impl Future<Output = Result<T, E>> + Send,
) -> PyResult<T> {
    let runtime = runtime::current().map_err(|error| error.into_py(py))?;
    let mut future = std::pin::pin!(future);
    wait(py, |slice| {
        runtime.block_on(async { tokio::time::timeout(slice, future.as_mut()).await.ok() })
    })?
    .map_err(|error| error.into().into_py(py))
}
