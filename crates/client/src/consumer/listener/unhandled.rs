//! Messages that a listener did not handle: they are tried again here after a pause, or handed back to their broker,
//! for a later delivery or as dead letters.

use crate::consumer::listener::{Failure, Work};
use crate::consumer::options::Order;
use crate::consumer::process_queue::{Messages, ProcessQueue, QueueKey};
use crate::consumer::requests::send_back::DEAD_LETTER;
use crate::consumer::shared::ConsumerShared;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, SubscriptionGroupConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::group::GetSubscriptionGroupConfigRequestHeader;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pause before a message that could not be handed back is tried again here (Apache: 5 s), doubled each time.
const SEND_BACK_PAUSE: Duration = Duration::from_secs(5);
const MAX_SEND_BACK_PAUSE: Duration = Duration::from_mins(5);

/// What is left to do for messages that were not handled.
#[derive(Default)]
pub(crate) struct Unhandled {
    send_back: Vec<(Messages, i32)>,
    pause: Vec<(Messages, Duration)>,
    put_back: Vec<Messages>,
}

/// Gives what was not touched to the next listener. An orderly queue is handed out again when nothing of it waits.
pub(crate) fn requeue(queue: &mut ProcessQueue, order: Order, left: &mut Unhandled) {
    for messages in left.put_back.drain(..).rev() {
        queue.listeners.put_back(messages);
    }
    if order != Order::Queue || (left.pause.is_empty() && left.send_back.is_empty()) {
        queue.listeners.release();
    }
}

fn send_back_pause(refusals: u32) -> Duration {
    let pause = SEND_BACK_PAUSE * 2_u32.saturating_pow(refusals.min(16));
    pause.min(MAX_SEND_BACK_PAUSE)
}

impl ConsumerShared {
    /// Decides what to do with a message that was not handled. False: it is skipped because it cannot be read, so no
    /// listener can handle it and no broker takes it back.
    pub(crate) fn sort(&self, left: &mut Unhandled, message: Messages, failure: Failure) -> bool {
        match failure {
            Failure::Untouched => left.put_back.push(message),
            Failure::Dead | Failure::Later { .. } if self.is_dropped(failure) => {
                let offset = message.chunk.offset(message.first).unwrap_or(-1);
                tracing::warn!(key = %message.chunk.queue, offset, "message dropped: a broadcasting group has no retries");
                self.counts.add_dead();
                return false;
            }
            _ if !message.is_readable() => {
                let offset = message.chunk.offset(message.first).unwrap_or(-1);
                tracing::error!(key = %message.chunk.queue, offset, "message cannot be read: skipped");
                self.counts.add_unreadable();
                return false;
            }
            Failure::Dead => left.send_back.push((message, DEAD_LETTER)),
            Failure::Later { delay_level } if self.options.order == Order::None => {
                // Brokers count the tries of what they take back, by a maximum of their own. Those of a message that
                // they refuse are counted here.
                let is_last = message.tries > 0 && message.tries >= self.max_tries();
                left.send_back
                    .push((message, if is_last { DEAD_LETTER } else { delay_level }));
            }
            Failure::Later { .. } => self.sort_again(left, message, self.options.suspend_pause),
            Failure::Again { pause } => self.sort_again(left, message, pause),
        }
        true
    }

    /// Members of a broadcasting group hand nothing back: what is to come later, or never, is dropped (Apache
    /// `ConsumeMessageConcurrentlyService#processConsumeResult`).
    fn is_dropped(&self, failure: Failure) -> bool {
        let comes_again_here = self.options.order != Order::None && matches!(failure, Failure::Later { .. });
        self.options.is_broadcasting && !comes_again_here
    }

    fn sort_again(&self, left: &mut Unhandled, mut message: Messages, pause: Duration) {
        if message.deliveries() > self.max_tries() {
            left.send_back.push((message, DEAD_LETTER));
        } else {
            self.counts.add_later();
            message.detach();
            left.pause.push((message, pause));
        }
    }

    fn max_tries(&self) -> i32 {
        let default = match self.options.order {
            _ if self.options.is_broadcasting => i32::MAX,
            Order::Queue => i32::MAX,
            Order::None | Order::Key => self.counts.max_tries.load(Ordering::Relaxed),
        };
        self.options.max_tries.unwrap_or(default)
    }

    /// Starts what takes time: pauses, and handing messages back.
    pub(crate) fn settle(self: &Arc<Self>, work: &Work, left: Unhandled) {
        let generation = work.generation;
        for (message, pause) in left.pause {
            let (shared, key) = (self.clone(), work.queue().clone());
            self.tracker.spawn(async move {
                if !shared.shutdown.sleep_or_stop(pause).await {
                    shared.repeat(&key, generation, message);
                }
            });
        }
        for (message, delay_level) in left.send_back {
            self.counts.handing_back.fetch_add(1, Ordering::Relaxed);
            let (shared, key) = (self.clone(), work.queue().clone());
            self.tracker.spawn(async move {
                let message = message;
                let is_taken = shared.is_taken_back(&key, &message, delay_level).await;
                if is_taken {
                    shared.with_queue(&key, generation, |queue, order| {
                        queue.finish(&message, order);
                        queue.listeners.release();
                    });
                }
                shared.counts.handing_back.fetch_sub(1, Ordering::Relaxed);
                if !is_taken {
                    shared.repeat_later(&key, generation, message).await;
                }
            });
        }
    }

