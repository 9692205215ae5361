//! When messages were stored, and which message was stored at a time.

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::read::query::Boundary;
use crate::read::reader::Reader;
use pyrmq_remoting::message::record;

/// Bytes of a record up to and including the store time, whatever its hosts.
const TIME_HEAD: usize = 76;

impl Reader {
    /// When the record of a unit was stored.
    fn time_of(&self, unit: CqUnit) -> Result<Option<i64>, StoreError> {
        let mut head = [0; TIME_HEAD];
        if unit.is_filler() || !unit.is_written() || !self.shared.log.read(unit.position, &mut head)? {
            return Ok(None);
        }
        Ok(record::store_timestamp_of(&head))
    }

    fn unit_at(&self, topic: &str, queue_id: i32, index: i64) -> Result<Option<CqUnit>, StoreError> {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(None);
        };
        if index < queue.min() || index >= queue.end() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        queue.read(self.shared.fs.as_ref(), index, 1, &mut bytes)?;
        Ok(CqUnit::from_bytes(&bytes))
    }

    /// When the message at an index was stored.
    pub(crate) fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        index: i64,
    ) -> Result<Option<i64>, StoreError> {
        match self.unit_at(topic, queue_id, index)? {
            Some(unit) => self.time_of(unit),
            None => Ok(None),
        }
    }

    /// The index of the first message at or after a position of the log.
    pub(crate) fn offset_by_position(
        &self,
        topic: &str,
        queue_id: i32,
        position: i64,
    ) -> Result<i64, StoreError> {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(0);
        };
        queue.first_where(self.shared.fs.as_ref(), queue.min(), queue.end(), |unit| {
            Ok(unit.position >= position)
        })
    }

    /// The index that belongs to a time.
    pub(crate) fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(0);
        };
        let (min, max) = (queue.min(), queue.end());
        let first_from = |limit: i64| {
            queue.first_where(self.shared.fs.as_ref(), min, max, |unit| {
                // A deleted record is older than all existing ones.
                Ok(self.time_of(unit)?.is_some_and(|time| time >= limit))
            })
        };
        match boundary {
            Boundary::Lower => first_from(timestamp_ms),
            Boundary::Upper => {
                let after = first_from(timestamp_ms.saturating_add(1))?;
                // Apache answers 0 for a time before all messages, and the newest message for a time after them.
                Ok(if after == min { 0 } else { after - 1 })
            }
        }
    }
}
