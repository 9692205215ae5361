//! Requests that waited for messages and are to be answered now.
//!
//! One task answers pulls and one pops. Each usually runs on the thread that stored the message, after the poll that
//! woke it: an answer costs no switch of threads. That poll may hang in a write or an fsync, and the task that it woke
//! last is then in tokio's LIFO slot, from which no other thread takes it. So while a poll hangs, [`answer_due`]
//! answers from the same queues.

use crate::context::{BrokerContext, serve_on_blocking_thread};
use crate::long_polling::Held;
use crate::pop::hold::HeldPop;
use crate::processor::pop::Pop;
use crate::processor::pull::Pull;
use pyrmq_remoting::clock;
use pyrmq_remoting::net::Shutdown;
use pyrmq_remoting::sync::lock;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;

/// Maximum number of threads of [`answer_due`]: a pop may wait for its check point for a second.
const THREADS: usize = 16;

/// The requests of one kind.
// Guards the end of the queue. Held to take one request.
struct Ready<T>(Mutex<UnboundedReceiver<T>>);

impl<T> Ready<T> {
    fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Waits for a request. `None`: the broker stops, or there will be no more.
    async fn next(&self, shutdown: &Shutdown) -> Option<T> {
        tokio::select! {
            biased;
            () = shutdown.stopped() => None,
            held = poll_fn(|cx| lock(&self.0).poll_recv(cx)) => held,
        }
    }

    /// Resumes those that are in the queue now.
    fn resume_all(&self, resume: impl Fn(T)) {
        let count = self.len();
        for _ in 0..count {
            let next = lock(&self.0).try_recv();
            let Ok(held) = next else {
                return;
            };
            resume(held);
        }
    }
}

/// The requests that are to be answered now, and what answers them.
pub(super) struct Due {
    pub(super) context: Arc<BrokerContext>,
    pub(super) pull: Arc<Pull>,
    pop: Pop,
    pulls: Ready<Held>,
    pops: Ready<HeldPop>,
    permits: Semaphore,
}

impl Due {
    pub(super) fn new(
        context: &Arc<BrokerContext>,
        pulls: UnboundedReceiver<Held>,
        pops: UnboundedReceiver<HeldPop>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            pull: Arc::new(Pull::new(context.clone())),
            pop: Pop::new(context.clone()),
            pulls: Ready(Mutex::new(pulls)),
            pops: Ready(Mutex::new(pops)),
            permits: Semaphore::new(THREADS),
        })
    }

    /// Answers pulls that waited.
    pub(super) async fn answer_pulls(self: Arc<Self>, shutdown: Shutdown) {
        while let Some(held) = self.pulls.next(&shutdown).await {
            self.pull.resume(held);
        }
    }

    /// Answers pops that waited.
    pub(super) async fn answer_pops(self: Arc<Self>, shutdown: Shutdown) {
        while let Some(held) = self.pops.next(&shutdown).await {
            self.pop.resume(held);
            // A pop writes its check point, which may hang: the answer to the one before leaves first.
            if self.pops.len() > 0 {
                yield_now().await;
            }
        }
    }

    fn answer_all(&self) {
        self.pulls.resume_all(|held| self.pull.resume(held));
        self.pops.resume_all(|held| self.pop.resume(held));
    }
}

/// Answers, on a thread that may hang, what the tasks have not answered yet. They usually answer at once; then this
/// does nothing.
pub(super) async fn answer_due(due: Weak<Due>) {
    // The broker may have stopped.
    let Some(due) = due.upgrade() else {
        return;
    };
    // The task that does this may be kept by a thread that hangs, too.
    due.context.pops.held.sweep(clock::now_ms());
    if due.pulls.len() + due.pops.len() == 0 {
        return;
    }
    let Ok(_permit) = due.permits.try_acquire() else {
        return;
    };
    let answering = due.clone();
    let what = "an answer to a request that waited";
    serve_on_blocking_thread(&due.context.stats, what, move || answering.answer_all()).await;
}
