//! The queue of registrations and departures, which one thread takes in order of arrival
//! ([`registration_thread`](crate::registration_thread)).

use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Reply};
use pyrmq_remoting::sync::lock;
use pyrmq_routing::table::RemovalReason;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Maximum bytes of waiting registrations; further ones are answered SYSTEM_BUSY.
const WAITING_BYTES: usize = 256 * 1024 * 1024;

/// A request that waits in the queue.
#[derive(Debug)]
pub(crate) struct QueuedRegistration {
    pub(crate) request: Command,
    pub(crate) peer: Peer,
    pub(crate) reply: Reply,
    pub(crate) at: Instant,
}

#[derive(Debug)]
pub(crate) enum Job {
    /// Request 103: a broker registers.
    Register(Box<QueuedRegistration>),
    /// Request 104: a broker unregisters.
    Unregister(RemovalReason, Reply, Instant),
    /// A connection on which brokers had registered has closed.
    Closed(u64),
    /// A broker was silent for too long.
    Expired,
}

/// The queue of jobs.
#[derive(Debug, Default)]
pub(crate) struct RegistrationQueue {
    // Guards whether jobs are still accepted.
    sender: Mutex<Option<Sender<Job>>>,
    waiting_bytes: AtomicUsize,
    /// Number of waiting jobs.
    waiting: AtomicUsize,
}

impl RegistrationQueue {
    /// Queues a job, or refuses a request if too much waits.
    pub(crate) fn push(&self, job: Job) {
        let size = size(&job);
        let sender = lock(&self.sender);
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

    /// Returns the number of waiting jobs.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Closes the queue to new jobs; the thread ends after the waiting ones.
    pub(crate) fn close(&self) {
        drop(lock(&self.sender).take());
    }

    /// Opens the queue. The receiver gets its jobs; it reports each to [`Self::taken`].
    pub(crate) fn open(&self) -> Receiver<Job> {
        let (sender, jobs) = channel();
        *lock(&self.sender) = Some(sender);
        jobs
    }

    /// Counts a job that no longer waits.
    pub(crate) fn taken(&self, job: &Job) {
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
