//! Measures nanoseconds of this thread's processor time to sign, read and check one frame, each beside the same work
//! without a signature: `cargo bench -p pyrmq-auth`. Prints one JSON object per line.
//!
//! The frame is what a producer sends for a body of this size; the user has the policies of `pyrmq secure init`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement may panic and prints"
)]

use bytes::BytesMut;
use pyrmq_auth::{BegunSignature, Credentials, Guard, Rules, Secret, Switches};
use pyrmq_remoting::Command;
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::header::send::SendMessageRequestHeader;
use pyrmq_remoting::header::{Head, HeadWriter};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Bodies: none, a small message, a batch.
const BODIES: [usize; 3] = [0, 128, 16_384];
/// Number of time spans of one measurement; the shortest counts, since others share the processor.
const ROUNDS: u32 = 400;
/// Frames of one span: short enough that some span is not interrupted.
const FRAMES: u32 = 64;
const PROPERTIES: &str = "UNIQ_KEY\u{1}7F0000010D2B18B4AAC20D3B4C5E0001\u{2}WAIT\u{1}true\u{2}";
const RULES: &str = r#"{"users":[{"username":"app","password":"a-secret-of-thirty-two-characters"}],
  "acls":[{"subject":"User:app","policies":[{"policyType":"Custom","entries":[
    {"resource":"Topic:*","actions":["Pub","Sub","Get"],"decision":"Allow"},
    {"resource":"Group:*","actions":["Sub","Get"],"decision":"Allow"}]}]}]}"#;

fn main() {
    let credentials =
        Credentials::new("app", &Secret::new("a-secret-of-thirty-two-characters"), None).unwrap();
    let rules = Rules::parse(RULES.as_bytes()).unwrap();
    let guard = Guard::new("DefaultCluster", Switches { authorization: true }, rules);
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for size in BODIES {
        let body = vec![7; size];
        let mut out = Vec::with_capacity(1024);
        let (fields, _) = begun(None);
        let plain = shortest(|| write(black_box(&mut out), &body, &fields, None));
        out.extend_from_slice(&body);
        let plain_read = shortest(|| read(&out));
        let (fields, signature) = begun(Some(&credentials));
        let signed = shortest(|| write(black_box(&mut out), &body, &fields, signature.as_ref()));
        print("write", size, plain, signed);

        out.extend_from_slice(&body);
        print("read", size, plain_read, shortest(|| read(&out)));
        let command = decoded(&out);
        let checked = shortest(|| {
            black_box(guard.refusal(black_box(&command), source));
        });
        assert!(guard.refusal(&command, source).is_none());
        print("check", size, Duration::ZERO, checked);
    }
}

/// The fields that all messages to a topic begin with, which a producer writes and hashes once.
fn begun(credentials: Option<&Credentials>) -> (Vec<u8>, Option<BegunSignature>) {
    let (header, mut out) = (header(), Vec::new());
    let mut head = HeadWriter::new(&mut out, Head::default());
    let signature = credentials
        .map(|credentials| credentials.begin_sorted(|fields| header.write_shared(fields), &mut head));
    if signature.is_none() {
        header.write_shared(&mut head);
    }
    (head.into_fields().unwrap(), signature)
}

fn header() -> SendMessageRequestHeader<'static> {
    SendMessageRequestHeader {
        producer_group: "group-of-producers",
        topic: "orders-of-today",
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 3,
        born_timestamp: 1_760_000_000_000,
        properties: Some(PROPERTIES),
        reconsume_times: Some(0),
        broker_name: Some("broker-a"),
        ..SendMessageRequestHeader::default()
    }
}

fn write(out: &mut Vec<u8>, body: &[u8], fields: &[u8], signature: Option<&BegunSignature>) {
    out.clear();
    let header = header();
    let start = Head {
        code: 310,
        ..Head::default()
    };
    let mut head = HeadWriter::new(out, start);
    head.fields(fields);
    match signature {
        Some(signature) => signature.sign_sorted(|fields| header.write_own(fields), body, &mut head),
        None => header.write_own(&mut head),
    }
    head.finish(body.len()).unwrap();
}

fn read(frame: &[u8]) {
    drop(black_box(decoded(black_box(frame))));
}

fn decoded(frame: &[u8]) -> Command {
    let mut input = BytesMut::from(frame);
    frame::decode(&mut input, &Limits::default()).unwrap().unwrap()
}

fn shortest(mut frame: impl FnMut()) -> Duration {
    let span = || {
        let begun = Instant::now();
        (0..FRAMES).for_each(|_| frame());
        begun.elapsed() / FRAMES
    };
    std::iter::repeat_with(span)
        .take(ROUNDS as usize)
        .min()
        .unwrap_or_default()
}

fn print(what: &str, body: usize, plain: Duration, signed: Duration) {
    println!(
        "{{\"what\": \"{what}\", \"body\": {body}, \"plain_ns\": {}, \"signed_ns\": {}}}",
        plain.as_nanos(),
        signed.as_nanos()
    );
}
