//! Relays one connection through a [`FaultyLink`](super::FaultyLink), in both directions.

use crate::codes::{request, response};
use crate::command::Command;
use crate::frame::{self, Limits};
use crate::net::faulty_link::{Direction, Faults, Passage};
use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Maximum number of bytes of one read.
const PIECE: usize = 64 * 1024;
/// Maximum number of waiting pieces of one direction; beyond that the sender waits.
const WAITING: usize = 64;
/// Parts per second in which a slow link forwards its bytes.
const PARTS: u64 = 50;
/// Bytes of a frame's length word.
const LENGTH_WORD: usize = 4;
/// Remark of a refused send, as Apache's broker writes it.
const BUSY: &str = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 0ms, size of queue: 0";

/// Bytes in transit, and when they are due.
enum Piece {
    /// Bytes as they arrived.
    Stream(Instant, Bytes),
    /// A frame of our own, to insert between two of the server's.
    Own(Instant, Bytes),
}

/// Connects a client's connection to a new one to the server until both directions end, or all connections are cut.
pub(super) async fn join(
    mut near: TcpStream,
    target: SocketAddr,
    faults: watch::Receiver<Faults>,
    cuts: u64,
) {
    let mut news = faults.clone();
    let cut = async {
        // An error means that the link itself was dropped.
        drop(news.wait_for(|faults| faults.cuts != cuts).await);
    };
    tokio::pin!(cut);
    let connected = tokio::select! {
        biased;
        () = &mut cut => None,
        far = TcpStream::connect(target) => far.ok(),
    };
    let Some(mut far) = connected else {
        reset(&near);
        return;
    };
    send_at_once(&near);
    send_at_once(&far);
    let whole = {
        let (near_read, near_write) = near.split();
        let (far_read, far_write) = far.split();
        let (answers, due_answers) = mpsc::channel(WAITING);
        let (requests, due_requests) = mpsc::channel(WAITING);
        let busy = Busy {
            frames: Frames::default(),
            held: BytesMut::new(),
            answers: answers.downgrade(),
        };
        let both = async {
            tokio::try_join!(
                take(
                    near_read,
                    Direction::Requests,
                    requests,
                    faults.clone(),
                    Some(busy)
                ),
                give(far_write, Direction::Requests, due_requests, faults.clone()),
                take(far_read, Direction::Answers, answers, faults.clone(), None),
                give(near_write, Direction::Answers, due_answers, faults.clone()),
            )
        };
        tokio::select! {
            biased;
            () = &mut cut => false,
            ended = both => ended.is_ok(),
        }
    };
    if !whole {
        reset(&near);
        reset(&far);
    }
}

fn send_at_once(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a relay without TCP_NODELAY");
    }
}

/// Makes a connection end with a reset, like one to a host that went away.
fn reset(stream: &TcpStream) {
    if let Err(error) = SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "a relay cannot reset its connection");
    }
}

/// Reads one direction to its end.
async fn take(
    mut from: ReadHalf<'_>,
    direction: Direction,
    pieces: mpsc::Sender<Piece>,
    faults: watch::Receiver<Faults>,
    mut busy: Option<Busy>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let now = *faults.borrow();
        let due = Instant::now() + now.of(direction).delay;
        let mut bytes = buffer.split().freeze();
        if let Some(busy) = &mut busy {
            bytes = busy.sift(bytes, &now).await;
        }
        if !bytes.is_empty() && pieces.send(Piece::Stream(due, bytes)).await.is_err() {
            return Ok(());
        }
    }
}

/// Writes one direction, each piece when it is due, then the end of the stream.
async fn give(
    mut to: WriteHalf<'_>,
    direction: Direction,
    mut pieces: mpsc::Receiver<Piece>,
    mut faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut own = Vec::new();
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Own(due, frame) => {
                sleep_until(due).await;
                own.push(frame);
            }
            Piece::Stream(due, mut bytes) => {
                sleep_until(due).await;
                if !own.is_empty() {
                    let begun = bytes.split_to(frames.rest(&bytes));
                    frames.pass(&begun);
                    write(&mut to, direction, begun, &mut faults).await?;
                    write_own(&mut to, &frames, &mut own, &mut faults).await?;
                }
                frames.pass(&bytes);
                write(&mut to, direction, bytes, &mut faults).await?;
            }
        }
        write_own(&mut to, &frames, &mut own, &mut faults).await?;
    }
    let passes = |faults: &Faults| faults.of(direction).passage == Passage::Pass;
    if faults.wait_for(passes).await.is_err() {
        return Ok(());
    }
    to.shutdown().await
}

/// Writes our own frames, once no frame of the server is in progress.
async fn write_own(
    to: &mut WriteHalf<'_>,
    frames: &Frames,
    own: &mut Vec<Bytes>,
    faults: &mut watch::Receiver<Faults>,
) -> io::Result<()> {
    if frames.between() {
        for frame in own.drain(..) {
            write(to, Direction::Answers, frame, faults).await?;
        }
    }
    Ok(())
}

