//! One connection, one task: it reads, decodes, dispatches and writes.
//!
//! ```text
//! poll:  read what is there -> every whole frame -> response: its handler; request: its row in the table
//!        a batch ends when nothing more is there: do what its requests share (one fsync), queue the answers
//!        write everything queued, vectored, until the socket is full or the queue empty
//!        again while there was progress, at most POLL_FRAMES frames or 128 KiB; then let other tasks run
//! sleep: until the socket, a push or the earliest of idle, stall, deadline
//! ```
//! Limits of a peer: one partial frame up to the decoder's limit (`limits/partial_frames.rs` limits the sum);
//! `in_flight` unanswered requests; `outgoing_bytes` of waiting answers (less if many peers are slow:
//! `limits/memory_budget.rs`), at which it is no longer read, and `outgoing_close_bytes`, at which it is closed.

mod dispatch;
mod outgoing;

use crate::codes::response;
use crate::command::Command;
use crate::frame;
use crate::net::connection::outgoing::WriteBatch;
use crate::net::limits::ClientUse;
use crate::net::limits::large_frames::{LargeFramePermits, PermitState};
use crate::net::limits::memory_budget::{BudgetShare, MemoryBudget};
use crate::net::limits::partial_frames::{PartialFrame, PartialFrames};
use crate::net::link::pending::PendingRequest;
use crate::net::link::send_queue::SendQueue;
use crate::net::link::{Link, Park, Phase};
use crate::net::socket::stream::{PeerEnd, Stream};
use crate::net::stats::{Snapshot, Stats};
use crate::net::table::RequestBatch;
use crate::net::{CloseReason, ConnectionOptions, Outbox, Peer, ProcessorTable, Reply};
use bytes::{BufMut, BytesMut};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Sleep, sleep_until};

/// Frames that one poll handles before other tasks run.
const POLL_FRAMES: usize = 512;
/// Bytes that count as one more frame of a poll. Many large frames at once must not delay small ones on other
/// connections, so a poll ends after some 128 KiB.
const BYTES_PER_FRAME: usize = 256;
/// Initial size of a read; doubled while reads fill it, halved while they do not.
const READ_MIN: usize = 4 * 1024;
const READ_MAX: usize = 256 * 1024;
/// A client reads a frame of this length into a buffer of its own. A consumer keeps answers for long, and in a shared
/// buffer each would keep parts of others.
const OWN_BUFFER: usize = 64 * 1024;
/// How often a paused connection with unread bytes, which hide its end, is checked for it.
const PEER_END_CHECK: Duration = Duration::from_secs(1);
/// Progress that a slow peer must make so as not to count as stalled.
const PROGRESS_BYTES: usize = 64 * 1024;

/// State shared by all connections of one server or client.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) options: ConnectionOptions,
    pub(super) drain_quiet: Duration,
    pub(super) table: Arc<ProcessorTable>,
    pub(super) stats: Arc<Stats>,
    pub(super) large: Option<LargeFramePermits>,
    /// `None` for a client.
    pub(super) partial_frames: Option<PartialFrames>,
    pub(super) waiting: Arc<MemoryBudget>,
}

/// When a read or write stopped progressing, and how many bytes have moved since.
#[derive(Debug, Default)]
pub(super) struct Hang {
    since: Option<Instant>,
    moved: usize,
}

impl Hang {
    fn moved(&mut self, bytes: usize) {
        self.moved += bytes;
        if self.moved >= PROGRESS_BYTES {
            *self = Self::default();
        }
    }

    fn due(&mut self, hangs: bool, now: Instant, limit: Duration) -> Option<Instant> {
        if !hangs {
            *self = Self::default();
            return None;
        }
        Some(*self.since.get_or_insert(now) + limit)
    }
}

