//! Sends with a delivery time (Apache `HookUtils.handleScheduleMessage`, `transformTimerMessage`).

use crate::delivery::timer::Timers;
use crate::error::Refusal;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::TIMER_QUEUE;

impl Timers {
    /// Redirects a message to the timer if its properties name a future time. Returns the step that it waits for.
    pub(crate) fn schedule(&self, pending: &mut PendingMessage<'_>) -> Result<Option<i64>, Refusal> {
        let message = &mut pending.message;
        let text = &message.properties;
        if message.topic == TIMER_TOPIC || properties::find(text, names::TIMER_OUT_MS).is_some() {
            return Ok(None);
        }
        let now_ms = clock::now_ms();
        let Some(due_ms) = delivery_ms(text, now_ms) else {
            return Ok(None);
        };
        if !self.options.enable {
            return Err(Refusal::internal(
                "accurate timer message is not enabled, timerWheelEnable is false",
            ));
        }
        let due_ms = due_ms.map_err(|()| self.illegal())?;
        if due_ms <= now_ms {
            let deletes = properties::find(text, names::TIMER_DEL_UNIQKEY).is_some();
            return if deletes { Err(self.illegal()) } else { Ok(None) };
        }
        if due_ms.saturating_sub(now_ms) > self.options.max_delay_sec * 1000 {
            return Err(self.illegal());
        }
        // A step is delivered when it is over, so a message due exactly at a step's start belongs to the step before.
        let step_ms = self.options.floor_ms(due_ms - 1);
        self.check_capacity(step_ms.saturating_add(self.ahead_ms()), now_ms)?;
        let mut held = properties::copy(text, message.topic.len() + 64, |name| {
            matches!(name, names::REAL_TOPIC | names::REAL_QID)
        });
        properties::append(&mut held, names::TIMER_OUT_MS, &step_ms.to_string());
        properties::append(&mut held, names::REAL_TOPIC, message.topic);
        properties::append(&mut held, names::REAL_QID, &message.queue_id.to_string());
        message.properties = held.into();
        message.topic = TIMER_TOPIC;
        message.queue_id = TIMER_QUEUE;
        Ok(Some(step_ms))
    }

    fn illegal(&self) -> Refusal {
        Refusal::new(
            response::MESSAGE_ILLEGAL,
            format!(
                "timer message illegal, the delay time should not be bigger than the max delay {}ms; or if set del msg, the delay time should be bigger than the current time",
                self.options.max_delay_sec * 1000
            ),
        )
    }

    /// Refuses some sends for a step with many messages, and all once it has twice as many (Apache `isReject`).
    fn check_capacity(&self, step_ms: i64, now_ms: i64) -> Result<(), Refusal> {
        let limit = self.options.congest_num_each_slot;
        if limit == i64::from(i32::MAX) {
            return Ok(());
        }
        // A send must not wait for a disk: while the files are in use, none is refused.
        let files = self.files.as_ref().and_then(|files| files.try_lock().ok());
        let count = files.map_or(0, |files| files.count_at(step_ms));
        // Apache's formula, by which the refused share grows up to twice the limit. The clock serves as the random
        // number.
        let passes = now_ms.wrapping_mul(7919).rem_euclid(1000) <= 1000 * (count - limit) / limit;
        if count <= limit || (count < limit * 2 && passes) {
            return Ok(());
        }
        Err(Refusal::internal(format!(
            "timer message is under flow control, max num limit is {} or the current value is greater than {limit} and less than {}, trigger random flow control",
            limit * 2,
            limit * 2
        )))
    }
}

/// The delivery time in the properties: a delay in seconds first, then one in milliseconds, then a time.
fn delivery_ms(text: &str, now_ms: i64) -> Option<Result<i64, ()>> {
    let number = |text: &str| text.parse::<i64>().map_err(|_| ());
    if let Some(seconds) = properties::find(text, names::TIMER_DELAY_SEC) {
        return Some(number(seconds).map(|seconds| now_ms.wrapping_add(seconds.wrapping_mul(1000))));
    }
    if let Some(delay_ms) = properties::find(text, names::TIMER_DELAY_MS) {
        return Some(number(delay_ms).map(|delay_ms| now_ms.wrapping_add(delay_ms)));
    }
    properties::find(text, names::TIMER_DELIVER_MS).map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_win_over_milliseconds_over_the_moment() {
        let all = "TIMER_DELIVER_MS\u{1}9\u{2}TIMER_DELAY_MS\u{1}5\u{2}TIMER_DELAY_SEC\u{1}2\u{2}";
        assert_eq!(delivery_ms(all, 100), Some(Ok(2100)));
        let (two, _) = all.rsplit_once("TIMER_DELAY_SEC").unwrap_or_default();
        assert_eq!(delivery_ms(two, 100), Some(Ok(105)));
        let (one, _) = all.split_once("TIMER_DELAY_MS").unwrap_or_default();
        assert_eq!(delivery_ms(one, 100), Some(Ok(9)));
        assert_eq!(delivery_ms("TIMER_DELAY_SEC\u{1}soon\u{2}", 100), Some(Err(())));
        assert_eq!(delivery_ms("KEYS\u{1}k\u{2}", 100), None);
        let overflow = format!("TIMER_DELAY_SEC\u{1}{}\u{2}", i64::MAX);
        assert_eq!(delivery_ms(&overflow, 100), Some(Ok(-900)));
    }
}