/// Writes bytes with the link's current faults.
async fn write(
    to: &mut WriteHalf<'_>,
    direction: Direction,
    mut bytes: Bytes,
    faults: &mut watch::Receiver<Faults>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let current = *faults.borrow_and_update().of(direction);
        match current.passage {
            Passage::Drop => return Ok(()),
            Passage::Hold => {
                if faults.changed().await.is_err() {
                    return pending().await;
                }
            }
            Passage::Pass => {
                let Some(rate) = current.rate else {
                    return to.write_all(&bytes).await;
                };
                let part = usize::try_from((rate / PARTS).max(1)).unwrap_or(usize::MAX);
                let part = bytes.split_to(part.min(bytes.len()));
                to.write_all(&part).await?;
                let nanos = (part.len() as u64).saturating_mul(1_000_000_000) / rate.max(1);
                sleep(Duration::from_nanos(nanos)).await;
            }
        }
    }
    Ok(())
}

/// Tracks where the frames of a stream begin and end.
#[derive(Debug, Default)]
struct Frames {
    /// The first bytes of an incomplete length word.
    word: BytesMut,
    /// Remaining bytes of the frame in progress.
    left: usize,
    /// True if the bytes are not frames.
    lost: bool,
}

impl Frames {
    /// Returns true if no frame is in progress.
    fn between(&self) -> bool {
        self.left == 0 && self.word.is_empty() && !self.lost
    }

    /// Returns how many of these bytes belong to the frame in progress.
    fn rest(&self, bytes: &[u8]) -> usize {
        if self.lost {
            return bytes.len();
        }
        let mut left = self.left;
        if !self.word.is_empty() {
            let missing = LENGTH_WORD - self.word.len();
            let mut word = self.word.clone();
            word.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
            left = match frame::announced(&word, &Limits::default()) {
                Ok(Some(total)) => missing + total - LENGTH_WORD,
                Ok(None) | Err(_) => bytes.len(),
            };
        }
        left.min(bytes.len())
    }

    /// Records bytes.
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            let skipped = self.left.min(bytes.len());
            bytes.advance(skipped);
            self.left -= skipped;
            if self.left > 0 || bytes.is_empty() {
                return;
            }
            let missing = (LENGTH_WORD - self.word.len()).min(bytes.len());
            self.word
                .extend_from_slice(bytes.get(..missing).unwrap_or_default());
            bytes.advance(missing);
            match frame::announced(&self.word, &Limits::default()) {
                Ok(Some(total)) => {
                    self.left = total - LENGTH_WORD;
                    self.word.clear();
                }
                Ok(None) => {}
                Err(_) => self.lost = true,
            }
        }
    }
}

/// Answers sends in place of a busy server.
struct Busy {
    frames: Frames,
    /// An incomplete frame that began while the server was busy.
    held: BytesMut,
    answers: mpsc::WeakSender<Piece>,
}

impl Busy {
    /// Returns the part of these bytes that goes to the server.
    async fn sift(&mut self, mut bytes: Bytes, faults: &Faults) -> Bytes {
        let is_busy = faults.busy_until.is_some_and(|until| Instant::now() < until);
        if self.held.is_empty() && !is_busy {
            self.frames.pass(&bytes);
            return bytes;
        }
        let mut through = BytesMut::new();
        if self.held.is_empty() {
            let begun = bytes.split_to(self.frames.rest(&bytes));
            self.frames.pass(&begun);
            through.extend_from_slice(&begun);
        }
        self.held.extend_from_slice(&bytes);
        while let Some(frame) = self.next_frame() {
            match refused(&frame).filter(|_| is_busy) {
                None => through.extend_from_slice(&frame),
                Some(answer) => {
                    let due = Instant::now() + faults.answers.delay;
                    if let Some(answers) = self.answers.upgrade() {
                        drop(answers.send(Piece::Own(due, answer)).await);
                    }
                }
            }
        }
        through.freeze()
    }

    /// Returns the next whole frame, or all bytes if they are not frames.
    fn next_frame(&mut self) -> Option<Bytes> {
        let length = match frame::announced(&self.held, &Limits::default()) {
            Ok(total) => total?,
            Err(_) => self.held.len(),
        };
        (self.held.len() >= length).then(|| self.held.split_to(length).freeze())
    }
}

/// Returns the answer to a request that a busy server refuses: empty for a oneway request, `None` for other requests.
fn refused(bytes: &Bytes) -> Option<Bytes> {
    let mut copy = BytesMut::from(&bytes[..]);
    let command = frame::decode(&mut copy, &Limits::default()).ok().flatten()?;
    let is_send = matches!(
        command.code,
        request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE
    );
    if !is_send || command.is_response() {
        return None;
    }
    if command.is_oneway() {
        return Some(Bytes::new());
    }
    let answer = Command {
        opaque: command.opaque,
        serialize_type: command.serialize_type,
        ..Command::error(response::SYSTEM_BUSY, BUSY)
    };
    frame::encode(&answer).ok().map(Bytes::from)
}