/// The answer to a failed login. Until it leaves, the connection is not read.
#[derive(Debug)]
pub(super) struct HeldAnswer {
    pub(super) until: Instant,
    pub(super) reply: Reply,
    pub(super) answer: Command,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a socket, not one state"
)]
pub(super) struct Connection {
    stream: Stream,
    pub(super) link: Arc<Link>,
    pub(super) peer: Peer,
    pub(super) setting: Arc<Setting>,
    pub(super) input: BytesMut,
    read_size: usize,
    small_reads: u8,
    /// `input` may contain whole frames.
    pub(super) unread: bool,
    /// No frame has been read yet: errors in the first bytes get a better explanation.
    pub(super) fresh: bool,
    ended: bool,
    /// The last read filled its buffer, so more data is likely.
    more: bool,
    /// A request since the last write is waiting for the end of the batch.
    pub(super) in_batch: bool,
    /// The requests of batched rows; made with the first of them.
    pub(super) requests: Option<Box<dyn RequestBatch>>,
    pub(super) permit_state: PermitState,
    /// The connection's part of a frame, among the unfinished frames of all connections.
    partial: Option<PartialFrame>,
    share: BudgetShare,
    ready: SendQueue,
    batch: WriteBatch,
    blocked: bool,
    timer: Pin<Box<Sleep>>,
    armed: Instant,
    last_active: Instant,
    /// When this side was last seen not to read: what its peer has sent meanwhile may be in the socket.
    last_paused: Instant,
    write_hang: Hang,
    pub(super) read_hang: Hang,
    pub(super) responses: Vec<Command>,
    pub(super) answered: Vec<(PendingRequest, Command)>,
    pub(super) tally: Snapshot,
    /// What its client uses; `None` without limits.
    pub(super) used: Option<ClientUse>,
    pub(super) held: Option<Box<HeldAnswer>>,
    pub(super) now: Instant,
}

impl Connection {
    pub(super) fn new(stream: Stream, link: Arc<Link>, peer: Peer, setting: Arc<Setting>) -> Self {
        let now = Instant::now();
        let armed = now + setting.options.idle;
        let share = BudgetShare::of(&setting.waiting);
        let partial = setting.partial_frames.as_ref().map(PartialFrame::new);
        Self {
            stream,
            link,
            peer,
            setting,
            input: BytesMut::new(),
            read_size: READ_MIN,
            small_reads: 0,
            unread: false,
            fresh: true,
            ended: false,
            more: false,
            in_batch: false,
            requests: None,
            permit_state: PermitState::None,
            partial,
            share,
            ready: SendQueue::default(),
            batch: WriteBatch::default(),
            blocked: false,
            timer: Box::pin(sleep_until(armed)),
            armed,
            now,
            last_active: now,
            last_paused: now,
            write_hang: Hang::default(),
            read_hang: Hang::default(),
            responses: Vec::new(),
            answered: Vec::new(),
            tally: Snapshot::default(),
            used: None,
            held: None,
        }
    }

    /// Counts what the connection uses.
    pub(super) fn limited(self, used: Option<ClientUse>) -> Self {
        Self { used, ..self }
    }

    /// Serves the connection until it ends, then ends every wait on it. Boxed: the future of an `async fn` has room for
    /// its arguments twice.
    pub(super) async fn run(mut self: Box<Self>) -> CloseReason {
        // The timer must know its task before the first poll relies on it.
        let _elapsed = poll_fn(|cx| Poll::Ready(self.timer.as_mut().poll(cx).is_ready())).await;
        let reason = poll_fn(|cx| {
            let polled = self.poll_once(cx);
            self.setting.stats.add(&mut self.tally);
            polled
        })
        .await;
        poll_fn(|cx| {
            self.stream.end(cx);
            Poll::Ready(())
        })
        .await;
        self.end_batch();
        self.link.end(&self.ready, &reason, None);
        reason
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.link.unpark();
        self.now = Instant::now();
        let mut work = POLL_FRAMES;
        loop {
            let phase = self.link.phase();
            match self.step(cx, phase, &mut work) {
                Err(reason) => {
                    self.count(&reason);
                    return Poll::Ready(reason);
                }
                Ok(true) if work == 0 => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(true) => continue,
                Ok(false) => {}
            }
            let Park::Asleep(deadline) = self.link.park(cx.waker(), phase, self.blocked) else {
                continue;
            };
            match self.prepare_sleep(cx, phase, deadline) {
                Ok(true) => {
                    self.batch.shrink();
                    self.ready.shrink();
                    return Poll::Pending;
                }
                Ok(false) => self.link.unpark(),
                Err(reason) => {
                    self.count(&reason);
                    return Poll::Ready(reason);
                }
            }
        }
    }

