//! What must be durable before retention deletes old files of a queue.

use crate::error::StoreError;
use crate::fs::{Context, File, Fs};
use crate::queue::files::QueueFiles;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The file of a queue that stays when older ones are deleted.
#[derive(Debug)]
pub(crate) struct ToKeep {
    /// Index of its first unit.
    pub(crate) base: i64,
    /// `None`: the file is known to be durable.
    file: Option<Arc<dyn File>>,
    directory: PathBuf,
}

impl ToKeep {
    /// Makes the file and its name durable, which needs no lock.
    pub(crate) fn sync(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.sync().at("flush", &self.directory)?;
        match fs.sync_directory(&self.directory) {
            // Its topic was deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.at("flush", &self.directory),
        }
    }
}

impl QueueFiles {
    /// The newest file, which must be durable before those that end before an index are deleted: then only this one
    /// shows where the queue continues. `None`: there are no such files.
    pub(crate) fn newest_to_keep(&mut self, fs: &dyn Fs, live: i64) -> Result<Option<ToKeep>, StoreError> {
        let newest = self.list.last().map(|newest| (newest.base, newest.dirty));
        let Some((base, is_dirty)) = newest.filter(|_| self.has_old(live)) else {
            return Ok(None);
        };
        let file = if self.moved || is_dirty {
            self.at(fs, base)?.map(|(_, file)| file)
        } else {
            None
        };
        Ok(Some(ToKeep {
            base,
            file,
            directory: self.directory.clone(),
        }))
    }
}
