//! What a start changes in the log: a half-made file goes, what is not whole is cut off, and what may not be durable is
//! written again.

use crate::error::StoreError;
use crate::format::{to_u64, to_usize};
use crate::fs::{Context, File};
use crate::log::commit_log::CommitLog;
use crate::sync::write;

impl CommitLog {
    /// Removes a last file without any byte, as Apache does.
    pub(crate) fn mend(&self) -> Result<(), StoreError> {
        match &self.half_made {
            Some(path) => self.fs.remove(path).at("remove", path),
            None => Ok(()),
        }
    }

    /// Drops everything from `end` on: later segments are deleted, the newest first and each durably, so that there is
    /// never a gap; the rest of the segment is made zero, so that no old record can look like a new one's successor.
    /// Only before the store runs. After a crash zeros are written again, too: the system may take them for clean
    /// although an fsync of them failed.
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
        if let Some(last) = segments.last()
            && end < last.base + self.segment_bytes
        {
            let from = to_u64((end - last.base).max(0));
            let file = self.file(last)?;
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
            // A start that was killed may have made it zero a moment ago.
            file.sync().at("flush", &last.path)?;
        }
        Ok(())
    }

    /// Writes `from..to` once more with the bytes that it has. After a failed fsync the system may hold pages that it
    /// takes for written although they are not on the disk.
    pub(crate) fn write_again(&self, from: i64, to: i64) -> Result<(), StoreError> {
        let mut buffer = vec![0; 1 << 20];
        let mut at = from.max(self.start());
        while at < to {
            let Some(segment) = self.segment_at(at) else {
                return Ok(());
            };
            let most = (to - at).min(self.next_segment(at) - at).min(1 << 20);
            let part = buffer.get_mut(..to_usize(most)).unwrap_or_default();
            let inside = to_u64(at - segment.base);
            let file = self.file(&segment)?;
            if at == from || inside == 0 {
                // So may its length be, where it was made in the meantime.
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

/// True when all bytes `from..to` of a file are zero.
pub(crate) fn is_clear(file: &dyn File, from: u64, to: u64) -> std::io::Result<bool> {
    const MOST: u64 = 1 << 20;
    let mut buffer = Vec::new();
    let (mut at, mut piece) = (from, 1 << 12);
    while let Some(data) = file.next_data(at)?.filter(|data| *data < to) {
        // Up to a border of the pieces, after which there may be a hole.
        let end = (data / piece + 1).saturating_mul(piece).min(to);
        piece = (piece * 2).min(MOST);
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
