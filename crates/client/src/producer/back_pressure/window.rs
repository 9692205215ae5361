//! How many messages each broker has in flight, and how many it may have.
//!
//! The window shrinks when the broker answers that it is overloaded, at most five times a second: to a quarter the
//! first time, since it may be far too wide, to half after that. It grows by an eighth for each quarter of it that is
//! confirmed, and only by a sixty-fourth near the width at which the broker was overloaded: real brokers refuse what
//! has waited for 200 ms, so most messages would fail in a window that is too wide.
//!
//! A broker's share is half of the capacity. Its allowance is what it may have beyond that while no other broker has
//! messages in flight and no sender waits for another broker. It grows with the answers that arrive while the share is
//! used up, to all of the capacity after one share's worth of them, and ends when the broker leaves something
//! unanswered. So one busy topic uses everything, and a broker that is silent when its share is used up gets no more.

use super::candidates::Candidates;
use super::waiting::CapacityWaiters;
use pyrmq_remoting::hash::NameMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A window never shrinks below this.
const MIN_WINDOW: usize = 64;
/// Many refusals at once are one.
const SHRINK_INTERVAL: Duration = Duration::from_millis(200);
/// With this many brokers, a new one replaces one that has nothing in flight.
const BROKERS_KEPT: usize = 64;

/// Messages, and the bytes that they count for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Usage {
    pub(super) const ONE: Self = Self {
        messages: 1,
        bytes: 1,
    };

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    pub(super) fn remove(&mut self, other: Self) {
        self.messages = self.messages.saturating_sub(other.messages);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    /// Takes this much out, or as much as there is.
    pub(super) fn take(&mut self, messages: usize, bytes: usize) -> Self {
        let part = Self {
            messages: messages.min(self.messages),
            bytes: bytes.min(self.bytes),
        };
        self.remove(part);
        part
    }
}

/// The window of one broker.
#[derive(Debug)]
pub(super) struct BrokerWindow {
    pub(super) used: Usage,
    most: usize,
    width: usize,
    // When it last shrank, and how much was in flight then.
    shrank: Option<(Instant, usize)>,
    // Messages confirmed since the width last changed.
    confirmed: usize,
    // Messages that it may have beyond its share.
    allowance: usize,
}

impl BrokerWindow {
    /// At most this many messages, until the broker answers that it is overloaded.
    pub(super) fn new(most: usize) -> Self {
        Self {
            used: Usage::default(),
            most,
            width: most,
            shrank: None,
            confirmed: 0,
            allowance: 0,
        }
    }

    /// Messages that may be in flight to the broker.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    fn limit(&self, share: Usage) -> usize {
        self.width.min(share.messages)
    }

    fn is_full(&self, share: Usage) -> bool {
        !self.fits(Usage::ONE, share)
    }

    /// Whether these fit as well. The bytes may exceed the share by one message, however large: it would never fit next
    /// to small ones that arrive all the time.
    fn fits(&self, wanted: Usage, share: Usage) -> bool {
        let Usage { messages, bytes } = self.used;
        self.used.is_empty() || (messages + wanted.messages <= self.limit(share) && bytes < share.bytes)
    }

    /// Whether a quarter of the window is free.
    fn has_spare(&self, share: Usage) -> bool {
        let limit = self.limit(share);
        self.used.is_empty()
            || (self.used.messages <= limit - limit.div_ceil(4) && self.used.bytes <= share.bytes / 4 * 3)
    }

    pub(super) fn is_narrow(&self) -> bool {
        self.width < self.most
    }

    /// The broker has too much to do.
    pub(super) fn shrink_window(&mut self, now: Instant) {
        if self.shrank.is_some_and(|(at, _)| now < at + SHRINK_INTERVAL) {
            return;
        }
        let used = self.width.min(self.used.messages.max(1));
        let part = if self.shrank.is_none() { used / 4 } else { used / 2 };
        self.width = part.max(MIN_WINDOW).min(self.most);
        (self.shrank, self.confirmed) = (Some((now, used)), 0);
    }

    /// The broker has answered this many, which still count. `share` is its part of `capacity`.
    pub(super) fn grow_allowance(&mut self, messages: usize, (share, capacity): (Usage, Usage)) {
        let most = capacity.messages - share.messages;
        if self.allowance < most && self.is_full(share) {
            let grown = messages.saturating_mul(most) / self.used.messages.max(1);
            self.allowance = (self.allowance + grown.max(1)).min(most);
        }
    }

    pub(super) fn reset_allowance(&mut self) {
        self.allowance = 0;
    }

    /// The broker has confirmed this many.
    pub(super) fn confirm(&mut self, messages: usize) {
        self.confirmed += messages;
        let width = self.width;
        if self.confirmed >= width / 4 {
            self.confirmed = 0;
            let is_near = self
                .shrank
                .is_some_and(|(_, was)| (was / 4 * 3..was / 4 * 5).contains(&width));
            let step = if is_near { width / 64 } else { width / 8 };
            self.width = (width + step + 1).min(self.most);
        }
    }
}

/// A broker's index in the table. It is valid while the broker has messages in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrokerId(usize);

/// The windows of the brokers that have messages in flight.
#[derive(Debug)]
pub(super) struct BrokerWindows {
    ids: NameMap<Arc<str>, BrokerId>,
    all: Vec<(Arc<str>, BrokerWindow)>,
    capacity: Usage,
    // What one broker may have while others are in use.
    share: Usage,
    // Messages that count in all windows together.
    used: usize,
    // Windows without room for one more message.
    full: usize,
}

