//! The messages in flight, and the senders that wait for capacity. One lock guards all of it.

use super::candidates::Candidates;
use super::waiting::{CapacityWaiter, CapacityWaiters, Condition, Listener};
use super::window::{BrokerId, BrokerWindows, Usage};
use std::sync::Arc;

pub(super) struct BackPressureState {
    pub(super) limit: Usage,
    pub(super) used: Usage,
    // The sum of the brokers' windows, at most the limit of messages.
    pub(super) window: usize,
    // Brokers whose window is narrow.
    pub(super) narrow: usize,
    pub(super) brokers: BrokerWindows,
    pub(super) waiters: CapacityWaiters,
}

impl std::fmt::Debug for BackPressureState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackPressureState")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl BackPressureState {
    pub(super) fn new(limit: Usage) -> Self {
        Self {
            limit,
            used: Usage::default(),
            window: limit.messages,
            narrow: 0,
            brokers: BrokerWindows::new(limit),
            waiters: CapacityWaiters::default(),
        }
    }

    /// Whether a quarter of the capacity is free.
    pub(super) fn has_spare(&self) -> bool {
        self.used.messages == 0
            || (self.used.messages <= self.window - self.window.div_ceil(4)
                && self.used.bytes <= self.limit.bytes / 4 * 3)
    }

    pub(super) fn fits(&self, wanted: Usage) -> bool {
        self.used.messages == 0
            || (self.used.messages + wanted.messages <= self.window
                && self.used.bytes + wanted.bytes <= self.limit.bytes)
    }

    /// Whether one of these brokers takes this much more.
    pub(super) fn any_fits(&self, names: &[Arc<str>], wanted: Usage) -> bool {
        self.brokers.any_fits(names, wanted, &self.waiters)
    }

    /// Counts these if there is capacity for them. Messages that can go to one broker only count in its window at once:
    /// they may wait long for others before they are sent.
    pub(super) fn try_admit(&mut self, wanted: Usage, brokers: &Candidates) -> bool {
        let names = brokers.names();
        if !self.fits(wanted) || !self.any_fits(names, wanted) {
            return false;
        }
        self.used.add(wanted);
        if let [only] = names {
            let id = self.broker_id(only);
            self.brokers.update(id, |window| window.used.add(wanted));
        }
        true
    }

    /// A broker's messages count from its first one on, also while other windows are narrow.
    pub(super) fn broker_id(&mut self, broker: &Arc<str>) -> BrokerId {
        if let Some(id) = self.brokers.id(broker) {
            return id;
        }
        let id = self.brokers.insert(broker, self.limit.messages);
        self.adjust();
        id
    }

    /// Counts the windows again after one of them changed its width.
    pub(super) fn adjust(&mut self) {
        let windows = || self.brokers.iter();
        let all = windows().fold(0_usize, |sum, window| sum.saturating_add(window.width()));
        let narrow = windows().filter(|window| window.is_narrow()).count();
        (self.window, self.narrow) = (all.min(self.limit.messages), narrow);
    }

    /// Adds a waiter; returns its number, and its listener if its condition holds already.
    pub(super) fn push_waiter(
        &mut self,
        condition: Condition,
        listener: Listener,
    ) -> (u64, Option<Listener>) {
        let is_empty = self.used.messages == 0;
        let names = condition.brokers().names();
        let may_hold = self.has_spare() && self.brokers.any_has_spare(names, &self.waiters);
        let holds = may_hold && self.holds(&condition, is_empty, &mut 0);
        let number = self.waiters.push(condition, listener);
        let satisfied = if holds { self.waiters.remove(number) } else { None };
        (number, satisfied.map(|waiter| waiter.listener))
    }

    /// Takes out the listeners whose condition holds after a change. `had_spare`: a quarter of the capacity was free
    /// before it; `opened`: a broker's window opened. Without waiters nothing is allocated.
    pub(super) fn take_satisfied(&mut self, had_spare: bool, opened: bool) -> Vec<Listener> {
        let mut satisfied = Vec::new();
        if self.waiters.is_empty() {
            return satisfied;
        }
        let is_empty = self.used.messages == 0;
        let has_spare = self.has_spare();
        let room_opened = is_empty || (has_spare && !had_spare);
        let mut granted = 0;
        let mut serve = |state: &mut Self, list: fn(&mut CapacityWaiters) -> &mut Vec<CapacityWaiter>| {
            let mut waiting = std::mem::take(list(&mut state.waiters));
            let holds = |waiter: &mut CapacityWaiter| state.holds(&waiter.condition, is_empty, &mut granted);
            satisfied.extend(waiting.extract_if(.., holds).map(|waiter| waiter.listener));
            *list(&mut state.waiters) = waiting;
        };
        if has_spare {
            serve(self, |waiters| &mut waiters.anywhere);
        }
        // One that needs more than a quarter of the capacity waits longer than for the opening.
        let quarter = self.limit.bytes / 4;
        let is_large = |waiter: &CapacityWaiter| waiter.condition.bytes() > quarter;
        if opened || room_opened || (has_spare && self.waiters.at_brokers.iter().any(is_large)) {
            serve(self, |waiters| &mut waiters.at_brokers);
        }
        satisfied
    }

    /// Whether a condition holds; an entry is admitted then. `granted` counts the messages for several brokers that
    /// were admitted in this round: they count in no window before they leave.
    fn holds(&mut self, condition: &Condition, is_empty: bool, granted: &mut usize) -> bool {
        match condition {
            Condition::Empty => is_empty,
            Condition::Room { bytes, brokers } => {
                let wanted = Usage {
                    messages: 1,
                    bytes: *bytes,
                };
                self.fits(wanted) && self.any_fits(brokers.names(), wanted)
            }
            Condition::Entry {
                messages,
                bytes,
                brokers,
            } => {
                let wanted = Usage {
                    messages: *messages,
                    bytes: *bytes,
                };
                let is_one_of_several = brokers.names().len() > 1;
                if is_one_of_several && *granted > 0 && *granted + messages > self.free(brokers.names()) {
                    return false;
                }
                let admitted = self.try_admit(wanted, brokers);
                if admitted && is_one_of_several {
                    *granted += messages;
                }
                admitted
            }
        }
    }

    /// How many more messages these brokers take together.
    pub(super) fn free(&self, names: &[Arc<str>]) -> usize {
        self.brokers.free(names, &self.waiters)
    }
}
