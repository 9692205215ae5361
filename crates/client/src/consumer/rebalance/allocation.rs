//! A member's share of a topic's queues, by the strategy that all members of the group use (Apache
//! `AllocateMessageQueueStrategy`).

use crate::consumer::callbacks::{Callback, CallbackAnswer};
use crate::consumer::options::Allocation;
use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use pyrmq_routing::allocate::{self, AllocateError};
use pyrmq_routing::route::PublishedQueue;
use std::collections::HashSet;
use std::sync::Arc;

impl ConsumerShared {
    /// The indexes of this member's queues among these. All of them when every member gets all messages.
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
        if let Some(share) = self.allocated_to(me, topic, queues, members) {
            return share.map_err(|error| refused(&error));
        }
        let mut ids: Vec<&str> = members.iter().map(String::as_str).collect();
        if allocate::place(&mut ids, me).is_none() {
            return Ok(Vec::new());
        }
        let keys = queues.iter().map(|queue| QueueKey {
            topic: topic.clone(),
            broker: queue.broker.clone(),
            queue_id: queue.queue_id,
        });
        let callback = Callback::Allocate {
            queues: keys.collect(),
            members: ids.into_iter().map(str::to_owned).collect(),
        };
        match self.callbacks.call(callback).await {
            Some(CallbackAnswer::Indexes(indexes)) => Ok(indexes),
            _ => Err(ClientError::NotAllocated {
                topic: topic.to_string(),
            }),
        }
    }

    /// The indexes of a member's queues; `None`: only the application knows.
    fn allocated_to(
        &self,
        member: &str,
        topic: &str,
        queues: &[PublishedQueue],
        members: &[String],
    ) -> Option<Result<Vec<usize>, AllocateError>> {
        if self.options.allocation == Allocation::Custom {
            return None;
        }
        let mut ids: Vec<&str> = members.iter().map(String::as_str).collect();
        // A member that is not in the list gets nothing: the broker has not counted its heartbeat yet.
        let Some(member_index) = allocate::place(&mut ids, member) else {
            return Some(Ok(Vec::new()));
        };
        match self.options.allocation {
            Allocation::Average => Some(Ok(
                allocate::average(queues.len(), ids.len(), member_index).collect()
            )),
            Allocation::Circle => {
                let share = allocate::average_by_circle(queues.len(), ids.len(), member_index);
                Some(Ok(share.collect()))
            }
            Allocation::ConsistentHash { virtual_nodes } => {
                let named = queues.iter().map(|queue| allocate::AllocatedQueue {
                    topic,
                    broker: &queue.broker,
                    queue_id: queue.queue_id,
                });
                let named: Vec<_> = named.collect();
                Some(allocate::consistent_hash(&named, &ids, member, virtual_nodes))
            }
            Allocation::Custom => None,
        }
    }

    /// The indexes of the queues that another member may still own. If all that changed is that one member has left,
    /// its queues are free, because it committed before it left. If more has changed, all queues count as owned: others
    /// may have had them in between, and if the queues have changed, it is not known which ones a member had.
    pub(super) fn contended(
        &self,
        topic: &str,
        queues: &[PublishedQueue],
        members: &[String],
    ) -> HashSet<usize> {
        let me = &self.heartbeat.membership.client_id;
        if !members.iter().any(|member| member != me) {
            return HashSet::new();
        }
        let mut contended: HashSet<usize> = (0..queues.len()).collect();
        let id_of = |queue: &PublishedQueue| (queue.broker.clone(), queue.queue_id);
        let before = {
            let state = self.state();
            let last = state.allocation_inputs.get(topic);
            let same = last.filter(|last| last.queues.iter().map(id_of).eq(queues.iter().map(id_of)));
            same.map(|last| last.members.clone()).unwrap_or_default()
        };
        let has_joined = members.iter().any(|member| !before.contains(member));
        let mut gone = before.iter().filter(|member| !members.contains(*member));
        if let (Some(gone), None, false) = (gone.next(), gone.next(), has_joined)
            && let Some(Ok(share)) = self.allocated_to(gone, topic, queues, &before)
        {
            for index in share {
                contended.remove(&index);
            }
        }
        contended
    }
}

fn refused(error: &AllocateError) -> ClientError {
    ClientError::Option {
        option: "allocate",
        value: error.to_string(),
        range: "a strategy that can allocate these queues",
    }
}
