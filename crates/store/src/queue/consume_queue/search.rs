//! Searches in a consume queue.
//!
//! Fillers stand for no message. They fill the oldest file before the queue's first index, and they are in the middle
//! of a queue whose log has lost records. A filler says nothing about the messages next to it: a search decides by the
//! message before it.

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CqUnit, to_i64};
use crate::fs::Fs;
use crate::queue::consume_queue::ConsumeQueue;
use crate::sync::lock;

/// Number of fillers that are read at once, at first and at most.
const FEW_UNITS: i64 = 64;
const MANY_UNITS: i64 = 8192;

impl ConsumeQueue {
    /// Binary search over the units between two indexes. `matches` must hold for none in a first part and for all in
    /// the rest; fillers are skipped. Returns the index of the first match, or `to` if there is none.
    pub(crate) fn first_where(
        &self,
        fs: &dyn Fs,
        from: i64,
        to: i64,
        mut matches: impl FnMut(CqUnit) -> Result<bool, StoreError>,
    ) -> Result<i64, StoreError> {
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            bytes.clear();
            self.read(fs, middle, 1, &mut bytes)?;
            let (index, is_match) = match CqUnit::from_bytes(&bytes) {
                None => (middle, true),
                Some(unit) if !unit.is_filler() => (middle, matches(unit)?),
                Some(_) => match self.last_message(fs, low, middle)? {
                    Some((index, unit)) => (index, matches(unit)?),
                    None => (middle, false),
                },
            };
            if is_match {
                high = index;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// The last unit in `from..to` that is not a filler, and its index.
    fn last_message(&self, fs: &dyn Fs, from: i64, to: i64) -> Result<Option<(i64, CqUnit)>, StoreError> {
        let (mut end, mut count, mut bytes) = (to, FEW_UNITS, Vec::new());
        while end > from {
            let begin = (end - count).max(from);
            let (mut at, mut last) = (begin, None);
            while at < end {
                bytes.clear();
                self.read(fs, at, end - at, &mut bytes)?;
                let units = bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes);
                last = (at..)
                    .zip(units)
                    .filter(|(_, unit)| !unit.is_filler())
                    .last()
                    .or(last);
                if bytes.is_empty() {
                    break;
                }
                at += to_i64(bytes.len() / CQ_UNIT_SIZE);
            }
            if last.is_some() {
                return Ok(last);
            }
            (end, count) = (begin, (count * 2).min(MANY_UNITS));
        }
        Ok(None)
    }

    /// The first index in `first..end` whose unit in the files is not a filler; `end` if there is none. Only before the
    /// store runs.
    pub(super) fn first_live(&self, fs: &dyn Fs, first: i64, end: i64) -> Result<i64, StoreError> {
        let (mut at, mut count, mut bytes) = (first, 1, Vec::new());
        while at < end {
            bytes.clear();
            lock(&self.files).read(fs, at, count.min(end - at), &mut bytes)?;
            let units = bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes);
            let fillers = to_i64(units.take_while(|unit| unit.is_filler()).count());
            at += fillers;
            if fillers < to_i64(bytes.len() / CQ_UNIT_SIZE) || bytes.is_empty() {
                return Ok(at);
            }
            count = (count * 8).min(MANY_UNITS);
        }
        Ok(end)
    }
}

/// The first index in `from..to` for which `found` holds; `to` if there is none. `found` must hold for all later ones.
pub(super) fn search(
    from: i64,
    to: i64,
    mut found: impl FnMut(i64) -> Result<bool, StoreError>,
) -> Result<i64, StoreError> {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low) / 2;
        if found(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
