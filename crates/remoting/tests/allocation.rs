//! Decoding allocates in proportion to the received bytes, never to the lengths that they announce.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use bytes::BytesMut;
use pyrmq_remoting::body::{Body, HeartbeatData, Json, RegisterBrokerBody, TopicRouteData};
use pyrmq_remoting::frame::{self, Limits};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated now, and their maximum.
    static LIVE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn change(by: impl Fn(usize) -> usize) {
    // A thread that is ending has no cell any more and is not measured.
    LIVE.try_with(|cell| {
        let (live, most) = cell.get();
        let live = by(live);
        cell.set((live, most.max(live)));
    })
    .ok();
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(|live| live + layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        change(|live| live.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the maximum number of bytes that `work` held at once.
fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(|cell| {
        let (live, _) = cell.get();
        cell.set((live, live));
        live
    });
    let value = work();
    let (_, most) = LIVE.with(Cell::get);
    (value, most - before)
}

fn framed(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(4 + header.len() + body.len())
        .unwrap()
        .to_be_bytes()
        .to_vec();
    out.push(kind);
    out.extend_from_slice(&u32::try_from(header.len()).unwrap().to_be_bytes()[1..]);
    out.extend_from_slice(header);
    out.extend_from_slice(body);
    out
}

/// Returns the bytes held while a frame is decoded that is already in a buffer.
fn held(bytes: &[u8]) -> usize {
    let mut input = BytesMut::from(bytes);
    most(|| frame::decode(&mut input, &Limits::default())).1
}

#[test]
fn an_announcement_alone_allocates_nothing() {
    for bytes in [
        &b"\x00\xff\xff\xfc"[..],
        b"\x00\xff\xff\xfc\x00\x0f\xff\xff{\"code\":1",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x08\x00\xff\xff\xff",
        b"\x00\x00\x00\x08\x09\x00\x00\x01",
    ] {
        assert_eq!(held(bytes), 0, "{bytes:?}");
    }
}

#[test]
fn a_body_is_not_copied() {
    let header = br#"{"code":1,"extFields":{"a":"b"}}"#;
    let bytes = framed(0, header, &vec![7; 1 << 20]);
    assert!(held(&bytes) < 1024, "{}", held(&bytes));
}

#[test]
fn a_header_holds_its_own_size_and_its_entries() {
    // The worst case: the maximum number of the shortest fields, and one more than that.
    for fields in [1, 16, 17, 1024, 1025] {
        let pairs: Vec<String> = (0..fields).map(|_| "\"\":\"\"".into()).collect();
        let json = format!("{{\"extFields\":{{{}}}}}", pairs.join(","));
        let bytes = framed(0, json.as_bytes(), b"");
        assert!(
            held(&bytes) <= 8 * bytes.len() + 1024,
            "{fields}: {} of {}",
            held(&bytes),
            bytes.len()
        );
        let mut binary = vec![0; 17];
        let pairs = b"\0\x01k\0\0\0\0".repeat(fields);
        binary.extend_from_slice(&u32::try_from(pairs.len()).unwrap().to_be_bytes());
        binary.extend_from_slice(&pairs);
        let bytes = framed(1, &binary, b"");
        assert!(
            held(&bytes) <= 8 * bytes.len() + 1024,
            "{fields}: {} of {}",
            held(&bytes),
            bytes.len()
        );
    }
}

#[test]
fn lying_lengths_in_a_binary_header_allocate_little() {
    for header in [
        &b"\0\x69\0\x01\x97\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff"[..],
        b"\0\x69\0\x01\x97\0\0\0\x01\0\0\0\0\0\0\0\0\x7f\xff\xff\xff",
        b"\0\x69\0\x01\x97\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x07\0\x01k\x7f\xff\xff\xff",
    ] {
        let bytes = framed(1, header, b"");
        assert!(held(&bytes) < 512);
    }
}

#[test]
fn a_small_text_never_becomes_a_large_tree() {
    let texts = [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("[{}]", "0,".repeat(500_000)),
        format!("[{}]", "[],".repeat(300_000)),
        format!("{{{}}}", "0:0,".repeat(300_000)),
        format!("{{{}}}", "\"\":{},".repeat(200_000)),
        "{{".repeat(100_000),
    ];
    for text in texts {
        let (_, held) = most(|| Json::parse(text.as_bytes()).ok());
        assert!(
            held <= 64 * text.len() + 4096,
            "{held} of {}: {}",
            text.len(),
            &text[..20]
        );
    }
}

#[test]
fn references_do_not_multiply() {
    // Each level refers to the previous one twice: without a limit the tree would double a hundred times.
    let mut text = String::from(r#"{"a0":[1,2,3]"#);
    for level in 1..100 {
        let before = level - 1;
        write!(
            text,
            r#","a{level}":[{{"$ref":"$.a{before}"}},{{"$ref":"$.a{before}"}}]"#
        )
        .unwrap();
    }
    text.push('}');
    let (_, held) = most(|| TopicRouteData::decode(text.as_bytes()).ok());
    assert!(held < 1 << 20, "{held}");
    let many = format!(
        "{{\"a\":[{}],\"b\":[{}]}}",
        "1,".repeat(1000),
        r#"{"$ref":"$.a"},"#.repeat(10_000)
    );
    let (_, held) = most(|| HeartbeatData::decode(many.as_bytes()).ok());
    assert!(held < 32 << 20, "{held}");
}

#[test]
fn a_compressed_registration_that_would_grow_without_end_is_refused() {
    let zeros = vec![0_u8; 40 << 20];
    let bomb = pyrmq_remoting::message::compress::compress(
        pyrmq_remoting::message::compress::Codec::Zlib,
        9,
        &zeros,
    )
    .unwrap();
    drop(zeros);
    assert!(bomb.len() < 100_000);
    let (outcome, held) = most(|| RegisterBrokerBody::decode_form(&bomb, true, 513));
    assert!(outcome.is_err());
    // The limit, and twice as much while a buffer grows beyond it.
    assert!(held <= 96 << 20, "{held}");
}
