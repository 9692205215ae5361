//! Which part of a store is durable.

use crate::error::StoreError;
use crate::store::Store;
use pyrmq_remoting::message::Durability;

impl Store {
    /// Calls back when everything before `position` is durable, or with the fsync's error or a timeout. The callback
    /// runs on another thread, or on this one if nothing is left to do.
    pub fn when_durable(&self, position: i64, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        self.engine.flusher.when_durable(position, Box::new(done));
    }

    /// Calls back when everything before `position` has reached a level: at once for [`Durability::Memory`], like
    /// [`Store::when_durable`] for [`Durability::Local`].
    pub fn when_reached(
        &self,
        position: i64,
        level: Durability,
        done: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        match level {
            Durability::Memory => done(Ok(())),
            Durability::Local => self.when_durable(position, done),
        }
    }

    /// Refuses a message whose sender will wait for a level that the flush mode does not wait for: with `ASYNC_FLUSH`,
    /// [`Durability::Local`]. Call this before such a put, which with `SYNC_FLUSH` checks this itself. The error is
    /// [`StoreError::Busy`], if [`Options::send_capacity`](crate::Options::send_capacity) senders wait for the disk, or
    /// one has waited for longer than [`Options::busy_ms`](crate::Options::busy_ms).
    pub fn check_waiter(&self, level: Durability) -> Result<(), StoreError> {
        match level {
            Durability::Memory => Ok(()),
            Durability::Local => self.engine.appender.flow_control.check_waiter(),
        }
    }

    /// Makes everything durable that was stored before the call, and then returns. Call this before progress is written
    /// elsewhere: a power loss must not keep the progress and lose the messages.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.engine.shared.state.check_sound()?;
        self.engine.flusher.flush_round()
    }

    /// The level that everything before a position has reached.
    pub fn durability(&self, position: i64) -> Durability {
        if position <= self.engine.shared.log.flushed() {
            Durability::Local
        } else {
            Durability::Memory
        }
    }
}
