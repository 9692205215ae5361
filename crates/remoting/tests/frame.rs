//! Decoding and encoding frames with both header forms.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::{Bytes, BytesMut};
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::{Command, Fields, Language, SerializeType, WireError};

fn decode(bytes: &[u8]) -> Result<Option<Command>, WireError> {
    frame::decode(&mut BytesMut::from(bytes), &Limits::default())
}

fn json_frame(header: &str, body: &[u8]) -> Vec<u8> {
    framed(0, header.as_bytes(), body)
}

fn framed(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(
        &u32::try_from(4 + header.len() + body.len())
            .unwrap()
            .to_be_bytes(),
    );
    let [_, high, middle, low] = u32::try_from(header.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[kind, high, middle, low]);
    out.extend_from_slice(header);
    out.extend_from_slice(body);
    out
}

fn header(text: &str) -> Result<Command, WireError> {
    decode(&json_frame(text, b"")).map(|command| command.expect("a whole frame"))
}

const ROUTE: &str = r#"{"code":105,"extFields":{"acceptStandardJsonOnly":"true","topic":"T"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}"#;

#[test]
fn a_json_frame_decodes_and_encodes_to_the_same_bytes() {
    for body in [&b""[..], b"payload"] {
        let bytes = json_frame(ROUTE, body);
        let command = decode(&bytes).unwrap().unwrap();
        assert_eq!(command.code, 105);
        assert_eq!(command.language, Language::Java);
        assert_eq!(command.opaque, 7);
        assert_eq!(command.version, 479);
        assert_eq!(command.fields.get("topic"), Some("T"));
        assert_eq!(command.body.as_deref(), (!body.is_empty()).then_some(body));
        assert_eq!(frame::encode(&command).unwrap(), bytes);
    }
}

#[test]
fn absent_and_empty_fields_are_distinguished() {
    let without =
        r#"{"code":0,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}"#;
    let empty = r#"{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":1,"remark":"","serializeTypeCurrentRPC":"JSON","version":513}"#;
    for text in [without, empty] {
        let bytes = json_frame(text, b"");
        assert_eq!(frame::encode(&decode(&bytes).unwrap().unwrap()).unwrap(), bytes);
    }
}

