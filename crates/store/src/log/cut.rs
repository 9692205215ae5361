//! What a start changes in the log: it removes a half-created file, cuts off what is not whole, and rewrites what may
//! not be durable.
//!
//! A file with several names is never written: a snapshot may share it. It first gets a copy of its own.

use crate::error::StoreError;
use crate::format::{parse_file_name, to_u64, to_usize};
use crate::fs::{Context, File, Fs, with_suffix};
use crate::log::commit_log::CommitLog;
use crate::log::segment::Segment;
use crate::sync::write;
use std::path::Path;
use std::sync::Arc;

/// Ends the name of a copy that is about to replace a segment; `pyrmq log repair` makes such copies, too.
const OWN: &str = ".own";

impl CommitLog {
    /// Removes half-created files that a kill may leave in the log's directory: a last file without any byte, as Apache
    /// does, and copies that did not replace their segments.
    pub(crate) fn remove_half_made(&self) -> Result<(), StoreError> {
        let entries = self.fs.list(&self.directory).at("list", &self.directory)?;
        for entry in entries {
            let segment = entry.name.strip_suffix(OWN).and_then(parse_file_name);
            if segment.is_some() && !entry.is_directory {
                let path = self.directory.join(&entry.name);
                self.fs.remove(&path).at("remove", &path)?;
            }
        }
        match &self.half_made {
            Some(path) => self.fs.remove(path).at("remove", path),
            None => Ok(()),
        }
    }

    /// Drops everything from `end` on. Later segments are deleted, newest first and each durably, so there is never a
    /// gap. The rest of the segment is zeroed, so that no old record can follow a new one. Only before the store runs.
    /// After a crash, existing zeros are written again, too: the system may consider them clean although an fsync of
    /// them failed.
    pub(crate) fn cut(&self, end: i64, crashed: bool) -> Result<(), StoreError> {
        let mut segments = write(&self.segments);
        while let Some(last) = segments.last()
            && last.base >= end
            && segments.len() > 1
        {
            self.fs.remove(&last.path).at("remove", &last.path)?;
            self.forget_open(last);
            segments.pop();
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
        }
        let last = segments.last().cloned();
        drop(segments);
        if let Some(last) = &last
            && end < last.base + self.segment_bytes
        {
            let from = to_u64((end - last.base).max(0));
            let file = self.unshared_file(last)?;
            let to = to_u64(self.segment_bytes);
            let data = if crashed {
                file.next_data(from).map(|data| data.filter(|data| *data < to))
            } else {
                is_clear(file.as_ref(), from, to).map(|is_clear| (!is_clear).then_some(from))
            };
            if crashed {
                file.set_length(to).at("extend", &last.path)?;
            }
            if let Some(data) = data.at("read", &last.path)? {
                file.clear(data, to).at("clear", &last.path)?;
            }
            // A start that was killed may have zeroed it a moment ago.
            file.sync().at("flush", &last.path)?;
        }
        Ok(())
    }

    /// Rewrites `from..to` with the same bytes. After a failed fsync the system may hold pages that it considers
    /// written although they are not on the disk.
    pub(crate) fn rewrite(&self, from: i64, to: i64) -> Result<(), StoreError> {
        let mut buffer = vec![0; 1 << 20];
        let mut at = from.max(self.start());
        while at < to {
            let Some(segment) = self.segment_at(at) else {
                return Ok(());
            };
            let most = (to - at).min(self.next_segment(at) - at).min(1 << 20);
            let part = buffer.get_mut(..to_usize(most)).unwrap_or_default();
            let inside = to_u64(at - segment.base);
            let file = self.unshared_file(&segment)?;
            if at == from || inside == 0 {
                // The length may also be undurable, if the file was created meanwhile.
                file.set_length(to_u64(self.segment_bytes))
                    .at("extend", &segment.path)?;
            }
            file.read_exact_at(part, inside).at("read", &segment.path)?;
            file.write_all_at(part, inside).at("write", &segment.path)?;
            at += most;
        }
        Ok(())
    }
}

impl CommitLog {
    /// Returns the open file of a segment that is about to be written. A file with another name, such as a snapshot's,
    /// is replaced by a durable copy first. Only before the store runs.
    pub(super) fn unshared_file(&self, segment: &Arc<Segment>) -> Result<Arc<dyn File>, StoreError> {
        let path = &segment.path;
        if self.fs.links(path).at("look at", path)? < 2 {
            return self.file(segment);
        }
        let copy = with_suffix(path, OWN);
        copy_data(self.file(segment)?.as_ref(), self.fs.as_ref(), &copy)?;
        self.fs.rename(&copy, path).at("rename", &copy)?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)?;
        tracing::info!(file = %path.display(), "segment has another name, such as a snapshot's: it was copied");
        self.forget_open(segment);
        self.file(segment)
    }

    /// Replaces the segment that the next record goes to by a durable copy, if its file has another name.
    pub(crate) fn unshare_last_segment(&self) -> Result<(), StoreError> {
        let last = self.segment_at(self.appended());
        last.map_or(Ok(()), |segment| self.unshared_file(&segment).map(drop))
    }
}

/// A durable copy of a file, with its holes.
fn copy_data(from: &dyn File, fs: &dyn Fs, path: &Path) -> Result<(), StoreError> {
    let length = from.length().at("read", path)?;
    let to = fs.create(path).at("create", path)?;
    to.set_length(length).at("extend", path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while let Some(data) = from.next_data(at).at("read", path)?.filter(|data| *data < length) {
        let got = from.read_at(&mut buffer, data).at("read", path)?;
        let part = buffer.get(..got).unwrap_or_default();
        to.write_all_at(part, data).at("write", path)?;
        if part.is_empty() {
            break;
        }
        at = data + got as u64;
    }
    to.sync().at("flush", path)
}

/// Whether all bytes `from..to` of a file are zero.
pub(crate) fn is_clear(file: &dyn File, from: u64, to: u64) -> std::io::Result<bool> {
    const MAX_PIECE: u64 = 1 << 20;
    let mut buffer = Vec::new();
    let (mut at, mut piece) = (from, 1 << 12);
    while let Some(data) = file.next_data(at)?.filter(|data| *data < to) {
        // Up to the end of this piece, after which there may be a hole.
        let end = (data / piece + 1).saturating_mul(piece).min(to);
        piece = (piece * 2).min(MAX_PIECE);
        buffer.resize(usize::try_from(end - data).unwrap_or_default(), 0);
        let got = file.read_at(&mut buffer, data)?;
        if buffer
            .get(..got)
            .unwrap_or_default()
            .iter()
            .any(|byte| *byte != 0)
        {
            return Ok(false);
        }
        if got < buffer.len() {
            break;
        }
        at = end;
    }
    Ok(true)
}
