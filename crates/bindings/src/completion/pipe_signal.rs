//! A pipe that wakes an event loop.

use crate::errors::Error;
use pyo3::{PyResult, Python};
use pyrmq_remoting::sync::lock;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock};

/// A pipe that holds one byte while there is something to read elsewhere. asyncio can wait for it.
#[derive(Debug)]
pub(crate) struct PipeSignal {
    reader: PipeReader,
    writer: PipeWriter,
    // Guards whether the byte is in the pipe.
    is_notified: Mutex<bool>,
}

impl PipeSignal {
    pub(crate) fn new() -> Result<Self, Error> {
        let (reader, writer) = std::io::pipe().map_err(|cause| Error::Runtime { cause })?;
        Ok(Self {
            reader,
            writer,
            is_notified: Mutex::new(false),
        })
    }

    pub(crate) fn fd(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Makes the pipe readable. Never blocks: the pipe holds at most one byte.
    pub(crate) fn notify(&self) {
        let mut is_notified = lock(&self.is_notified);
        if !*is_notified {
            *is_notified = (&self.writer).write_all(&[1]).is_ok();
        }
    }

    /// Takes the byte out of the pipe, if there is one.
    pub(crate) fn reset(&self) {
        let mut is_notified = lock(&self.is_notified);
        if *is_notified {
            *is_notified = (&self.reader).read_exact(&mut [0]).is_err();
        }
    }
}

/// A consumer's pipe; there is none until an event loop asks for its descriptor.
#[derive(Debug, Default)]
pub(crate) struct ArrivalSignal(OnceLock<Arc<PipeSignal>>);

impl ArrivalSignal {
    /// The descriptor. The first call creates the pipe and gives `on_arrival` the function that writes to it.
    pub(crate) fn fd(
        &self,
        py: Python<'_>,
        on_arrival: impl FnOnce(Arc<dyn Fn() + Send + Sync>),
    ) -> PyResult<i32> {
        if let Some(pipe_signal) = self.0.get() {
            return Ok(pipe_signal.fd());
        }
        let made = Arc::new(PipeSignal::new().map_err(|error| error.into_py(py))?);
        let pipe_signal = self.0.get_or_init(|| made).clone();
        let notified = pipe_signal.clone();
        on_arrival(Arc::new(move || notified.notify()));
        // Messages may have arrived before anybody listened.
        pipe_signal.notify();
        Ok(pipe_signal.fd())
    }

    /// Takes the byte out of the pipe, if there is one.
    pub(crate) fn reset(&self) {
        if let Some(pipe_signal) = self.0.get() {
            pipe_signal.reset();
        }
    }
}
