//! Messages that leave together (Apache `ProduceAccumulator`): of one topic for any queue, or of one queue.
//!
//! ```text
//! push -> partition queue of its topic, or of its topic and queue -> open batch
//!           full -------------------------------------------> leaves
//!           its oldest message has waited `linger` ---------> leaves
//!           a caller waits for one of its messages, and
//!           nothing of its partition queue is in flight ----> leaves: a lone message at once, and under load each
//!                                                             batch has what came while the last one was in flight
//! eager     a caller waits for a message of this batch: it does not linger while nothing else is in flight
//! sealed    a batch that takes no more messages and waits to leave
//! draining  a thread is sending the partition queue's batches: other threads leave them to it
//! corked    the partition queue's batches wait until their caller has pushed all it has (Linux `TCP_CORK`)
//!
//! The partition queue of one broker's queue has one frame in flight at a time, so retries do not change the order.
//! ```
//! A message costs one lock, a copy of its bytes and no allocation; a batch costs one send. The timer sleeps while
//! nothing is open. A message with a sharding hash waits until its topic's route is known (`await_route.rs`). If its
//! queue leaves the route while it waits, it moves to the queue that the hash selects then (`reroute.rs`).

mod await_route;
mod batch_limit;
mod launch;
mod message;
mod partition;
mod put;
mod reroute;
mod shared;
mod split;
mod split_outcome;
mod timer;

use crate::ClientError;
use crate::producer::Producer;
use crate::producer::back_pressure::BorrowedPermit;
use crate::producer::batch::IdText;
pub use crate::producer::outgoing::TargetRef;
use batch_limit::BatchLimit;
use bytes::BytesMut;
pub use message::{AccumulatedMessage, BatchOutcome, BatchSettings, Limits, Sink};
use pyrmq_remoting::hash::NameMap;
pub use shared::Accumulator;
use shared::AccumulatorState;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use timer::tick;

impl<T: Send + 'static> Accumulator<T> {
    /// Starts the timer on the producer's runtime; it ends with the producer or the accumulator.
    pub fn new(producer: Arc<Producer>, limits: Limits, sink: Sink<T>) -> Arc<Self> {
        let bytes = limits.bytes.min(producer.options().max_message_bytes);
        let made = Arc::new(Self {
            batch_limit: BatchLimit::new(bytes),
            ids: IdText::new(producer.ids()),
            limits: Limits {
                bytes,
                messages: limits.messages.max(1),
                ..limits
            },
            sink,
            state: Mutex::new(AccumulatorState {
                partitions: NameMap::default(),
                topics: NameMap::default(),
                awaiting_route: HashMap::new(),
                last_awaiting: 0,
                routes: HashMap::new(),
                corked: Vec::new(),
                bodies: BytesMut::new(),
                ticking: false,
                closed: false,
            }),
            opened: Arc::default(),
            producer,
        });
        let (tracker, shutdown) = made.producer.tasks();
        let opened = made.opened.clone();
        tracker.spawn(tick(Arc::downgrade(&made), opened, shutdown));
        made
    }

    /// Takes a message. `permit` is for one message of [`AccumulatedMessage::charged_bytes`] bytes.
    pub fn push(
        self: &Arc<Self>,
        message: AccumulatedMessage<'_, T>,
        permit: BorrowedPermit<'_>,
    ) -> Result<(), ClientError> {
        self.accept(message, permit, false).map(drop)
    }

    /// Takes a message of a caller that has more to push right now, such as the tasks of an event loop that run one
    /// after the other: a batch that [`Self::push`] would send at once, half empty, waits for [`Self::uncork`]. Returns
    /// whether the caller must call that.
    pub fn push_corked(
        self: &Arc<Self>,
        message: AccumulatedMessage<'_, T>,
        permit: BorrowedPermit<'_>,
    ) -> Result<bool, ClientError> {
        self.accept(message, permit, true)
    }

    /// Sends what [`Self::push_corked`] held back.
    pub fn uncork(self: &Arc<Self>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let keys = std::mem::take(&mut state.corked);
        for key in &keys {
            if let Some(partition) = state.partitions.get_mut(key) {
                partition.corked = false;
            }
        }
        drop(guard);
        for key in keys {
            self.drain(&key);
        }
    }

    /// Sends all accumulated messages, without waiting for more of them or for outcomes.
    pub fn flush(self: &Arc<Self>) {
        let mut state = self.state();
        let mut due = Vec::new();
        // Messages that wait for a route leave at once when it is known, too.
        for awaiting_route in state.awaiting_route.values_mut().flatten() {
            awaiting_route.skip_linger();
        }
        for (key, partition) in &mut state.partitions {
            partition.seal();
            if !partition.sealed.is_empty() {
                due.push(key.clone());
            }
        }
        drop(state);
        for key in due {
            self.drain(&key);
        }
    }

    /// Number of partitions with messages that wait or are in flight.
    pub fn partitions(&self) -> usize {
        self.state().partitions.len()
    }

    /// Accepts no more messages, and sends the accepted ones at once.
    pub fn close(self: &Arc<Self>) {
        self.state().closed = true;
        self.flush();
    }
}
