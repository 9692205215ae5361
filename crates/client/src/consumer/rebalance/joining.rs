//! Subscriptions that have begun and not joined the group yet: they request routes, and brokers check filters. A topic
//! that is left meanwhile must not be joined afterwards.

use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use crate::session::membership::Subscription;
use std::sync::Arc;

/// A subscription that has begun. It ends with this value.
#[derive(Debug)]
pub(crate) struct Joining {
    shared: Arc<ConsumerShared>,
    topic: Arc<str>,
    number: u64,
}

impl ConsumerShared {
    /// Begins to subscribe to a topic.
    pub(crate) fn begin_joining(self: &Arc<Self>, topic: &Arc<str>) -> Joining {
        let number = self.next_generation();
        self.state().joining.insert(number, topic.clone());
        Joining {
            shared: self.clone(),
            topic: topic.clone(),
            number,
        }
    }

    /// Refuses all subscriptions of a topic that have begun and not joined the group yet.
    pub(crate) fn end_joining(&self, topic: &str) {
        self.state().joining.retain(|_, begun| &**begun != topic);
    }
}

impl Joining {
    /// Subscribes, unless the topic was left meanwhile.
    pub(crate) fn join(&self, subscription: Subscription) -> Result<(), ClientError> {
        // An `unsubscribe` checks here first, then the subscriptions.
        let state = self.shared.state();
        if !state.joining.contains_key(&self.number) {
            return Err(ClientError::Unsubscribed {
                topic: self.shared.options.client.unwrap_name(&self.topic).to_string(),
            });
        }
        let membership = &self.shared.heartbeat.membership;
        membership.subscribe(self.topic.clone(), subscription);
        Ok(())
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.shared.state().joining.remove(&self.number);
    }
}
