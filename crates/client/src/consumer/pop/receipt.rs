//! The right to acknowledge a message that was handed out, until its invisible time has passed.

use crate::consumer::pop::in_hand::InHand;
use crate::error::ClientError;
use pyrmq_remoting::clock;
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The handle of a message that was handed out. A change of its invisible time replaces the handle.
#[derive(Debug)]
pub struct Receipt {
    /// The topic that was popped, also when the message came from a retry topic.
    pub topic: Arc<str>,
    /// The broker that handed it out.
    pub broker: Arc<str>,
    // Guards the handle, its time, and whether it is used up.
    state: Mutex<ReceiptState>,
    /// Held during a request to the broker: an acknowledgement with the handle that a change replaces would be lost.
    pub(crate) settling: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct ReceiptState {
    handle: String,
    until: Instant,
    used: Option<&'static str>,
    /// The answer to a change of the time was lost: the broker may have another handle for the message.
    is_in_doubt: bool,
    /// When a caller of `receive` got the message.
    returned_at: Option<Instant>,
    /// Where it counts as a message that a caller has.
    in_hand: Option<Arc<InHand>>,
}

/// What a handle says, with its text.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) text: String,
    pub(crate) start_offset: i64,
    pub(crate) pop_time: i64,
    pub(crate) invisible_time: i64,
    pub(crate) revive_queue_id: i32,
    pub(crate) source: PopSource,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
}

impl Receipt {
    /// The receipt of a message that arrived just now.
    pub(crate) fn arrived(topic: Arc<str>, broker: Arc<str>, handle: String, until: Instant) -> Self {
        Self {
            topic,
            broker,
            state: Mutex::new(ReceiptState {
                handle,
                until,
                used: None,
                is_in_doubt: false,
                returned_at: None,
                in_hand: None,
            }),
            settling: tokio::sync::Mutex::default(),
        }
    }

    /// The receipt of a handle that was kept as text. Its time is read by this machine's clock, as Apache's proxy does.
    pub fn parse(topic: impl Into<Arc<str>>, handle: &str) -> Result<Self, ClientError> {
        let refused = |reason: String| ClientError::Receipt {
            handle: handle.to_owned(),
            reason,
        };
        let read = ReceiptHandle::parse(handle).map_err(|error| refused(error.to_string()))?;
        if read.offset.is_none() {
            return Err(refused("it does not name the message's offset".to_owned()));
        }
        let left = read.visible_at().saturating_sub(clock::now_ms());
        let left = u64::try_from(left)
            .ok()
            .filter(|left| *left > 0)
            .ok_or_else(|| refused(EXPIRED.to_owned()))?;
        let until = Instant::now().checked_add(Duration::from_millis(left));
        Ok(Self::arrived(
            topic.into(),
            read.broker_name.into(),
            handle.to_owned(),
            until.ok_or_else(|| refused("its time is beyond any clock".to_owned()))?,
        ))
    }

    fn state(&self) -> MutexGuard<'_, ReceiptState> {
        lock(&self.state)
    }

    /// The handle as brokers read it now.
    pub fn handle(&self) -> String {
        self.state().handle.clone()
    }

    /// The time until which the message is hidden from others.
    pub fn until(&self) -> Instant {
        self.state().until
    }

    /// A caller of `receive` gets the message: until it is acknowledged or given back it counts there.
    pub(crate) fn return_to_caller(&self, in_hand: &Arc<InHand>, now: Instant) {
        let mut state = self.state();
        in_hand.add((&self.topic, &self.broker), state.until, now);
        state.returned_at = Some(now);
        state.in_hand = Some(in_hand.clone());
    }

    /// Time since a caller of `receive` got the message; none for a receipt that was kept as text.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        let returned_at = self.state().returned_at;
        returned_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// Whether it was acknowledged or given back.
    pub fn is_used(&self) -> bool {
        self.state().used.is_some()
    }

    /// The handle, unless it is used up or expired.
    pub(crate) fn held(&self) -> Result<Held, ClientError> {
        let state = self.state();
        let refused = |reason: &str| ClientError::Receipt {
            handle: state.handle.clone(),
            reason: reason.to_owned(),
        };
        if let Some(used) = state.used {
            return Err(refused(used));
        }
        if state.until <= Instant::now() {
            return Err(refused(EXPIRED));
        }
        let handle = ReceiptHandle::parse(&state.handle).map_err(|error| refused(&error.to_string()))?;
        Ok(Held {
            text: state.handle.clone(),
            start_offset: handle.start_offset,
            pop_time: handle.pop_time,
            invisible_time: handle.invisible_time,
            revive_queue_id: handle.revive_queue_id,
            source: handle.source,
            queue_id: handle.queue_id,
            offset: handle.offset.unwrap_or(handle.start_offset),
        })
    }

    /// The error of a receipt that cannot be used.
    pub(crate) fn refused(&self, reason: &str) -> ClientError {
        ClientError::Receipt {
            handle: self.handle(),
            reason: reason.to_owned(),
        }
    }

    /// The answer to a change of the time was lost.
    pub(crate) fn doubt(&self) {
        self.state().is_in_doubt = true;
    }

    /// Records that the broker accepted an acknowledgement. An error: the message may be delivered again nevertheless.
    pub(crate) fn acknowledged(&self) -> Result<(), ClientError> {
        let reason = {
            let mut state = self.state();
            self.use_in(&mut state, ACKNOWLEDGED);
            let is_late = state.until <= Instant::now();
            if is_late {
                LATE
            } else if state.is_in_doubt {
                IN_DOUBT
            } else {
                return Ok(());
            }
        };
        Err(self.refused(reason))
    }

    /// Marks the receipt as used up, for this reason.
    pub(crate) fn use_up(&self, reason: &'static str) {
        self.use_in(&mut self.state(), reason);
    }

    fn use_in(&self, state: &mut ReceiptState, reason: &'static str) {
        state.used = Some(reason);
        if let Some(in_hand) = state.in_hand.take() {
            in_hand.remove(&self.topic, &self.broker, state.until);
        }
    }

    /// The message is hidden for another time, under another handle.
    pub(crate) fn replace(&self, handle: String, until: Instant) {
        let mut state = self.state();
        if let Some(in_hand) = &state.in_hand {
            in_hand.remove(&self.topic, &self.broker, state.until);
            in_hand.add((&self.topic, &self.broker), until, Instant::now());
        }
        state.handle = handle;
        state.until = until;
    }
}

/// Why an expired handle is refused.
pub(crate) const EXPIRED: &str = "its invisible time is over: the message is delivered again. Fix: receive with a longer time, or renew it";
/// Why an acknowledgement does not count if its answer came after the message's time.
pub(crate) const LATE: &str = "the broker has answered after its invisible time: the message may be delivered again. Fix: receive with a longer time, or renew it";
/// Why an acknowledgement does not count after a change of the time without an answer.
pub(crate) const IN_DOUBT: &str = "acknowledged, but the broker has not answered a change of its invisible time before: the message may be delivered again";
/// Why it is not known whether a message is acknowledged.
pub(crate) const NOT_KNOWN: &str =
    "an error of the client ended the acknowledgement: the message may be delivered again";
/// Why a handle is refused after an acknowledgement.
pub(crate) const ACKNOWLEDGED: &str = "the message is acknowledged already";
/// Why a handle is refused after its message was given back.
pub(crate) const GIVEN_BACK: &str = "the message was given back";
/// Why a handle of an ordered group is refused when the broker has no use for it any more.
pub(crate) const GONE_ON: &str =
    "the group has gone on: the message is acknowledged, or was delivered again after its time";
