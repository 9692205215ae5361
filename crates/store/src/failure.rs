//! The first failure of a write or fsync, after which the store accepts nothing more.

use crate::error::StoreError;
use crate::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first failure, which is never cleared.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    failed: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Failure {
    pub(crate) fn set(&self, error: &StoreError) {
        let mut reason = lock(&self.reason);
        if reason.is_none() {
            tracing::error!(%error, "the store is now read-only");
            *reason = Some(error.to_string());
        }
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if !self.is_set() {
            return Ok(());
        }
        Err(StoreError::ReadOnly {
            reason: self.reason().unwrap_or_default(),
        })
    }

    pub(crate) fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }
}
