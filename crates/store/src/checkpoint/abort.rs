//! The abort file, which exists while a store is open (Apache `DefaultMessageStore.createTempFile`) and so shows how
//! the previous store ended.
//!
//! Its first line is the process id. pyrmq adds lines: the length of queue files, the position from which on
//! `nulRecords` is complete, the boot of the system with the file's device and inode, and after a failed fsync the
//! position up to which the log is durable.

use crate::error::{StoreError, is_full};
use crate::format::ABORT;
use crate::fs::{Context, File, Fs, System};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Starts the line with the position up to which the log was durable when an fsync failed.
const UNSURE: &str = "unsure from ";
/// Starts the line with the length of queue files.
const QUEUE_FILES: &str = "queue files of ";

/// Starts the line with the position from which on every whole record that looks torn is noted.
const NOTES: &str = "nul records from ";
/// Starts the line with the system run that has everything that was written.
const SYSTEM: &str = "system ";

/// How the previous store ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastStop {
    /// The store was closed.
    Clean,
    /// The store was not closed.
    Crash {
        /// The lines of the abort file.
        abort: Abort,
        /// Whether the system has run on without a boot since the store worked.
        is_same_system: bool,
    },
}

/// The lines of the abort file after the process id. A Java broker writes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Abort {
    /// The length of queue files.
    pub(crate) queue_file_bytes: Option<u64>,
    /// Position from which on every whole record that looks torn is noted.
    pub(crate) notes_from: Option<i64>,
    /// The system run in which the store works.
    system: Option<System>,
    /// Position from which on the log must be rewritten because an fsync failed.
    pub(crate) unsure_from: Option<i64>,
}

impl LastStop {
    /// Reads the abort file.
    pub(crate) fn read(fs: &dyn Fs, root: &Path) -> Result<Self, StoreError> {
        let path = root.join(ABORT);
        if !fs.exists(&path).at("look for", &path)? {
            return Ok(Self::Clean);
        }
        let text = fs.read(&path).at("read", &path)?;
        let text = String::from_utf8_lossy(&text);
        let abort = Abort {
            queue_file_bytes: value_after(&text, QUEUE_FILES),
            notes_from: value_after(&text, NOTES),
            system: value_after(&text, SYSTEM),
            unsure_from: value_after(&text, UNSURE),
        };
        Ok(Self::Crash {
            abort,
            is_same_system: abort.system.is_some() && abort.system == fs.system_of(&path),
        })
    }

    /// Whether only the process ended: the system ran on and has everything that was written, fsynced or not. That is
    /// not certain after a failed fsync.
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

    /// The lines of the abort file; none after a clean stop, when the file does not exist.
    pub(crate) fn abort(self) -> Abort {
        match self {
            Self::Clean => Abort::default(),
            Self::Crash { abort, .. } => abort,
        }
    }

    /// This stop without the position from which on torn-looking records are noted.
    pub(crate) fn without_notes(mut self) -> Self {
        if let Self::Crash { abort, .. } = &mut self {
            abort.notes_from = None;
        }
        self
    }
}

/// The value after a name in its line. A line without its end may be cut off.
fn value_after<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Marks the store as open and records the length of its queue files. The lines about the log stay until it is
/// recovered.
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

/// Marks the log as recovered: a cut can no longer be interrupted, what was unsure is durable, and from now on every
/// whole record that looks torn is noted.
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

/// Records a failed fsync: the next store on this machine must not trust what it reads after `position`. This concerns
/// pages that the system holds. They are gone after a power loss, as this note may be, so it needs no fsync.
pub(crate) fn mark_unsure(fs: &dyn Fs, root: &Path, queue_file_bytes: u64, position: i64) {
    let noted = LastStop::read(fs, root).and_then(|before| {
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

/// A line of the abort file; empty without a value.
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
    // Overwritten, never emptied: a file without its first line still means that the stop was unclean.
    let file = if fs.exists(&path).at("look for", &path)? {
        fs.open(&path).at("open", &path)?
    } else {
        fs.create(&path).map_err(|error| cannot_create(&path, &error))?
    };
    let written = file
        .write_all_at(text.as_bytes(), 0)
        .and_then(|()| file.set_length(text.len() as u64));
    match written {
        // The file's existence is what counts. A full disk must not keep readers out, nor retention, which frees space.
        Err(error) if is_full(error.kind()) => {
            tracing::warn!(%error, file = %path.display(), "no space for the file's content: only its existence counts now");
        }
        done => done.at("write", &path)?,
    }
    Ok(file)
}

/// Without the file, a crash would pass for a clean stop, so a full disk that does not even take an empty file keeps
/// the store closed.
fn cannot_create(path: &Path, error: &io::Error) -> StoreError {
    if !is_full(error.kind()) {
        return StoreError::io("create", path, error);
    }
    StoreError::Io {
        operation: "create",
        path: path.to_owned(),
        kind: error.kind(),
        reason: format!(
            "{error}; without this file, which may be empty, a crash would pass for a clean stop: free space or \
             inodes for it, then start again"
        ),
    }
}

/// Marks the stop as clean.
pub(crate) fn mark_closed(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join(ABORT);
    fs.remove(&path).at("remove", &path)?;
    fs.sync_directory(root).at("flush", root)
}
