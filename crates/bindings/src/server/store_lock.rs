//! The lock of a store's directory, for the log tools of the command line.

use pyo3::exceptions::{PyBlockingIOError, PyOSError};
use pyo3::prelude::*;
use pyrmq_remoting::sync::lock;
use pyrmq_store::fs::{Fs, LockGuard, RealFs, is_locked_here};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

/// Holds a lock file until it is released or dropped.
#[pyclass(frozen, module = "pyrmq._core")]
struct StoreLock {
    guard: Mutex<Option<Box<dyn LockGuard>>>,
}

#[pymethods]
impl StoreLock {
    /// Takes the lock. Raises `BlockingIOError` where a broker or a tool has it, in this process or another one.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it converts")]
    fn new(path: PathBuf) -> PyResult<Self> {
        let guard = RealFs.lock(&path).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            if error.kind() == io::ErrorKind::WouldBlock {
                PyBlockingIOError::new_err(text)
            } else {
                PyOSError::new_err(text)
            }
        })?;
        Ok(Self {
            guard: Mutex::new(Some(guard)),
        })
    }

    /// Releases the lock, which may have been released already.
    fn release(&self) {
        *lock(&self.guard) = None;
    }
}

/// Whether this process holds a lock file. Whoever opened the file to ask the system would take the lock away by
/// closing it.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it converts")]
fn is_store_locked_here(path: PathBuf) -> bool {
    is_locked_here(&path)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StoreLock>()?;
    module.add_function(wrap_pyfunction!(is_store_locked_here, module)?)
}
