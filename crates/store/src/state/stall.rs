//! Puts are refused while consume queues cannot be written, because their entries would pile up in memory.

use crate::error::StoreError;
use crate::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why consume queues cannot be written for now, if they cannot.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    is_set: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Stall {
    /// Refuses puts until the next [`Stall::end`].
    pub(crate) fn begin(&self, error: &StoreError) {
        let mut reason = lock(&self.reason);
        if reason.is_none() {
            tracing::error!(%error, "consume queues cannot be written for now: no message is stored");
        }
        *reason = Some(error.to_string());
        self.is_set.store(true, Ordering::Release);
    }

    /// Ends the stall: all consume queues were written.
    pub(crate) fn end(&self) {
        if self.is_set.load(Ordering::Acquire) {
            let mut reason = lock(&self.reason);
            self.is_set.store(false, Ordering::Release);
            *reason = None;
            tracing::warn!("consume queues can be written again");
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if !self.is_set.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(StoreError::Stalled {
            reason: lock(&self.reason).clone().unwrap_or_default(),
        })
    }
}
