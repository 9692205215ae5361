//! Renewal of messages while they are handled (Apache's proxy: `DefaultReceiptHandleManager`).

use crate::consumer::pop::listener_demand::ListenerDemand;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::simple::PopShared;
use crate::consumer::process_queue::QueueKey;
use pyrmq_remoting::net::Shutdown;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Parts of the invisible time after which it is renewed.
const PARTS: u32 = 3;
/// Pause after a renewal that failed, at least.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How often the messages of listeners are checked: invisible times are 1 s or more.
const RENEWAL_CHECK: Duration = Duration::from_millis(200);

/// Renews the time of messages until it is dropped.
#[derive(Debug)]
pub struct Renewal {
    stop: Shutdown,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl PopShared {
    /// Renews these messages, each time for `invisible`, for at most `limit` in all.
    pub(crate) fn renew(
        self: &Arc<Self>,
        receipts: Vec<Arc<Receipt>>,
        invisible: Duration,
        limit: Duration,
    ) -> Renewal {
        let stop = Shutdown::new();
        let end = Instant::now().checked_add(limit);
        for receipt in receipts {
            let (shared, stop) = (self.clone(), stop.clone());
            self.tracker
                .spawn(async move { shared.keep_renewed(receipt, invisible, end, stop).await });
        }
        Renewal { stop }
    }

    async fn keep_renewed(
        self: Arc<Self>,
        receipt: Arc<Receipt>,
        invisible: Duration,
        end: Option<Instant>,
        stop: Shutdown,
    ) {
        let mut pause = first_pause(&receipt, invisible);
        while !stop.sleep_or_stop(pause).await && !self.shutdown.is_stopped() && !receipt.is_used() {
            if end.is_some_and(|end| Instant::now() >= end) {
                tracing::warn!(handle = receipt.handle(), "message reached its renewal limit");
                return;
            }
            pause = match self.change(&receipt, invisible).await {
                Ok(()) => {
                    self.renewed.fetch_add(1, Ordering::Relaxed);
                    invisible / PARTS
                }
                Err(error) if receipt.is_used() => {
                    tracing::debug!(%error, "message needs no renewal any more");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "message not renewed");
                    if receipt.until() <= Instant::now() {
                        return;
                    }
                    (invisible / PARTS / PARTS).max(RETRY_PAUSE)
                }
            };
        }
    }

    /// Renews messages that wait for listeners or that they are handling, before their time ends. Gives back those that
    /// have waited too long, so that no message is renewed for ever without being begun.
    pub(crate) async fn keep_waiting_renewed(self: Arc<Self>) {
        while !self.shutdown.sleep_or_stop(RENEWAL_CHECK).await {
            let mut requests = JoinSet::new();
            let (late, receipts, invisible) = {
                let mut state = self.state();
                let late = state.take_waiting(Instant::now());
                self.has_ready.store(!state.ready.is_empty(), Ordering::Release);
                self.has_spare_demand.fetch_or(!late.is_empty(), Ordering::AcqRel);
                let invisible = state.demand.as_ref().map(ListenerDemand::invisible);
                let receipts = state.to_renew(Instant::now());
                (late, receipts, invisible.unwrap_or_default())
            };
            self.give_back_later(late);
            for receipt in receipts {
                let shared = self.clone();
                requests.spawn(async move {
                    match shared.change(&receipt, invisible).await {
                        Ok(()) => {
                            shared.renewed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) if receipt.is_used() => {}
                        Err(error) => tracing::warn!(%error, "message not renewed"),
                    }
                });
            }
            requests.join_all().await;
            // How much may wait also changes with time: requests more if listeners take more.
            self.send_pops();
        }
    }

    /// Renews messages that were not handed out, so that they have the invisible time that a call requests. Returns
    /// those that have it, of an ordered queue only those before the first that has not.
    pub(crate) async fn refresh(
        self: &Arc<Self>,
        messages: Vec<super::answer::Popped>,
        invisible: Duration,
    ) -> Vec<super::answer::Popped> {
        let queues: Vec<Arc<QueueKey>> = messages
            .iter()
            .map(|message| message.chunk.queue.clone())
            .collect();
        let mut requests = JoinSet::new();
        for (index, message) in messages.into_iter().enumerate() {
            let shared = self.clone();
            requests.spawn(async move {
                let changed = shared.change(&message.receipt, invisible).await;
                changed.map(|()| (index, message))
            });
        }
        let mut kept = Vec::new();
        while let Some(done) = requests.join_next().await {
            match done {
                Ok(Ok(renewed)) => kept.push(renewed),
                Ok(Err(error)) => tracing::debug!(%error, "a message was not renewed: it is delivered again"),
                Err(_) => {}
            }
        }
        kept.sort_unstable_by_key(|(index, _)| *index);
        if !self.options.is_ordered {
            return kept.into_iter().map(|(_, message)| message).collect();
        }
        let indexes: HashSet<usize> = kept.iter().map(|(index, _)| *index).collect();
        let (in_order, late): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(index, message)| {
            let is_of_queue = |other: &usize| queues.get(*other) == Some(&message.chunk.queue);
            (0..*index)
                .filter(is_of_queue)
                .all(|before| indexes.contains(&before))
        });
        self.give_back(late.into_iter().map(|(_, message)| message).collect())
            .await;
        in_order.into_iter().map(|(_, message)| message).collect()
    }
}

/// The pause before the first renewal: a part of the time that is left, since the message may have waited.
fn first_pause(receipt: &Receipt, invisible: Duration) -> Duration {
    let left = receipt.until().saturating_duration_since(Instant::now());
    left.min(invisible) / PARTS
}
