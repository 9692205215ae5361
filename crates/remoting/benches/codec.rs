//! Measures nanoseconds to decode and encode one frame, with recorded frames of the real 5.5.0:
//! `cargo bench -p pyrmq-remoting`. Prints one JSON object per line: the frame alone, and `typed` with its header
//! structure, as servers and clients use it. `tests/interop/java/src/CodecBench.java` does the same with Apache's codec
//! on the same bytes; `make bench` compares both.
//!
//! Arguments: none, or `--seconds S` per measurement, `--only TEXT` for the frames whose name and form contain it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement may panic and prints"
)]

use bytes::BytesMut;
use pyrmq_remoting::Command;
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::header::{
    EncodeHeader, GetRouteInfoRequestHeader, PullMessageRequestHeader, PullMessageResponseHeader,
    SendMessageRequestHeader,
};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// Frames decoded at once: as many as one read of a busy connection returns.
const BATCH: usize = 64;
/// Number of requested time spans that one measurement takes, as in the Java program.
const ROUNDS: u32 = 9;

/// Picks frames of one kind.
type Wanted = fn(&Command) -> bool;

/// The frames to measure.
const FRAMES: [(&str, Wanted); 5] = [
    ("send request", |command| {
        !command.is_response() && command.code == 310
    }),
    ("pull request", |command| {
        !command.is_response() && command.code == 11
    }),
    ("pull response", |command| {
        let found = command.is_response() && command.code == 0 && command.body.is_some();
        found && command.fields.get("nextBeginOffset").is_some()
    }),
    ("route request", |command| {
        !command.is_response() && command.code == 105
    }),
    ("route response", |command| {
        let body = command.body.as_deref().unwrap_or_default();
        command.is_response() && command.code == 0 && body.starts_with(b"{\"brokerDatas\"")
    }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let seconds = option("--seconds").map_or(0.1, |text| text.parse().expect("a number of seconds"));
    let span = Duration::from_secs_f64(seconds);
    for form in ["json", "rocketmq"] {
        let frames = golden(form);
        for (name, wanted) in FRAMES {
            if option("--only").is_none_or(|only| format!("{name} {form}").contains(only)) {
                println!("{}", row(name, form, &pick(&frames, wanted), span));
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the recorded frames lie in files")]
fn golden(form: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/frames");
    let bytes = std::fs::read(root.join(format!("5.5.0-{form}.bin"))).unwrap();
    let mut rest = bytes.as_slice();
    let mut frames = Vec::new();
    while let Some(length) = frame::announced(rest, &Limits::default()).unwrap() {
        let (frame, tail) = rest.split_at(length);
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

/// Returns the matching frame of median size.
fn pick(frames: &[Vec<u8>], wanted: Wanted) -> Vec<u8> {
    let mut found: Vec<&Vec<u8>> = frames.iter().filter(|bytes| wanted(&decode_one(bytes))).collect();
    found.sort_by_key(|bytes| bytes.len());
    found[found.len() / 2].clone()
}

fn decode_one(bytes: &[u8]) -> Command {
    frame::decode(&mut BytesMut::from(bytes), &Limits::default())
        .unwrap()
        .unwrap()
}

fn row(name: &str, form: &str, bytes: &[u8], span: Duration) -> String {
    let command = decode_one(bytes);
    let header = Header::read(&command);
    let figures = [
        (
            "decode_ns",
            median(span, || decode_batch(bytes, |command| drop(black_box(command)))),
        ),
        (
            "encode_ns",
            median(span, || encode_batch(|out| encode(black_box(&command), out))),
        ),
        (
            "typed_decode_ns",
            median(span, || {
                decode_batch(bytes, |command| {
                    black_box(Header::read(&command));
                })
            }),
        ),
        (
            "typed_encode_ns",
            median(span, || {
                encode_batch(|out| encode(&black_box(&header).command(&command), out))
            }),
        ),
    ];
    let figures = figures.map(|(key, value)| format!(r#""{key}":{value:.1}"#));
    format!(
        r#"{{"frame":"{name}","form":"{form}","bytes":{},{}}}"#,
        bytes.len(),
        figures.join(",")
    )
}

/// Returns nanoseconds for one frame, the median of all batches: so a batch that lost the processor does not count.
fn median(span: Duration, mut batch: impl FnMut() -> Duration) -> f64 {
    let mut spent = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < span * ROUNDS {
        spent.push(batch());
    }
    spent.sort();
    spent[spent.len() / 2].as_nanos() as f64 / BATCH as f64
}

/// The bytes are in one buffer, as the connection reads them; filling it is not the codec's work.
fn decode_batch(bytes: &[u8], then: impl Fn(Command)) -> Duration {
    let mut input = BytesMut::with_capacity(bytes.len() * BATCH);
    for _ in 0..BATCH {
        input.extend_from_slice(bytes);
    }
    let limits = Limits::default();
    let begin = Instant::now();
    while let Some(command) = frame::decode(&mut input, &limits).unwrap() {
        then(command);
    }
    begin.elapsed()
}

/// Encodes as a connection writes: heads into one buffer, bodies by reference.
fn encode_batch(each: impl Fn(&mut Vec<u8>)) -> Duration {
    let mut out = Vec::with_capacity(64 * 1024);
    let begin = Instant::now();
    for _ in 0..BATCH {
        out.clear();
        each(&mut out);
        black_box(&out);
    }
    begin.elapsed()
}

fn encode(command: &Command, out: &mut Vec<u8>) {
    frame::encode_head(command, out).unwrap();
}

/// The header structure of a frame, which a server or client reads next and makes a command from.
enum Header<'a> {
    Send(SendMessageRequestHeader<'a>),
    Pull(PullMessageRequestHeader<'a>),
    Pulled(PullMessageResponseHeader),
    Route(GetRouteInfoRequestHeader<'a>),
    /// The answer to a route query has none.
    None,
}

impl<'a> Header<'a> {
    fn read(command: &'a Command) -> Self {
        let fields = &command.fields;
        match (command.is_response(), command.code) {
            (false, 310) => Self::Send(SendMessageRequestHeader::decode_v2(fields).unwrap()),
            (false, 11) => Self::Pull(PullMessageRequestHeader::decode(fields).unwrap()),
            (false, 105) => Self::Route(GetRouteInfoRequestHeader::decode(fields).unwrap()),
            (true, _) if !fields.is_empty() => {
                Self::Pulled(PullMessageResponseHeader::decode(fields).unwrap())
            }
            _ => Self::None,
        }
    }

    /// Builds a new command, as for each request and response.
    fn command(&self, like: &Command) -> Command {
        let new = match self {
            Self::Pulled(_) | Self::None => Command::response(like.code),
            _ => Command::request(like.code),
        };
        let mut new = Command {
            opaque: like.opaque,
            serialize_type: like.serialize_type,
            body: like.body.clone(),
            ..new
        };
        match self {
            Self::Send(header) => header.encode(&mut new.fields),
            Self::Pull(header) => header.encode(&mut new.fields),
            Self::Pulled(header) => header.encode(&mut new.fields),
            Self::Route(header) => header.encode(&mut new.fields),
            Self::None => {}
        }
        new
    }
}
