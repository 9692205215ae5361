//! Fsync of the log, once for all who wait (Apache `GroupCommitService`, `FlushRealTimeService`).
//!
//! A round is one fsync and the answers to all whom it serves. The flush thread does rounds, and so does who ends a burst, while
//! the disk is quick: then the answers of a connection's burst are there before its task writes, and no thread is woken. Who may
//! do one when is [`Turns`](crate::flush_turn::Turns).
//!
//! Contract: whoever waits for a position is answered once. `Ok` only after an fsync that began after the position was written
//! returned without error. A failed fsync answers everyone with the error, turns the log read-only and is never tried
//! again: the system may have dropped the pages that it could not write.

use crate::checkpoint::mark_unsure;
use crate::error::StoreError;
use crate::inner::Inner;
use crate::message::Arrival;
use crate::options::FlushDiskType;
use crate::store::OnDurable;
use crate::sync::{Mutex, lock};
use std::fmt;
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

    fn is_empty(&self) -> bool {
        lock(&self.list).is_empty()
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

/// Whether a call is one of several whose thread will call [`Inner::end_burst`] behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Burst {
    /// It is not: the flush thread is told at once.
    None,
    /// It is: nobody is told.
    Open,
}

impl Inner {
    /// Calls back once everything in front of `position` is durable.
    pub(crate) fn when_durable(&self, position: i64, done: OnDurable, burst: Burst) {
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
        // The waiter is in the list before the bell rings or the burst ends, so the round that follows sees it; a store that
        // failed or closed meanwhile has no more rounds.
        if burst == Burst::None {
            self.flush_alarm.ring();
        }
        if let Err(error) = self.log.failure.check() {
            self.waiters.fail(&error);
        }
        if self.closed.load(Ordering::Acquire) {
            self.answer_durable();
            self.waiters.fail(&StoreError::Closed);
        }
    }

    /// Does a round, once it is this thread's turn.
    pub(crate) fn flush_round(&self) -> Result<(), StoreError> {
        let (done, owed) = self.flush_turns.wait(|| self.round());
        if owed {
            self.flush_alarm.ring();
        }
        done
    }

    /// Sees to it that those who wait are served: by a round of this thread if it is its turn and will not take long.
    pub(crate) fn end_burst(&self) {
        if let Err(error) = self.log.failure.check() {
            return self.waiters.fail(&error);
        }
        if self.log.appended() <= self.log.flushed() {
            // A round of somebody else was faster than the waiters of this burst came into the list.
            return self.answer_durable();
        }
        let waits = !self.waiters.is_empty();
        if !waits && self.options.flush == FlushDiskType::Async {
            return;
        }
        let limit = Duration::from_micros(self.options.flush_inline_below_us);
        if !waits || !self.flush_turns.is_quick(limit) {
            return self.flush_alarm.ring();
        }
        // A failure is kept in the log, and everybody has been answered. Where another one leads now, it rings.
        if let Some((_, true)) = self.flush_turns.ask(|| self.round()) {
            self.flush_alarm.ring();
        }
    }

    /// One fsync for everything that was appended before it, then the answers; only by who has the turn.
    fn round(&self) -> Result<(), StoreError> {
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
            let begin = Instant::now();
            if let Err(error) = self.log.sync_to(target) {
                mark_unsure(self.fs.as_ref(), &self.options.root, self.log.flushed());
                self.waiters.fail(&error);
                return Err(error);
            }
            self.flush_turns.note(begin.elapsed());
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
