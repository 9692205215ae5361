//! The thread that changes the tables for brokers: registrations and departures, in order of arrival.
//!
//! A registration of ten thousand topics takes milliseconds to parse, and all brokers may register at once: on the
//! connections' tasks, that would delay the answers of all others. Departures that wait together are one change of the
//! tables (Apache `BatchUnregistrationService`).

use crate::context::NameServerContext;
use crate::processor::registration;
use crate::registration_queue::{Job, QueuedRegistration};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_routing::table::RemovalReason;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::watch;

/// Maximum number of departures in one change.
const BATCH: usize = 1024;

/// The thread's nice value: it gets about a third of another thread's processor time.
#[cfg(target_os = "linux")]
const NICE_VALUE: i32 = 5;

/// Starts the thread. The receiver becomes true when it has ended.
pub(crate) fn start(context: &Arc<NameServerContext>) -> io::Result<watch::Receiver<bool>> {
    let jobs = context.queue.open();
    let (ended, has_ended) = watch::channel(false);
    let context = context.clone();
    std::thread::Builder::new()
        .name("pyrmq-brokers".to_owned())
        .spawn(move || {
            run(&context, &jobs);
            ended.send_replace(true);
        })?;
    Ok(has_ended)
}

/// Lowers the thread's priority, so that routes and heartbeats come first on a busy machine: a slightly slower
/// registration does no harm.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux each thread has its own priority.
    if let Err(error) = rustix::process::setpriority_process(None, NICE_VALUE) {
        tracing::debug!(%error, "cannot lower the priority of the registration thread");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

fn run(context: &NameServerContext, jobs: &Receiver<Job>) {
    lower_priority();
    let mut kept = None;
    loop {
        let Some(job) = kept.take().or_else(|| next(context, jobs.recv().ok())) else {
            return;
        };
        match job {
            Job::Register(queued) => register(context, *queued),
            departure => {
                let mut departures = vec![departure];
                while departures.len() < BATCH {
                    match next(context, jobs.try_recv().ok()) {
                        None => break,
                        Some(Job::Register(queued)) => {
                            kept = Some(Job::Register(queued));
                            break;
                        }
                        Some(departure) => departures.push(departure),
                    }
                }
                // A panic must not stop later jobs.
                let work = std::panic::AssertUnwindSafe(|| remove_brokers(context, departures));
                if std::panic::catch_unwind(work).is_err() {
                    tracing::error!("removing brokers panicked");
                }
            }
        }
    }
}

fn next(context: &NameServerContext, job: Option<Job>) -> Option<Job> {
    if let Some(job) = &job {
        context.queue.taken(job);
    }
    job
}

fn register(context: &NameServerContext, queued: QueuedRegistration) {
    let QueuedRegistration {
        request,
        peer,
        reply,
        at,
    } = queued;
    let work = std::panic::AssertUnwindSafe(|| registration::register(context, &request, &peer));
    let answer = std::panic::catch_unwind(work).unwrap_or_else(|_| {
        tracing::error!(peer = %peer.remote(), "a registration panicked");
        Ok(Command::error(
            response::SYSTEM_ERROR,
            "the server failed while it handled this registration; its log has the details",
        ))
    });
    context.meters.register.add(at.elapsed());
    reply.send(answer.unwrap_or_else(Command::from));
}

fn remove_brokers(context: &NameServerContext, departures: Vec<Job>) {
    let now_ms = context.now_ms();
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
    context.remove_brokers(&reasons);
    for (reply, at) in replies {
        context.meters.unregister.add(at.elapsed());
        reply.send(Command::response(response::SUCCESS));
    }
}
