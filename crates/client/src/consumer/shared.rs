//! The state that the parts of a consumer share: its connections, and its queues with their fetched messages.

use crate::consumer::callbacks::Callbacks;
use crate::consumer::failure_counts::Counts;
use crate::consumer::options::{Order, PullerOptions, Start};
use crate::consumer::pop::listening::PopListener;
use crate::consumer::process_queue::share::Share;
use crate::consumer::process_queue::{Messages, ProcessQueue, QueueKey};
use crate::consumer::rates::Counted;
use crate::consumer::requests::offsets::Offsets;
use crate::consumer::requests::queue_lock::QueueLocks;
use crate::consumer::requests::send_back::SendBack;
use crate::error::{ClientError, Uncommitted};
use crate::session::heartbeat::Heartbeat;
use crate::session::routes::Routes;
use pyrmq_remoting::net::{Client, Shutdown, Tracker};
use pyrmq_remoting::sync::lock;
use pyrmq_routing::route::PublishedQueue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

pub(crate) struct ConsumerShared {
    pub(crate) options: PullerOptions,
    pub(crate) start: Start,
    pub(crate) routes: Routes,
    pub(crate) offsets: Offsets,
    pub(crate) send_back: SendBack,
    pub(crate) counts: Arc<Counts>,
    /// Messages received and done lately, pulled or popped. Nothing else is locked under it.
    pub(crate) counted: Arc<Mutex<Counted>>,
    pub(crate) callbacks: Callbacks,
    /// When it was made, ms.
    pub(crate) started_ms: i64,
    /// Where this member of a broadcasting group continues: from its file, and for queues that it has left.
    pub(crate) local_offsets: Mutex<BTreeMap<QueueKey, i64>>,
    pub(crate) locks: QueueLocks,
    /// Gets the messages of topics that the group pops; `None` for consumers that never pop.
    pub(crate) pops: Option<PopListener>,
    /// Version ordinal in the last answer of a broker about the group's members; `i32::MAX` before it.
    pub(crate) broker_version: AtomicI32,
    /// Every other time, popped messages are handed out before pulled ones.
    pub(crate) is_pop_turn: AtomicBool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) shutdown: Shutdown,
    pub(crate) rebalance: Notify,
    pub(crate) client: Client,
    pub(crate) tracker: Tracker,
    // Runs the end of the consumer, which waits for the tasks of `tracker`.
    pub(crate) ending: Tracker,
    // Guards how the end went.
    pub(crate) outcome: Mutex<Result<(), ClientError>>,
    // Held while queues are taken or given back: another taker of the same queues waits until they have begun.
    pub(crate) taking: tokio::sync::Mutex<()>,
    pub(crate) generation: AtomicU64,
    // Guards the assigned queues and their fetched messages.
    pub(crate) state: Mutex<ConsumerState>,
    pub(crate) arrived: Condvar,
    // Notified when a queue was given back.
    pub(crate) gave_back: Notify,
}

#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a state of its own: any of them may hold together"
)]
pub(crate) struct ConsumerState {
    pub(crate) queues: BTreeMap<Arc<QueueKey>, ProcessQueue>,
    /// Queues with messages to hand out, each once: polls take them in turn.
    pub(crate) ready: VecDeque<Arc<QueueKey>>,
    /// Threads that sleep until something is ready.
    pub(crate) sleepers: usize,
    /// The error of the next poll.
    pub(crate) failure: Option<ClientError>,
    pub(crate) closed: bool,
    /// The consumer ends: listeners get only what a clean end needs.
    pub(crate) is_draining: bool,
    /// A change of the queues waits to be reported by a poll.
    pub(crate) has_events: bool,
    /// Queues that are gone, which no poll has reported yet.
    pub(crate) lost: Vec<Arc<QueueKey>>,
    /// Topics that were left, which brokers do not know yet.
    pub(crate) retired: BTreeSet<Box<str>>,
    /// Queues that went to other members with messages that were returned and not committed, each with the offset after
    /// the last one.
    pub(crate) uncommitted: BTreeMap<Arc<QueueKey>, i64>,
    /// No more queues are taken.
    pub(crate) is_ending: bool,
    /// The consumer is being closed: it neither takes queues nor gives any back, and commits those that it has.
    pub(crate) is_closing: bool,
    /// Queues that are being given back, each with the position that is not committed yet. `None`: only its lock is
    /// given back.
    pub(crate) giving_back: BTreeMap<Arc<QueueKey>, Option<i64>>,
    /// Positions that could not be committed, of queues that were given back while the consumer was being closed.
    pub(crate) unsaved: Vec<Uncommitted>,
    /// Subscriptions that have begun, by number: their topics.
    pub(crate) joining: BTreeMap<u64, Arc<str>>,
    /// The input of each topic's last allocation.
    pub(crate) allocation_inputs: BTreeMap<Arc<str>, AllocationInput>,
    pub(crate) waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// The input of an allocation of a topic's queues.
pub(crate) struct AllocationInput {
    /// The client ids of the group.
    pub(crate) members: Vec<String>,
    pub(crate) queues: Vec<PublishedQueue>,
}

impl fmt::Debug for ConsumerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerShared")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl ConsumerState {
    pub(crate) fn is_ready(&self) -> bool {
        self.closed || self.is_draining || self.has_events || self.failure.is_some() || !self.ready.is_empty()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a queue to those with something to hand out, once.
    pub(crate) fn make_ready(&mut self, key: &Arc<QueueKey>) {
        if let Some(queue) = self.queues.get_mut(key)
            && !std::mem::replace(&mut queue.is_ready, true)
        {
            self.ready.push_back(key.clone());
        }
    }

    /// Takes the next queue with something to hand out.
    pub(crate) fn next_ready(&mut self) -> Option<Arc<QueueKey>> {
        let key = self.ready.pop_front()?;
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.is_ready = false;
        }
        Some(key)
    }

