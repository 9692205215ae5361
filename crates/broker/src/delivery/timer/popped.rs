//! Check points of popped messages that wait in the timer for their time: nobody here would bring the messages back.

use crate::delivery::scan::has_record;
use crate::delivery::timer::Timers;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::names::{REVIVE_TOPIC, TIMER_TOPIC};
use pyrmq_store::{POPPED, Store, StoreError, TIMER_QUEUE};

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
        // What the timer has not taken in yet lies in its queue.
        let found = files.has_waiting(|unit| hashes.contains(&unit.topic_hash))?
            || has_record(
                store,
                (TIMER_TOPIC, TIMER_QUEUE),
                files.queue_offset(),
                |record| {
                    let topic = record.properties.get("REAL_TOPIC");
                    topic.is_some_and(|topic| topic.starts_with(REVIVE_TOPIC))
                },
            )?;
        if !found {
            return Ok(());
        }
        Err(StoreError::Foreign {
            path: store.options().root.join("timerwheel"),
            what: POPPED,
        })
    }
}
