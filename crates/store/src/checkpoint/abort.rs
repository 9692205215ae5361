//! The abort file, which is there while a store is open (Apache `DefaultMessageStore.createTempFile`): how the store
//! before this one ended.
//!
//! Its first line is the process id. Ours has more lines: the length of queue files, the position from which on
//! `nulRecords` is complete, the boot of the system with the file's device and inode, and after a failed fsync the
//! position up to which the log is durable.

use crate::error::{StoreError, is_full};
use crate::format::ABORT;
use crate::fs::{Context, File, Fs, System};
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What stands in the abort file before the position up to which the log was durable when an fsync failed.
const UNSURE: &str = "unsure from ";
/// What stands there before the length that queue files are made with.
const QUEUE_FILES: &str = "queue files of ";

/// What stands there before the position from which on each whole record that looks torn is noted.
const NOTES: &str = "nul records from ";
/// What stands there before the run of the system that has everything that was written.
const SYSTEM: &str = "system ";

/// How the store before this one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastStop {
    /// It was closed.
    Clean,
    /// It was not.
    Crash {
        /// The lines of the abort file.
        abort: Abort,
        /// The run of the system in which the store worked still goes on.
        is_same_system: bool,
    },
}

/// The lines of the abort file after the process id. A Java broker writes none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Abort {
    /// The length that queue files are made with.
    pub(crate) queue_file_bytes: Option<u64>,
    /// From where on each whole record that looks torn is noted.
    pub(crate) notes_from: Option<i64>,
    /// The run of the system in which the store works.
    system: Option<System>,
    /// From where on the log must be written again: an fsync failed.
    pub(crate) unsure_from: Option<i64>,
}

impl LastStop {
    /// Reads the abort file.
    pub(crate) fn look(fs: &dyn Fs, root: &Path) -> Result<Self, StoreError> {
        let path = root.join(ABORT);
        if !fs.exists(&path).at("look for", &path)? {
            return Ok(Self::Clean);
        }
        let text = fs.read(&path).at("read", &path)?;
        let text = String::from_utf8_lossy(&text);
        let abort = Abort {
            queue_file_bytes: value_behind(&text, QUEUE_FILES),
            notes_from: value_behind(&text, NOTES),
            system: value_behind(&text, SYSTEM),
            unsure_from: value_behind(&text, UNSURE),
        };
        Ok(Self::Crash {
            abort,
            is_same_system: abort.system.is_some() && abort.system == fs.system_of(&path),
        })
    }

    /// True when only the process ended: the system ran on and has all that was written, whether it was fsynced or not.
    /// After a failed fsync it may not have.
    pub(crate) fn is_kill(self) -> bool {
        match self {
            Self::Clean => false,
            Self::Crash {
                abort,
                is_same_system,
            } => is_same_system && abort.unsure_from.is_none(),
        }
    }

    pub(crate) fn is_crash(self) -> bool {
        self != Self::Clean
    }

    /// The lines of the abort file; none after a clean stop, when there is no file.
    pub(crate) fn abort(self) -> Abort {
        match self {
            Self::Clean => Abort::default(),
            Self::Crash { abort, .. } => abort,
        }
    }

    /// As if nothing said from where on records that look torn are noted.
    pub(crate) fn without_notes(mut self) -> Self {
        if let Self::Crash { abort, .. } = &mut self {
            abort.notes_from = None;
        }
        self
    }
}

/// What stands after a name in its line. A line without its end may be cut off.
fn value_behind<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Says that a store is open, and with which length it makes queue files. What is said of the log stays as it was until
/// it is recovered.
pub(crate) fn mark_open(
    fs: &dyn Fs,
    root: &Path,
    before: LastStop,
    queue_file_bytes: u64,
) -> Result<(), StoreError> {
    let abort = Abort {
        queue_file_bytes: Some(queue_file_bytes),
        ..before.abort()
    };
    sync_abort(fs, root, &abort)?;
    fs.sync_directory(root).at("flush", root)
}

/// Says that the log is recovered: no cut of it can be interrupted any more, what was unsure is durable, and from now
/// on each whole record that looks torn is noted.
pub(crate) fn mark_recovered(
    fs: &dyn Fs,
    root: &Path,
    queue_file_bytes: u64,
    notes_from: i64,
) -> Result<(), StoreError> {
    let abort = Abort {
        queue_file_bytes: Some(queue_file_bytes),
        notes_from: Some(notes_from),
        system: fs.system_of(&root.join(ABORT)),
        unsure_from: None,
    };
    sync_abort(fs, root, &abort)
}

/// Says that an fsync failed: the next store on this machine must not trust what it reads after `position`. It is about
/// pages that the system holds, which are gone after a power loss, as this note may be: it needs no fsync.
pub(crate) fn mark_unsure(fs: &dyn Fs, root: &Path, queue_file_bytes: u64, position: i64) {
    let noted = LastStop::look(fs, root).and_then(|before| {
        let abort = Abort {
            queue_file_bytes: Some(queue_file_bytes),
            unsure_from: Some(position),
            ..before.abort()
        };
        write_abort(fs, root, &abort).map(drop)
    });
    if let Err(error) = noted {
        tracing::error!(%error, "the failed fsync could not be noted");
    }
}

/// A line of the abort file; empty where there is no value.
fn line(name: &str, value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| format!("{name}{value}\n"))
}

fn sync_abort(fs: &dyn Fs, root: &Path, abort: &Abort) -> Result<(), StoreError> {
    write_abort(fs, root, abort)?
        .sync()
        .at("flush", &root.join(ABORT))
}

fn write_abort(fs: &dyn Fs, root: &Path, abort: &Abort) -> Result<Arc<dyn File>, StoreError> {
    let path = root.join(ABORT);
    let text = [
        line("", Some(std::process::id())),
        line(QUEUE_FILES, abort.queue_file_bytes),
        line(NOTES, abort.notes_from),
        line(SYSTEM, abort.system),
        line(UNSURE, abort.unsure_from),
    ]
    .concat();
    // Written over, never emptied: a file without its first line still means that the stop was not clean.
    let file = if fs.exists(&path).at("look for", &path)? {
        fs.open(&path)
    } else {
        fs.create(&path)
    };
    let file = file.at("create", &path)?;
    let written = file
        .write_all_at(text.as_bytes(), 0)
        .and_then(|()| file.set_length(text.len() as u64));
    match written {
        // That there is a file is what counts. A full disk must not keep readers out, nor retention, which makes space.
        Err(error) if is_full(error.kind()) => {
            tracing::warn!(%error, file = %path.display(), "no space for what this file should say");
        }
        done => done.at("write", &path)?,
    }
    Ok(file)
}

/// Says that the store was closed in order.
pub(crate) fn mark_closed(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join(ABORT);
    fs.remove(&path).at("remove", &path)?;
    fs.sync_directory(root).at("flush", root)
}
