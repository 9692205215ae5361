//! The queue between the transport and the Python workers. Rust never calls Python: workers pull.

use super::{Meter, Peer, Reply};
use crate::command::Command;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One request on its way to a Python worker.
#[derive(Debug)]
pub struct PythonRequest {
    /// The request.
    pub command: Command,
    /// Who asked.
    pub peer: Peer,
    /// The answer's way back.
    pub reply: Reply,
    /// When it came.
    pub at: Instant,
}

/// A bounded queue of requests for Python.
#[derive(Debug)]
pub struct Requests {
    capacity: usize,
    // Guards the queue and whether it still takes requests.
    state: Mutex<State>,
    ready: Condvar,
    meter: Meter,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<PythonRequest>,
    closed: bool,
}

impl Requests {
    /// A queue of at most `capacity` waiting requests.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
            ready: Condvar::new(),
            meter: Meter::default(),
        }
    }

    /// From arrival to answer, of the requests that were answered. Whoever answers one adds it.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Queues a request, or gives it back when the queue is full or closed.
    pub fn push(&self, request: PythonRequest) -> Result<(), Box<PythonRequest>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.queue.len() >= self.capacity {
            return Err(Box::new(request));
        }
        state.queue.push_back(request);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits up to `timeout` for a request. `None`: nothing came, or the queue is closed and empty.
    pub fn take(&self, timeout: Duration) -> Option<PythonRequest> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .ready
            .wait_timeout_while(state, timeout, |state| state.queue.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.queue.pop_front()
    }

    /// True once closed: workers end when they see it and the queue is empty.
    pub fn is_closed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Takes no more requests and wakes every worker.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.ready.notify_all();
    }
}
