//! Signatures: what is hashed, and what a server takes.

use proptest::prelude::*;
use pyrmq_auth::{Credentials, Secret, verify};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::send::SendMessageRequestHeader;
use pyrmq_remoting::header::{FieldSink, Head, HeadWriter};
use pyrmq_remoting::net::RequestSigner;
use pyrmq_remoting::{Command, frame};

fn secret() -> Secret {
    Secret::new("12345678")
}

#[expect(clippy::unwrap_used, reason = "the secret is not empty")]
fn credentials() -> Credentials {
    Credentials::new("RocketMQ", &secret(), None).unwrap()
}

fn signed(mut command: Command) -> Command {
    credentials().sign(&mut command);
    command
}

#[test]
fn a_signature_is_the_one_that_openssl_computes() {
    // printf 'RocketMQorders7hello' | openssl dgst -sha1 -hmac 12345678 -binary | base64
    let command = Command::request(11)
        .with_field("topic", "orders")
        .with_field("xid", "7")
        .with_body("hello");
    let command = signed(command);
    assert_eq!(
        command.fields.get("Signature"),
        Some("gpXybKf9FTXJTal3VkI1z+9kXFA=")
    );
    assert_eq!(command.fields.get("AccessKey"), Some("RocketMQ"));
}

#[test]
fn a_signature_covers_every_field_and_the_body() {
    let command = signed(Command::request(10).with_field("topic", "a").with_body("body"));
    assert!(verify(&command, &secret()));
    assert!(!verify(&command, &Secret::new("12345679")));
    assert!(!verify(&command.clone().with_body("bodz"), &secret()));
    let mut other = command.clone();
    other.fields.set("topic", "b");
    assert!(!verify(&other, &secret()));
    // A later pair replaces an earlier one for the processor: it must for the signature, too.
    assert!(!verify(&command.clone().with_field("topic", "b"), &secret()));
    for wrong in [
        "",
        "AAAA",
        "not base64 at all",
        "////////////////////////////////",
    ] {
        let mut other = command.clone();
        other.fields.set("Signature", wrong);
        assert!(!verify(&other, &secret()), "{wrong:?}");
    }
    let mut unsigned = command;
    unsigned.fields.remove("Signature");
    assert!(!verify(&unsigned, &secret()));
}

#[test]
fn peers_up_to_4_9_3_add_the_unique_key_query_after_signing() {
    let late = |version: i32| {
        let mut command = Command::request(request::QUERY_MESSAGE).with_field("topic", "a");
        command.version = version;
        signed(command).with_field("_UNIQUE_KEY_QUERY", "true")
    };
    assert!(verify(&late(399), &secret()));
    assert!(!verify(&late(401), &secret()));
}

#[test]
fn our_queries_by_unique_key_are_signed_as_every_server_from_4_9_2_on_reads_them() {
    let query = Command::request(request::QUERY_MESSAGE).with_field("topic", "a");
    let with = signed(query.clone().with_field("_UNIQUE_KEY_QUERY", "true"));
    let without = signed(query.clone());
    assert_eq!(with.fields.get("Signature"), without.fields.get("Signature"));
    assert!(with.version <= 399 && without.version == query.version);
    assert!(verify(&with, &secret()));
}

#[test]
fn a_token_is_part_of_the_signature() {
    let mut command = Command::request(10).with_field("topic", "a");
    let credentials = Credentials::new("u", &secret(), Some("token".to_owned())).unwrap();
    credentials.sign(&mut command);
    assert!(verify(&command, &secret()));
    command.fields.set("SecurityToken", "another");
    assert!(!verify(&command, &secret()));
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?} {:?}", credentials(), secret()).contains("1234"));
    assert!(Credentials::new("u", &Secret::new(""), None).is_none());
}

proptest! {
    /// A head that is signed as it is written bears the signature of the command that it is read as.
    #[test]
    fn a_written_head_is_signed_as_its_command(
        group in ".{1,20}", topic in ".{1,20}", properties in ".{0,60}", body in prop::collection::vec(any::<u8>(), 0..80),
        durable in any::<bool>(), batch in any::<bool>(), token in prop::option::of("[a-z]{1,9}"),
    ) {
        let header = SendMessageRequestHeader {
            producer_group: &group,
            topic: &topic,
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            properties: Some(&properties),
            broker_name: Some("broker"),
            batch,
            ..SendMessageRequestHeader::default()
        };
        let mut out = Vec::new();
        let mut head = HeadWriter::new(&mut out, Head { code: 310, ..Head::default() });
        let credentials = Credentials::new("user", &secret(), token).unwrap();
        let begun = credentials.begin_sorted(|fields| header.write_shared(fields), &mut head);
        begun.sign_sorted(
            |fields| {
                if durable {
                    fields.ascii("durability", "local");
                }
                header.write_own(fields);
            },
            &body,
            &mut head,
        );
        FieldSink::text(&mut head, "zone", "unsigned");
        head.finish(body.len()).unwrap();
        out.extend_from_slice(&body);
        let mut read = frame::decode(&mut out.as_slice().into(), &frame::Limits::default()).unwrap().unwrap();
        prop_assert!(!verify(&read, &secret()));
        read.fields.remove("zone");
        prop_assert!(verify(&read, &secret()));
        let before = read.fields.get("Signature").map(str::to_owned);
        credentials.sign(&mut read);
        prop_assert_eq!(before.as_deref(), read.fields.get("Signature"));
    }
}
