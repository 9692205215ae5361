//! Held pulls and pops that are ready to be answered, because messages have arrived or their time has passed.
//!
//! One task answers pulls and one pops. Each usually runs on the thread that stored the message, after the poll that
//! woke it: an answer costs no switch of threads. That poll may hang in a write or an fsync, and the task that it woke
//! last is then in tokio's LIFO slot, from which no other thread takes it. So while a poll hangs, [`answer_ready`]
//! answers from the same queues. Pops whose messages are not in memory are left to threads that may wait for the disk.

use crate::context::{BrokerContext, serve_on_blocking_thread};
use crate::long_polling::{self, Held};
use crate::pop::hold::HeldPop;
use crate::processor::pop::{Pass, Pop};
use crate::processor::pull::{ColdReadPool, Pull};
use pyrmq_remoting::net::Shutdown;
use pyrmq_remoting::sync::lock;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;

/// Maximum number of threads of [`answer_ready`]: a pop may wait for its check point for a second.
const THREADS: usize = 16;

/// The ready requests of one kind.
// Guards the receiving end of the queue. Held while one request is taken.
struct ReadyQueue<T>(Mutex<UnboundedReceiver<T>>);

impl<T> ReadyQueue<T> {
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

/// The requests that are ready to be answered, and what answers them.
pub(super) struct ReadyRequests {
    pub(super) context: Arc<BrokerContext>,
    pub(super) pull: Arc<Pull>,
    pop: Pop,
    pulls: ReadyQueue<Held>,
    pops: ReadyQueue<HeldPop>,
    cold_pops: ColdReadPool,
    permits: Semaphore,
}

impl ReadyRequests {
    pub(super) fn new(
        context: &Arc<BrokerContext>,
        pulls: UnboundedReceiver<Held>,
        pops: UnboundedReceiver<HeldPop>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            pull: Arc::new(Pull::new(context.clone())),
            pop: Pop::new(context.clone()),
            pulls: ReadyQueue(Mutex::new(pulls)),
            pops: ReadyQueue(Mutex::new(pops)),
            cold_pops: ColdReadPool::default(),
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
            self.resume_pop(held);
            // A pop writes its check point, which may hang: the answer to the previous one is sent first.
            if self.pops.len() > 0 {
                yield_now().await;
            }
        }
    }

    fn answer_all(self: &Arc<Self>) {
        self.pulls.resume_all(|held| self.pull.resume(held));
        self.pops.resume_all(|held| self.resume_pop(held));
    }

    fn resume_pop(self: &Arc<Self>, held: HeldPop) {
        let deadline_ms = held.deadline_ms;
        let pass = move |may_wait| Pass::Resumed {
            deadline_ms,
            may_wait,
        };
        let Some((request, reply)) = self.pop.resume(held.request, held.reply, pass(false)) else {
            return;
        };
        let requests = Arc::downgrade(self);
        let job = move || {
            // The broker may have stopped.
            if let Some(requests) = requests.upgrade() {
                requests.pop.resume(request, reply, pass(true));
            }
        };
        if let Some(job) = self.cold_pops.submit(Box::new(job)) {
            job();
        }
    }
}

/// Answers, on a thread that may hang, what the tasks have not answered yet. They usually answer at once; then this
/// does nothing.
pub(super) async fn answer_ready(requests: Weak<ReadyRequests>) {
    // The broker may have stopped.
    let Some(requests) = requests.upgrade() else {
        return;
    };
    // The task of `wake_pops` may be in the LIFO slot of a thread that hangs, too.
    requests.context.pops.held.sweep(long_polling::now_ms());
    if requests.pulls.len() + requests.pops.len() == 0 {
        return;
    }
    let Ok(_permit) = requests.permits.try_acquire() else {
        return;
    };
    let answering = requests.clone();
    let what = "an answer to a request that waited";
    serve_on_blocking_thread(&requests.context.stats, what, move || answering.answer_all()).await;
}