#[test]
fn escapes_are_written_as_fastjson_writes_them_and_read_back() {
    let value = "a\u{1}b\u{2}\"\\/\u{8}\t\n\u{c}\r\u{b}\u{7f}\u{e9}\u{4e2d}\u{1f600}<>&'";
    let command = Command {
        remark: Some(value.into()),
        ..Command::request(1).with_field(value, value)
    };
    let bytes = frame::encode(&command).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(r#""a\u0001b\u0002\"\\/\b\t\n\f\r\u000b"#), "{text}");
    assert_eq!(decode(&bytes).unwrap().unwrap(), command);
}

#[test]
fn a_lenient_header_is_read() {
    let command = header(
        " { 'version' : 1 ,\n\"opaque\":\"3\",\"extFields\":{\"n\":12,\"b\":true,\"z\":null,\"o\":{\"a\":[1,\"}\"]},7:\"seven\",'e':'\\u4e2d\\uD83D\\uDE00\\x41\\/',},\
         \"unknown\":[{\"x\":\"]\\\"\"},null],\"flag\":null,\"code\":{},\"language\":\"KLINGON\",\"remark\":null,} ",
    )
    .unwrap();
    assert_eq!(
        (command.version, command.opaque, command.code, command.flag),
        (1, 3, 0, 0)
    );
    assert_eq!(command.language, Language::Unknown);
    assert_eq!(command.remark, None);
    let pairs: Vec<_> = command.fields.iter().collect();
    assert_eq!(
        pairs,
        [
            ("n", "12"),
            ("b", "true"),
            ("o", r#"{"a":[1,"}"]}"#),
            ("7", "seven"),
            ("e", "\u{4e2d}\u{1f600}A/")
        ]
    );
}

#[test]
fn half_a_surrogate_pair_becomes_a_question_mark() {
    let command = header(
        r#"{"code":1,"extFields":{"a":"\uD83D","b":"\uD83D\u0041","c":"\uDE00x","d":"\uD83D\uD83D\uDE00"}}"#,
    )
    .unwrap();
    let pairs: Vec<_> = command.fields.iter().collect();
    assert_eq!(pairs, [("a", "?"), ("b", "?A"), ("c", "?x"), ("d", "?\u{1f600}")]);
}

#[test]
fn an_invalid_header_is_an_error() {
    for text in [
        "",
        "null",
        "[]",
        "{",
        "{code:105}",
        "{\"code\"}",
        "{\"code\":}",
        "{\"code\":1",
        "{\"code\":99999999999}",
        "{\"code\":\"x\"}",
        "{} x",
        "{\"extFields\":[]}",
        "{\"extFields\":{\"a\":\"b}",
        "{\"a\":\"\\q\"",
        "{\"extFields\":{\"a\":\"\\u12\"}}",
        "{\"a\":[1,2}",
        "{\"a\":\"\\",
        "{\"remark\":\"\\u",
    ] {
        assert!(
            matches!(header(text), Err(WireError::Json { .. })),
            "{text}: {:?}",
            header(text)
        );
    }
    assert!(matches!(
        decode(&framed(0, b"{\"remark\":\"\xff\"}", b"")),
        Err(WireError::Utf8 { .. })
    ));
}

#[test]
fn a_binary_frame_decodes_and_encodes_to_the_same_bytes() {
    let command = Command {
        code: 310,
        language: Language::Java,
        version: 407,
        opaque: -2,
        flag: 2,
        remark: Some("why".into()),
        fields: Fields::from_iter([("a", "group"), ("i", "K\u{1}v\u{2}")]),
        serialize_type: SerializeType::RocketMq,
        body: Some(Bytes::from_static(b"body")),
    };
    let bytes = frame::encode(&command).unwrap();
    assert_eq!(bytes[4], 1);
    assert_eq!(&bytes[8..13], [0x01, 0x36, 0, 0x01, 0x97]);
    let read = decode(&bytes).unwrap().unwrap();
    assert_eq!(read, command);
    assert_eq!(frame::encode(&read).unwrap(), bytes);
}

#[test]
fn a_code_beyond_16_bits_does_not_fit_the_binary_header() {
    let command = Command {
        serialize_type: SerializeType::RocketMq,
        ..Command::request(200_050)
    };
    let mut out = b"kept".to_vec();
    assert!(matches!(
        frame::encode_head(&command, &mut out),
        Err(WireError::OutOfRange {
            what: "code",
            value: 200_050,
            ..
        })
    ));
    assert_eq!(out, b"kept");
}

#[test]
fn binary_lengths_that_lie_are_errors() {
    let good = |remark: i32, fields: i32, rest: &[u8]| {
        let mut header = vec![0, 105, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        header.extend_from_slice(&remark.to_be_bytes());
        header.extend_from_slice(&fields.to_be_bytes());
        header.extend_from_slice(rest);
        decode(&framed(1, &header, b""))
    };
    assert!(good(0, 0, b"").is_ok());
    assert!(good(0, -5, b"").unwrap().unwrap().fields.is_empty());
    assert!(good(0, 9, b"\0\x01k\0\0\0\x01v\0").is_err());
    assert!(matches!(good(-1, 0, b""), Err(WireError::Length { .. })));
    assert!(matches!(good(100, 0, b""), Err(WireError::Truncated { .. })));
    assert!(matches!(good(0, 100, b""), Err(WireError::Truncated { .. })));
    assert!(matches!(
        good(0, 8, b"\xff\xffk\0\0\0\x01v"),
        Err(WireError::Length { .. })
    ));
    assert!(matches!(
        good(0, 8, b"\0\x01k\x7f\0\0\x01v"),
        Err(WireError::Truncated { .. })
    ));
    let emptied = good(0, 7, b"\0\x01k\0\0\0\0").unwrap().unwrap();
    assert_eq!(emptied.fields.get("k"), Some(""));
}

#[test]
fn lengths_out_of_range_close_the_stream() {
    assert_eq!(decode(&[0, 0, 0, 0]), Err(WireError::FrameLength { length: 0 }));
    assert_eq!(decode(&[0, 0, 0, 3]), Err(WireError::FrameLength { length: 3 }));
    assert_eq!(
        decode(&[0xff, 0xff, 0xff, 0xff]),
        Err(WireError::FrameLength { length: -1 })
    );
    assert!(matches!(
        decode(&[0x7f, 0xff, 0xff, 0xff]),
        Err(WireError::FrameTooLarge { .. })
    ));
    assert!(matches!(
        decode(&[0x00, 0xff, 0xff, 0xfd]),
        Err(WireError::FrameTooLarge { .. })
    ));
    assert_eq!(decode(&[0x00, 0xff, 0xff, 0xfc]), Ok(None));
    assert_eq!(
        decode(&[0, 0, 0, 8, 7, 0, 0, 1]),
        Err(WireError::SerializeType(7))
    );
    assert_eq!(
        decode(&[0, 0, 0, 8, 0, 0, 0, 5]),
        Err(WireError::HeaderLength { header: 5, frame: 4 })
    );
    assert!(matches!(
        decode(&[0, 0x20, 0, 0, 0, 0x10, 0, 1]),
        Err(WireError::HeaderTooLarge { .. })
    ));
}

#[test]
fn more_fields_than_the_cap_are_refused_in_both_forms() {
    let limits = Limits {
        fields: 3,
        ..Limits::default()
    };
    for serialize_type in [SerializeType::Json, SerializeType::RocketMq] {
        let mut command = Command {
            serialize_type,
            ..Command::request(1)
        };
        for (index, key) in ["a", "b", "c", "d"].iter().enumerate() {
            command.fields.push(key, "v");
            let bytes = frame::encode(&command).unwrap();
            let read = frame::decode(&mut BytesMut::from(&bytes[..]), &limits);
            if index < 3 {
                assert_eq!(read.unwrap().unwrap(), command);
            } else {
                assert_eq!(read, Err(WireError::TooManyFields { limit: 3 }));
            }
        }
    }
}

#[test]
fn a_cut_frame_waits_and_consumes_nothing() {
    let bytes = json_frame(ROUTE, b"payload");
    for cut in 0..bytes.len() {
        let mut input = BytesMut::from(&bytes[..cut]);
        assert_eq!(frame::decode(&mut input, &Limits::default()), Ok(None));
        assert_eq!(input.len(), cut);
    }
}

#[test]
fn frames_back_to_back_come_out_one_by_one_with_bodies_in_place() {
    let mut input = BytesMut::new();
    for body in [&b"first"[..], b"", b"third"] {
        input.extend_from_slice(&json_frame(ROUTE, body));
    }
    let memory = input.as_ptr() as usize..input.as_ptr() as usize + input.len();
    let mut bodies = Vec::new();
    while let Some(command) = frame::decode(&mut input, &Limits::default()).unwrap() {
        bodies.push(command.body);
    }
    assert!(input.is_empty());
    assert_eq!(
        bodies,
        [
            Some(Bytes::from_static(b"first")),
            None,
            Some(Bytes::from_static(b"third"))
        ]
    );
    for body in bodies.into_iter().flatten() {
        assert!(memory.contains(&(body.as_ptr() as usize)), "the body was copied");
    }
}
