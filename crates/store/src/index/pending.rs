//! Keys between the puts and the thread that fills the key index.
//!
//! One core writes this and another reads it, so every byte counts twice: a key is the four bytes of its hash, a record
//! takes eight, and one write takes 24.

/// An entry by which a record can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Java hash of `topic#key`, made positive.
    pub(crate) hash: i32,
    /// Position of the record.
    pub(crate) position: i64,
    /// Store time of the message, ms.
    pub(crate) store_ms: i64,
}

/// One record of a put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordKeys {
    /// Position of the record, in bytes after `start` of its put.
    from: u32,
    /// Number of keys of the record.
    keys: u32,
}

impl RecordKeys {
    /// The keys of the record that begins at `from` in its buffer. Both numbers are far below 2^32, because a put
    /// arrives in one frame.
    pub(crate) fn new(from: usize, keys: usize) -> Self {
        Self {
            from: u32::try_from(from).unwrap_or(u32::MAX),
            keys: u32::try_from(keys).unwrap_or(u32::MAX),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Put {
    start: i64,
    store_ms: i64,
    records: usize,
}

/// Keys in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct PendingKeys {
    puts: Vec<Put>,
    records: Vec<RecordKeys>,
    hashes: Vec<i32>,
}

impl PendingKeys {
    /// Adds the keys of a put. The numbers of hashes in `records` add up to the length of `hashes`.
    pub(crate) fn add(&mut self, start: i64, store_ms: i64, records: &[RecordKeys], hashes: &[i32]) {
        if hashes.is_empty() {
            return;
        }
        self.puts.push(Put {
            start,
            store_ms,
            records: records.len(),
        });
        self.records.extend_from_slice(records);
        self.hashes.extend_from_slice(hashes);
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Position of the oldest record.
    pub(crate) fn first_position(&self) -> Option<i64> {
        let (put, record) = (self.puts.first()?, self.records.first()?);
        Some(put.start + i64::from(record.from))
    }

    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.records.clear();
        self.hashes.clear();
    }

    /// Calls `take` with every key until it fails.
    pub(crate) fn each<E>(&self, mut take: impl FnMut(&IndexEntry) -> Result<(), E>) -> Result<(), E> {
        let (mut records, mut hashes) = (self.records.iter(), self.hashes.iter());
        for put in &self.puts {
            for record in records.by_ref().take(put.records) {
                let position = put.start + i64::from(record.from);
                let count = usize::try_from(record.keys).unwrap_or(usize::MAX);
                for hash in hashes.by_ref().take(count) {
                    take(&IndexEntry {
                        hash: *hash,
                        position,
                        store_ms: put.store_ms,
                    })?;
                }
            }
        }
        Ok(())
    }
}
