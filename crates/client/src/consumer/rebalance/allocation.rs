//! A member's part of a topic's queues, by the strategy that all members of the group use (Apache
//! `AllocateMessageQueueStrategy`).

use crate::consumer::callbacks::{Callback, CallbackAnswer};
use crate::consumer::options::Allocation;
use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::Shared;
use crate::error::ClientError;
use pyrmq_routing::allocate::{self, AllocateError};
use pyrmq_routing::route::PublishedQueue;
use std::sync::Arc;

impl Shared {
    /// The places of this member's queues among these. All of them when every member gets all messages.
    pub(crate) async fn allocated(
        &self,
        topic: &Arc<str>,
        queues: &[PublishedQueue],
        members: &[String],
    ) -> Result<Vec<usize>, ClientError> {
        if self.options.is_broadcasting {
            return Ok((0..queues.len()).collect());
        }
        let me = self.heartbeat.membership.client_id.as_str();
        let mut ids: Vec<&str> = members.iter().map(String::as_str).collect();
        // A member that is not in the list gets nothing: the broker has not counted its heartbeat yet.
        let Some(place) = allocate::place(&mut ids, me) else {
            return Ok(Vec::new());
        };
        match self.options.allocation {
            Allocation::Average => Ok(allocate::average(queues.len(), ids.len(), place).collect()),
            Allocation::Circle => Ok(allocate::average_by_circle(queues.len(), ids.len(), place).collect()),
            Allocation::ConsistentHash { virtual_nodes } => {
                let named = queues.iter().map(|queue| allocate::Queue {
                    topic,
                    broker: &queue.broker,
                    queue_id: queue.queue_id,
                });
                let named: Vec<_> = named.collect();
                allocate::consistent_hash(&named, &ids, me, virtual_nodes).map_err(|error| refused(&error))
            }
            Allocation::Custom => {
                let keys = queues.iter().map(|queue| QueueKey {
                    topic: topic.clone(),
                    broker: queue.broker.clone(),
                    queue_id: queue.queue_id,
                });
                let callback = Callback::Allocate {
                    queues: keys.collect(),
                    members: ids.into_iter().map(str::to_owned).collect(),
                };
                match self.callbacks.ask(callback).await {
                    Some(CallbackAnswer::Indexes(places)) => Ok(places),
                    _ => Err(ClientError::NotAllocated {
                        topic: topic.to_string(),
                    }),
                }
            }
        }
    }
}

fn refused(error: &AllocateError) -> ClientError {
    ClientError::Option {
        option: "allocate",
        value: error.to_string(),
        range: "a strategy that can allocate these queues",
    }
}
