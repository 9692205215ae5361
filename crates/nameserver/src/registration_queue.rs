//! The thread that changes the tables for brokers: registrations and departures, in the order of their arrival.
//!
//! A registration of ten thousand topics takes milliseconds to read, and everybody may register at once: on the tasks
//! of the connections that would hold up the answers of all others. Departures that wait together are one change of
//! the tables (Apache `BatchUnregistrationService`).

use crate::processor::registration;
use crate::state::State;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Reply};
use pyrmq_routing::table::RemovalReason;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Departures that are taken out in one change.
const BATCH: usize = 1024;
/// Bytes of registrations that may wait; one more is answered SYSTEM_BUSY.
const WAITING_BYTES: usize = 256 * 1024 * 1024;

/// The nice value of the thread: about a third of the processor time that other threads get.
#[cfg(target_os = "linux")]
const NICE_VALUE: i32 = 5;

/// A request that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedRegistration {
    pub(crate) request: Command,
    pub(crate) peer: Peer,
    pub(crate) reply: Reply,
    pub(crate) at: Instant,
}

#[derive(Debug)]
pub(crate) enum Job {
    /// 103.
    Register(Box<QueuedRegistration>),
    /// 104.
    Unregister(RemovalReason, Reply, Instant),
    /// A connection with brokers on it has closed.
    Closed(u64),
    /// Somebody was silent for too long.
    Expired,
}

/// Where jobs are queued.
#[derive(Debug, Default)]
pub(crate) struct RegistrationQueue {
    // Guards whether jobs are still taken.
    sender: Mutex<Option<Sender<Job>>>,
    waiting_bytes: AtomicUsize,
    /// Jobs that wait for their turn.
    waiting: AtomicUsize,
}

impl RegistrationQueue {
    /// Queues a job, or refuses a request when too much waits.
    pub(crate) fn push(&self, job: Job) {
        let size = size(&job);
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else {
            return refuse(job, "the name server is stopping");
        };
        if self.waiting_bytes.fetch_add(size, Ordering::Relaxed) + size > WAITING_BYTES {
            self.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            return refuse(job, "[OVERLOAD] too many registrations wait, try again later");
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(failed) = sender.send(job) {
            refuse(failed.0, "the name server is stopping");
        }
    }

    /// Jobs that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes no more jobs; the thread ends when it has done those that wait.
    pub(crate) fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn taken(&self, job: &Job) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(size(job), Ordering::Relaxed);
    }
}

fn size(job: &Job) -> usize {
    match job {
        Job::Register(queued) => queued.request.body.as_ref().map_or(0, bytes::Bytes::len),
        Job::Unregister(..) | Job::Closed(_) | Job::Expired => 0,
    }
}

fn refuse(job: Job, why: &str) {
    let busy = || Command::error(response::SYSTEM_BUSY, why);
    match job {
        Job::Register(queued) => queued.reply.send(busy()),
        Job::Unregister(_, reply, _) => reply.send(busy()),
        Job::Closed(_) | Job::Expired => {}
    }
}

/// Starts the thread. The receiver says when it has ended.
pub(crate) fn start(state: &Arc<State>) -> io::Result<watch::Receiver<bool>> {
    let (sender, jobs) = channel();
    let (ended, has_ended) = watch::channel(false);
    *state.queue.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    let state = state.clone();
    std::thread::Builder::new()
        .name("pyrmq-brokers".to_owned())
        .spawn(move || {
            run(&state, &jobs);
            ended.send_replace(true);
        })?;
    Ok(has_ended)
}

/// Routes and heartbeats come first where processors are scarce: a registration that takes a little longer does no
/// harm.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux a priority is a thread's own.
    if let Err(error) = rustix::process::setpriority_process(None, NICE_VALUE) {
        tracing::debug!(%error, "registrations keep the priority of routes");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

fn run(state: &State, jobs: &Receiver<Job>) {
    lower_priority();
    let mut kept = None;
    loop {
        let Some(job) = kept.take().or_else(|| next(state, jobs.recv().ok())) else {
            return;
        };
        match job {
            Job::Register(queued) => register(state, *queued),
            departure => {
                let mut departures = vec![departure];
                while departures.len() < BATCH {
                    match next(state, jobs.try_recv().ok()) {
                        None => break,
                        Some(Job::Register(queued)) => {
                            kept = Some(Job::Register(queued));
                            break;
                        }
                        Some(departure) => departures.push(departure),
                    }
                }
                // Whoever comes next must still be served.
                let work = std::panic::AssertUnwindSafe(|| remove_brokers(state, departures));
                if std::panic::catch_unwind(work).is_err() {
                    tracing::error!("the departure of brokers made its processor panic");
                }
            }
        }
    }
}

fn next(state: &State, job: Option<Job>) -> Option<Job> {
    if let Some(job) = &job {
        state.queue.taken(job);
    }
    job
}

fn register(state: &State, queued: QueuedRegistration) {
    let QueuedRegistration {
        request,
        peer,
        reply,
        at,
    } = queued;
    let work = std::panic::AssertUnwindSafe(|| registration::register(state, &request, &peer));
    let answer = std::panic::catch_unwind(work).unwrap_or_else(|_| {
        tracing::error!(peer = %peer.remote(), "a registration made its processor panic");
        Ok(Command::error(
            response::SYSTEM_ERROR,
            "the server failed while it handled this registration; its log has the details",
        ))
    });
    state.meters.register.add(at.elapsed());
    reply.send(answer.unwrap_or_else(Command::from));
}

fn remove_brokers(state: &State, departures: Vec<Job>) {
    let now_ms = state.now_ms();
    let mut reasons = Vec::with_capacity(departures.len());
    let mut replies = Vec::new();
    for job in departures {
        match job {
            Job::Unregister(removal, reply, at) => {
                reasons.push(removal);
                replies.push((reply, at));
            }
            Job::Closed(peer) => reasons.push(RemovalReason::Closed(peer)),
            Job::Expired => reasons.push(RemovalReason::Expired(now_ms)),
            Job::Register(_) => {}
        }
    }
    state.remove_brokers(&reasons);
    for (reply, at) in replies {
        state.meters.unregister.add(at.elapsed());
        reply.send(Command::response(response::SUCCESS));
    }
}
