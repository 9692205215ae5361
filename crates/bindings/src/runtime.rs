//! One tokio runtime per process, started by the first call that needs it.
//!
//! A runtime's threads do not survive a fork, so a runtime belongs to the process that built it. A forked child builds
//! its own when it needs one; [`Owner::check`] refuses handles that its parent opened. The child never drops the
//! parent's runtime, whose threads it cannot join, and takes no lock to look the runtime up: a lock that another thread
//! held during the fork would stay locked forever.

use crate::errors::Error;
use pyo3::{PyResult, Python};
use pyrmq_client::session::connections::Connections;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use tokio::runtime::{Builder, Runtime};

/// A runtime, the process that it belongs to, and the connections of that process's clients. It lives until the process
/// ends.
struct Entry {
    pid: u32,
    runtime: Runtime,
    connections: Arc<Connections>,
}

static CURRENT: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

/// Number of worker threads: enough for a server beside a client in one process, few enough for a notebook. At least
/// three: while a disk hangs, an fsync of the log may hold one and a write that began right after it another, and the
/// third serves the sockets (`docs/decisions/0012-watchdog-of-inline-fsyncs.md`).
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(3, |cores| cores.get().clamp(3, 4))
}

/// This process's runtime.
pub(crate) fn current() -> Result<&'static Runtime, Error> {
    entry().map(|entry| &entry.runtime)
}

/// The connections that this process's clients share.
pub(crate) fn connections() -> Result<Arc<Connections>, Error> {
    entry().map(|entry| entry.connections.clone())
}

fn entry() -> Result<&'static Entry, Error> {
    let pid = std::process::id();
    let old = CURRENT.load(Ordering::Acquire);
    if let Some(entry) = leaked(old)
        && entry.pid == pid
    {
        return Ok(entry);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .thread_name("pyrmq")
        .enable_all()
        .build()
        .map_err(|cause| Error::Runtime { cause })?;
    let new = Box::into_raw(Box::new(Entry {
        pid,
        runtime,
        connections: Connections::new(),
    }));
    match CURRENT.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => leaked(new),
        Err(winner) => {
            discard(new);
            leaked(winner)
        }
    }
    .ok_or(Error::Closed { what: "the runtime" })
}

#[expect(
    unsafe_code,
    reason = "a pointer is the only cell that a forked child can read without a lock"
)]
fn leaked(entry: *mut Entry) -> Option<&'static Entry> {
    // SAFETY: `CURRENT` only ever holds null or a pointer from `Box::into_raw` that is never freed once published.
    unsafe { entry.as_ref() }
}

#[expect(unsafe_code, reason = "takes back the box that was never published")]
fn discard(entry: *mut Entry) {
    // SAFETY: `entry` came from `Box::into_raw` in `current` and lost the exchange, so nobody else has seen it.
    drop(unsafe { Box::from_raw(entry) });
}

/// How often this process and its ancestors have forked since the first handle. Handles compare it instead of the
/// process id, which costs a system call: they are checked for every message.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Release);
}

fn count_forks() {
    static ONCE: Once = Once::new();
    #[expect(
        unsafe_code,
        reason = "the C library calls back in a forked child, nothing else does"
    )]
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which a child may do at any point.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// The process that opened a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pid: u32,
    forks: u32,
    what: &'static str,
}

impl Owner {
    /// The current process, for a handle that error texts call `what`.
    pub(crate) fn new(what: &'static str) -> Self {
        count_forks();
        Self {
            pid: std::process::id(),
            forks: FORKS.load(Ordering::Acquire),
            what,
        }
    }

    /// An error in a forked child.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::Forked {
            what: self.what,
            opened: self.pid,
            pid: std::process::id(),
        })
    }

    /// Raises the error of [`Self::check`].
    pub(crate) fn check_in(self, py: Python<'_>) -> PyResult<()> {
        self.check().map_err(|error| error.into_py(py))
    }

    /// True in the process that opened the handle. Only there may it be closed or waited for.
    pub(crate) fn is_here(self) -> bool {
        self.forks == FORKS.load(Ordering::Acquire)
    }
}

/// A client or a part of one, for the process that opened it. A forked child neither uses nor drops it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    owner: Owner,
    client: Arc<T>,
}

impl<T> Owned<T> {
    /// A client of the current process, which error texts call `what`.
    pub(crate) fn new(what: &'static str, client: Arc<T>) -> Self {
        Self {
            owner: Owner::new(what),
            client,
        }
    }

    /// The client, for a call that runs on. Raises in a forked child.
    pub(crate) fn here(&self, py: Python<'_>) -> PyResult<Arc<T>> {
        self.check_in(py)?;
        Ok(self.client.clone())
    }

    /// Raises in a forked child.
    pub(crate) fn check_in(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check_in(py)
    }

    /// True in the process that opened it.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }
}

impl<T> Deref for Owned<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.client
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            // Threads of the parent may have held its locks during the fork: closing it could wait for ever.
            std::mem::forget(self.client.clone());
        }
    }
}
