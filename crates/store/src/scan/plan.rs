//! Cuts a file into pieces at the borders of its records. Only heads are read, so large bodies cost nothing.

use crate::error::StoreError;
use crate::format::to_i64;
use crate::scan::{CHUNK, HEAD_CHUNK, LONG_HEAD, LogScan, Stop, elsewhere, named_position};
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::store_timestamp_of;
use std::collections::BTreeSet;

/// Consecutive records of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Position of the first.
    pub from: i64,
    /// Position after the last.
    pub until: i64,
    /// Position of the last.
    pub last: i64,
    /// Number of records.
    pub records: u64,
    /// The earliest store time of a record, ms.
    pub first_ms: i64,
    /// The latest store time, ms.
    pub last_ms: i64,
    /// The topics of the records, if [`PlanLimits::with_topics`] is set.
    pub topics: BTreeSet<String>,
}

/// Limits of the pieces.
#[derive(Debug, Clone, Copy)]
pub struct PlanLimits {
    /// Number of bytes after which a piece ends.
    pub piece_bytes: i64,
    /// Maximum number of records in all.
    pub records: u64,
    /// Whether to list the topics of each piece, for which whole records are read.
    pub with_topics: bool,
}

/// The pieces from the scan's position on, and why they end. The scan is then after the last one.
pub fn plan(scan: &mut LogScan, limits: PlanLimits) -> Result<(Vec<Piece>, Stop), StoreError> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut left = limits.records;
    let chunk = if limits.with_topics { CHUNK } else { HEAD_CHUNK };
    loop {
        if left == 0 {
            return Ok((pieces, Stop::Paused));
        }
        let size = match scan.record_size(chunk)? {
            Ok(size) => size,
            Err(stop) => return Ok((pieces, stop)),
        };
        let position = scan.position;
        let wanted = if limits.with_topics {
            size
        } else {
            size.min(LONG_HEAD)
        };
        let head = scan.window(wanted, chunk)?;
        let (Some(named), Some(stored_ms)) = (named_position(head), store_timestamp_of(head)) else {
            return Ok((pieces, Stop::Damaged("a record is cut off".to_owned())));
        };
        if named != position {
            return Ok((pieces, Stop::Damaged(elsewhere(named))));
        }
        let topic = match limits.with_topics.then(|| Record::decode(head)) {
            Some(Err(error)) => return Ok((pieces, Stop::Damaged(error.to_string()))),
            Some(Ok(record)) => Some(record.topic),
            None => None,
        };
        let until = position + to_i64(size);
        match pieces.last_mut() {
            Some(piece) if until - piece.from <= limits.piece_bytes => {
                (piece.last, piece.until) = (position, until);
                piece.records += 1;
                piece.first_ms = piece.first_ms.min(stored_ms);
                piece.last_ms = piece.last_ms.max(stored_ms);
            }
            _ => pieces.push(Piece {
                from: position,
                until,
                last: position,
                records: 1,
                first_ms: stored_ms,
                last_ms: stored_ms,
                topics: BTreeSet::new(),
            }),
        }
        if let (Some(topic), Some(piece)) = (topic, pieces.last_mut())
            && !piece.topics.contains(topic)
        {
            piece.topics.insert(topic.to_owned());
        }
        scan.position = until;
        left -= 1;
    }
}
