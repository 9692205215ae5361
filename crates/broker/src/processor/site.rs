//! A context and connections for the tests of rows.

use crate::context::BrokerContext;
use crate::long_polling::LongPolling;
use crate::options::Options;
use crate::pop::hold::HeldPops;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Outbox, Peer, Tracker};
use pyrmq_remoting::sync::lock;
use pyrmq_store::Fs;
use pyrmq_testkit::{FaultyDisk, TempDir, eventually};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

/// A context on a disk of its own.
pub(super) struct Site {
    _dir: TempDir,
    pub(super) disk: FaultyDisk,
    pub(super) context: Arc<BrokerContext>,
    pub(super) tasks: Tracker,
}

impl Site {
    pub(super) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut options = Options::default();
        options.store.root = dir.path().to_owned();
        options.store.segment_bytes = 1 << 20;
        options.store.max_message_bytes = 1 << 16;
        let disk = FaultyDisk::default();
        let fs: Arc<dyn Fs> = Arc::new(disk.clone());
        let held = (LongPolling::new(1).0, HeldPops::new(1, 1).0);
        let context = Arc::new(BrokerContext::open(options, &fs, held, 0).unwrap());
        Self {
            _dir: dir,
            disk,
            context,
            tasks: Tracker::new(Handle::current()),
        }
    }
}

/// A connection that keeps what its peer is answered.
#[derive(Default)]
pub(super) struct Line {
    answers: Mutex<Vec<Command>>,
    pauses: AtomicUsize,
    has_ended: AtomicBool,
}

impl Line {
    pub(super) fn peer(id: u64) -> (Peer, Arc<Self>) {
        let (line, address) = (Arc::<Self>::default(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        (Peer::new(id, address, address, line.clone()), line)
    }

    /// The opaque numbers and codes of all answers.
    pub(super) fn codes(&self) -> Vec<(i32, i32)> {
        let answers = lock(&self.answers);
        answers
            .iter()
            .map(|answer| (answer.opaque, answer.code))
            .collect()
    }

    pub(super) fn pauses(&self) -> usize {
        self.pauses.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Outbox for Line {
    fn push(&self, command: Command) {
        lock(&self.answers).push(command);
    }

    fn pause(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }

    fn read_on(&self) {
        self.pauses.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn close(&self) {}
}

pub(super) async fn in_time(what: &str, condition: impl FnMut() -> bool) {
    assert!(eventually(condition).await, "not in time: {what}");
}