impl BrokerWindows {
    /// One broker may have all of the capacity.
    pub(super) fn new(capacity: Usage) -> Self {
        Self {
            ids: NameMap::default(),
            all: Vec::new(),
            capacity,
            share: capacity,
            used: 0,
            full: 0,
        }
    }

    pub(super) fn set_share(&mut self, share: Usage) {
        self.share = share;
        self.full = self.iter().filter(|window| window.is_full(share)).count();
    }

    pub(super) fn share(&self) -> Usage {
        self.share
    }

    pub(super) fn full(&self) -> usize {
        self.full
    }

    /// What this broker may have now: its share, and its allowance while no other broker needs the rest.
    pub(super) fn limit_of(&self, name: &str, window: &BrokerWindow, waiters: &CapacityWaiters) -> Usage {
        let (share, capacity) = (self.share, self.capacity);
        let is_alone = window.used.messages >= self.used;
        if window.allowance == 0 || !is_alone || waiters.wait_for_another(name) {
            return share;
        }
        // The allowance counts messages; bytes grow in proportion.
        let (messages, bytes) = (capacity.messages - share.messages, capacity.bytes - share.bytes);
        let allowed = bytes.saturating_mul(window.allowance) / messages.max(1);
        Usage {
            messages: share.messages + window.allowance,
            bytes: share.bytes + allowed.min(bytes),
        }
    }

    /// Whether a broker's window is such; one without a window has all of it free.
    fn any(
        &self,
        brokers: &[Arc<str>],
        waiters: &CapacityWaiters,
        is_such: impl Fn(&BrokerWindow, Usage) -> bool,
    ) -> bool {
        let is_such = |name: &Arc<str>| {
            self.by_name(name).is_none_or(|window| {
                is_such(window, self.share) || is_such(window, self.limit_of(name, window, waiters))
            })
        };
        brokers.is_empty() || brokers.iter().any(is_such)
    }

    /// Whether one of these brokers takes this much more.
    pub(super) fn any_fits(&self, brokers: &[Arc<str>], wanted: Usage, waiters: &CapacityWaiters) -> bool {
        self.any(brokers, waiters, |window, limit| window.fits(wanted, limit))
    }

    /// Whether a quarter of one of these brokers' windows is free.
    pub(super) fn any_has_spare(&self, brokers: &[Arc<str>], waiters: &CapacityWaiters) -> bool {
        self.any(brokers, waiters, BrokerWindow::has_spare)
    }

    /// How many more messages these brokers take together.
    pub(super) fn free(&self, brokers: &[Arc<str>], waiters: &CapacityWaiters) -> usize {
        let free = |name: &Arc<str>| match self.by_name(name) {
            Some(window) => {
                let limit = self.limit_of(name, window, waiters);
                window.limit(limit).saturating_sub(window.used.messages)
            }
            None => self.share.messages,
        };
        brokers.iter().map(free).fold(0, usize::saturating_add)
    }

    /// Changes a window. True when it opened: a quarter of it is free now and was not before, or all of it is.
    pub(super) fn update(&mut self, id: BrokerId, change: impl FnOnce(&mut BrokerWindow)) -> bool {
        let share = self.share;
        let Some((_, window)) = self.all.get_mut(id.0) else {
            return false;
        };
        let (was_full, had_spare) = (window.is_full(share), window.has_spare(share));
        let used = window.used.messages;
        change(window);
        self.used = self.used + window.used.messages - used;
        self.full = self.full + usize::from(window.is_full(share)) - usize::from(was_full);
        window.used.is_empty() || (window.has_spare(share) && !had_spare)
    }

    /// Moves usage from one window to another, or out of all windows. True when a window opened.
    pub(super) fn change(&mut self, usage: Usage, from: Option<BrokerId>, to: Option<BrokerId>) -> bool {
        if from == to {
            return false;
        }
        if let Some(id) = to {
            self.update(id, |window| window.used.add(usage));
        }
        from.is_some_and(|id| self.update(id, |window| window.used.remove(usage)))
    }

    /// The broker, if these are but one.
    pub(super) fn only(&self, brokers: &Candidates) -> Option<BrokerId> {
        match brokers.names() {
            [only] => self.id(only),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BrokerWindow> {
        self.all.iter().map(|(_, window)| window)
    }

    pub(super) fn by_name(&self, broker: &str) -> Option<&BrokerWindow> {
        let id = *self.ids.get(broker)?;
        self.all.get(id.0).map(|(_, window)| window)
    }

    pub(super) fn id(&self, broker: &str) -> Option<BrokerId> {
        self.ids.get(broker).copied()
    }

    /// Adds a broker that is not in the table. It takes the place of one that has nothing on its way where there are
    /// many: names may come and go for as long as the producer lives.
    pub(super) fn insert(&mut self, broker: &Arc<str>, most: usize) -> BrokerId {
        let idle = |(_, (_, window)): &(usize, &(Arc<str>, BrokerWindow))| window.used.is_empty();
        let replaced = if self.all.len() < BROKERS_KEPT {
            None
        } else {
            let idle = self.all.iter().enumerate().filter(idle);
            idle.min_by_key(|(_, (_, window))| window.is_narrow())
                .map(|(at, _)| at)
        };
        let entry = (broker.clone(), BrokerWindow::new(most));
        let id = if let Some((at, slot)) = replaced.and_then(|at| Some((at, self.all.get_mut(at)?))) {
            let (former, _) = std::mem::replace(slot, entry);
            self.ids.remove(&former);
            BrokerId(at)
        } else {
            self.all.push(entry);
            BrokerId(self.all.len() - 1)
        };
        self.ids.insert(broker.clone(), id);
        id
    }
}
