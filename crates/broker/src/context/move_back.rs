//! Moves progress that is ahead of the log back to the ends of the queues.
//!
//! `pyrmq log repair` may end the log before messages that were consumed, delivered or checked already, and a log that
//! has failed may lose some after their offsets were written. New messages take the places of the lost ones, so they
//! would be skipped. Apache corrects only the delay levels (`ScheduleMessageService.correctDelayOffset`).

use crate::context::BrokerContext;
use crate::delivery::schedule::Delays;
use crate::pop::order::Orders;
use crate::tables::offsets::{Move, Offsets};
use pyrmq_remoting::names::REVIVE_GROUP;
use pyrmq_store::{Store, StoreError};

/// How many moves the log line names.
const MAX_NAMED: usize = 20;

/// Moves back what is ahead, in memory; the caller makes it durable before a message is stored. True: something moved.
/// A queue that the store does not have says nothing about an offset, which stays.
pub(super) fn move_back(store: &Store, offsets: &Offsets, delays: &Delays, orders: &Orders) -> bool {
    if !store.health().recovered_from_crash {
        // A clean stop wrote its offsets after the messages.
        return false;
    }
    let mut moves = offsets.lower(|group, topic, queue| {
        // The offset of this group is that of the last pop check point that is done, not of the next one.
        let last = i64::from(group == REVIVE_GROUP);
        store.queue_end(topic, queue).map(|end| end - last)
    });
    moves.extend(delays.lower(store));
    let is_cut = cut_orders(store, orders);
    if moves.is_empty() {
        return is_cut;
    }
    let mut named: Vec<String> = moves.iter().take(MAX_NAMED).map(Move::to_string).collect();
    if moves.len() > MAX_NAMED {
        named.push(format!("{} more", moves.len() - MAX_NAMED));
    }
    tracing::warn!(
        count = moves.len(),
        moved = named.join(", "),
        "offsets were ahead of the log, which was cut or lost messages: moved back to the ends of their queues"
    );
    true
}

/// Takes messages that the log does not have any more from ordered groups.
fn cut_orders(store: &Store, orders: &Orders) -> bool {
    let shortened = orders.cut(|topic, queue| store.queue_end(topic, queue));
    if shortened.is_empty() {
        return false;
    }
    let named = shortened.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>();
    tracing::warn!(
        count = shortened.len(),
        queues = named.join(", "),
        "ordered groups had messages past the end of the log, which was cut or lost messages: they are taken back"
    );
    true
}

impl BrokerContext {
    /// Writes the progress that the start moved back. Before the ports open: once new messages have filled the gap, no
    /// later start could tell that it was ahead. After the offsets of pops, which go by the time of the last write.
    pub(crate) fn persist_moved_back(&self) -> Result<(), StoreError> {
        if self.has_moved_back {
            self.persist_offsets()?;
            self.persist_orders()?;
            self.delays.persist(&self.store)?;
        }
        self.store.set_unclean(false);
        Ok(())
    }
}
