//! The faulty link: its effect on requests and answers.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, ClientOptions, Direction, FaultyLink, NetError, Passage, ServerOptions};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(100);

struct Through {
    server: Running,
    link: FaultyLink,
    client: Client,
    at: String,
}

impl Through {
    async fn start() -> Self {
        let server = Running::start(ServerOptions::default());
        let link = FaultyLink::start(server.address).await.unwrap();
        let at = link.address().to_string();
        Self {
            server,
            link,
            client: client(ClientOptions::default()),
            at,
        }
    }

    async fn ask(&self, code: i32, limit: Duration) -> Result<Command, NetError> {
        self.client.request(&self.at, ask(code, b"x"), limit).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_leave_the_requests_alone_and_end_by_a_reset() {
    let through = Through::start().await;
    assert_eq!(through.ask(ECHO, SECOND).await.unwrap().code, 0);
    through
        .link
        .change(Direction::Answers, |way| way.passage = Passage::Drop);
    let error = through.ask(HOLD, SHORT).await.unwrap_err();
    assert!(matches!(error, NetError::Timeout { sent: true, .. }), "{error}");
    assert_eq!(through.server.seen.held(), 1, "the request arrived");
    through.link.heal();
    let client = through.client.clone();
    assert!(pyrmq_testkit::eventually(|| client.connected().is_empty()).await);
    assert_eq!(through.ask(ECHO, SECOND).await.unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_direction_is_held_back_and_arrives_later() {
    let through = Through::start().await;
    through
        .link
        .change(Direction::Requests, |way| way.passage = Passage::Hold);
    let error = through.ask(HOLD, SHORT).await.unwrap_err();
    assert!(matches!(error, NetError::Timeout { .. }), "{error}");
    assert_eq!(through.server.seen.held(), 0, "no request arrived");
    through.link.flow();
    let seen = through.server.seen.clone();
    assert!(pyrmq_testkit::eventually(|| seen.held() == 1).await);
    assert_eq!(through.ask(ECHO, SECOND).await.unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_makes_answers_late_and_not_fewer() {
    let through = Through::start().await;
    through.ask(ECHO, SECOND).await.unwrap();
    through.link.change(Direction::Answers, |way| way.delay = SHORT);
    let began = Instant::now();
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let (client, at) = (through.client.clone(), through.at.clone());
            tokio::spawn(async move { client.request(&at, ask(ECHO, b"x"), SECOND).await })
        })
        .collect();
    for one in asked {
        one.await.unwrap().unwrap();
    }
    assert!(began.elapsed() >= SHORT);
    assert!(
        began.elapsed() < SHORT * 40,
        "side by side: {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_needs_its_time_for_many_bytes() {
    let through = Through::start().await;
    through
        .link
        .change(Direction::Answers, |way| way.rate = Some(100_000));
    let began = Instant::now();
    let big = ask(BIG, b"").with_field("bytes", "30000");
    let answer = through.client.request(&through.at, big, SECOND).await.unwrap();
    assert_eq!(answer.body.unwrap().len(), 30_000);
    assert!(
        began.elapsed() >= Duration::from_millis(290),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_refuses_keeps_its_port() {
    let through = Through::start().await;
    through.ask(ECHO, SECOND).await.unwrap();
    through.link.refuse(true);
    through.link.settle().await;
    let error = TcpStream::connect(through.link.address()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let mut error = through.ask(ECHO, SHORT).await.unwrap_err();
    if !matches!(error, NetError::Connect { .. }) {
        // It was sent on the connection before, whose end the client had not seen yet.
        error = through.ask(ECHO, SHORT).await.unwrap_err();
    }
    assert!(matches!(error, NetError::Connect { .. }), "{error}");
    through.link.heal();
    through.link.settle().await;
    assert!(
        TcpStream::connect(through.link.address()).await.is_err(),
        "it refuses until told"
    );
    through.link.refuse(false);
    through.link.settle().await;
    assert_eq!(through.ask(ECHO, SECOND).await.unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_link_answers_sends_itself_and_lets_the_rest_through() {
    let through = Through::start().await;
    through.ask(ECHO, SECOND).await.unwrap();
    through.link.busy(Duration::from_mins(1));
    let mut asked = Vec::new();
    for n in 0..300 {
        let code = [ECHO, request::SEND_MESSAGE_V2, BIG][n % 3];
        let (client, at) = (through.client.clone(), through.at.clone());
        let command = ask(code, b"x").with_field("bytes", &(n * 1000).to_string());
        asked.push((
            code,
            tokio::spawn(async move { client.request(&at, command, SECOND).await }),
        ));
    }
    for (code, one) in asked {
        let answer = one.await.unwrap().unwrap();
        if code == request::SEND_MESSAGE_V2 {
            assert_eq!(answer.code, response::SYSTEM_BUSY);
            assert!(
                answer
                    .remark
                    .unwrap()
                    .starts_with("[TIMEOUT_CLEAN_QUEUE]broker busy")
            );
        } else {
            assert_eq!(answer.code, 0);
        }
    }
    through.link.heal();
    let answer = through.ask(request::SEND_MESSAGE_V2, SECOND).await.unwrap();
    assert_ne!(answer.code, response::SYSTEM_BUSY, "the server answers again");
    assert_eq!(
        through.client.stats().snapshot().opened,
        1,
        "one connection all the time"
    );
}
