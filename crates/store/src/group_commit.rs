//! Fsync of the log, once for all who wait (Apache `GroupCommitService`, `FlushRealTimeService`).
//!
//! Contract: whoever waits for a position is answered once. `Ok` only after an fsync that began after the position was written
//! returned without error. A failed fsync answers everyone with the error, turns the log read-only and is never tried
//! again: the system may have dropped the pages that it could not write.

use crate::checkpoint::mark_unsure;
use crate::error::StoreError;
use crate::inner::Inner;
use crate::message::Arrival;
use crate::store::OnDurable;
use crate::sync::lock;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Those who wait for an fsync.
#[derive(Default)]
pub(crate) struct Waiters {
    list: Mutex<Vec<Waiter>>,
}

struct Waiter {
    position: i64,
    since: Instant,
    done: OnDurable,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Waiters({})", lock(&self.list).len())
    }
}

impl Waiters {
    /// How many wait, and for how long the first of them has.
    pub(crate) fn queue(&self) -> (usize, Duration) {
        let list = lock(&self.list);
        let oldest = list.first().map(|first| first.since.elapsed());
        (list.len(), oldest.unwrap_or_default())
    }

    fn take(&self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        lock(&self.list).extract_if(.., |waiter| which(waiter)).collect()
    }

    /// Answers those who wait too long.
    pub(crate) fn expire(&self, longest: Duration) {
        for waiter in self.take(|waiter| waiter.since.elapsed() >= longest) {
            (waiter.done)(Err(StoreError::FlushTimeout {
                waited_ms: u64::try_from(waiter.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            }));
        }
    }

    /// Answers everyone.
    pub(crate) fn fail(&self, error: &StoreError) {
        for waiter in self.take(|_| true) {
            (waiter.done)(Err(error.clone()));
        }
    }
}

impl Inner {
    /// Calls back once everything in front of `position` is durable.
    pub(crate) fn when_durable(&self, position: i64, done: OnDurable) {
        if position <= self.log.flushed() {
            return done(Ok(()));
        }
        if let Err(error) = self.log.failure.check().and_then(|()| self.check_open()) {
            return done(Err(error));
        }
        lock(&self.waiters.list).push(Waiter {
            position,
            since: Instant::now(),
            done,
        });
        // The waiter is in the list before the bell rings, so the round that follows sees it; a store that closed
        // meanwhile has no more rounds.
        self.flush_alarm.ring();
        if self.closed.load(Ordering::Acquire) {
            self.answer_durable();
            self.waiters.fail(&StoreError::Closed);
        }
    }

    /// One fsync for everything that was appended before it, then the answers.
    pub(crate) fn flush_round(&self) -> Result<(), StoreError> {
        let _one = lock(&self.flushing);
        let (target, last_ms, last, falls) = {
            let append = lock(&self.append);
            (
                append.tail.position,
                append.tail.last_store_ms,
                append.tail.last,
                self.checkpoint.times().falls,
            )
        };
        if target > self.log.flushed() {
            if let Err(error) = self.log.sync_to(target) {
                mark_unsure(self.fs.as_ref(), &self.options.root, self.log.flushed());
                self.waiters.fail(&error);
                return Err(error);
            }
            self.flushes.fetch_add(1, Ordering::Relaxed);
            self.show_durable();
            self.checkpoint.update(|times| {
                if times.falls == falls {
                    times.physic_ms = times.physic_ms.max(last_ms);
                }
                // Every unit in front of it is in its queue's memory by now, and the queue in the list of those to be written.
                if last.is_some() {
                    times.log = last;
                }
            });
        }
        self.answer_durable();
        Ok(())
    }

    fn answer_durable(&self) {
        let flushed = self.log.flushed();
        for waiter in self.waiters.take(|waiter| waiter.position <= flushed) {
            (waiter.done)(Ok(()));
        }
    }

    /// Makes readable what waited for the fsync. Rounds take turns, so that units of a queue stay in their order although
    /// the append lock is held only to take all of them out.
    fn show_durable(&self) {
        let flushed = self.log.flushed();
        let ready: Vec<_> = {
            let deferred = &mut lock(&self.append).deferred;
            let count = deferred.partition_point(|next| next.unit.end() <= flushed);
            deferred.drain(..count).collect()
        };
        for next in ready {
            next.queue.push(next.unit);
            self.queues.note_unwritten(&next.queue);
            if let Some(listener) = self.listener.get() {
                listener(&Arrival {
                    topic: &next.queue.topic,
                    queue_id: next.queue.id,
                    next_offset: next.queue.end(),
                    count: 1,
                    tags_code: Some(next.unit.tags_code),
                    store_timestamp_ms: next.store_ms,
                });
            }
        }
    }
}
