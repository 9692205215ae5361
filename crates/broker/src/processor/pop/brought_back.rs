//! The messages that were brought back shortly before a stop.
//!
//! The broker writes every few seconds which pop check points are done, so after a kill it reads some of them again,
//! and after a clean stop those after the first that was not done. Their messages were brought back already, and
//! perhaps acknowledged since: a second copy would be delivered needlessly. Each copy in a retry topic carries the
//! position of the message that it was made of, in a field of records that only transactions use
//! (`preparedTransactionOffset`; Apache's brokers write 0). It identifies the copies of the last seconds.

use crate::context::BrokerContext;
use crate::delivery::scan::read_on;
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::names::{REVIVE_GROUP, is_retry};
use pyrmq_store::{Boundary, StoreError};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Maximum number of copies that are remembered: some 20 MB.
const MAX_COUNT: usize = 900_000;
/// Maximum time for reading them. No message is brought back meanwhile.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Times of the store may differ from those of the timer by this much, ms.
const CLOCK_MS: i64 = 1000;

/// The newest copies of messages in the retry topics. Once the pop check points from before the stop are done, there
/// are none.
///
/// With more copies than are remembered, or more than can be read in time, some messages come back a second time; none
/// is lost. Nor is a copy known that one of Apache's brokers made.
#[derive(Debug, Default)]
pub(super) struct BroughtBack {
    /// The newest copy of a message, by retry topic and by the position of the message in the log.
    newest: HashMap<String, HashMap<i64, NewestCopy>>,
    count: usize,
    /// When the last copy was made, in ms.
    until_ms: i64,
}

/// The mark in a copy for the position of its source message. Never 0, which means none.
pub(super) fn mark_of(source: &Record<'_>) -> i64 {
    source.physical_offset.max(1)
}

/// Since when copies may have been made for pop check points that are read again, in ms; `None` if there are none.
/// Before the timer starts: what it delivered since it last saved its progress, it delivers again.
pub(crate) fn unfinished_since(context: &BrokerContext) -> Option<i64> {
    if !context.options.store.timer.enable {
        return None;
    }
    find_unfinished(context).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read which messages came back before the stop: some may come twice");
        None
    })
}

fn find_unfinished(context: &BrokerContext) -> Result<Option<i64>, StoreError> {
    let store = &context.store;
    let topic = super::revive_topic(&context.options.broker_cluster_name);
    let saved_ms = context.timers.read_ms().unwrap_or(0).saturating_sub(CLOCK_MS);
    let mut since_ms = None;
    for queue_id in 0..super::revive_queues(context) {
        let committed = context.offsets.get(REVIVE_GROUP, &topic, queue_id);
        let next = committed.map_or(0, |committed| committed.saturating_add(1));
        let delivered_again = store.offset_by_time(&topic, queue_id, saved_ms, Boundary::Lower)?;
        let first = next.min(delivered_again).max(store.min_offset(&topic, queue_id));
        if first < store.max_offset(&topic, queue_id) {
            let stored_ms = store.store_time(&topic, queue_id, first)?;
            since_ms = since_ms.into_iter().chain(stored_ms).min();
        }
    }
    Ok(since_ms.map(|since_ms: i64| since_ms.saturating_sub(CLOCK_MS)))
}

#[derive(Debug, Clone, Copy)]
struct NewestCopy {
    stored_ms: i64,
    /// Where it is in the log.
    position: i64,
}

