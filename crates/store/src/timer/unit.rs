//! A unit of the timer's log; `log.rs` has its layout.

use crate::format::{number, put_fields};

/// Bytes of a unit.
pub(crate) const UNIT: usize = 52;
pub(crate) const UNIT_I64: i64 = 52;
/// Apache `TimerLog.BLANK_MAGIC_CODE`.
pub(crate) const BLANK_MAGIC: i32 = (0xBBCC_DDEE_u32 ^ (1_880_681_586 + 8)).cast_signed();

/// A unit of the log: a waiting message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerUnit {
    /// The unit before it in its slot, or -1.
    pub previous: i64,
    /// The unit's kind: 1, plus [`TimerUnit::ROLL`] and [`TimerUnit::DELETE`].
    pub magic: i32,
    /// Time at which the unit was written, ms.
    pub written_ms: i64,
    /// The time of its slot minus `written_ms`, in ms.
    pub delay_ms: i32,
    /// Position of the message in the commit log.
    pub position: i64,
    /// Bytes of the message.
    pub size: i32,
    /// Java hash of the real topic.
    pub topic_hash: i32,
}

impl TimerUnit {
    /// Every unit has this bit.
    pub const DEFAULT: i32 = 1;
    /// The message goes back into the timer's topic.
    pub const ROLL: i32 = 2;
    /// The message recalls another one.
    pub const DELETE: i32 = 4;

    /// Time at which the message is due, ms.
    pub fn due_ms(&self) -> i64 {
        self.written_ms.saturating_add(i64::from(self.delay_ms))
    }

    /// Whether the message goes back into the timer's topic.
    pub fn rolls(&self) -> bool {
        self.magic & Self::ROLL != 0
    }

    /// Whether the message recalls another one.
    pub fn deletes(&self) -> bool {
        self.magic & Self::DELETE != 0
    }

    pub(crate) fn to_bytes(self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        let fields: [&[u8]; 8] = [
            &52_i32.to_be_bytes(),
            &self.previous.to_be_bytes(),
            &self.magic.to_be_bytes(),
            &self.written_ms.to_be_bytes(),
            &self.delay_ms.to_be_bytes(),
            &self.position.to_be_bytes(),
            &self.size.to_be_bytes(),
            &self.topic_hash.to_be_bytes(),
        ];
        put_fields(&mut bytes, &fields);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> LogEntry {
        let int = |at: usize| i32::from_be_bytes(number(bytes, at));
        let long = |at: usize| i64::from_be_bytes(number(bytes, at));
        let magic = int(12);
        if magic == BLANK_MAGIC {
            return LogEntry::Blank;
        }
        if bytes.len() < UNIT || int(0) != 52 || !(0..=0xF).contains(&magic) {
            return LogEntry::None;
        }
        LogEntry::Unit(Self {
            previous: long(4),
            magic,
            written_ms: long(16),
            delay_ms: int(24),
            position: long(28),
            size: int(36),
            topic_hash: int(40),
        })
    }
}

/// The content of the log at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEntry {
    Unit(TimerUnit),
    /// The file ends here.
    Blank,
    /// Nothing, or something that is not a unit.
    None,
}
