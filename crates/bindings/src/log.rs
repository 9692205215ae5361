//! `tracing` events on their way to Python's `logging`: a bounded ring that a Python thread drains.
//!
//! Nothing is installed at import: the first server or client calls [`log_start`], which makes this the process's
//! subscriber. An event is dropped and counted when the ring is full or its lock cannot be had (a fork can leave it
//! locked forever in the child): logging never blocks a connection's task.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_remoting::sync::{try_lock, wait_while};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Maximum number of events that wait for Python.
const CAPACITY: usize = 4096;
/// Level of a record that the draining thread sends to itself; such records are never dropped.
const CONTROL: u8 = u8::MAX;
/// Attempts to take the lock before an event is dropped.
const TRIES: u32 = 1000;

/// One event: its level as a number of Python's `logging`, the logger's name, the text.
type Record = (u8, String, String);

static RING: Ring = Ring {
    records: Mutex::new(VecDeque::new()),
    ready: Condvar::new(),
    dropped: AtomicU64::new(0),
    level: AtomicU8::new(u8::MAX),
};

struct Ring {
    // Guards the waiting events; held for one push or one take.
    records: Mutex<VecDeque<Record>>,
    ready: Condvar,
    dropped: AtomicU64,
    // Events below this level number are ignored.
    level: AtomicU8,
}

impl Ring {
    fn lock(&self) -> Option<MutexGuard<'_, VecDeque<Record>>> {
        for _ in 0..TRIES {
            if let Some(records) = try_lock(&self.records) {
                return Some(records);
            }
            std::thread::yield_now();
        }
        None
    }

    fn push(&self, record: Record) {
        match self.lock() {
            Some(mut records) if records.len() < CAPACITY || record.0 == CONTROL => {
                records.push_back(record);
                drop(records);
                self.ready.notify_one();
            }
            _ => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&self, most: usize, timeout: Duration) -> Vec<Record> {
        let Some(records) = self.lock() else {
            std::thread::sleep(timeout);
            return Vec::new();
        };
        let mut records = wait_while(&self.ready, records, timeout, |records| records.is_empty());
        let count = records.len().min(most);
        records.drain(..count).collect()
    }
}

/// The process's subscriber. It ignores spans: events name topic, queue and peer themselves.
struct Bridge;

impl Subscriber for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("pyrmq")
            && number(*metadata.level()) >= RING.level.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match RING.level.load(Ordering::Relaxed) {
            0..=5 => LevelFilter::TRACE,
            6..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            31..=40 => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        })
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let logger = metadata
            .target()
            .replacen("pyrmq_", "pyrmq.", 1)
            .replace("::", ".");
        RING.push((number(*metadata.level()), logger, text.finish()));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The level number of Python's `logging`; trace is below DEBUG.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Formats the message, then `key=value` for each field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a String cannot fail.
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
        debug_assert!(written.is_ok());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.record_debug(field, &format_args!("{value}"));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// From now on, accepts events of this level number or above.
#[pyfunction]
fn log_start(level: u8) {
    let before = RING.level.swap(level, Ordering::Relaxed);
    if before != level && tracing::subscriber::set_global_default(Bridge).is_err() {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Waits for events and returns at most `most` of them as (level, logger, text), and how many were dropped since the
/// previous call. It needs a thread of its own, since it waits detached for up to `timeout_ms`.
#[pyfunction]
fn log_take(py: Python<'_>, most: usize, timeout_ms: u64) -> PyResult<(Vec<Record>, u64)> {
    enter::compute(py, || {
        let records = RING.take(most, Duration::from_millis(timeout_ms));
        Ok::<_, Error>((records, RING.dropped.swap(0, Ordering::Relaxed)))
    })
}

/// Puts a record into the ring as if Rust had logged it. This wakes the thread in [`log_take`]; tests use it, too.
#[pyfunction]
fn log_put(level: u8, logger: String, text: String) {
    RING.push((level, logger, text));
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(log_start, module)?)?;
    module.add_function(wrap_pyfunction!(log_take, module)?)?;
    module.add_function(wrap_pyfunction!(log_put, module)?)
}