    pub(crate) fn share(&self, options: &PullerOptions) -> Share {
        Share::new(options.ahead_bytes, options.ahead_messages, self.queues.len())
    }

    /// A queue, unless it was given back or moved since it had this generation.
    pub(crate) fn queue(&mut self, key: &QueueKey, generation: u64) -> Option<&mut ProcessQueue> {
        let queue = self.queues.get_mut(key);
        queue.filter(|queue| queue.generation == generation)
    }

    pub(crate) fn take(
        &mut self,
        max: usize,
        (options, counted): (&PullerOptions, &Mutex<Counted>),
        again: &mut Vec<Arc<QueueKey>>,
    ) -> Result<Vec<Messages>, ClientError> {
        if self.closed {
            return Err(ClientError::Closed { what: "consumer" });
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for queue in self.queues.values_mut() {
            if queue.confirmable > 0 {
                let messages = std::mem::take(&mut queue.confirmable);
                lock(counted).finished(&queue.key.topic, messages, 0, Duration::ZERO);
            }
            queue.done = queue.delivered;
        }
        if self.has_events() {
            return Ok(Vec::new());
        }
        let share = self.share(options);
        let mut taken = Vec::new();
        let mut left = max;
        while left > 0
            && let Some(key) = self.next_ready()
        {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            if queue.is_paused || queue.settling.is_some() || !queue.phase.is_held() {
                continue;
            }
            if let Some(messages) = queue.deliver(left) {
                left -= messages.end - messages.first;
                queue.confirmable += messages.end - messages.first;
                taken.push(messages);
            }
            if queue.wants_pull(share) {
                again.push(key.clone());
            }
            if queue.has_messages() {
                self.make_ready(&key);
            }
        }
        Ok(taken)
    }
}

impl ConsumerShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, ConsumerState> {
        lock(&self.state)
    }

    /// Whether queues must be locked before they are read.
    pub(crate) fn needs_locks(&self) -> bool {
        self.options.order == Order::Queue && !self.options.is_broadcasting
    }

    /// Whether popped messages wait for a listener.
    pub(crate) fn has_popped(&self) -> bool {
        self.pops.as_ref().is_some_and(PopListener::is_ready)
    }

    /// Wakes listeners when messages were popped.
    pub(crate) fn follow_pops(self: &Arc<Self>) {
        let Some(pops) = &self.pops else {
            return;
        };
        let weak = Arc::downgrade(self);
        pops.shared.state().waker = Some(Arc::new(move || {
            if let Some(shared) = weak.upgrade() {
                let state = shared.state();
                shared.wake(&state);
            }
        }));
    }

    /// Runs a change of the queues to its end, even if its caller is interrupted: half a change would leave queues that
    /// are not read, or whose last commit is lost.
    pub(crate) async fn uninterrupted<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, ClientError>> + Send + 'static,
    ) -> Result<T, ClientError> {
        let (result_sender, outcome) = oneshot::channel();
        self.tracker.spawn(async move {
            if let Err(Err(error)) = result_sender.send(change.await) {
                tracing::warn!(%error, "a change of the queues failed after its caller was interrupted");
            }
        });
        let what = "a change of the queues";
        outcome.await.unwrap_or(Err(ClientError::Aborted { what }))
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn close(&self) -> BTreeMap<Arc<QueueKey>, ProcessQueue> {
        let mut state = self.state();
        state.closed = true;
        let queues = std::mem::take(&mut state.queues);
        self.callbacks.close();
        state.ready.clear();
        self.wake(&state);
        queues
    }

    pub(crate) fn wake(&self, state: &ConsumerState) {
        self.notify(state.sleepers, state.closed);
        if let Some(waker) = &state.waker {
            waker();
        }
    }

    /// Unlocks first: a thread that is woken while its waker has the lock would have to be woken a second time.
    pub(crate) fn unlock_and_wake(&self, state: MutexGuard<'_, ConsumerState>) {
        let (sleepers, closed, waker) = (state.sleepers, state.closed, state.waker.clone());
        drop(state);
        self.notify(sleepers, closed);
        if let Some(waker) = waker {
            waker();
        }
    }

    fn notify(&self, sleepers: usize, closed: bool) {
        // A notification is a system call even if no thread sleeps. Waking one listener is enough: each wakes the next.
        if sleepers == 0 {
            return;
        }
        if self.options.is_listening && !closed {
            self.arrived.notify_one();
        } else {
            self.arrived.notify_all();
        }
    }

    /// Makes the next poll fail. Listeners do not poll, so the error is logged for them.
    pub(crate) fn fail(&self, error: ClientError) {
        if self.options.is_listening {
            return;
        }
        let mut state = self.state();
        state.failure = Some(error);
        self.wake(&state);
    }
}
