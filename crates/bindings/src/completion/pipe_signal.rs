//! A pipe that wakes an event loop.

use crate::errors::Error;
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

    /// A consumer's pipe, created by the first call. `on_arrival` gets the function that writes to it.
    pub(crate) fn once(
        kept: &OnceLock<Arc<Self>>,
        on_arrival: impl FnOnce(Arc<dyn Fn() + Send + Sync>),
    ) -> Result<Arc<Self>, Error> {
        if let Some(pipe_signal) = kept.get() {
            return Ok(pipe_signal.clone());
        }
        let made = Arc::new(Self::new()?);
        let pipe_signal = kept.get_or_init(|| made).clone();
        let notified = pipe_signal.clone();
        on_arrival(Arc::new(move || notified.notify()));
        // Messages may have arrived before anybody listened.
        pipe_signal.notify();
        Ok(pipe_signal)
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
