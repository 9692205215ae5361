//! Signing and checking work on the frame as it is written and read: neither copies a body or the values of fields.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use bytes::BytesMut;
use pyrmq_auth::{Credentials, Guard, Rules, Secret, Switches};
use pyrmq_remoting::Command;
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::header::send::SendMessageRequestHeader;
use pyrmq_remoting::header::{Head, HeadWriter};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no cell any more and is not measured.
        ALLOCATED
            .try_with(|cell| cell.set(cell.get() + layout.size()))
            .ok();
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of bytes that `work` allocates.
fn allocated<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.with(Cell::get);
    let value = work();
    (value, ALLOCATED.with(Cell::get) - before)
}

const BODY: usize = 1 << 20;
/// What a user's name, a signature and the rights of one request take.
const SMALL: usize = 4096;
const RULES: &str = r#"{"users":[{"username":"app","password":"a-secret-of-thirty-two-characters"}],
  "acls":[{"subject":"User:app","policies":[{"entries":[
    {"resource":"Topic:*","actions":["Pub"],"decision":"Allow"}]}]}]}"#;

fn credentials() -> Credentials {
    Credentials::new("app", &Secret::new("a-secret-of-thirty-two-characters"), None).unwrap()
}

/// Writes a signed send into a buffer that has the space for it.
fn signed(body: &[u8], properties: &str) -> (Vec<u8>, usize) {
    let header = SendMessageRequestHeader {
        producer_group: "g",
        topic: "orders",
        default_topic: "TBW102",
        properties: Some(properties),
        ..SendMessageRequestHeader::default()
    };
    let start = Head {
        code: 310,
        ..Head::default()
    };
    let mut fields = Vec::new();
    let mut head = HeadWriter::new(&mut fields, Head::default());
    let signature = credentials().begin_sorted(|fields| header.write_shared(fields), &mut head);
    let fields = head.into_fields().unwrap();
    let mut out = Vec::with_capacity(2 * properties.len() + body.len() + SMALL);
    let ((), used) = allocated(|| {
        let mut head = HeadWriter::new(&mut out, start);
        head.fields(&fields);
        signature.sign_sorted(|fields| header.write_own(fields), body, &mut head);
        head.finish(body.len()).unwrap();
    });
    out.extend_from_slice(body);
    (out, used)
}

fn guard() -> Guard {
    let rules = Rules::parse(RULES.as_bytes()).unwrap();
    Guard::new("DefaultCluster", Switches { authorization: true }, rules)
}

fn decoded(frame: &[u8]) -> Command {
    let mut input = BytesMut::from(frame);
    frame::decode(&mut input, &Limits::default()).unwrap().unwrap()
}

#[test]
fn signing_and_checking_allocate_as_much_for_a_large_frame_as_for_a_small_one() {
    let (guard, source) = (guard(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    for (body, properties) in [(0, 0), (BODY, 0), (BODY, 16_000)] {
        let (frame, used) = signed(&vec![7; body], &"p".repeat(properties));
        assert!(
            used < SMALL,
            "{used} bytes to sign a body of {body}, properties of {properties}"
        );
        let command = decoded(&frame);
        let (refusal, used) = allocated(|| guard.refusal(&command, source));
        assert!(refusal.is_none());
        assert!(
            used < SMALL,
            "{used} bytes to check a body of {body}, properties of {properties}"
        );
    }
}

#[test]
fn fields_in_another_order_are_sorted_without_a_copy_of_their_values() {
    let (guard, source) = (guard(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let (frame, _) = signed(&vec![7; BODY], &"p".repeat(16_000));
    let signed = decoded(&frame);
    let mut other = Command::request(310);
    let mut pairs: Vec<_> = signed.fields.iter().collect();
    pairs.reverse();
    for (key, value) in pairs {
        other = other.with_field(key, value);
    }
    other.body = signed.body.clone();
    let (refusal, used) = allocated(|| guard.refusal(&other, source));
    assert!(refusal.is_none());
    assert!(used < SMALL, "{used}");
}
