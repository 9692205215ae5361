//! Fuzzing: recorded frames with random damage, and random bytes, for a limited time. Nothing may panic, and accepted
//! input must be unchanged after it is written and read again.
//!
//! `PYRMQ_FUZZ_SECONDS` sets the time of each test (3 s), `PYRMQ_FUZZ_SEED` its seed; a failure prints the seed, and
//! writes what did harm to a file. Such files are kept in `tests/corpus`, and each run begins with them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::BytesMut;
use pyrmq_remoting::body::{self, Body, Json, Style, TopicConfig};
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::message::batch;
use pyrmq_remoting::message::compress::{Codec, decompress};
use pyrmq_remoting::message::properties::Properties;
use pyrmq_remoting::message::record::Record;
use pyrmq_remoting::{Language, header};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes to which a compressed body may expand here.
const UNPACKED: usize = 1 << 20;

thread_local! {
    /// The bytes that this thread takes now.
    static TAKEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Xorshift: the same damage for the same seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        // Bytes with a meaning in one of the formats are more likely than others.
        const SPECIAL: &[u8] = b"{}[]\",:'\\u0-9ntf\0\x01\x02\x7f\x80\xff\xc3\xe4 ";
        if self.next().is_multiple_of(2) {
            SPECIAL[self.below(SPECIAL.len())]
        } else {
            self.next().to_le_bytes()[0]
        }
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] = self.byte(),
                1 => bytes.insert(at, self.byte()),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                3 => bytes.truncate(at),
                4 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => {
                    let end = (at + self.below(32)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let into = self.below(bytes.len());
                    bytes.splice(into..into, piece);
                }
            }
        }
    }
}

fn seconds() -> Duration {
    let text = std::env::var("PYRMQ_FUZZ_SECONDS").unwrap_or_else(|_| "3".into());
    Duration::from_secs_f64(text.parse().expect("a number of seconds"))
}

/// Runs `attack` until the time is over. A panic names the seed that repeats it.
fn bounded(attack: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    let seed: u64 = std::env::var("PYRMQ_FUZZ_SEED").map_or_else(
        |_| std::process::id().into(),
        |text| text.parse().expect("a number"),
    );
    let end = Instant::now() + seconds();
    let mut round = 0_u64;
    while Instant::now() < end {
        let start = (seed + round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let outcome = std::panic::catch_unwind(|| {
            let mut random = Random(start);
            for _ in 0..50 {
                attack(&mut random);
            }
        });
        if outcome.is_err() {
            let kept = keep();
            panic!(
                "PYRMQ_FUZZ_SEED={} repeats it; {} is what did harm: move it to tests/corpus",
                seed + round,
                kept.display()
            );
        }
        round += 1;
    }
    assert!(round > 10, "only {round} rounds");
}

/// Writes the bytes that were taken last to a file of their own.
#[expect(clippy::disallowed_methods, reason = "a test writes its files itself")]
fn keep() -> PathBuf {
    let bytes = TAKEN.with_borrow(Clone::clone);
    let name = bytes
        .iter()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(16_777_619) ^ u32::from(*byte));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name:08x}.bin"));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[expect(clippy::disallowed_methods, reason = "a test reads its fixtures itself")]
fn golden() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/frames");
    let mut frames = Vec::new();
    for version in ["4.6.1", "4.9.7", "5.5.0"] {
        for form in ["json", "rocketmq"] {
            let bytes = std::fs::read(root.join(format!("{version}-{form}.bin"))).unwrap();
            let mut rest = bytes.as_slice();
            while let Some(length) = frame::announced(rest, &Limits::default()).unwrap() {
                let (frame, tail) = rest.split_at(length);
                frames.push(frame.to_vec());
                rest = tail;
            }
        }
    }
    frames
}

/// Does everything that a server would do with a frame from an unknown peer.
fn take(bytes: &[u8]) {
    TAKEN.with_borrow_mut(|taken| {
        taken.clear();
        taken.extend_from_slice(bytes);
    });
    let mut input = BytesMut::from(bytes);
    let limits = Limits::default();
    while let Ok(Some(mut command)) = frame::decode(&mut input, &limits) {
        if let Ok(again) = frame::encode(&command) {
            let read = frame::decode(&mut BytesMut::from(&again[..]), &limits)
                .unwrap()
                .unwrap();
            if command.language == Language::Unknown {
                command.language = Language::Other;
            }
            assert_eq!(read, command);
        }
        header::SendMessageRequestHeader::decode(command.code, &command.fields).ok();
        header::PullMessageRequestHeader::decode(&command.fields).ok();
        header::PullMessageResponseHeader::decode(&command.fields).ok();
        header::RegisterBrokerRequestHeader::decode(&command.fields).ok();
        let body = command.body.as_deref().unwrap_or_default();
        take_body(body);
        take_messages(body);
        for (_, text) in command.fields.iter() {
            take_properties(text);
        }
    }
}

