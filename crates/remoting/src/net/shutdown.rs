//! Stopping: a token that tells tasks to stop, and a tracker that knows when they have.
//!
//! Order of a clean stop: the owner calls [`Shutdown::stop`]; loops end at their next `stopped` or `sleep_or_stop`; the
//! owner waits with [`Tracker::wait`] up to a deadline, after which the tracker drops the remaining tasks. This is the
//! only file that spawns tasks.

use crate::sync::lock;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Running,
    Stopping,
    Now,
}

/// A token that tasks observe. Clones share one state. A stop is final and may be requested any number of times, from
/// any thread.
#[derive(Debug, Clone)]
pub struct Shutdown {
    level: Arc<watch::Sender<Level>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            level: Arc::new(watch::Sender::new(Level::Running)),
        }
    }
}

impl Shutdown {
    /// Creates a token that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a clean stop.
    pub fn stop(&self) {
        self.raise(Level::Stopping);
    }

    /// Requests a stop that skips the drain.
    pub fn stop_now(&self) {
        self.raise(Level::Now);
    }

    /// Returns true once a stop was requested.
    pub fn is_stopped(&self) -> bool {
        *self.level.borrow() >= Level::Stopping
    }

    /// Waits for a stop.
    pub async fn stopped(&self) {
        self.reached(Level::Stopping).await;
    }

    /// Waits for a stop that skips the drain.
    pub async fn stopped_now(&self) {
        self.reached(Level::Now).await;
    }

    /// Sleeps. Returns true if a stop came first.
    pub async fn sleep_or_stop(&self, duration: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stopped() => true,
            () = sleep(duration) => false,
        }
    }

    fn raise(&self, to: Level) {
        self.level.send_if_modified(|level| {
            let raised = *level < to;
            *level = (*level).max(to);
            raised
        });
    }

    async fn reached(&self, level: Level) {
        // The sender lives in `self`, so only the level ends the wait.
        let mut watch = self.level.subscribe();
        drop(watch.wait_for(|now| *now >= level).await);
    }
}

/// Spawns tasks and counts those that still run. Clones share one count. A running task costs nothing: it is added when
/// it starts and removed when it ends.
#[derive(Debug, Clone)]
pub struct Tracker {
    handle: Handle,
    tasks: Arc<Tasks>,
}

#[derive(Debug)]
struct Tasks {
    running: watch::Sender<usize>,
    // Guards the handles that drop running tasks; `None` until the task is spawned. Never held while tasks are spawned
    // or dropped: both may end a task within the call.
    entries: Mutex<HashMap<u64, Option<AbortHandle>>>,
    next: AtomicU64,
}

impl Tracker {
    /// Creates a tracker whose tasks run on this runtime.
    pub fn new(handle: Handle) -> Self {
        let tasks = Tasks {
            running: watch::Sender::new(0),
            entries: Mutex::default(),
            next: AtomicU64::new(0),
        };
        Self {
            handle,
            tasks: Arc::new(tasks),
        }
    }

    /// Creates a tracker on the runtime of the calling task.
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// Returns the runtime that the tasks run on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts a task. It ends on its own, or is dropped at an await point when [`Tracker::wait`] times out.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(task));
    }

    /// Starts a task. tokio's code for a task, some 20 KB of it, is compiled for each type that is spawned: all tasks
    /// have this one.
    fn spawn_boxed(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.tasks.running.send_modify(|running| *running += 1);
        let id = self.tasks.next.fetch_add(1, Ordering::Relaxed);
        let running = Running {
            tasks: self.tasks.clone(),
            id,
        };
        self.tasks.entries().insert(id, None);
        let spawned = self.handle.spawn(async move {
            let _running = running;
            task.await;
        });
        // A task that has already ended has removed its entry.
        if let Some(entry) = self.tasks.entries().get_mut(&id) {
            *entry = Some(spawned.abort_handle());
        }
    }

    /// Returns the number of running tasks.
    pub fn running(&self) -> usize {
        *self.tasks.running.borrow()
    }

    /// Waits until no task runs.
    pub async fn idle(&self) {
        drop(
            self.tasks
                .running
                .subscribe()
                .wait_for(|running| *running == 0)
                .await,
        );
    }

    /// Waits until no task runs, for at most `deadline`; then drops the remaining tasks and returns their number.
    pub async fn wait(&self, deadline: Duration) -> usize {
        if timeout(deadline, self.idle()).await.is_ok() {
            return 0;
        }
        let left = self.running();
        let entries: Vec<AbortHandle> = self.tasks.entries().values().flatten().cloned().collect();
        for entry in entries {
            entry.abort();
        }
        // An aborted task is dropped at its next await point; one that blocks its thread is never dropped.
        drop(timeout(Duration::from_secs(1), self.idle()).await);
        left
    }
}

impl Tasks {
    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Option<AbortHandle>>> {
        lock(&self.entries)
    }
}

/// A task's entry; removed on drop, however the task ends.
#[derive(Debug)]
struct Running {
    tasks: Arc<Tasks>,
    id: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.entries().remove(&self.id);
        self.tasks
            .running
            .send_modify(|running| *running = running.saturating_sub(1));
    }
}
