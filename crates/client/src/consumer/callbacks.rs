//! Work that only the caller's language can do: its own allocation strategy, the stacks of its threads, a call of a
//! listener.
//!
//! Nothing here calls into that language. A callback waits in a list until one of its threads takes it, and the answer
//! comes back by number. Without such a thread every callback fails at once.

use crate::consumer::process_queue::{Chunk, QueueKey};
use pyrmq_remoting::sync::{lock, wait_while};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time for an answer: brokers wait no longer for answers to their requests.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Callback {
    /// Which of these queues are this member's.
    Allocate {
        /// All queues of the topic, sorted.
        queues: Vec<QueueKey>,
        /// The client ids of the group, sorted.
        members: Vec<String>,
    },
    /// Where the threads of the listeners are.
    Stacks,
    /// Call the listener for a message, and report the outcome.
    Consume {
        /// The message.
        chunk: Arc<Chunk>,
    },
}

/// What the callback gave.
#[derive(Debug, Clone)]
pub enum CallbackAnswer {
    /// Indexes of queues.
    Indexes(Vec<usize>),
    /// A text.
    Text(String),
    /// How a listener's call ended: Apache's `CMResult` and a remark.
    Consumed {
        /// `CR_SUCCESS`, `CR_LATER`, `CR_THROW_EXCEPTION`.
        result: &'static str,
        /// What the listener raised.
        remark: Option<String>,
    },
}

#[derive(Debug, Default)]
struct CallbackState {
    is_served: bool,
    next: u64,
    waiting: VecDeque<(u64, Callback)>,
    taken: HashMap<u64, oneshot::Sender<CallbackAnswer>>,
    /// The wait for the next callback shall end.
    is_woken: bool,
    is_closed: bool,
}

/// Callbacks that wait, and those that wait for their answer.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    // Guards the list and the answers that are awaited.
    state: Mutex<CallbackState>,
    changed: Condvar,
}

impl Callbacks {
    fn state(&self) -> MutexGuard<'_, CallbackState> {
        lock(&self.state)
    }

    /// Queues a callback, and waits for the answer; `None` if no thread takes callbacks, or no answer came in time.
    pub(crate) async fn call(&self, callback: Callback) -> Option<CallbackAnswer> {
        let (number, answer) = {
            let mut state = self.state();
            if !state.is_served || state.is_closed {
                return None;
            }
            state.next += 1;
            let number = state.next;
            let (sender, receiver) = oneshot::channel();
            state.taken.insert(number, sender);
            state.waiting.push_back((number, callback));
            self.changed.notify_one();
            (number, receiver)
        };
        let answer = tokio::time::timeout(ANSWER_TIME, answer).await;
        if answer.is_err() {
            let mut state = self.state();
            state.taken.remove(&number);
            state.waiting.retain(|(waiting, _)| *waiting != number);
        }
        answer.ok().and_then(Result::ok)
    }

    /// Records that a thread takes callbacks from now on.
    pub(crate) fn serve(&self) {
        self.state().is_served = true;
    }

    /// The next callback with its number; waits up to `slice`. `Ready(None)`: the wait was ended before.
    pub(crate) fn take(&self, slice: Duration) -> Poll<Option<(u64, Callback)>> {
        let idle =
            |state: &mut CallbackState| state.waiting.is_empty() && !state.is_woken && !state.is_closed;
        let mut state = wait_while(&self.changed, self.state(), slice, idle);
        let is_over = std::mem::take(&mut state.is_woken) || state.is_closed;
        let next = state.waiting.pop_front();
        if is_over || next.is_some() {
            Poll::Ready(next)
        } else {
            Poll::Pending
        }
    }

    /// Ends the wait for the next callback, or the next such wait.
    pub(crate) fn wake(&self) {
        self.state().is_woken = true;
        self.changed.notify_all();
    }

    /// Gives the answer to the callback with this number. One that comes too late is dropped.
    pub(crate) fn answer(&self, number: u64, answer: CallbackAnswer) {
        if let Some(sender) = self.state().taken.remove(&number) {
            // If this fails, the caller no longer waits.
            drop(sender.send(answer));
        }
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.taken.clear();
        state.waiting.clear();
        self.changed.notify_all();
    }
}
