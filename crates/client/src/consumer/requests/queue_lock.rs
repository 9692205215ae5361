//! Locks that brokers keep for orderly consumers: one client of a group at a time has a queue (requests 41 and 42).

use crate::consumer::process_queue::QueueKey;
use crate::error::ClientError;
use crate::session::options::ClientOptions;
use crate::session::routes::Routes;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{
    Body, LockBatchRequestBody, LockBatchResponseBody, MessageQueue, UnlockBatchRequestBody,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Requests locks from brokers and gives them back.
#[derive(Debug, Clone)]
pub(crate) struct QueueLocks {
    client: Client,
    routes: Routes,
    group: String,
    client_id: String,
    timeout: Duration,
}

impl QueueLocks {
    pub(crate) fn new(client: Client, routes: Routes, options: &ClientOptions, client_id: String) -> Self {
        Self {
            client,
            routes,
            group: options.group.clone(),
            client_id,
            timeout: options.request_timeout,
        }
    }

    /// Requests locks of these queues from all brokers concurrently. Returns each queue with whether it is locked now,
    /// without those of brokers that do not answer.
    pub(crate) async fn lock(&self, queues: &[Arc<QueueKey>]) -> Vec<(Arc<QueueKey>, bool)> {
        let mut requests = JoinSet::new();
        for (broker, queues) in by_broker(queues) {
            let locks = self.clone();
            requests.spawn(async move {
                let locked = locks.lock_on(&broker, &queues).await;
                locked.inspect_err(|error| tracing::warn!(%broker, %error, "queues not locked"))
            });
        }
        let mut answered = Vec::new();
        while let Some(outcome) = requests.join_next().await {
            if let Ok(Ok(queues)) = outcome {
                answered.extend(queues);
            }
        }
        answered
    }

    async fn lock_on(
        &self,
        broker: &str,
        queues: &[Arc<QueueKey>],
    ) -> Result<Vec<(Arc<QueueKey>, bool)>, ClientError> {
        const WHAT: &str = "a lock of queues";
        let body = LockBatchRequestBody {
            client_id: self.client_id.clone(),
            consumer_group: self.group.clone(),
            mq_set: queues.iter().map(|queue| message_queue(queue)).collect(),
            ..LockBatchRequestBody::default()
        };
        let (answer, address) = self
            .request(WHAT, broker, request::LOCK_BATCH_MQ, body.encode())
            .await?;
        let body = LockBatchResponseBody::decode(&answer.body.unwrap_or_default());
        let locked = body.map_err(|source| ClientError::UnreadableAnswer {
            what: WHAT,
            address,
            source,
        })?;
        let is_locked = |queue: &Arc<QueueKey>| locked.locked.contains(&message_queue(queue));
        Ok(queues
            .iter()
            .map(|queue| (queue.clone(), is_locked(queue)))
            .collect())
    }

    /// Gives locks back; one that cannot be given back expires after 60 s.
    pub(crate) async fn unlock(&self, queues: &[Arc<QueueKey>]) {
        const WHAT: &str = "an unlock of queues";
        let mut requests = JoinSet::new();
        for (broker, queues) in by_broker(queues) {
            let locks = self.clone();
            requests.spawn(async move {
                let body = UnlockBatchRequestBody {
                    client_id: locks.client_id.clone(),
                    consumer_group: locks.group.clone(),
                    mq_set: queues.iter().map(|queue| message_queue(queue)).collect(),
                    ..UnlockBatchRequestBody::default()
                };
                let code = request::UNLOCK_BATCH_MQ;
                if let Err(error) = locks.request(WHAT, &broker, code, body.encode()).await {
                    tracing::warn!(%broker, %error, "queues stay locked for up to a minute");
                }
            });
        }
        while requests.join_next().await.is_some() {}
    }

    async fn request(
        &self,
        what: &'static str,
        broker: &str,
        code: i32,
        body: Vec<u8>,
    ) -> Result<(Command, String), ClientError> {
        let address = self.routes.master(broker).ok_or_else(|| ClientError::NoMaster {
            broker: broker.to_owned(),
        })?;
        let command = Command::request(code).with_body(Bytes::from(body));
        match self.client.request(&address, command, self.timeout).await {
            Ok(answer) if answer.code == response::SUCCESS => Ok((answer, address)),
            Ok(answer) => Err(ClientError::refused(what, &address, answer.code, answer.remark)),
            Err(source) => Err(ClientError::net(what, address, source)),
        }
    }
}

fn by_broker(queues: &[Arc<QueueKey>]) -> BTreeMap<Arc<str>, Vec<Arc<QueueKey>>> {
    let mut brokers: BTreeMap<Arc<str>, Vec<Arc<QueueKey>>> = BTreeMap::new();
    for queue in queues {
        brokers
            .entry(queue.broker.clone())
            .or_default()
            .push(queue.clone());
    }
    brokers
}

fn message_queue(queue: &QueueKey) -> MessageQueue {
    MessageQueue::new(&*queue.topic, &*queue.broker, queue.queue_id)
}
