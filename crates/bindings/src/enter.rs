//! The one way from Python into calls that block or take long: there is no other `detach` in this crate.
//!
//! A wait is done detached from the interpreter, in slices, with a check for signals between them: Ctrl-C ends every
//! wait within a slice, other threads run meanwhile.

use crate::errors::Error;
use crate::runtime;
use pyo3::prelude::*;
use std::future::Future;
use std::time::Duration;

/// How long one stretch of waiting lasts before signals are looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Runs work that is bounded (it computes, or copies much) without the interpreter.
pub(crate) fn compute<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| error.into().into_py(py))
}

/// Calls `poll` until it has a value: each call waits at most the slice it is given.
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

/// Drives a future on this thread, with the runtime's timers and sockets. A signal drops the future where it stands.
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