    /// Reads and writes as much as possible. True: there was progress.
    fn step(&mut self, cx: &mut Context<'_>, phase: Phase, work: &mut usize) -> Result<bool, CloseReason> {
        if phase >= Phase::Cut {
            return Err(self.link.reason().unwrap_or(CloseReason::Here));
        }
        let mut progress = false;
        if phase < Phase::Closing && !self.waits_for_login(phase) && self.takes_more() {
            if !self.unread && !self.ended && self.may_read(cx) {
                progress |= self.read(cx, work)?;
            }
            if self.unread {
                progress = true;
                self.dispatch(work)?;
                if self.in_batch && self.more && *work > 0 {
                    return Ok(true);
                }
            }
        }
        if self.in_batch {
            self.end_batch();
            // The end may have waited for the disk. The connection was not idle meanwhile.
            self.now = Instant::now();
        }
        // A peer that sees an answer may read the counters next.
        self.setting.stats.add(&mut self.tally);
        progress |= self.write(cx)?;
        self.share.report(self.link.queued.load(Ordering::Relaxed));
        if self.ended && !self.unread {
            return Err(CloseReason::ByPeer);
        }
        if phase == Phase::Closing && self.is_flushed() {
            return Err(self.link.reason().unwrap_or(CloseReason::Here));
        }
        Ok(progress)
    }

    /// Returns true while the answer to a failed login is held back; a stop and the end of its time release it.
    fn waits_for_login(&mut self, phase: Phase) -> bool {
        let waits = |held: &HeldAnswer| phase == Phase::Open && self.now < held.until;
        if self.held.as_deref().is_some_and(waits) {
            return true;
        }
        if let Some(held) = self.held.take() {
            held.reply.send(held.answer);
        }
        false
    }

    /// Returns true while this side should read: nobody has paused the connection, and the bytes waiting for the peer
    /// are within its limit and within what the others leave.
    pub(super) fn takes_more(&mut self) -> bool {
        if self.link.is_paused() {
            return false;
        }
        let queued = self.link.queued.load(Ordering::Relaxed);
        self.share.report(queued);
        queued < self.share.allowed(self.setting.options.outgoing_bytes)
    }

    fn is_flushed(&self) -> bool {
        self.batch.is_empty() && self.ready.is_empty() && self.stream.is_sent()
    }

    /// Returns false while this connection must wait to read a large frame, or for memory of unfinished frames.
    fn may_read(&mut self, cx: &mut Context<'_>) -> bool {
        if let (Some(partial), Some(partial_frames)) = (&mut self.partial, &self.setting.partial_frames)
            && !partial.fits(self.input.len())
            && !partial.may_go_past(partial_frames, self.now, cx)
        {
            drop(self.permit_state.take());
            return false;
        }
        let Some(frame_permits) = &self.setting.large else {
            return true;
        };
        let frame = frame::announced(&self.input, &self.setting.options.limits);
        if !matches!(frame, Ok(Some(bytes)) if frame_permits.is_large(bytes)) {
            return true;
        }
        self.permit_state.poll(&frame_permits.permits, cx)
    }

    /// Makes room for a read, and returns how much of it to fill.
    fn make_room(&mut self) -> usize {
        let is_client = self.setting.partial_frames.is_none();
        if is_client
            && let Ok(Some(bytes @ OWN_BUFFER..)) =
                frame::announced(&self.input, &self.setting.options.limits)
            && let rest @ 1.. = bytes.saturating_sub(self.input.len())
        {
            self.input.reserve(rest);
            // The next read gets little more than the length of the next frame: a long one is copied, and read on here.
            self.read_size = READ_MIN;
            return rest;
        }
        if self.input.capacity() - self.input.len() < self.read_size / 2 {
            self.input.reserve(self.read_size);
        }
        let room = self.input.capacity() - self.input.len();
        if is_client { room.min(self.read_size) } else { room }
    }

