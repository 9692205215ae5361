//! The brokers that a message may go to, for back pressure.

use std::sync::Arc;

/// The brokers that a message may go to; empty if that makes no difference or is not known.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    brokers: Option<Arc<[Arc<str>]>>,
    // The only one of them.
    only: Option<usize>,
}

impl Candidates {
    pub(super) const NONE: Self = Self {
        brokers: None,
        only: None,
    };

    /// Any of these.
    pub fn all(brokers: Arc<[Arc<str>]>) -> Self {
        Self {
            brokers: Some(brokers),
            only: None,
        }
    }

    /// The broker of this name among these; empty if it is not one of them.
    pub fn only(brokers: &Arc<[Arc<str>]>, name: &str) -> Self {
        match brokers.iter().position(|broker| **broker == *name) {
            Some(at) => Self {
                brokers: Some(brokers.clone()),
                only: Some(at),
            },
            None => Self::default(),
        }
    }

    /// The names of these brokers.
    pub fn names(&self) -> &[Arc<str>] {
        let all = self.brokers.as_deref().unwrap_or_default();
        match self.only {
            Some(at) => all.get(at..=at).unwrap_or_default(),
            None => all,
        }
    }
}
