//! Offsets that brokers keep: of queues (29, 30, 31) and of groups (14, 15).

use crate::consumer::process_queue::QueueKey;
use crate::error::ClientError;
use crate::session::options::ClientOptions;
use crate::session::routes::{Routes, TopicRoute};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::offset::{
    GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader, QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
};
use pyrmq_remoting::net::Client;
use std::sync::Arc;
use std::time::Duration;

/// How a broker's remark begins when it ignores a commit; nothing else in the answer differs (Apache
/// `ConsumerManageProcessor#updateConsumerOffset`).
const WAS_RESET: &str = "Offset has been previously reset";

/// An offset that brokers know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WhichOffset {
    /// The first that is still there.
    First,
    /// The one that the next message gets.
    Last,
    /// The group's; -1 when it has none.
    Committed,
    /// The first message stored at this time (ms) or later.
    At(i64),
}

/// Asks the brokers of queues.
#[derive(Debug, Clone)]
pub struct Offsets {
    client: Client,
    routes: Routes,
    group: String,
    timeout: Duration,
    /// No request goes to a slave if the master is unreachable.
    only_masters: bool,
}

impl Offsets {
    pub(crate) fn new(client: Client, routes: Routes, options: &ClientOptions) -> Self {
        Self {
            client,
            routes,
            group: options.group.clone(),
            timeout: options.request_timeout,
            only_masters: false,
        }
    }

    /// Asks only masters: slaves learn of topics and commits up to a minute later (Apache `SlaveSynchronize`). While a
    /// master is unreachable, the calls fail with `NoMaster`.
    pub(crate) fn of_masters(&self) -> Self {
        Self {
            only_masters: true,
            ..self.clone()
        }
    }

    /// The first offset that is still there.
    pub async fn first(&self, key: &QueueKey) -> Result<i64, ClientError> {
        let header = GetMinOffsetRequestHeader {
            topic: &key.topic,
            queue_id: key.queue_id,
        };
        let command = Command::request(request::GET_MIN_OFFSET).with_header(&header);
        self.offset("a first offset", key, command).await
    }

    /// The offset that the next message will get.
    pub async fn last(&self, key: &QueueKey) -> Result<i64, ClientError> {
        let header = GetMaxOffsetRequestHeader {
            topic: &key.topic,
            queue_id: key.queue_id,
            ..GetMaxOffsetRequestHeader::default()
        };
        let command = Command::request(request::GET_MAX_OFFSET).with_header(&header);
        self.offset("a last offset", key, command).await
    }

