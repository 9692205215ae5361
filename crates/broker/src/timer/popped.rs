//! Check points of popped messages that wait in the timer for their time: nobody here would bring the messages back.

use super::Timers;
use pyrmq_remoting::message::{java_hash, record};
use pyrmq_store::{Get, POPPED, REVIVE_TOPIC, Store, StoreError, TIMER_QUEUE, TIMER_TOPIC, TagFilter};

impl Timers {
    /// Refuses a store that has some. `topics`: every topic by name; the timer's log knows only their hashes.
    pub(crate) fn refuse_popped<'a>(
        &self,
        store: &Store,
        topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), StoreError> {
        let Some(files) = self.files() else {
            return Ok(());
        };
        let hashes: Vec<i32> = topics
            .filter(|topic| topic.starts_with(REVIVE_TOPIC))
            .map(java_hash::hash)
            .collect();
        let mut found = files.has_waiting(|unit| hashes.contains(&unit.topic_hash))?;
        // What the timer has not taken in yet.
        let mut offset = files.queue_offset();
        while !found {
            let got = store.get(&Get {
                topic: TIMER_TOPIC,
                queue_id: TIMER_QUEUE,
                offset,
                max_count: 1024,
                max_bytes: 4 << 20,
                tags: TagFilter::All,
            })?;
            found = record::records(&got.body)
                .map_while(Result::ok)
                .filter_map(|record| record.properties.get("REAL_TOPIC"))
                .any(|topic| topic.starts_with(REVIVE_TOPIC));
            if got.next_offset <= offset {
                break;
            }
            offset = got.next_offset;
        }
        if !found {
            return Ok(());
        }
        Err(StoreError::Foreign {
            path: store.options().root.join("timerwheel"),
            what: POPPED,
        })
    }
}
