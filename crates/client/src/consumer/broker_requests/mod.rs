//! Requests of brokers to a consumer: to rebalance (40), to continue at other offsets (220), for its offsets (221), for
//! its state (307), and to handle one message (309) (Apache `ClientRemotingProcessor`).

mod running_info;

use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::ConsumerShared;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, GetConsumerStatusBody, MessageQueue, ResetOffsetBody};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply};
use std::sync::{Arc, OnceLock, Weak};

/// Answers brokers. The consumer is set later, because its connections are created first.
#[derive(Debug, Default)]
pub(crate) struct BrokerRequests {
    consumer: OnceLock<Weak<ConsumerShared>>,
}

impl BrokerRequests {
    /// Registers the codes that a consumer answers.
    pub(crate) fn register(table: &mut ProcessorTable) -> Arc<Self> {
        let broker_requests = Arc::new(Self::default());
        let processor: Arc<dyn Processor> = broker_requests.clone();
        table.native(
            &[
                request::NOTIFY_CONSUMER_IDS_CHANGED,
                request::RESET_CONSUMER_CLIENT_OFFSET,
                request::GET_CONSUMER_STATUS_FROM_CLIENT,
                request::GET_CONSUMER_RUNNING_INFO,
                request::CONSUME_MESSAGE_DIRECTLY,
            ],
            &processor,
        );
        broker_requests
    }

    /// Names the consumer that the requests are for.
    pub(crate) fn set_consumer(&self, consumer: &Arc<ConsumerShared>) {
        self.consumer.get_or_init(|| Arc::downgrade(consumer));
    }
}

impl Processor for BrokerRequests {
    fn process(&self, command: Command, _peer: &Peer, reply: Reply) {
        let Some(consumer) = self.consumer.get().and_then(Weak::upgrade) else {
            return reply.silence();
        };
        match command.code {
            request::GET_CONSUMER_STATUS_FROM_CLIENT => reply.send(consumer.status()),
            request::GET_CONSUMER_RUNNING_INFO => consumer.send_running_info(command, reply),
            request::CONSUME_MESSAGE_DIRECTLY => consumer.consume_directly(&command, reply),
            request::RESET_CONSUMER_CLIENT_OFFSET => {
                consumer.reset(&command.body.unwrap_or_default());
                reply.silence();
            }
            _ => {
                consumer.rebalance.notify_one();
                reply.silence();
            }
        }
    }
}

impl ConsumerShared {
    /// Continues at the offsets that an administrator has chosen, and commits them. Fetched messages are dropped, and
    /// outcomes of messages that listeners have are ignored.
    fn reset(self: &Arc<Self>, body: &Bytes) {
        let wanted = match ResetOffsetBody::decode(body) {
            Ok(wanted) => wanted.offset_table,
            Err(error) => return tracing::warn!(%error, "a broker's reset of offsets cannot be read"),
        };
        for (queue, offset) in wanted {
            let key = Arc::new(QueueKey {
                topic: queue.topic.as_str().into(),
                broker: queue.broker_name.as_str().into(),
                queue_id: queue.queue_id,
            });
            let generation = self.next_generation();
            {
                let mut state = self.state();
                let Some(queue) = state.queues.get_mut(&key) else {
                    continue;
                };
                queue.restart(offset, generation);
                queue.committed = -1;
            }
            tracing::info!(%key, offset, "offset reset by an administrator");
            self.pull(&key);
        }
        let shared = self.clone();
        self.tracker.spawn(async move {
            if let Err(error) = shared.commit_changed().await {
                tracing::warn!(%error, "reset positions not committed");
            }
        });
    }

    /// How far this consumer has come in each of its queues.
    fn status(&self) -> Command {
        let state = self.state();
        let queues = state.queues.values();
        let message_queue =
            |key: &QueueKey| MessageQueue::new(key.topic.as_ref(), key.broker.as_ref(), key.queue_id);
        let body = GetConsumerStatusBody {
            message_queue_table: queues
                .map(|queue| (message_queue(&queue.key), queue.done))
                .collect(),
            ..GetConsumerStatusBody::default()
        };
        Command::response(response::SUCCESS).with_body(Bytes::from(body.encode()))
    }
}
