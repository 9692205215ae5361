//! The state of a consumer that pops: its brokers, the buffered messages and the waiting callers.
//!
//! ```text
//! target: a topic on a broker     idle -> popped -> idle, or paused after a failure -> idle
//! pending: a call of `receive`    first one target is popped without a hold, in turn; if it has nothing, all are, with
//!                                 as long a hold as the call waits
//! ```
//! A consumer with listeners pops its targets by itself (`listener_demand.rs`).
//!
//! Every message that a target hands out is hidden from others from then on. So a call takes what one target has, and
//! pops all targets at once only if that has nothing.

use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::batch::{PopBatch, Successors};
use crate::consumer::pop::listener_demand::ListenerDemand;
use crate::error::ClientError;
use crate::session::routes::TopicRoute;
use pyrmq_remoting::clock;
use pyrmq_remoting::names::PERM_READ;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of messages in one answer of a broker (Apache `PopMessageProcessor`).
pub(crate) const MAX_MESSAGES: usize = 32;
/// Longest time for which a broker is to hold a pop.
const MAX_HOLD: Duration = Duration::from_secs(20);
/// How long after its timeout a call waits for answers that may still come.
const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// Messages that no call requests are given back after this time, or after half of their invisible time.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// Every queue of a topic on a broker.
pub(crate) const ANY_QUEUE: i32 = -1;

/// A topic on a broker, or one queue of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PopTarget {
    pub(crate) topic: Arc<str>,
    pub(crate) broker: Arc<str>,
    /// -1: every queue of the topic on that broker.
    pub(crate) queue_id: i32,
}

/// What is known of a target.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// When the pop under way is to be answered.
    pub(crate) answer_due: Option<Instant>,
    /// Time of its last pop, ms.
    pub(crate) last_pop_ms: i64,
    pub(crate) is_paused: bool,
    pub(crate) failures: u32,
    /// Name of an ordered pop whose answer was lost: if it is sent again under this name, the broker returns the same
    /// messages.
    pub(crate) attempt: Option<String>,
}

/// Whether a call has asked one target yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Due,
    Running,
    Done,
}

/// A call that waits for messages.
#[derive(Debug)]
pub(crate) struct PendingReceive {
    pub(crate) max: usize,
    pub(crate) invisible: Duration,
    pub(crate) by: Instant,
    pub(crate) probe: Probe,
    /// Each target has got a pop for it.
    pub(crate) has_popped_all: bool,
}

/// A pop to send.
#[derive(Debug)]
pub(crate) struct Pop {
    pub(crate) target: Arc<PopTarget>,
    pub(crate) max: usize,
    pub(crate) invisible: Duration,
    pub(crate) hold: Duration,
    /// The call that asks one target first.
    pub(crate) probe_of: Option<u64>,
    pub(crate) attempt: Option<String>,
}

/// What a call gets when it looks.
#[derive(Debug)]
pub(crate) enum ReceiveOutcome {
    Messages(Vec<Popped>),
    /// The call's time is over.
    Over,
    Wait,
}

#[derive(Default)]
pub(crate) struct PopState {
    pub(crate) targets: BTreeMap<Arc<PopTarget>, TargetState>,
    routes: BTreeMap<Arc<str>, Arc<TopicRoute>>,
    turn: usize,
    pub(crate) ready: VecDeque<PopBatch>,
    pub(super) successors: Vec<Successors>,
    pub(crate) pending: BTreeMap<u64, PendingReceive>,
    next_receive: u64,
    pub(crate) failure: Option<ClientError>,
    /// The messages of a queue are handed out in order.
    pub(crate) is_ordered: bool,
    pub(crate) is_closed: bool,
    pub(crate) waker: Option<Arc<dyn Fn() + Send + Sync>>,
    /// With listeners, which ask for messages without a call of `receive`.
    pub(crate) demand: Option<ListenerDemand>,
}

impl PopState {
    pub(crate) fn new(is_ordered: bool) -> Self {
        Self {
            is_ordered,
            ..Self::default()
        }
    }

    /// Adds a call.
    pub(crate) fn add_receive(&mut self, max: usize, invisible: Duration, wait: Duration) -> u64 {
        self.next_receive += 1;
        if self.pending.is_empty() {
            // The failure of a pop that no call waited for.
            self.failure = None;
        }
        let now = Instant::now();
        let receive = PendingReceive {
            max,
            invisible,
            by: now.checked_add(wait).unwrap_or(now + MAX_HOLD),
            probe: Probe::Due,
            has_popped_all: false,
        };
        self.pending.insert(self.next_receive, receive);
        self.next_receive
    }