    /// Hands messages back and waits for pauses, one after the other. Then the queue continues; messages that are
    /// delivered again come first. See [`Self::settle`] for queues without an order.
    pub(crate) fn settle_in_order(self: &Arc<Self>, work: &Work, left: Unhandled) {
        if left.send_back.is_empty() && left.pause.is_empty() {
            return;
        }
        let (shared, key, generation) = (self.clone(), work.queue().clone(), work.generation);
        self.counts.handing_back.fetch_add(1, Ordering::Relaxed);
        self.tracker.spawn(async move {
            let mut longest = left
                .pause
                .iter()
                .map(|(_, pause)| *pause)
                .max()
                .unwrap_or_default();
            let mut again: Vec<Messages> = left.pause.into_iter().map(|(message, _)| message).collect();
            let mut dead = Vec::new();
            for (mut message, delay_level) in left.send_back {
                if shared.is_taken_back(&key, &message, delay_level).await {
                    dead.push(message);
                } else {
                    longest = send_back_pause(message.refusals).max(longest);
                    message.refusals += 1;
                    again.push(message);
                }
            }
            shared.counts.handing_back.fetch_sub(1, Ordering::Relaxed);
            if again.is_empty() {
                longest = Duration::ZERO;
            }
            if shared.shutdown.sleep_or_stop(longest).await {
                return;
            }
            again.sort_by_key(|message| message.chunk.offset(message.first));
            shared.with_queue(&key, generation, |queue, order| {
                for message in &dead {
                    queue.finish(message, order);
                }
                for mut message in again.into_iter().rev() {
                    message.tries += 1;
                    queue.listeners.put_back(message);
                }
                queue.listeners.release();
            });
        });
    }

    /// Hands a message back, and counts the outcome. Repeated refusals are logged once.
    async fn is_taken_back(&self, key: &QueueKey, message: &Messages, delay_level: i32) -> bool {
        match self.send_back.send(message, delay_level).await {
            Ok(()) => {
                if self.counts.is_refused.swap(false, Ordering::Relaxed) {
                    tracing::info!(%key, "the broker accepts returned messages again");
                }
                // A broker counts the deliveries before this one; with a number of its own for the group it may put a
                // message among the dead letters that is counted here as one that is delivered again.
                let is_last = |max| message.deliveries() > max;
                if delay_level == DEAD_LETTER || self.options.max_tries.is_some_and(is_last) {
                    self.counts.add_dead();
                } else {
                    self.counts.add_later();
                }
                true
            }
            Err(error) => {
                if self.counts.is_refused.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%key, %error, "message not handed back");
                } else {
                    tracing::warn!(
                        %key, %error,
                        "message not handed back: it is tried again here. Further failures are not logged until one is taken back"
                    );
                }
                false
            }
        }
    }

    async fn repeat_later(self: &Arc<Self>, key: &Arc<QueueKey>, generation: u64, mut message: Messages) {
        let pause = send_back_pause(message.refusals);
        message.refusals += 1;
        message.detach();
        if !self.shutdown.sleep_or_stop(pause).await {
            self.repeat(key, generation, message);
        }
    }

    /// Hands a message out once more.
    fn repeat(self: &Arc<Self>, key: &Arc<QueueKey>, generation: u64, mut message: Messages) {
        message.tries += 1;
        self.with_queue(key, generation, |queue, _| {
            queue.listeners.put_back(message);
            queue.listeners.release();
        });
    }

    /// Requests the group's maximum of tries from a broker, if this consumer counts the tries itself. Brokers before
    /// 5.0 do not answer; then Apache's default applies.
    pub(crate) async fn read_max_tries(&self) {
        if self.options.order != Order::Key || self.options.max_tries.is_some() {
            return;
        }
        let header = GetSubscriptionGroupConfigRequestHeader {
            group: &self.options.client.group,
        };
        let command = Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with_header(&header);
        let Some(topic) = self.heartbeat.membership.topics().into_iter().next() else {
            return;
        };
        match self
            .offsets
            .request_any("a group's settings", &topic, command)
            .await
        {
            Ok((answer, _)) if answer.code == response::SUCCESS => {
                let body = answer.body.unwrap_or_default();
                match SubscriptionGroupConfig::decode(&body) {
                    Ok(group) => self
                        .counts
                        .max_tries
                        .store(group.retry_max_times.max(0), Ordering::Relaxed),
                    Err(error) => tracing::warn!(%error, "the group's settings cannot be read"),
                }
            }
            Ok((answer, _)) => tracing::debug!(code = answer.code, "no settings of the group"),
            Err(error) => tracing::debug!(%error, "no settings of the group"),
        }
    }

    /// Frees the answers of messages that wait, each second.
    pub(crate) async fn keep_detached(self: Arc<Self>) {
        while !self.shutdown.sleep_or_stop(Duration::from_secs(1)).await {
            for queue in self.state().queues.values_mut() {
                queue.listeners.detach_waiting();
            }
        }
    }
}
