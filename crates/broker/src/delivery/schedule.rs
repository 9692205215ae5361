//! Delayed messages by level (Apache `ScheduleMessageService`, `config/delayOffset.json`).
//!
//! ```text
//! SCHEDULE_TOPIC_XXXX queue level-1   oldest first, so the head of a queue is the next of its level
//! every 100 ms: head's store time + delay of the level reached -> stored again under REAL_TOPIC, REAL_QID
//! ```
//! Progress is written every 10 s and at stop, after an fsync of the log: after a power loss the messages since then
//! are delivered again, as Apache's are. After a kill at most one is; see [`Delivered`]. One thread serves all levels.

use crate::delivery::delivered::{Copied, Delivered};
use crate::error::{BrokerError, may_pass};
use crate::message::delay_levels::DelayLevels;
use crate::message::pending::{PendingMessage, copy_of};
use crate::message::properties::{self, names};
use crate::tables::config_file::ConfigFile;
use crate::tables::offsets::Move;
use pyrmq_remoting::body::DelayOffsetSerializeWrapper;
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::sync::wakeup::Wakeup;
use pyrmq_store::{GetMessage, GetMessageResult, NewMessage, Store, StoreError, TagFilter};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use pyrmq_remoting::names::SCHEDULE_TOPIC;

/// How often the heads are checked (Apache `DELAY_FOR_A_WHILE`).
const TICK: Duration = Duration::from_millis(100);
/// Number of messages read at once; more follow in the same tick.
const READ_COUNT: usize = 32;
const READ_BYTES: usize = 256 << 10;

/// The levels, and how far each has been delivered.
#[derive(Debug)]
pub struct Delays {
    levels: DelayLevels,
    // Guards the progress by level.
    progress: Mutex<Progress>,
    delivered: Delivered,
    // Guards the file, so that an older version never overwrites a newer one.
    file: Mutex<ConfigFile>,
    // Wakes the delivering thread.
    wakeup: Wakeup,
}

#[derive(Debug, Default)]
struct Progress {
    /// How far each level was delivered, in the file's form.
    body: DelayOffsetSerializeWrapper,
    /// When the head of each level is due. Before then, nothing has to be read.
    due_ms: BTreeMap<i32, i64>,
    changed: bool,
}

/// Why delivery stopped before the last message that was read.
#[derive(Debug)]
enum Stopped {
    /// The next message is not due until this time, in ms.
    NotDue(i64),
    /// The next message could not be stored now.
    Failed(StoreError),
}

impl Delays {
    /// Reads the file; `delivered` says how far the levels were delivered since it was written.
    pub(crate) fn load(
        levels_ms: Vec<i64>,
        file: ConfigFile,
        (delivered, newest): (Delivered, BTreeMap<i32, i64>),
    ) -> Result<Self, BrokerError> {
        let mut body: DelayOffsetSerializeWrapper = file.read("offsetTable")?.unwrap_or_default();
        let mut changed = false;
        for (level, offset) in newest {
            let saved = body.offset_table.entry(level).or_default();
            changed |= offset > *saved;
            *saved = offset.max(*saved);
        }
        Ok(Self {
            levels: DelayLevels::new(levels_ms),
            delivered,
            progress: Mutex::new(Progress {
                body,
                changed,
                ..Progress::default()
            }),
            file: Mutex::new(file),
            wakeup: Wakeup::default(),
        })
    }

    /// Moves levels back that are ahead of their queues (Apache `correctDelayOffset`). Returns what moved.
    pub(crate) fn lower(&self, store: &Store) -> Vec<Move> {
        let mut moves = Vec::new();
        let mut progress = self.progress();
        for (level, offset) in &mut progress.body.offset_table {
            if let Some(to) = store
                .queue_end(SCHEDULE_TOPIC, level - 1)
                .filter(|end| end < offset)
            {
                let whose = format!("delay level {level}");
                let from = std::mem::replace(offset, to);
                moves.push(Move { whose, from, to });
            }
        }
        progress.changed |= !moves.is_empty();
        moves
    }

    /// The delay levels.
    pub(crate) fn levels(&self) -> &DelayLevels {
        &self.levels
    }

    /// The next offset to deliver, by level.
    pub fn offsets(&self) -> BTreeMap<i32, i64> {
        self.progress().body.offset_table.clone()
    }

    /// The progress, as the file and the response to 45 have it.
    pub fn to_body(&self) -> DelayOffsetSerializeWrapper {
        self.progress().body.clone()
    }

    /// Marks the progress as changed again, after a failed write.
    pub(crate) fn set_changed(&self) {
        self.progress().changed = true;
    }

    /// Writes the file if there was progress, after the delivered messages are durable: a power loss must not take a
    /// message that the file counts as delivered.
    pub fn persist(&self, store: &Store) -> Result<(), StoreError> {
        let file = lock(&self.file);
        let body = {
            let mut progress = self.progress();
            if !progress.changed {
                return Ok(());
            }
            progress.changed = false;
            let version = progress.body.data_version;
            progress.body.data_version = version.next(clock::now_ms(), version.state_version);
            progress.body.clone()
        };
        let written = store.flush().and_then(|()| file.save(&body));
        if written.is_err() {
            self.set_changed();
        }
        written
    }