    /// Updates the targets of a topic from its route.
    pub(crate) fn follow_route(&mut self, topic: &Arc<str>, route: &Arc<TopicRoute>) {
        if self
            .routes
            .get(topic)
            .is_some_and(|known| Arc::ptr_eq(known, route))
        {
            return;
        }
        self.routes.insert(topic.clone(), route.clone());
        let readable = route
            .route
            .queues
            .iter()
            .filter(|queues| queues.perm & PERM_READ != 0);
        let brokers: Vec<&str> = readable.map(|queues| &*queues.broker).collect();
        self.targets
            .retain(|target, _| target.topic != *topic || brokers.contains(&&*target.broker));
        for broker in brokers {
            let target = PopTarget {
                topic: topic.clone(),
                broker: broker.into(),
                queue_id: ANY_QUEUE,
            };
            self.targets.entry(Arc::new(target)).or_default();
        }
    }

    /// Forgets a topic: its targets, and its messages, which are returned.
    pub(crate) fn forget_topic(&mut self, topic: &str) -> Vec<Popped> {
        self.routes.remove(topic);
        self.targets.retain(|target, _| &*target.topic != topic);
        let mut dropped = Vec::new();
        for batch in &mut self.ready {
            let (others, own) = batch
                .messages
                .drain(..)
                .partition(|message| &*message.receipt.topic != topic);
            batch.messages = others;
            let own: VecDeque<Popped> = own;
            dropped.extend(own);
        }
        self.ready.retain(|batch| !batch.messages.is_empty());
        let of_topic = |successors: &mut Successors| {
            let first = successors.batch.messages.front();
            first.is_some_and(|message| &*message.receipt.topic == topic)
        };
        dropped.extend(
            self.successors
                .extract_if(.., of_topic)
                .flat_map(|successors| successors.batch.messages),
        );
        dropped
    }

    /// Pops exactly these queues of a topic from now on.
    pub(crate) fn set_targets(&mut self, topic: &Arc<str>, queues: &[(Arc<str>, i32)]) {
        let target = |(broker, queue_id): &(Arc<str>, i32)| PopTarget {
            topic: topic.clone(),
            broker: broker.clone(),
            queue_id: *queue_id,
        };
        let wanted: BTreeSet<PopTarget> = queues.iter().map(target).collect();
        self.targets
            .retain(|target, _| target.topic != *topic || wanted.contains(target));
        for target in wanted {
            self.targets.entry(Arc::new(target)).or_default();
        }
    }

    /// Adds a pop of every target that has none.
    pub(super) fn pop_idle(
        &mut self,
        pops: &mut Vec<Pop>,
        now: Instant,
        (max, invisible, hold): (usize, Duration, Duration),
    ) {
        while let Some(target) = self.next_idle() {
            let attempt = self.begin(&target, now, hold);
            pops.push(Pop {
                target,
                max,
                invisible,
                hold,
                probe_of: None,
                attempt,
            });
        }
    }

    /// The next target without a pop in flight.
    pub(crate) fn next_idle(&mut self) -> Option<Arc<PopTarget>> {
        let count = self.targets.len();
        let order = (0..count).map(|step| (self.turn + step) % count);
        let mut found = None;
        for index in order {
            let (target, state) = self.targets.iter().nth(index)?;
            if state.answer_due.is_none() && !state.is_paused {
                found = Some((index, target.clone()));
                break;
            }
        }
        let (index, target) = found?;
        self.turn = (index + 1) % count;
        Some(target)
    }

    pub(crate) fn begin(&mut self, target: &Arc<PopTarget>, now: Instant, hold: Duration) -> Option<String> {
        let state = self.targets.get_mut(target)?;
        state.answer_due = Some(now + hold);
        state.last_pop_ms = clock::now_ms();
        state.attempt.clone()
    }