    /// The first message stored at this time (ms) or later.
    pub async fn at_time(&self, key: &QueueKey, timestamp_ms: i64) -> Result<i64, ClientError> {
        let header = SearchOffsetRequestHeader {
            topic: &key.topic,
            queue_id: key.queue_id,
            timestamp: timestamp_ms,
            boundary_type: Some("LOWER"),
            ..SearchOffsetRequestHeader::default()
        };
        let command = Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP).with_header(&header);
        self.offset("an offset by time", key, command).await
    }

    /// The group's offset; `None` if it has none.
    pub async fn committed(&self, key: &QueueKey) -> Result<Option<i64>, ClientError> {
        self.committed_within(key, self.timeout).await
    }

    /// The group's offset; `None` if it has none, which only a master can know: a slave may not have its commits yet.
    pub(crate) async fn committed_surely(&self, key: &QueueKey) -> Result<Option<i64>, ClientError> {
        match self.of_masters().committed(key).await {
            Err(no_master @ ClientError::NoMaster { .. }) => {
                let of_slave = self.committed(key).await?;
                of_slave.map(Some).ok_or(no_master)
            }
            found => found,
        }
    }

    /// The group's offset, if a broker answers within `timeout`; `None` if the group has none.
    pub(crate) async fn committed_within(
        &self,
        key: &QueueKey,
        timeout: Duration,
    ) -> Result<Option<i64>, ClientError> {
        const WHAT: &str = "a group's offset";
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: &self.group,
            topic: &key.topic,
            queue_id: key.queue_id,
            set_zero_if_not_found: Some(false),
        };
        let command = Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&header);
        let (answer, address) = self.request_within(WHAT, key, command, timeout).await?;
        match answer.code {
            response::SUCCESS => offset_of(WHAT, &address, &answer).map(Some),
            response::QUERY_NOT_FOUND => Ok(None),
            code => Err(ClientError::refused(WHAT, &address, code, answer.remark)),
        }
    }

    /// Commits the group's offset, within this time. False: an administrator has reset the group, so the broker accepts
    /// no offset until a pull has fetched the new one.
    pub async fn commit(&self, key: &QueueKey, offset: i64, timeout: Duration) -> Result<bool, ClientError> {
        const WHAT: &str = "a commit";
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: &self.group,
            topic: &key.topic,
            queue_id: key.queue_id,
            commit_offset: offset,
        };
        let command = Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&header);
        let (answer, address) = self.request_within(WHAT, key, command, timeout).await?;
        match answer.code {
            response::SUCCESS => Ok(!answer.remark.is_some_and(|remark| remark.starts_with(WAS_RESET))),
            code => Err(ClientError::refused(WHAT, &address, code, answer.remark)),
        }
    }

    /// Asks the brokers of the topic until one answers.
    pub(crate) async fn request_any(
        &self,
        what: &'static str,
        topic: &Arc<str>,
        command: Command,
    ) -> Result<(Command, String), ClientError> {
        let route = self.routes.get(topic).await?;
        let mut failure = ClientError::NoQueue {
            topic: topic.to_string(),
            what: "read from",
            reason: "none of its brokers is alive",
        };
        for broker in &route.route.brokers {
            let Some(address) = route.reader_of(&broker.name) else {
                continue;
            };
            match self.client.request(&address, command.clone(), self.timeout).await {
                Ok(answer) => return Ok((answer, address)),
                Err(source) => failure = ClientError::net(what, address, source),
            }
        }
        Err(failure)
    }

    async fn offset(&self, what: &'static str, key: &QueueKey, command: Command) -> Result<i64, ClientError> {
        let (answer, address) = self.request(what, key, command).await?;
        match answer.code {
            response::SUCCESS => offset_of(what, &address, &answer),
            code => Err(ClientError::refused(what, &address, code, answer.remark)),
        }
    }

    async fn request(
        &self,
        what: &'static str,
        key: &QueueKey,
        command: Command,
    ) -> Result<(Command, String), ClientError> {
        self.request_within(what, key, command, self.timeout).await
    }

    async fn request_within(
        &self,
        what: &'static str,
        key: &QueueKey,
        command: Command,
        timeout: Duration,
    ) -> Result<(Command, String), ClientError> {
        let mut route = self.routes.get(&key.topic).await?;
        if self.address_in(&route, key).is_none() {
            // It may have come back since the route was requested.
            let refreshed = tokio::time::timeout(timeout, self.routes.refresh(&key.topic)).await;
            if let Ok(Ok(refreshed)) = refreshed {
                route = refreshed;
            }
        }
        let address = self.address_in(&route, key).ok_or_else(|| {
            if self.only_masters {
                let broker = key.broker.to_string();
                return ClientError::NoMaster { broker };
            }
            ClientError::NoQueue {
                topic: key.topic.to_string(),
                what: "read from",
                reason: "its broker is not in the route: it is down, or has not registered yet",
            }
        })?;
        match self.client.request(&address, command, timeout).await {
            Ok(answer) => Ok((answer, address)),
            Err(source) => Err(ClientError::net(what, address, source)),
        }
    }

    fn address_in(&self, route: &TopicRoute, key: &QueueKey) -> Option<String> {
        if self.only_masters {
            route.master_for(&key.broker)
        } else {
            route.reader_of(&key.broker)
        }
    }
}

fn offset_of(what: &'static str, address: &str, answer: &Command) -> Result<i64, ClientError> {
    let offset = answer.fields.get("offset").and_then(|text| text.parse().ok());
    offset.ok_or_else(|| ClientError::UnreadableAnswer {
        what,
        address: address.to_owned(),
        source: pyrmq_remoting::WireError::MissingField("offset"),
    })
}
