//! Which sends are accepted, and the topics and groups that they create.

use crate::admission;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::tables::topic_creators::NewTopic;
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{SubscriptionGroupConfig, TopicConfig};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::SendMessageRequestHeader;
use pyrmq_remoting::names::{self, PERM_READ, PERM_WRITE};
use pyrmq_remoting::net::Peer;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The parts of a group that a request creates by using it; existing ones are left as they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NewGroup {
    pub(crate) name: String,
    /// The flags of the retry topic, which the group needs once its members get messages again; `None`: it exists.
    pub(crate) retry_topic: Option<i32>,
    /// Whether the group needs its dead-letter topic, because a message has no tries left.
    pub(crate) dead_letters: bool,
}

impl NewGroup {
    /// A group without topics of its own.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            retry_topic: None,
            dead_letters: false,
        }
    }

    /// Whether the request creates a topic.
    pub(crate) fn has_topics(&self) -> bool {
        self.retry_topic.is_some() || self.dead_letters
    }
}

impl BrokerContext {
    /// Refuses an invalid send, and creates its topic where that is allowed (Apache `msgCheck`).
    pub(crate) fn admit(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<Arc<Topic>, Refusal> {
        let known = self.find_topic(header, request)?;
        self.admit_to(known, header, request, peer)
    }

    /// Refuses a send that is invalid whatever its topic, and finds the topic; `None`: it does not exist.
    pub(crate) fn find_topic(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
    ) -> Result<Option<Arc<Topic>>, Refusal> {
        self.check_writeable()?;
        admission::sizes(
            request.body.as_ref().map_or(0, bytes::Bytes::len),
            self.store.live().max_message_bytes(),
            header.properties.map_or(0, str::len),
        )?;
        Ok(self.topics.get(header.topic))
    }

    /// Refuses an invalid send whose topic was looked up, and creates the topic if it is unknown; see [`Self::admit`].
    pub(crate) fn admit_to(
        &self,
        known: Option<Arc<Topic>>,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<Arc<Topic>, Refusal> {
        // A name in the table is valid, so only unknown names are checked.
        let topic = match known {
            Some(topic) => topic,
            None => self.create_topic(header, request, peer)?,
        };
        admission::open_to_clients(&topic.topic_name)?;
        admission::storable(&topic.topic_name, self.store.live().max_message_bytes())?;
        if !admission::is_writeable(topic.perm) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!(
                    "the topic[{}] sending message is forbidden: its perm",
                    topic.topic_name
                ),
            ));
        }
        if header.queue_id >= topic.queue_nums() {
            return Err(Refusal::new(
                response::INVALID_PARAMETER,
                format!(
                    "request queueId[{}] is illegal, the topic {} has {} write queues and {} read queues",
                    header.queue_id, topic.topic_name, topic.write_queue_nums, topic.read_queue_nums
                ),
            ));
        }
        Ok(topic)
    }

    fn create_topic(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<Arc<Topic>, Refusal> {
        let (name, NewTopic { config, creator }) = (header.topic, self.new_topic(header, request, peer)?);
        let create = || self.topics.get_or_put(name, || config);
        let (topic, created) = match creator {
            Some(_) => self.create_as_user(request, peer, &[name], create)?,
            None => create()?,
        };
        if created {
            tracing::info!(topic = name, queues = topic.write_queue_nums, peer = %peer.remote(), "created a topic on its first send");
            self.announcements.changed();
        }
        Ok(topic)
    }

    /// The topic that a send to an unknown topic waits for. `None`: the send may not create it, and its row refuses it.
    pub(crate) fn awaited_topic(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Option<NewTopic> {
        let topic = self.new_topic(header, request, peer).ok()?;
        if let Some((user, limit)) = &topic.creator {
            self.creators.check((user, *limit), 1, &self.topics).ok()?;
        }
        Some(topic)
    }

    /// The topic that a send to an unknown topic creates. An error says why it may not.
    fn new_topic(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
    ) -> Result<NewTopic, Refusal> {
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
        let queues = header.default_topic_queue_nums;
        let config = self
            .topics
            .from_template(name, header.default_topic, queues, unit);
        let creator = self.creator(request, peer).filter(|_| !names::is_retry(name));
        Ok(NewTopic {
            config: match config {
                Some(config) => config,
                None if names::is_retry(name) => both_ways(name, 1, unit),
                None => return Err(Refusal::no_topic(name)),
            },
            creator: creator.map(|(user, limit)| (user.to_owned(), limit)),
        })
    }

    /// Refuses if the broker's own permission excludes writing.
    pub(crate) fn check_writeable(&self) -> Result<(), Refusal> {
        if admission::is_writeable(self.live.broker_permission()) {
            return Ok(());
        }
        Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] sending message is forbidden: brokerPermission of {}",
                self.options.broker_ip1, self.options.broker_name
            ),
        ))
    }

    /// The queue that a send names, or the next one if it names none.
    pub(crate) fn choose_queue(&self, topic: &TopicConfig, requested: i32) -> Result<i32, Refusal> {
        if requested >= 0 {
            return Ok(requested);
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

    /// Whether a request may create this group, which does not exist, by using it.
    pub(crate) fn may_create_group(&self, name: &str) -> bool {
        self.live.auto_create_subscription_group()
            && admission::group_name(name).is_ok()
            && !is_reached(self.live.auto_create_group_limit(), self.groups.count())
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
        tracing::info!(group = name, "created a consumer group on its first use");
        self.groups.get_or_create(name)
    }

    /// Creates those of these groups that may be created, with one write for all, and then their topics. Those above
    /// the limit are left out: requests that use them are refused.
    pub(crate) fn create_groups(&self, groups: &BTreeSet<&NewGroup>) -> Result<(), Refusal> {
        let names: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let limit = usize::try_from(self.live.auto_create_group_limit()).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(self.groups.count());
        let new = names.into_iter().filter(|name| {
            let is_legal = admission::group_name(name).is_ok();
            is_legal && !self.groups.contains(name)
        });
        let new: Vec<&str> = new.take(room).collect();
        if !new.is_empty() && self.live.auto_create_subscription_group() {
            tracing::info!(count = new.len(), groups = ?new, "created consumer groups on their first use");
            self.groups.create_all(&new)?;
        }
        let mut topics = Vec::new();
        for NewGroup {
            name,
            retry_topic,
            dead_letters,
        } in groups
        {
            let Some(group) = self.groups.get(name) else {
                continue;
            };
            if let Some(flags) = *retry_topic {
                let retries = names::retry_topic(name);
                topics.push(both_ways(&retries, group.retry_queue_nums, flags));
            }
            if *dead_letters {
                topics.push(both_ways(&names::dead_letter_topic(name), 1, 0));
            }
        }
        topics.retain(|topic| {
            let name = &topic.topic_name;
            self.topics.get(name).is_none() && admission::topic_name(name).is_ok()
        });
        if !topics.is_empty() && self.topics.add_all(topics)? {
            self.announcements.changed();
        }
        Ok(())
    }

    /// Creates those of these topics that may be created, with one write for all. The others are left out: a send to
    /// one of them is refused.
    pub(crate) fn create_topics(&self, topics: Vec<NewTopic>) -> Result<(), Refusal> {
        let limit = usize::try_from(self.live.auto_create_topic_limit()).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(self.topics.count());
        let exists = |topic: &str| self.topics.get(topic).is_some();
        let mut names = HashSet::new();
        let new = topics.into_iter().filter(|topic| {
            let name = &topic.config.topic_name;
            !exists(name) && names.insert(name.clone())
        });
        let new: Vec<NewTopic> = new.take(room).collect();
        let add = |configs: Vec<TopicConfig>| {
            let names: Vec<String> = (configs.iter()).map(|config| config.topic_name.clone()).collect();
            if self.topics.add_all(configs)? {
                tracing::info!(count = names.len(), topics = ?names, "created topics on first send");
                self.announcements.changed();
            }
            Ok(())
        };
        if new.is_empty() {
            return Ok(());
        }
        self.creators.create_all(new, &self.topics, add)
    }

    /// Finds a group's retry topic, or creates it.
    pub(crate) fn retry_topic(&self, group: &str, queues: i32, unit: i32) -> Result<Arc<Topic>, Refusal> {
        self.group_topic(&names::retry_topic(group), queues, unit)
    }

    /// Finds a group's dead-letter topic, or creates it.
    pub(crate) fn dead_letter_topic(&self, group: &str) -> Result<Arc<Topic>, Refusal> {
        self.group_topic(&names::dead_letter_topic(group), 1, 0)
    }

    /// Finds the retry topic of pops, or creates it. With `enableRetryTopicV2` its name contains a `+`, which clients
    /// may not use.
    pub(crate) fn pop_retry_topic(&self, name: &str, group: &str) -> Result<Arc<Topic>, Refusal> {
        let (topic, created) = self.topics.get_or_put(name, || both_ways(name, 1, 0))?;
        if created {
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
        let (topic, created) = self.topics.get_or_put(name, || both_ways(name, queues, unit))?;
        if created {
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