/// Reads bytes as a consumer reads the body of a pull's answer, and a broker that of a send: records, batches,
/// properties, compressed bodies.
fn take_messages(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(record) = Record::decode(rest) {
        if let Ok(text) = record.properties.as_str() {
            take_properties(text);
        }
        for codec in [Codec::Zlib, Codec::Lz4, Codec::Zstd] {
            if let Ok(plain) = decompress(codec, record.body, UNPACKED) {
                assert!(plain.len() <= UNPACKED);
            }
        }
        assert!(record.size > 0 && record.size <= rest.len());
        rest = &rest[record.size..];
    }
    let mut rest = bytes;
    while let Ok((item, used)) = batch::decode(rest) {
        assert!(used > 0 && used <= rest.len());
        std::hint::black_box(&item);
        rest = &rest[used..];
    }
    for codec in [Codec::Zlib, Codec::Lz4, Codec::Zstd] {
        if let Ok(plain) = decompress(codec, bytes, UNPACKED) {
            assert!(plain.len() <= UNPACKED);
        }
    }
}

fn take_properties(text: &str) {
    let pairs = Properties::new(text);
    assert!(pairs.iter().count() <= text.len() + 1);
    std::hint::black_box(pairs.get("KEYS"));
}

fn take_body(bytes: &[u8]) {
    if let Ok(json) = Json::parse(bytes) {
        let once = json.to_bytes(Style::PLAIN);
        assert_eq!(Json::parse(&once).unwrap().to_bytes(Style::PLAIN), once);
    }
    body::HeartbeatData::decode(bytes).ok();
    body::TopicRouteData::decode(bytes).ok();
    body::ConsumeStats::decode(bytes).ok();
    body::ConsumerRunningInfo::decode(bytes).ok();
    body::ConsumerOffsetSerializeWrapper::decode(bytes).ok();
    body::SubscriptionGroupWrapper::decode(bytes).ok();
    body::RegisterBrokerBody::decode_form(bytes, false, 513).ok();
    body::RegisterBrokerBody::decode_form(bytes, true, 513).ok();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its fixtures itself")]
fn what_is_kept_in_the_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        take(&bytes);
        take_body(&bytes);
        take_messages(&bytes);
        count += 1;
    }
    assert!(count > 0, "the corpus is empty");
}

#[test]
fn a_run_that_finds_harm_keeps_what_did_it() {
    let outcome = std::panic::catch_unwind(|| {
        bounded(|_| {
            TAKEN.set(b"harm".to_vec());
            panic!("as this test wants it");
        });
    });
    let text = *outcome.unwrap_err().downcast::<String>().unwrap();
    let (_, rest) = text.split_once("; ").unwrap();
    let (path, _) = rest.split_once(" is what did harm").unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test reads its files itself")]
    let kept = std::fs::read(path).unwrap();
    assert_eq!(kept, b"harm");
}

#[test]
fn damaged_frames_do_no_harm() {
    let frames = golden();
    bounded(|random| {
        let mut bytes = frames[random.below(frames.len())].clone();
        random.damage(&mut bytes);
        take(&bytes);
    });
}

#[test]
fn damage_behind_a_right_length_does_no_harm() {
    let frames = golden();
    bounded(|random| {
        let frame = &frames[random.below(frames.len())];
        let header = usize::from(frame[6]) << 8 | usize::from(frame[7]);
        let (mut head, mut tail) = (frame[8..8 + header].to_vec(), frame[8 + header..].to_vec());
        if random.next().is_multiple_of(2) {
            random.damage(&mut head);
        } else {
            random.damage(&mut tail);
        }
        let mut bytes = u32::try_from(4 + head.len() + tail.len())
            .unwrap()
            .to_be_bytes()
            .to_vec();
        bytes.push(frame[4]);
        bytes.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&tail);
        take(&bytes);
    });
}

#[test]
fn random_bytes_do_no_harm() {
    bounded(|random| {
        let length = random.below(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        TAKEN.set(bytes.clone());
        take_body(&bytes);
        TopicConfig::from_line(&String::from_utf8_lossy(&bytes)).ok();
        let mut framed = u32::try_from(4 + bytes.len()).unwrap().to_be_bytes().to_vec();
        framed.push(random.byte() & 1);
        framed.extend_from_slice(
            &u32::try_from(random.below(bytes.len() + 2))
                .unwrap()
                .to_be_bytes()[1..],
        );
        framed.append(&mut bytes);
        take(&framed);
    });
}