impl BroughtBack {
    /// Reads the copies that were made since a time, in ms.
    pub(super) fn read(context: &BrokerContext, since_ms: i64) -> Self {
        let began = Instant::now();
        let mut found = Self::default();
        let (topics, _) = context.topics.all();
        let retries = topics.iter().filter(|topic| is_retry(&topic.topic_name));
        let queues =
            retries.flat_map(|topic| (0..topic.queue_nums()).map(|id| (topic.topic_name.as_str(), id)));
        for (topic, queue_id) in queues {
            match found.read_queue(context, (topic, queue_id), since_ms, began) {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(
                        copies = found.count,
                        "too many messages came back before the stop: some will come twice"
                    );
                    break;
                }
                Err(error) => {
                    tracing::warn!(topic, queue_id, %error, "cannot read which messages came back before the stop: some may come twice");
                }
            }
        }
        found
    }

    /// False: there are more than are remembered.
    fn read_queue(
        &mut self,
        context: &BrokerContext,
        (topic, queue_id): (&str, i32),
        since_ms: i64,
        began: Instant,
    ) -> Result<bool, StoreError> {
        let store = &context.store;
        if store.max_offset(topic, queue_id) == store.min_offset(topic, queue_id) {
            return Ok(true);
        }
        let offset = store.offset_by_time(topic, queue_id, since_ms, Boundary::Lower)?;
        let mut is_complete = true;
        read_on(store, (topic, queue_id), offset, |records| {
            if self.count >= MAX_COUNT || began.elapsed() >= MAX_TIME {
                is_complete = false;
                return ControlFlow::Break(());
            }
            let copies = record::records(records).map_while(Result::ok);
            copies.for_each(|copy| self.add(topic, &copy, since_ms));
            ControlFlow::Continue(())
        })?;
        Ok(is_complete)
    }

    fn add(&mut self, topic: &str, copy: &Record<'_>, since_ms: i64) {
        let (source, stored_ms) = (copy.prepared_transaction_offset, copy.store_timestamp_ms);
        if source <= 0 || stored_ms < since_ms {
            return;
        }
        let of_topic = match self.newest.get_mut(topic) {
            Some(of_topic) => of_topic,
            None => self.newest.entry(topic.to_owned()).or_default(),
        };
        let copy = NewestCopy {
            stored_ms,
            position: copy.physical_offset,
        };
        let newest = of_topic.entry(source).or_insert(copy);
        if newest.position < copy.position {
            *newest = copy;
        }
        self.count += 1;
        self.until_ms = self.until_ms.max(stored_ms);
    }

    /// Whether a message came back when it was due, for a pop at whose time the log ended at `log_end`. `mark` is the
    /// message's [`mark_of`]. Times alone do not tell, since clocks go back: the copy may be that of an earlier pop.
    /// Apache's pop check points have no `log_end`.
    pub(super) fn has(&self, retry_topic: &str, mark: i64, (due_ms, log_end): (i64, Option<i64>)) -> bool {
        let of_topic = self.newest.get(retry_topic);
        let copy = of_topic.and_then(|of_topic| of_topic.get(&mark));
        copy.is_some_and(|copy| {
            copy.stored_ms >= due_ms && log_end.is_none_or(|log_end| copy.position >= log_end)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When the last copy was made, in ms: a message that was due later did not come back before the stop.
    pub(super) fn until_ms(&self) -> i64 {
        self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::{BroughtBack, NewestCopy, unfinished_since};
    use crate::pop::pop_check_point::Taken;
    use crate::processor::pop::revive_log;
    use crate::processor::site::Site;
    use pyrmq_remoting::clock;
    use pyrmq_testkit::disk::{Fault, Operation};
    use std::io::ErrorKind;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broker_starts_even_if_it_cannot_read_what_came_back() {
        let site = Site::new();
        let context = &site.context;
        let taken = Taken {
            topic: "T",
            group: "G",
            queue_id: 0,
            broker_name: "broker",
            start_offset: 0,
            pop_time: clock::now_ms(),
            invisible_time: 0,
        };
        revive_log(context).put_check_point(0, &taken, &[0]).unwrap();
        assert!(unfinished_since(context).is_some(), "it is not done");
        let fault = Fault::Error(ErrorKind::Other);
        site.disk.fail(Operation::Read, "commitlog", 0, fault);
        assert_eq!(unfinished_since(context), None);
    }

    #[test]
    fn the_copy_of_an_earlier_pop_counts_for_no_later_one_although_the_clock_went_back() {
        let mut found = BroughtBack::default();
        let copy = NewestCopy {
            stored_ms: 9_000,
            position: 300,
        };
        found.newest.entry("R".to_owned()).or_default().insert(100, copy);
        let has = |log_end| found.has("R", 100, (5_000, log_end));
        assert!(has(Some(200)) && has(None));
        assert!(!has(Some(400)), "its pop is later than the copy");
        assert!(!found.has("R", 100, (9_001, Some(200))));
    }
}
