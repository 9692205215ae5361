//! Listeners that get their messages by pops (Apache `ConsumeMessagePopConcurrentlyService`).
//!
//! ```text
//! done     -> acknowledged
//! later    -> hidden for the pause of its delay level: delivered again by the broker, one delivery later
//! too often, dead -> to the group's dead letters, then acknowledged (as Apache's proxy does)
//! not begun -> given back at once when the consumer ends, without counting as a delivery
//! ```

use crate::consumer::failure_counts::{Counts, Failure};
use crate::consumer::options::{PullerOptions, Start};
use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::batch::PopBatch;
use crate::consumer::pop::listener_demand::{HandedOut, ListenerDemand};
use crate::consumer::pop::options::{MAX_INVISIBLE, SimpleOptions};
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::simple::{PopShared, SimpleParts};
use crate::consumer::process_queue::QueueKey;
use crate::consumer::rates::Counted;
use crate::error::ClientError;
use crate::session::connections::{Connections, Role};
use crate::session::heartbeat::Heartbeat;
use crate::session::routes::Routes;
use pyrmq_remoting::names::DELAY_LEVELS_S;
use pyrmq_remoting::net::{ProcessorTable, Tracker};
use pyrmq_remoting::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The level of the first new delivery, less one (Apache's `popDelayLevel` begins with 10 s).
const FIRST_LEVEL: usize = 2;

/// Gets messages by pops for listeners.
#[derive(Debug)]
pub(crate) struct PopListener {
    pub(crate) shared: Arc<PopShared>,
    counts: Arc<Counts>,
    // Guards the topics that the group pops.
    topics: Mutex<BTreeSet<Arc<str>>>,
}

impl PopListener {
    /// Sends no request yet. It has its own connection: when that ends, brokers forget the pops that they hold for it,
    /// and hand out no messages that would be lost.
    pub(crate) fn new(
        handle: &Handle,
        options: &PullerOptions,
        start: Start,
        (routes, heartbeat): (&Routes, &Heartbeat),
        (counts, counted): (Arc<Counts>, Arc<Mutex<Counted>>),
    ) -> Result<Self, ClientError> {
        let mut own = SimpleOptions {
            client: options.client.clone(),
            is_ordered: false,
            // Brokers know no times: from the first message on, none is missed.
            start: match start {
                Start::Last => Start::Last,
                Start::First | Start::Time(_) => Start::First,
            },
            max_tries: options.max_tries,
        };
        own.client.connections = Connections::new();
        let client = own
            .client
            .connect(handle, ProcessorTable::new(), Role::Consumer)?;
        let shared = Arc::new(PopShared::new(
            own,
            SimpleParts {
                client,
                routes: routes.clone(),
                heartbeat: heartbeat.clone(),
                tracker: Tracker::new(handle.clone()),
                counts: counts.clone(),
                counted,
            },
        ));
        shared.state().demand = Some(ListenerDemand::new(
            options.invisible,
            options.suspend,
            options.threads,
        ));
        shared.tracker.spawn(shared.clone().keep_waiting_renewed());
        Ok(Self {
            shared,
            counts,
            topics: Mutex::default(),
        })
    }

    /// Whether the group pops a topic, as far as is known.
    pub(crate) fn has(&self, topic: &str) -> bool {
        lock(&self.topics).contains(topic)
    }

    /// Pops these queues of a topic from now on.
    pub(crate) fn assign(&self, topic: &Arc<str>, queues: &[(Arc<str>, i32)]) {
        let is_new = lock(&self.topics).insert(topic.clone());
        self.shared.state().set_targets(topic, queues);
        if is_new {
            tracing::info!(%topic, "the group pops the topic");
            if self.shared.options.max_tries.is_none() {
                let (shared, topic) = (self.shared.clone(), topic.clone());
                self.shared
                    .tracker
                    .spawn(async move { shared.read_max_tries(&topic).await });
            }
        }
        self.shared.send_pops();
    }

    /// Pops a topic no longer: what was not begun is given back.
    pub(crate) fn leave(&self, topic: &str) {
        if lock(&self.topics).remove(topic) {
            tracing::info!(topic, "the group does not pop the topic any more");
            let left = self.shared.state().forget_topic(topic);
            self.shared.give_back_later(left);
        }
    }

    /// Up to `max` messages of one queue.
    pub(crate) fn take(&self, max: usize) -> Vec<HandedOut> {
        if !self.is_ready() {
            if self.shared.has_spare_demand.swap(false, Ordering::AcqRel) {
                // A listener is free now.
                if let Some(demand) = self.shared.state().demand.as_mut() {
                    demand.set_requested(max);
                }
                self.shared.send_pops();
            }
            return Vec::new();
        }
        let taken = {
            let mut state = self.shared.state();
            let taken = state.hand_out(max, Instant::now());
            self.shared.wake_next(&state);
            taken
        };
        self.shared.send_pops();
        taken
    }

    /// Whether messages wait. Takes no lock.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.has_ready.load(Ordering::Acquire)
    }

    /// The popped queues, each with the messages that listeners have of it, and when it was popped last, ms. All
    /// messages of a topic on one broker count for its first queue.
    pub(crate) fn progress(&self) -> Vec<(Arc<QueueKey>, usize, i64)> {
        let targets = self.shared.target_states().into_iter();
        targets
            .map(|(target, last_pop_ms)| (target.key, target.in_flight, last_pop_ms))
            .collect()
    }

    /// Whether a listener may continue with these messages.
    pub(crate) fn holds(&self, work: &[HandedOut]) -> bool {
        let now = Instant::now();
        let is_open = !self.shared.state().is_closed;
        is_open && work.iter().all(|one| one.message.receipt.until() > now)
    }

    /// A listener is done with messages; those that `failed` names were not handled.
    pub(crate) fn finish(
        &self,
        work: &[HandedOut],
        indexes: Range<usize>,
        failed: &BTreeMap<usize, Failure>,
    ) {
        let mut done = Vec::new();
        let mut untouched = Vec::new();
        let chosen = work.iter().enumerate().skip(indexes.start).take(indexes.len());
        for (index, one) in chosen {
            let was_in_hand = {
                let mut state = self.shared.state();
                let demand = state.demand.as_mut();
                demand.is_some_and(|demand| demand.finish(one.number, Instant::now()))
            };
            if !was_in_hand {
                continue;
            }
            match failed.get(&index) {
                None => done.push(one.message.receipt.clone()),
                Some(Failure::Untouched) => untouched.push(one.message.clone()),
                Some(failure) => self.settle_failed(one.message.clone(), *failure),
            }
        }
        self.acknowledge(done);
        self.put_back(untouched);
    }

    fn acknowledge(&self, receipts: Vec<Arc<Receipt>>) {
        if receipts.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        self.settle(async move {
            let outcomes = shared.acknowledge(&receipts).await;
            for error in outcomes.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "a message that is done may be delivered again");
            }
        });
    }

    /// Counts a request to a broker, for which the end of the consumer waits.
    fn settle(&self, work: impl Future<Output = ()> + Send + 'static) {
        let counts = self.counts.clone();
        counts.handing_back.fetch_add(1, Ordering::Relaxed);
        self.shared.tracker.spawn(async move {
            work.await;
            counts.handing_back.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn settle_failed(&self, message: Popped, failure: Failure) {
        let (shared, counts) = (self.shared.clone(), self.counts.clone());
        let is_last = message.reconsume_times() >= self.shared.max_tries();
        let pause = match failure {
            Failure::Dead => None,
            _ if is_last => None,
            Failure::Later { delay_level } => Some(pause_of(delay_level, message.reconsume_times())),
            Failure::Again { pause } => Some(pause),
            Failure::Untouched => return self.put_back(vec![message]),
        };
        self.settle(async move {
            let Some(pause) = pause else {
                return shared.move_to_dead_letters(message).await;
            };
            counts.add_later();
            // Without an answer it is delivered again after its invisible time.
            if let Err(error) = shared.change(&message.receipt, pause.min(MAX_INVISIBLE)).await {
                tracing::debug!(%error, "the pause of a message was not set: it is delivered again after its time");
            }
        });
    }

    /// Gives messages to the next listener, or to other members once this consumer ends.
    fn put_back(&self, messages: Vec<Popped>) {
        if messages.is_empty() {
            return;
        }
        let batch = PopBatch {
            messages: messages.into(),
            invisible: Duration::MAX,
            arrived: Instant::now(),
        };
        if let Some(late) = self.shared.hold(batch, true) {
            self.give_back(late);
        }
    }

    fn give_back(&self, messages: Vec<Popped>) {
        if !messages.is_empty() {
            let shared = self.shared.clone();
            self.settle(async move { shared.give_back(messages).await });
        }
    }

    /// Requests no more messages, and gives back those that were not begun.
    pub(crate) fn drain(&self) {
        let left = self.shared.end();
        self.give_back(left);
    }

    /// Ends the connection.
    pub(crate) async fn close(&self) {
        self.drain();
        let by = Instant::now() + self.shared.options.client.request_timeout;
        while self.counts.handing_back.load(Ordering::Relaxed) > 0 && Instant::now() < by {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.shared.shutdown.stop();
        self.shared.client.close().await;
        self.shared.tracker.wait(Duration::from_secs(1)).await;
    }

    /// Ends everything, without waiting.
    pub(crate) fn shut(&self) {
        self.shared.shutdown.stop();
        drop(self.shared.end());
        self.shared.client.shut();
    }
}

/// How long a message is hidden before its next delivery. Level 0: by the number of its deliveries, as brokers do for
/// messages that are handed back.
fn pause_of(delay_level: i32, reconsume_times: i32) -> Duration {
    let index = match usize::try_from(delay_level) {
        Ok(level) if level > 0 => level - 1,
        _ => FIRST_LEVEL + usize::try_from(reconsume_times).unwrap_or(0),
    };
    let last = DELAY_LEVELS_S.len() - 1;
    Duration::from_secs(DELAY_LEVELS_S.get(index.min(last)).copied().unwrap_or(7200))
}

#[cfg(test)]
mod tests {
    use super::pause_of;

    #[test]
    fn pauses_are_those_of_apaches_levels() {
        let pauses = [(0, 0), (0, 1), (0, 15), (0, 99), (1, 7), (5, 0), (18, 0), (99, 0)]
            .map(|(level, tries)| pause_of(level, tries).as_secs());
        assert_eq!(pauses, [10, 30, 7200, 7200, 1, 60, 7200, 7200]);
    }
}
