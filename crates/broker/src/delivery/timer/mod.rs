//! Timer messages: delivered at a time that the sender chose (Apache `TimerMessageStore`, `HookUtils`).
//!
//! ```text
//! send     rmq_sys_wheel_timer queue 0, with TIMER_OUT_MS, REAL_TOPIC, REAL_QID               `send`
//! take in  each message of that queue gets a unit in the timer's log and a place in the wheel  `enqueue`
//! deliver  what waits for a step is stored under its real topic once the step is over          `deliver`
//! ```
//! One thread takes in and delivers. It wakes at the next step while there are messages to take in, otherwise at the
//! next step for which some wait, otherwise not at all. All messages of a step are taken in before the step is
//! delivered, so that a recall that comes before a message's time takes effect.
//!
//! The timer's time never goes back. When the clock is set back, the timer's time goes on and is ahead of the clock
//! from then on, until the clock is set forward again: slots are in the timer's time, due times in the clock's. So a
//! message neither waits for as long as the clock was set back nor comes early by that.
//!
//! Progress is saved once the commit log is durable up to the messages that it covers: after a kill a message may be
//! delivered twice, as with Apache, but is never lost.

mod deliver;
mod enqueue;
mod handle;
mod send;

pub(crate) use handle::Handle;

use deliver::Job;
use pyrmq_remoting::clock;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::sync::wakeup::{Wakeup, Woken};
use pyrmq_store::{Durability, Fs, Store, StoreError, TIMER_QUEUE, TimerOptions, TimerProgress, TimerStore};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long the thread sleeps when nothing waits.
const IDLE_MS: i64 = 60_000;
/// How long it waits after a failure, in steps.
const RETRY_STEPS: i64 = 1;
/// How often old files are deleted.
const CLEAN_MS: i64 = 30_000;
/// How long a stop waits for the commit log to be durable.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// If it lags by more than this, it delivers before it takes messages in: the wheel covers only twice seven days.
const FAR_BEHIND_STEPS: i64 = 6 * 86_400;

/// The timer of a broker.
#[derive(Debug)]
pub struct Timers {
    options: TimerOptions,
    // Guards the files; held for one batch, never while messages are stored. `None` with `timerWheelEnable=false`.
    files: Option<Mutex<TimerStore>>,
    // Wakes the thread.
    wakeup: Wakeup,
    /// Set while the thread sleeps longer than a step: a new message has to wake it.
    listens: AtomicBool,
    /// Position in the commit log of the last delivered message; -1 before the first.
    delivered_at: AtomicI64,
    /// How far the timer's time is ahead of the clock, in ms.
    ahead_ms: AtomicI64,
}

/// The state that only the thread uses.
#[derive(Debug, Default)]
struct Work {
    /// The clock and the time since boot at the last pass.
    seen: Option<(i64, Duration)>,
    /// The current step, in the timer's time.
    write_ms: i64,
    /// The slot that is being delivered.
    job: Option<Job>,
    /// Position in the commit log after the last message that was taken in or stored.
    log_end: i64,
    /// Progress to be saved once the commit log is durable up to this position.
    pending: Option<(TimerProgress, i64)>,
    saved_ms: i64,
    cleaned_ms: i64,
}

impl Timers {
    /// Reads the files.
    pub(crate) fn open(store: &Store, fs: &Arc<dyn Fs>) -> Result<Self, StoreError> {
        let options = store.options().timer;
        let files = if options.enable {
            Some(Mutex::new(TimerStore::open(store, fs)?))
        } else {
            None
        };
        Ok(Self {
            options,
            files,
            wakeup: Wakeup::default(),
            listens: AtomicBool::new(false),
            delivered_at: AtomicI64::new(-1),
            ahead_ms: AtomicI64::new(0),
        })
    }

