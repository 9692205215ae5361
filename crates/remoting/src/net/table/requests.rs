//! The queue between the transport and the Python workers. Rust never calls Python: workers pull.

use crate::command::Command;
use crate::meter::Meter;
use crate::net::{Peer, Reply, RequestLog};
use crate::sync::{lock, wait_while};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// One request for a Python worker.
#[derive(Debug)]
pub struct PythonRequest {
    /// The request.
    pub command: Command,
    /// The connection that sent it.
    pub peer: Peer,
    /// The right to answer it.
    pub reply: Reply,
    /// When it arrived.
    pub at: Instant,
}

/// A bounded queue of requests for Python.
#[derive(Debug)]
pub struct Requests {
    capacity: usize,
    // Guards the queue and whether it still accepts requests.
    state: Mutex<State>,
    ready: Condvar,
    meter: Meter,
    log: RequestLog,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<PythonRequest>,
    closed: bool,
}

impl Requests {
    /// Creates a queue of at most `capacity` waiting requests.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
            ready: Condvar::new(),
            meter: Meter::default(),
            log: RequestLog::default(),
        }
    }

    /// Returns the meter of times from arrival to answer. The code that answers a request adds its time.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the log of these requests. The code that answers a request tells it how long that took.
    pub fn log(&self) -> &RequestLog {
        &self.log
    }

    /// Queues a request, or returns it if the queue is full or closed.
    pub fn push(&self, request: PythonRequest) -> Result<(), Box<PythonRequest>> {
        let mut state = lock(&self.state);
        if state.closed || state.queue.len() >= self.capacity {
            return Err(Box::new(request));
        }
        state.queue.push_back(request);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits up to `timeout` for a request. `None`: none arrived, or the queue is closed and empty.
    pub fn take(&self, timeout: Duration) -> Option<PythonRequest> {
        let state = lock(&self.state);
        let mut state = wait_while(&self.ready, state, timeout, |state| {
            state.queue.is_empty() && !state.closed
        });
        state.queue.pop_front()
    }

    /// Returns true once closed. Workers end when it is closed and empty.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Closes the queue to new requests and wakes every worker.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.ready.notify_all();
    }
}
