//! A pipe that an event loop waits on.

use crate::errors::Error;
use pyrmq_remoting::sync::lock;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock};

/// A byte in a pipe while there is something to look at: what asyncio can wait for.
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

    /// The pipe of a consumer, made by the first call; `on_arrival` gets what writes to it.
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
        // What came before somebody listened.
        pipe_signal.notify();
        Ok(pipe_signal)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Never blocks: at most one byte is in the pipe.
    pub(crate) fn notify(&self) {
        let mut is_notified = lock(&self.is_notified);
        if !*is_notified {
            *is_notified = (&self.writer).write_all(&[1]).is_ok();
        }
    }

    /// Takes the byte out, if it is there.
    pub(crate) fn reset(&self) {
        let mut is_notified = lock(&self.is_notified);
        if *is_notified {
            *is_notified = (&self.reader).read_exact(&mut [0]).is_err();
        }
    }
}
