//! Which sends are accepted, and the topics and groups that they create.

use crate::admission;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{SubscriptionGroupConfig, TopicConfig};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::SendMessageRequestHeader;
use pyrmq_remoting::names::{self, PERM_READ, PERM_WRITE};
use pyrmq_remoting::net::Peer;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl BrokerContext {
    /// Refuses an invalid send, and creates its topic where that is allowed (Apache `msgCheck`).
    pub(crate) fn admit(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<Arc<Topic>, Refusal> {
        self.check_writeable()?;
        admission::sizes(
            request.body.as_ref().map_or(0, bytes::Bytes::len),
            self.store.live().max_message_bytes(),
            header.properties.map_or(0, str::len),
        )?;
        // A name in the table is valid, so only unknown names are checked.
        let topic = match self.topics.get(header.topic) {
            Some(topic) => topic,
            None => self.make_topic(header, request, peer)?,
        };
        admission::open_to_clients(&topic.topic_name)?;
        admission::storable(&topic.topic_name)?;
        if !admission::is_writeable(topic.perm) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!("the topic may not be written: {}", topic.topic_name),
            ));
        }
        if header.queue_id >= topic.queue_nums() {
            return Err(Refusal::new(
                response::INVALID_PARAMETER,
                format!(
                    "queueId {} is out of range, the topic {} has {} write queues and {} read queues",
                    header.queue_id, topic.topic_name, topic.write_queue_nums, topic.read_queue_nums
                ),
            ));
        }
        Ok(topic)
    }

    fn make_topic(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<Arc<Topic>, Refusal> {
        let name = header.topic;
        admission::topic_name(name)?;
        let limit = self.live.auto_create_topic_limit();
        if is_reached(limit, self.topics.count()) {
            return Err(Refusal::limit_reached(name, "autoCreateTopicLimit", limit));
        }
        let unit = match (header.unit_mode, names::is_retry(name)) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        let make = || {
            let queues = header.default_topic_queue_nums;
            self.topics.make_after(name, header.default_topic, queues, unit)
        };
        // A send that makes no topic must not cost a write of the makers' file.
        let made = if names::is_retry(name) || !self.topics.is_template(header.default_topic) {
            make()?
        } else {
            self.made_by(request, peer, &[name], make)?
        };
        let topic = match made {
            Some(topic) => topic,
            None if names::is_retry(name) => self.topics.get_or_put(name, || both_ways(name, 1, unit))?.0,
            None => return Err(Refusal::no_topic(name)),
        };
        tracing::info!(topic = name, queues = topic.write_queue_nums, peer = %peer.remote(), "made a topic for a send");
        self.announcements.changed();
        Ok(topic)
    }

    /// Refuses if the broker's own permission excludes writing.
    pub(crate) fn check_writeable(&self) -> Result<(), Refusal> {
        if admission::is_writeable(self.live.broker_permission()) {
            return Ok(());
        }
        Err(Refusal::new(
            response::NO_PERMISSION,
            format!("the broker {} may not be written", self.options.broker_name),
        ))
    }

    /// The queue that a send names, or the next one if it names none.
    pub(crate) fn choose_queue(&self, topic: &TopicConfig, asked: i32) -> Result<i32, Refusal> {
        if asked >= 0 {
            return Ok(asked);
        }
        if topic.write_queue_nums <= 0 {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!("the topic has no write queue: {}", topic.topic_name),
            ));
        }
        let next = self.next_queue.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        Ok(i32::try_from(next).unwrap_or(0) % topic.write_queue_nums)
    }

    /// Finds a consumer group, or creates it with the defaults if `autoCreateSubscriptionGroup` is on.
    pub(crate) fn group(&self, name: &str) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        if let Some(known) = self.groups.get(name) {
            return Ok(known);
        }
        if !self.live.auto_create_subscription_group() || admission::group_name(name).is_err() {
            return Err(Refusal::no_group(name));
        }
        let limit = self.live.auto_create_group_limit();
        if is_reached(limit, self.groups.count()) {
            return Err(Refusal {
                code: response::SUBSCRIPTION_GROUP_NOT_EXIST,
                ..Refusal::limit_reached(name, "autoCreateGroupLimit", limit)
            });
        }
        tracing::info!(group = name, "made a consumer group at its first use");
        self.groups.get_or_make(name)
    }

    /// Creates those of these groups that may be created, and the retry topics of those in `retried`, with one write
    /// for all. Those that are over the limit are left out: whoever uses them is refused.
    pub(crate) fn make_groups(&self, names: &[&str], retried: &[&str]) -> Result<(), Refusal> {
        let limit = usize::try_from(self.live.auto_create_group_limit()).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(self.groups.count());
        let new = names.iter().copied().filter(|name| {
            let is_legal = admission::group_name(name).is_ok();
            is_legal && !self.groups.contains(name)
        });
        let new: Vec<&str> = new.take(room).collect();
        if !self.live.auto_create_subscription_group() {
            return Ok(());
        }
        if !new.is_empty() {
            tracing::info!(count = new.len(), groups = ?new, "made consumer groups at their first use");
            self.groups.make_all(&new)?;
        }
        let topics = retried.iter().filter_map(|name| {
            let group = self.groups.get(name)?;
            Some(both_ways(
                &admission::retry_topic(name),
                group.retry_queue_nums,
                0,
            ))
        });
        if self.topics.add_all(topics.collect())? {
            self.announcements.changed();
        }
        Ok(())
    }

    /// Finds a group's retry topic, or creates it.
    pub(crate) fn retry_topic(&self, group: &str, queues: i32, unit: i32) -> Result<Arc<Topic>, Refusal> {
        self.group_topic(&admission::retry_topic(group), queues, unit)
    }

    /// Finds a group's dead-letter topic, or creates it.
    pub(crate) fn dead_letter_topic(&self, group: &str) -> Result<Arc<Topic>, Refusal> {
        self.group_topic(&admission::dead_letter_topic(group), 1, 0)
    }

    /// Finds the retry topic of pops, or creates it. With `enableRetryTopicV2` its name contains a `+`, which clients
    /// may not use.
    pub(crate) fn pop_retry_topic(&self, name: &str, group: &str) -> Result<Arc<Topic>, Refusal> {
        let (topic, made) = self.topics.get_or_put(name, || both_ways(name, 1, 0))?;
        if made {
            self.announcements.changed();
            self.offsets.commit(group, name, 0, 0);
        }
        Ok(topic)
    }

    fn group_topic(&self, name: &str, queues: i32, unit: i32) -> Result<Arc<Topic>, Refusal> {
        if let Some(known) = self.topics.get(name) {
            return Ok(known);
        }
        admission::topic_name(name)?;
        let (topic, made) = self.topics.get_or_put(name, || both_ways(name, queues, unit))?;
        if made {
            self.announcements.changed();
        }
        Ok(topic)
    }
}

/// Whether the limit for automatic creation is reached.
fn is_reached(limit: i32, count: usize) -> bool {
    usize::try_from(limit).is_ok_and(|limit| count >= limit)
}

fn both_ways(name: &str, queues: i32, topic_sys_flag: i32) -> TopicConfig {
    TopicConfig {
        topic_sys_flag,
        ..TopicConfig::new(name, queues, PERM_READ | PERM_WRITE)
    }
}
