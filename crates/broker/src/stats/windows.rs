//! Sums over the last minute, hour and day (Apache `StatsItem`).
//!
//! A window keeps samples of a growing counter. Its sum is the counter's current value minus that of the oldest sample.
//! A counter whose first sample is younger than the window counts as 0 one step before that sample.

use std::collections::VecDeque;

/// A window's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The last minute, sampled every 10 s.
    Minute,
    /// The last hour, sampled every 10 minutes.
    Hour,
    /// The last day, sampled every hour.
    Day,
}

impl Span {
    /// Every span, shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// Milliseconds between two samples.
    pub const fn step_ms(self) -> i64 {
        match self {
            Self::Minute => 10_000,
            Self::Hour => 600_000,
            Self::Day => 3_600_000,
        }
    }

    const fn samples(self) -> usize {
        match self {
            Self::Minute | Self::Hour => 7,
            Self::Day => 25,
        }
    }
}

/// Values of a counter at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When the values were read, in ms.
    pub at_ms: i64,
    /// Messages.
    pub messages: u64,
    /// Bytes of the messages' records.
    pub bytes: u64,
    /// Requests that stored or fetched the messages.
    pub calls: u64,
}

/// What was counted in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Messages.
    pub messages: u64,
    /// Bytes of the messages' records.
    pub bytes: u64,
    /// Requests.
    pub calls: u64,
    /// Length of the measured time in milliseconds; at least 1.
    pub elapsed_ms: i64,
}

impl Growth {
    /// Messages a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn messages_per_second(&self) -> f64 {
        self.messages as f64 * 1000.0 / self.elapsed_ms as f64
    }
}

/// The samples of one counter.
#[derive(Debug, Clone, Default)]
pub struct Windows([VecDeque<Sample>; 3]);

impl Windows {
    /// Adds a sample for a span.
    pub fn push(&mut self, span: Span, now: Sample) {
        let Some(samples) = self.0.get_mut(span as usize) else {
            return;
        };
        if samples.is_empty() {
            samples.push_back(before(span, now.at_ms));
        }
        samples.push_back(now);
        if samples.len() > span.samples() {
            samples.pop_front();
        }
    }

    /// What was counted in the span that ends now.
    pub fn growth(&self, span: Span, now: Sample) -> Growth {
        let first = self.0.get(span as usize).and_then(VecDeque::front).copied();
        growth(first.unwrap_or_else(|| before(span, now.at_ms)), now)
    }
}

/// What a counter without samples has counted in the span that ends now.
pub(super) fn unsampled(span: Span, now: Sample) -> Growth {
    growth(before(span, now.at_ms), now)
}

fn before(span: Span, now_ms: i64) -> Sample {
    Sample {
        at_ms: now_ms - span.step_ms(),
        ..Sample::default()
    }
}

fn growth(first: Sample, now: Sample) -> Growth {
    Growth {
        messages: now.messages.saturating_sub(first.messages),
        bytes: now.bytes.saturating_sub(first.bytes),
        calls: now.calls.saturating_sub(first.calls),
        elapsed_ms: (now.at_ms - first.at_ms).max(1),
    }
}

/// Decides which spans are to be sampled.
#[derive(Debug, Default)]
pub struct Schedule {
    last_ms: [i64; 3],
}

impl Schedule {
    /// The spans whose next sample is due.
    pub fn due(&mut self, now_ms: i64) -> Vec<Span> {
        let mut due = Vec::new();
        for (span, last_ms) in Span::ALL.into_iter().zip(&mut self.last_ms) {
            // The clock may have been set back, which must not stop the samples.
            if now_ms - *last_ms >= span.step_ms() || now_ms < *last_ms {
                *last_ms = now_ms;
                due.push(span);
            }
        }
        due
    }
}
