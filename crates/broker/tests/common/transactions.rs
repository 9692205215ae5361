//! Ends of transactions, and a producer that the broker asks about them.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{LIMIT, Site, number};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::net::{Client, ClientOptions, Peer, Processor, ProcessorTable, Reply};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

pub(crate) const COMMIT: &str = "8";
pub(crate) const ROLLBACK: &str = "12";

/// Ends the half message that this send's answer names.
pub(crate) fn end(sent: &Command, id: &str, how: &str) -> Command {
    let stored: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    end_at(id, how, number(sent, "queueOffset"), stored.offset)
}

/// Ends the half message with this offset in its queue and this position in the log.
pub(crate) fn end_at(id: &str, how: &str, queue_offset: i64, position: i64) -> Command {
    let (queue_offset, position) = (queue_offset.to_string(), position.to_string());
    [
        ("producerGroup", "producers"),
        ("tranStateTableOffset", &queue_offset),
        ("commitLogOffset", &position),
        ("commitOrRollback", how),
        ("fromTransactionCheck", "false"),
        ("msgId", id),
        ("transactionId", id),
    ]
    .into_iter()
    .fold(
        Command::request(request::END_TRANSACTION),
        |command, (key, value)| command.with_field(key, value),
    )
}

/// A producer that receives checks.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) questions: Mutex<Vec<Command>>,
}

impl Asked {
    pub(crate) fn last(&self) -> Option<Command> {
        self.questions.lock().unwrap().last().cloned()
    }
}

impl Processor for Asked {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        assert!(reply.is_oneway());
        self.questions.lock().unwrap().push(request);
    }
}

pub(crate) async fn producer(site: &Site) -> (Client, Arc<Asked>) {
    let asked: Arc<Asked> = Arc::default();
    let processor: Arc<dyn Processor> = asked.clone();
    let mut table = ProcessorTable::new();
    table.native(&[request::CHECK_TRANSACTION_STATE], &processor);
    let client = Client::new(&Handle::current(), ClientOptions::default(), Arc::new(table)).unwrap();
    let beat = r#"{"clientID":"c","producerDataSet":[{"groupName":"producers"}],"consumerDataSet":[]}"#;
    let command = Command::request(request::HEART_BEAT).with_body(beat.as_bytes());
    client.request(&site.address, command, LIMIT).await.unwrap();
    (client, asked)
}
