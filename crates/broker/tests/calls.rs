//! Requests of the broker to clients on their own connections: replies (326), forwarded queries (307, 309).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, number, options, properties, send};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, ClientOptions, Peer, Processor, ProcessorTable, Reply};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

/// A client that answers requests and records them.
fn answering(codes: &[i32]) -> (Client, Arc<Mutex<Vec<Command>>>) {
    let asked: Arc<Mutex<Vec<Command>>> = Arc::default();
    let keep = asked.clone();
    let answer: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, reply: Reply| {
        keep.lock().unwrap().push(request);
        reply.send(Command::response(response::SUCCESS).with_body("mine"));
    });
    let mut table = ProcessorTable::new();
    table.native(codes, &answer);
    let client = Client::new(&Handle::current(), ClientOptions::default(), Arc::new(table)).unwrap();
    (client, asked)
}

fn heartbeat() -> Command {
    let body = r#"{"clientID":"me","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionDataSet":[]}],"producerDataSet":[{"groupName":"P"}]}"#;
    Command::request(request::HEART_BEAT).with_body(body)
}

fn reply_to(client: &str) -> Command {
    let text = properties(&[
        ("MSG_TYPE", "reply"),
        ("CORRELATION_ID", "c1"),
        ("REPLY_TO_CLIENT", client),
    ]);
    let mut command = send("DefaultCluster_REPLY_TOPIC", 0, b"the reply", &text);
    command.code = request::SEND_REPLY_MESSAGE_V2;
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_reaches_the_requester_before_it_is_answered() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let (requester, asked) = answering(&[request::PUSH_REPLY_MESSAGE_TO_CLIENT]);
    requester
        .request(&site.address, heartbeat(), LIMIT)
        .await
        .unwrap();
    let answer = site.ask_ok(reply_to("me")).await;
    assert_eq!(answer.fields.get("msgId"), Some("0"));
    assert_eq!(number(&answer, "queueOffset"), 0);
    let pushed = asked.lock().unwrap().remove(0);
    assert_eq!(pushed.body.as_deref(), Some(&b"the reply"[..]));
    assert_eq!(pushed.fields.get("storeHost"), Some(site.address.as_str()));
    let text = pushed.fields.get("properties").unwrap();
    assert!(
        text.contains("CORRELATION_ID\u{1}c1\u{2}") && text.contains("PUSH_REPLY_TIME\u{1}"),
        "{text}"
    );
    let nobody = site.ask(reply_to("nobody")).await;
    assert_eq!(nobody.code, response::SYSTEM_ERROR);
    assert!(nobody.remark.unwrap().contains("nobody"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_passed_on_to_the_consumer() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = site.send_ok("T", b"consume me", "").await;
    let codes = [
        request::GET_CONSUMER_RUNNING_INFO,
        request::CONSUME_MESSAGE_DIRECTLY,
    ];
    let (consumer, asked) = answering(&codes);
    consumer.request(&site.address, heartbeat(), LIMIT).await.unwrap();
    let ask = |code, client: &str| {
        let command = Command::request(code)
            .with_field("consumerGroup", "G")
            .with_field("clientId", client);
        command.with_field("msgId", sent.fields.get("msgId").unwrap())
    };
    for code in codes {
        assert_eq!(
            site.ask_ok(ask(code, "me")).await.body.as_deref(),
            Some(&b"mine"[..])
        );
    }
    let direct = asked.lock().unwrap().remove(1);
    let record = pyrmq_remoting::message::Record::decode(direct.body.as_deref().unwrap()).unwrap();
    assert_eq!(record.body, b"consume me");
    let offline = site.ask(ask(request::GET_CONSUMER_RUNNING_INFO, "you")).await;
    assert_eq!(offline.code, response::SYSTEM_ERROR);
    site.stop().await;
}
