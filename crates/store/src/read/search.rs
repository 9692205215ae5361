//! Searches by key (Apache `DefaultMessageStore.queryMessage`).

use crate::error::StoreError;
use crate::index::query::{KeyKind, KeyQuery};
use crate::read::query::KeyMatches;
use crate::read::reader::Reader;
use bytes::Bytes;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::{KEY_SEPARATOR, names};

/// A search by key reads up to this many records with its hash, or four times the requested number if that is more.
const MIN_SCANNED: usize = 1024;

impl Reader {
    /// Searches by key, from a position of the log on.
    pub(crate) fn query(&self, query: &KeyQuery<'_>, from: i64) -> Result<KeyMatches, StoreError> {
        self.shared.state.check_open()?;
        let Some(index) = &self.indexing.index else {
            return Ok(KeyMatches::default());
        };
        if !self.shared.log.failure.is_set() {
            self.shared
                .state
                .handle_failure("cannot fill the key index", self.indexing.round());
        }
        let is_whole = self.indexing.is_whole();
        let most = query.max_count.clamp(1, self.shared.live.max_query_count());
        // Other keys may have the same hash.
        let positions = index.find(query, from, most.saturating_mul(4).max(MIN_SCANNED))?;
        let mut found = KeyMatches {
            index_last_update_ms: positions.last_update_ms,
            index_last_update_offset: positions.last_update_position,
            is_complete: is_whole && !positions.is_cut,
            ..KeyMatches::default()
        };
        let mut body = Vec::new();
        let mut discovered = std::collections::HashSet::new();
        for position in positions.positions {
            if !discovered.insert(position) {
                continue;
            }
            if found.count >= most {
                found.is_complete = false;
                break;
            }
            let Some(bytes) = self.readable_at(position)? else {
                continue;
            };
            if Record::decode(&bytes).is_ok_and(|record| has_key(&record, query)) {
                body.extend_from_slice(&bytes);
                found.count += 1;
            }
        }
        found.body = Bytes::from(body);
        Ok(found)
    }
}

/// Checks the record itself, since the index has only hashes and whole seconds.
fn has_key(record: &Record<'_>, query: &KeyQuery<'_>) -> bool {
    let [unique, keys, tag] = record
        .properties
        .get_many([names::UNIQ_KEY, names::KEYS, names::TAGS]);
    let matches = match query.kind {
        KeyKind::Tag => tag == Some(query.key),
        KeyKind::Unique => unique == Some(query.key),
        KeyKind::Key => {
            unique == Some(query.key)
                || keys.is_some_and(|keys| keys.split(KEY_SEPARATOR).any(|key| key == query.key))
        }
    };
    matches
        && record.topic == query.topic
        && (query.begin_ms..=query.end_ms).contains(&record.store_timestamp_ms)
}