    /// How far the timer's time is ahead of the clock, in ms.
    fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Acquire)
    }

    /// The timer's time.
    fn now_ms(&self) -> i64 {
        clock::now_ms().saturating_add(self.ahead_ms())
    }

    /// Advances the timer's time with the clock, or without it if the clock was set back.
    fn follow_clock(&self, work: &mut Work, read_ms: i64) {
        let (now_ms, since_boot) = (clock::now_ms(), clock::since_boot());
        let (before, step_ms) = (self.ahead_ms(), self.options.precision_ms);
        let mut ahead_ms = before;
        if let Some((then_ms, then)) = work.seen {
            let passed_ms = i64::try_from(since_boot.saturating_sub(then).as_millis()).unwrap_or(0);
            let jump_ms = now_ms.saturating_sub(then_ms).saturating_sub(passed_ms);
            if jump_ms.abs() >= step_ms {
                ahead_ms = before.saturating_sub(jump_ms).max(0);
            }
        }
        work.seen = Some((now_ms, since_boot));
        // At a start, and after many jumps of less than a step.
        let reached_ms = work.write_ms.max(read_ms);
        let needed_ms = reached_ms.saturating_sub(now_ms);
        if needed_ms.saturating_sub(ahead_ms) >= step_ms {
            ahead_ms = needed_ms;
        }
        // Whole steps, so that the steps of the clock and those of the timer's time begin together.
        ahead_ms = self.options.floor_ms(ahead_ms.saturating_add(step_ms - 1));
        if ahead_ms > before {
            tracing::warn!(
                ahead_ms,
                "the clock was set back: messages with a delivery time keep the pace of time"
            );
        }
        self.ahead_ms.store(ahead_ms, Ordering::Release);
        work.write_ms = reached_ms.max(self.options.floor_ms(self.now_ms()));
    }

    fn files(&self) -> Option<MutexGuard<'_, TimerStore>> {
        let files = self.files.as_ref()?;
        Some(lock(files))
    }

    /// Called when a timer message became readable.
    pub(crate) fn arrived(&self) {
        if self.listens.swap(false, Ordering::AcqRel) {
            self.wakeup.notify();
        }
    }

    /// Ends [`Timers::run`].
    pub(crate) fn stop(&self) {
        self.wakeup.stop();
    }

    fn is_stopped(&self) -> bool {
        self.wakeup.is_stopped()
    }

    /// Takes in and delivers until [`Timers::stop`] is called. Runs on its own thread.
    pub(crate) fn run(&self, store: &Store) {
        let Some(files) = &self.files else {
            return;
        };
        let mut work = Work::default();
        loop {
            let done = self.pass(files, store, &mut work);
            if let Err(error) = &done {
                tracing::warn!(%error, "the timer cannot go on, will try again");
            }
            if !self.sleep(files, store, &work, done.is_err()) {
                break;
            }
        }
        if let Err(error) = self.finish(files, store, &mut work) {
            tracing::error!(%error, "the timer's progress was not saved: some messages may be delivered again");
        }
    }

    /// Does everything that can be done now.
    fn pass(&self, files: &Mutex<TimerStore>, store: &Store, work: &mut Work) -> Result<(), StoreError> {
        let read_ms = lock(files).read_ms();
        self.follow_clock(work, read_ms);
        let behind_ms = work.write_ms - read_ms;
        if behind_ms > FAR_BEHIND_STEPS * self.options.precision_ms {
            self.deliver(files, store, work)?;
        }
        self.enqueue_all(files, store, work)?;
        if self.deliver(files, store, work)? {
            self.enqueue_all(files, store, work)?;
        }
        self.save(files, store, work)?;
        let now_ms = self.now_ms();
        if now_ms - work.cleaned_ms >= CLEAN_MS {
            work.cleaned_ms = now_ms;
            lock(files).clean(store.health().min_physical_offset)?;
        }
        Ok(())
    }

    /// Saves the progress that an earlier call recorded, once the commit log is durable up to it.
    fn save(&self, files: &Mutex<TimerStore>, store: &Store, work: &mut Work) -> Result<(), StoreError> {
        if let Some((progress, end)) = &work.pending
            && store.durability(*end) == Durability::Local
        {
            lock(files).save(progress)?;
            work.pending = None;
        }
        let now_ms = self.now_ms();
        let is_time = now_ms - work.saved_ms >= self.options.flush_interval_ms || now_ms < work.saved_ms;
        if work.pending.is_none() && is_time {
            let files = lock(files);
            if files.is_behind() {
                work.pending = Some((files.progress(), work.log_end));
                work.saved_ms = now_ms;
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do. False: stopped.
    fn sleep(&self, files: &Mutex<TimerStore>, store: &Store, work: &Work, failed: bool) -> bool {
        loop {
            self.listens.store(true, Ordering::Release);
            let step_ms = self.options.precision_ms;
            let now_ms = self.now_ms();
            let next_step_ms = self.options.floor_ms(now_ms) + step_ms;
            let wait_ms = if failed {
                step_ms * RETRY_STEPS
            } else {
                self.next_ms(files, store, work, next_step_ms) - now_ms
            };
            if wait_ms <= step_ms {
                self.listens.store(false, Ordering::Release);
            }
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
            match self.wakeup.wait(wait) {
                Woken::Stopped => return false,
                Woken::TimedOut => return true,
                // Another message may be due first now.
                Woken::Notified => {}
            }
        }
    }

    /// When there is something to do next.
    fn next_ms(&self, files: &Mutex<TimerStore>, store: &Store, work: &Work, next_step_ms: i64) -> i64 {
        let step_ms = self.options.precision_ms;
        let files = lock(files);
        let mut next_ms = next_step_ms - step_ms + IDLE_MS;
        let has_new = store.max_offset(TIMER_TOPIC, TIMER_QUEUE) > files.queue_offset();
        if has_new && !self.options.stop_enqueue {
            next_ms = next_ms.min(next_step_ms);
        }
        if let Some(due_ms) = files.next_ms()
            && !self.options.stop_dequeue
        {
            // A step is delivered after it is over.
            next_ms = next_ms.min((due_ms + step_ms).max(next_step_ms));
        }
        if work.pending.is_some() || files.is_behind() {
            let flush_ms = self.options.flush_interval_ms;
            next_ms = next_ms.min((work.saved_ms + flush_ms).max(next_step_ms));
        }
        next_ms
    }

    /// Delivers the rest of the current slot, and saves.
    fn finish(&self, files: &Mutex<TimerStore>, store: &Store, work: &mut Work) -> Result<(), StoreError> {
        if work.job.is_some() {
            self.deliver(files, store, work)?;
        }
        let mut files = lock(files);
        if !files.is_behind() {
            return Ok(());
        }
        let (sender, done) = channel();
        // The store may call back after this wait has ended.
        store.when_durable(work.log_end, move |flushed| drop(sender.send(flushed)));
        done.recv_timeout(STOP_TIMEOUT)
            .unwrap_or(Err(StoreError::FlushTimeout {
                waited_ms: u64::try_from(STOP_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            }))?;
        let progress = files.progress();
        files.save(&progress)
    }

    /// Values for request 28: seconds behind in delivery, messages still to take in, messages that wait.
    pub(crate) fn metrics(&self, store: &Store) -> [i64; 3] {
        let Some(files) = self.files() else {
            return [0; 3];
        };
        let late_ms = files
            .next_ms()
            .map_or(0, |due_ms| self.now_ms() - due_ms - self.options.precision_ms);
        let unread = store.max_offset(TIMER_TOPIC, TIMER_QUEUE) - files.queue_offset();
        [late_ms.max(0) / 1000, unread.max(0), files.count()]
    }

    /// Messages due from this time on may not have been delivered, in the timer's time in ms; `None` without a timer.
    pub(crate) fn read_ms(&self) -> Option<i64> {
        Some(self.files()?.read_ms())
    }

    /// Whether every message due at or before this time has been delivered and can be read.
    pub(crate) fn has_delivered(&self, store: &Store, due_ms: i64) -> bool {
        let Some(files) = self.files() else {
            return false;
        };
        let step_ms = self.options.floor_ms(due_ms - 1);
        if clock::now_ms() < step_ms + self.options.precision_ms {
            return false;
        }
        // The thread sleeps while no message waits and does not advance its time.
        let is_taken_in = files.queue_offset() >= store.max_offset(TIMER_TOPIC, TIMER_QUEUE);
        let is_over = files.read_ms() > step_ms.saturating_add(self.ahead_ms());
        if !files.is_read(step_ms) || !(is_taken_in || is_over) {
            return false;
        }
        drop(files);
        let last = self.delivered_at.load(Ordering::Acquire);
        // If retention has deleted the message, it was readable long ago.
        last < store.health().min_physical_offset
            || store.readable_at(last).is_ok_and(|record| record.is_some())
    }

    /// The response body for request 60.
    pub(crate) fn checkpoint(&self) -> Option<Vec<u8>> {
        Some(self.files()?.checkpoint_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::properties;
    use pyrmq_store::{NewMessage, Options};
    use pyrmq_testkit::disk::{Fault, Operation};
    use pyrmq_testkit::{FaultyDisk, TempDir};
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, SocketAddr};

    fn put(store: &Store, body: &[u8], due_ms: i64) {
        let mut text = String::new();
        for (name, value) in [
            ("TIMER_OUT_MS", due_ms.to_string().as_str()),
            ("REAL_TOPIC", "T"),
            ("REAL_QID", "0"),
        ] {
            properties::append(&mut text, name, value);
        }
        let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let message = NewMessage {
            body,
            properties: text.into(),
            ..NewMessage::new(TIMER_TOPIC, TIMER_QUEUE, host)
        };
        store.put(&message).unwrap();
    }

    #[test]
    fn a_message_that_is_taken_in_between_two_tries_of_its_step_is_delivered() {
        let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
        let fs: Arc<dyn Fs> = Arc::new(disk.clone());
        let mut options = Options::new(dir.path());
        options.segment_bytes = 64 * 1024;
        options.timer.precision_ms = 100;
        let store = Store::open(options, fs.clone()).unwrap();
        let timers = Timers::open(&store, &fs).unwrap();
        let (files, mut work) = (timers.files.as_ref().unwrap(), Work::default());
        timers.pass(files, &store, &mut work).unwrap();
        let due_ms = clock::now_ms();
        put(&store, b"early", due_ms);
        timers.pass(files, &store, &mut work).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        disk.fail(Operation::Read, "commitlog", 0, Fault::Error(ErrorKind::Other));
        timers.pass(files, &store, &mut work).unwrap_err();
        disk.heal();
        // Both are late: one is due with the first message, the other before it.
        put(&store, b"late", due_ms);
        put(&store, b"later", due_ms - 5000);
        timers.pass(files, &store, &mut work).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        timers.pass(files, &store, &mut work).unwrap();
        assert_eq!(store.max_offset("T", 0), 3);
        assert_eq!(lock(files).count(), 0);
    }
}