    /// Delivers until [`Delays::stop`] is called. Runs on its own thread.
    pub fn run(&self, store: &Store) {
        loop {
            for level in 1..=self.levels.count() {
                if let Err(error) = self.deliver(store, level) {
                    tracing::warn!(level, %error, "cannot deliver delayed messages, will try again");
                }
            }
            if !self.wakeup.sleep(TICK) {
                return;
            }
        }
    }

    /// Ends [`Delays::run`].
    pub fn stop(&self) {
        self.wakeup.stop();
    }

    /// Delivers the messages of one level that are due.
    fn deliver(&self, store: &Store, level: i32) -> Result<(), StoreError> {
        let queue_id = level - 1;
        loop {
            let (offset, due_ms) = {
                let progress = self.progress();
                (
                    progress.body.offset_table.get(&level).copied(),
                    progress.due_ms.get(&level).copied(),
                )
            };
            let end = store.max_offset(SCHEDULE_TOPIC, queue_id);
            let now_ms = clock::now_ms();
            if end == 0
                || offset.is_some_and(|offset| offset == end)
                || due_ms.is_some_and(|due| due > now_ms)
            {
                return Ok(());
            }
            // Before the oldest or after the newest message: the log has been cleaned or cut since.
            let from = offset
                .unwrap_or(0)
                .clamp(store.min_offset(SCHEDULE_TOPIC, queue_id), end);
            let got = store.get(&GetMessage {
                topic: SCHEDULE_TOPIC,
                queue_id,
                offset: from,
                max_count: READ_COUNT,
                max_bytes: READ_BYTES,
                tags: TagFilter::All,
            })?;
            let (delivered, stopped) = self.deliver_due(store, (level, from), &got);
            let next = if got.count == 0 {
                got.next_offset
            } else {
                from + delivered
            };
            let mut progress = self.progress();
            if offset != Some(next) {
                progress.body.offset_table.insert(level, next);
                progress.changed = true;
            }
            match stopped {
                Some(Stopped::NotDue(due)) => {
                    progress.due_ms.insert(level, due);
                    return Ok(());
                }
                // The messages before the failed one are not delivered again.
                Some(Stopped::Failed(error)) => return Err(error),
                None => progress.due_ms.remove(&level),
            };
            if next <= from && got.count == 0 {
                return Ok(());
            }
        }
    }

    /// Stores due messages again. Returns how many, and why it stopped before the last.
    fn deliver_due(
        &self,
        store: &Store,
        (level, from): (i32, i64),
        got: &GetMessageResult,
    ) -> (i64, Option<Stopped>) {
        let mut delivered = 0;
        for record in record::records(&got.body) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    // Retrying would block the messages after it forever.
                    tracing::error!(level, %error, "skipped a damaged delayed message");
                    return (delivered + 1, None);
                }
            };
            let delay_ms = self.levels.delay_ms(level);
            let now_ms = clock::now_ms();
            // A clock that was set back must not hold a message longer than its delay (Apache
            // `correctDeliverTimestamp`).
            let due_ms = record.store_timestamp_ms + delay_ms;
            if due_ms > now_ms && due_ms <= now_ms + delay_ms {
                return (delivered, Some(Stopped::NotDue(due_ms)));
            }
            if let Some(pending) = restore(&record) {
                match pending.put_accepted(store, &self.levels) {
                    Err(error) if may_pass(&error) => return (delivered, Some(Stopped::Failed(error))),
                    Err(error) => tracing::error!(
                        level,
                        offset = record.physical_offset,
                        %error,
                        "dropped a delayed message that cannot be stored"
                    ),
                    Ok(stored) => self.delivered.record(
                        level,
                        Copied {
                            offset: from + delivered + 1,
                            position: stored.physical_offset,
                            store_ms: stored.store_timestamp_ms,
                        },
                    ),
                }
            } else {
                tracing::error!(
                    level,
                    offset = record.physical_offset,
                    "dropped a delayed message without REAL_TOPIC and REAL_QID"
                );
            }
            delivered += 1;
        }
        (delivered, None)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

/// The message as it was before its delay (Apache `messageTimeUp`). REAL_TOPIC and REAL_QID stay as properties.
fn restore<'a>(record: &Record<'a>) -> Option<PendingMessage<'a>> {
    let text = record.properties.as_str().ok()?;
    let topic = properties::find(text, names::REAL_TOPIC)?;
    let queue_id = properties::find(text, names::REAL_QID)?.parse().ok()?;
    let kept = properties::copy(text, 0, |name| {
        matches!(
            name,
            names::DELAY | names::TIMER_DELIVER_MS | names::TIMER_DELAY_SEC
        )
    });
    Some(PendingMessage {
        message: NewMessage {
            properties: kept.into(),
            ..copy_of(record, topic, queue_id, text)
        },
        delay_level: 0,
    })
}