    /// The pops to send now.
    pub(crate) fn plan(&mut self, now: Instant) -> Vec<Pop> {
        let mut pops = Vec::new();
        if self.demand.is_some() {
            return self.plan_for_listeners(now);
        }
        if self.is_closed || !self.ready.is_empty() {
            return pops;
        }
        let is_alone = self.targets.len() == 1;
        let due: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, receive)| receive.probe == Probe::Due)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let target = if is_alone { None } else { self.next_idle() };
            let attempt = target
                .as_ref()
                .and_then(|target| self.begin(target, now, Duration::ZERO));
            let Some(receive) = self.pending.get_mut(&id) else {
                continue;
            };
            let Some(target) = target else {
                receive.probe = Probe::Done;
                continue;
            };
            receive.probe = Probe::Running;
            pops.push(Pop {
                target,
                max: receive.max.min(MAX_MESSAGES),
                invisible: receive.invisible,
                hold: Duration::ZERO,
                probe_of: Some(id),
                attempt,
            });
        }
        let waiting = self
            .pending
            .values()
            .filter(|receive| receive.probe == Probe::Done);
        let Some(longest) = waiting.max_by_key(|receive| receive.by) else {
            return pops;
        };
        let (max, invisible) = (longest.max.min(MAX_MESSAGES), longest.invisible);
        let hold = longest.by.saturating_duration_since(now).min(MAX_HOLD);
        let was_popped = longest.has_popped_all;
        if hold.is_zero() && was_popped {
            return pops;
        }
        self.pop_idle(&mut pops, now, (max, invisible, hold));
        for receive in self
            .pending
            .values_mut()
            .filter(|receive| receive.probe == Probe::Done)
        {
            receive.has_popped_all = true;
        }
        pops
    }

    /// Makes the messages ready whose predecessors are all acknowledged now, by these handles: a receipt that was kept
    /// as text is another object. False: there are none.
    pub(crate) fn release_successors(&mut self, acknowledged: &BTreeSet<&str>) -> bool {
        let is_free = |successors: &mut Successors| {
            successors
                .waits_for
                .retain(|receipt| !acknowledged.contains(receipt.handle().as_str()));
            successors.waits_for.is_empty()
        };
        let free: Vec<Successors> = self.successors.extract_if(.., is_free).collect();
        let is_any = !free.is_empty();
        for successors in free {
            self.ready.push_front(successors.batch);
        }
        is_any
    }

    /// Takes everything that was not handed out.
    pub(crate) fn take_all(&mut self) -> Vec<Popped> {
        let successors = self.successors.drain(..).map(|successors| successors.batch);
        let all = self.ready.drain(..).chain(successors);
        all.flat_map(|batch| batch.messages).collect()
    }

    /// The messages for a call now. Batches whose time nearly ends, or differs from the one that the call requests,
    /// come back in `stale`: their time must be changed first.
    pub(crate) fn take(
        &mut self,
        id: u64,
        now: Instant,
        stale: &mut Vec<PopBatch>,
    ) -> Result<ReceiveOutcome, ClientError> {
        if self.is_closed {
            return Err(ClientError::Closed { what: "consumer" });
        }
        let Some(receive) = self.pending.get(&id) else {
            return Ok(ReceiveOutcome::Over);
        };
        let mut taken = Vec::new();
        while taken.len() < receive.max
            && let Some(mut batch) = self.ready.pop_front()
        {
            let left = batch.left(now);
            if left.is_zero() {
                // The broker delivers them again.
                continue;
            }
            if batch.invisible != receive.invisible || left < receive.invisible / 2 {
                stale.push(batch);
                continue;
            }
            let count = batch.messages.len().min(receive.max - taken.len());
            taken.extend(batch.messages.drain(..count));
            if self.is_ordered
                && let Some(last) = taken.last()
            {
                self.successors.extend(batch.split_off(&last.chunk.queue, &taken));
            }
            if !batch.messages.is_empty() {
                self.ready.push_front(batch);
            }
        }
        if !taken.is_empty() {
            return Ok(ReceiveOutcome::Messages(taken));
        }
        // A broker that refuses does not hold back messages that have arrived.
        if stale.is_empty()
            && let Some(failure) = self.failure.take()
        {
            return Err(failure);
        }
        let is_open = now < receive.by || !stale.is_empty();
        if is_open || (now < receive.by + ANSWER_GRACE && self.may_still_come(receive)) {
            return Ok(ReceiveOutcome::Wait);
        }
        Ok(ReceiveOutcome::Over)
    }

    /// Whether an answer may still come for a call whose time has passed.
    fn may_still_come(&self, receive: &PendingReceive) -> bool {
        let is_due = |due: Instant| due <= receive.by;
        receive.probe != Probe::Done
            || !receive.has_popped_all
            || self
                .targets
                .values()
                .any(|target| target.answer_due.is_some_and(is_due))
    }

    /// Whether a thread that waits is to look.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_closed || self.failure.is_some() || !self.ready.is_empty()
    }

    /// Takes the messages that no call received in time.
    pub(crate) fn take_idle(&mut self, now: Instant) -> Vec<Popped> {
        let mut idle = Vec::new();
        // The broker delivers them again, after those that were not acknowledged.
        self.successors
            .retain(|successors| !successors.batch.left(now).is_zero());
        if self.pending.is_empty() {
            self.ready.retain_mut(|batch| {
                let limit = MAX_IDLE.min(batch.invisible / 2);
                let is_kept = now.saturating_duration_since(batch.arrived) < limit;
                if !is_kept {
                    idle.extend(batch.messages.drain(..));
                }
                is_kept
            });
        }
        idle
    }
}
