//! Units of a queue in memory. The first few are in the queue itself: most of many queues get few messages, and a
//! separate allocation would be one more cache line that a put waits for.

use crate::format::{CQ_UNIT_SIZE, CqUnit};

/// Number of units that need no allocation.
const FEW: usize = 3;
/// Bytes of an allocation that is kept although most of its units were dropped.
const MAX_KEPT: usize = 256 << 10;

/// Encoded units, one after the other.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Units {
    more: Vec<u8>,
    /// How many of `few` are used; 0 once there are more.
    used: u8,
    few: [[u8; CQ_UNIT_SIZE]; FEW],
}

impl Default for Units {
    fn default() -> Self {
        Self {
            few: [[0; CQ_UNIT_SIZE]; FEW],
            used: 0,
            more: Vec::new(),
        }
    }
}

impl Units {
    fn few(&self) -> &[u8] {
        self.few
            .get(..usize::from(self.used))
            .unwrap_or_default()
            .as_flattened()
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.more.is_empty() {
            self.few()
        } else {
            &self.more
        }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        if self.more.is_empty() {
            usize::from(self.used) * CQ_UNIT_SIZE
        } else {
            self.more.len()
        }
    }

    /// Adds units at the end.
    pub(super) fn add(&mut self, units: impl ExactSizeIterator<Item = CqUnit>) {
        let used = usize::from(self.used);
        let wanted = used + units.len();
        if self.more.is_empty() && wanted <= FEW {
            let places = self.few.get_mut(used..wanted).unwrap_or_default();
            for (place, unit) in places.iter_mut().zip(units) {
                *place = unit.to_bytes();
            }
            self.used = u8::try_from(wanted).unwrap_or_default();
            return;
        }
        if self.used > 0 {
            self.more
                .extend_from_slice(self.few.get(..used).unwrap_or_default().as_flattened());
            self.used = 0;
        }
        let from = self.more.len();
        self.more.resize(from + units.len() * CQ_UNIT_SIZE, 0);
        let (places, _) = self
            .more
            .get_mut(from..)
            .unwrap_or_default()
            .as_chunks_mut::<CQ_UNIT_SIZE>();
        for (place, unit) in places.iter_mut().zip(units) {
            *place = unit.to_bytes();
        }
    }

    /// Drops this many bytes at the beginning: whole units, but not all.
    pub(super) fn drop_front(&mut self, bytes: usize) {
        if bytes < self.more.len() {
            self.more.drain(..bytes);
            self.more.shrink_to(MAX_KEPT);
        }
    }

    /// Drops all and gives the memory back.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.more = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_many_units_is_given_back_once_most_are_dropped() {
        let mut units = Units::default();
        units.add(std::iter::repeat_n(CqUnit::FILLER, 100_000));
        units.drop_front(99_000 * CQ_UNIT_SIZE);
        assert_eq!(units.len(), 1000 * CQ_UNIT_SIZE);
        assert!(units.more.capacity() <= MAX_KEPT, "{}", units.more.capacity());
    }
}