    fn read(&mut self, cx: &mut Context<'_>, work: &mut usize) -> Result<bool, CloseReason> {
        let room = self.make_room();
        self.more = false;
        let mut input = (&mut self.input).limit(room);
        let Poll::Ready(read) = pin!(self.stream.read_buf(&mut input)).poll(cx) else {
            // Others may continue while this peer is slow.
            drop(self.permit_state.take());
            return Ok(false);
        };
        let read = read?;
        if read == 0 {
            self.ended = true;
            return Ok(true);
        }
        *work = work.saturating_sub(read / BYTES_PER_FRAME);
        self.tally.reads += 1;
        self.tally.bytes_in += read as u64;
        if let Some(used) = &self.used {
            used.pass(read, self.now);
        }
        self.last_active = self.now;
        self.read_hang.moved(read);
        self.unread = true;
        self.more = read >= room;
        if read >= room.min(self.read_size) {
            self.read_size = (self.read_size * 2).min(READ_MAX);
            self.small_reads = 0;
        } else if read < self.read_size / 4 {
            self.small_reads += 1;
            if self.small_reads >= 16 {
                self.read_size = (self.read_size / 2).max(READ_MIN);
                self.small_reads = 0;
            }
        }
        Ok(true)
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progress = false;
        self.blocked = false;
        loop {
            if self.batch.is_empty() && !self.fill() {
                match self.stream.poll_sent(cx) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => self.blocked = true,
                }
                return Ok(progress);
            }
            let Poll::Ready(written) = self.batch.poll_write(Pin::new(&mut self.stream), cx) else {
                self.blocked = true;
                return Ok(progress);
            };
            let written = written?;
            if written == 0 {
                return Err(CloseReason::ByPeer);
            }
            progress = true;
            self.tally.writes += 1;
            self.tally.bytes_out += written as u64;
            if let Some(used) = &self.used {
                used.pass(written, self.now);
            }
            self.last_active = self.now;
            self.write_hang.moved(written);
            if self.batch.is_empty() {
                self.link.written(self.batch.take_cost());
            }
        }
    }

    /// Prepares the next batch. False: there is none.
    fn fill(&mut self) -> bool {
        loop {
            if self.ready.is_empty() {
                self.link.take_queue(&mut self.ready);
            }
            if self.ready.is_empty() {
                return false;
            }
            let mut refused = Vec::new();
            self.batch.fill(&mut self.ready, &mut refused);
            for (command, error) in refused {
                tracing::error!(code = command.code, %error, "cannot encode a command as a frame");
                if command.is_response() {
                    let mut answer = Command::error(response::SYSTEM_ERROR, error.to_string());
                    (answer.opaque, answer.serialize_type) = (command.opaque, command.serialize_type);
                    Outbox::push(&*self.link, answer);
                } else {
                    self.link.refuse(command.opaque, error);
                }
            }
            if !self.batch.is_empty() {
                return true;
            }
            self.link.written(self.batch.take_cost());
        }
    }

    /// Reads the clock and arms the timer, when there is nothing to do. True: sleep; false: there is work again.
    fn prepare_sleep(
        &mut self,
        cx: &mut Context<'_>,
        phase: Phase,
        deadline: Option<Instant>,
    ) -> Result<bool, CloseReason> {
        let after_share = self.check_partial()?;
        let peer_end = self.check_peer_end(cx)?;
        let is_in_line =
            self.permit_state.is_waiting() || self.partial.as_ref().is_some_and(PartialFrame::is_waiting);
        let held = self.held.as_ref().map(|held| held.until);
        let partial = !self.input.is_empty() && held.is_none() && self.takes_more() && !is_in_line;
        let options = &self.setting.options;
        if self.link.is_paused() {
            self.last_paused = self.now;
        }
        let idle = self.last_active.max(self.last_paused) + options.idle;
        let stalled = self.write_hang.due(self.blocked, self.now, options.write_timeout);
        let partial = self.read_hang.due(partial, self.now, options.idle);
        if self.now >= idle {
            return Err(CloseReason::Idle);
        }
        if stalled.is_some_and(|due| self.now >= due) {
            return Err(CloseReason::Stalled);
        }
        if partial.is_some_and(|due| self.now >= due) {
            return Err(CloseReason::PartialFrame);
        }
        if deadline.is_some_and(|due| self.now >= due) {
            self.link.expire(self.now, &mut self.ready);
            return Ok(false);
        }
        if held.is_some_and(|until| self.now >= until) {
            return Ok(false);
        }
        let mut due = [stalled, partial, deadline, after_share, held, peer_end]
            .into_iter()
            .flatten()
            .fold(idle, Instant::min);
        if phase == Phase::Draining {
            let quiet = self.last_active + self.setting.drain_quiet;
            let done = self.input.is_empty() && self.is_flushed() && self.link.is_quiet();
            if done && self.now >= quiet {
                return Err(CloseReason::Drained);
            }
            due = due.min(quiet.max(self.now + Duration::from_millis(5)));
        }
        Ok(self.arm(cx, due))
    }

    /// Notices that the peer of a paused connection has closed it. Returns when to check again; an error if the
    /// connection ends. If requests are unread, they are served once the connection is read on; until then it counts as
    /// closed. A reset takes unread requests from the socket, but not those that were read from it.
    fn check_peer_end(&mut self, cx: &mut Context<'_>) -> Result<Option<Instant>, CloseReason> {
        if !self.link.is_paused() || self.link.is_closed_by_peer() {
            return Ok(None);
        }
        match self.stream.peer_end(cx) {
            Ok(PeerEnd::Open) => return Ok(Some(self.now + PEER_END_CHECK)),
            Ok(PeerEnd::Closed) if !self.unread => return Err(CloseReason::ByPeer),
            Err(error) if !self.unread => return Err(error.into()),
            Ok(PeerEnd::Closed | PeerEnd::ClosedBehindBytes) | Err(_) => self.link.mark_closed_by_peer(),
        }
        Ok(None)
    }

    /// Checks a partial frame over the connection's share. Returns when to check it again; an error if its rest is
    /// late.
    fn check_partial(&mut self) -> Result<Option<Instant>, CloseReason> {
        let (Some(partial), Some(partial_frames)) = (&mut self.partial, &self.setting.partial_frames) else {
            return Ok(None);
        };
        let bytes = self.input.len();
        if partial.fits(bytes) {
            return Ok(None);
        }
        if self.permit_state.is_waiting() {
            partial.excuse(partial_frames, self.now);
        }
        if partial.is_late(self.now) {
            tracing::warn!(
                peer = %self.peer.remote(), bytes, limit = partial_frames.room.total(),
                "closed a connection: the rest of a frame did not arrive while unfinished frames filled their memory limit"
            );
            self.tally.unfinished += 1;
            return Err(CloseReason::PartialFrame);
        }
        Ok(partial.due(self.now))
    }

    /// Arms the timer. It is moved only if it would fire too late; if it fires too early, it is armed again.
    fn arm(&mut self, cx: &mut Context<'_>, due: Instant) -> bool {
        if due < self.armed || self.now >= self.armed {
            self.armed = due;
            self.timer.as_mut().reset(due);
            if self.timer.as_mut().poll(cx).is_ready() {
                self.now = Instant::now().max(due);
                return false;
            }
        }
        true
    }

    fn count(&mut self, reason: &CloseReason) {
        match reason {
            CloseReason::Tls
            | CloseReason::ProxyProtocol
            | CloseReason::ProxyHeader(_)
            | CloseReason::PlainRefused
            | CloseReason::TooManyConnections
            | CloseReason::Handshake(_) => self.tally.refused += 1,
            CloseReason::Wire(_) | CloseReason::PartialFrame => self.tally.malformed += 1,
            CloseReason::Stalled | CloseReason::Overflow { .. } => self.tally.stalled += 1,
            CloseReason::ByPeer
            | CloseReason::Here
            | CloseReason::Idle
            | CloseReason::Drained
            | CloseReason::Io(_) => {}
        }
    }
}
