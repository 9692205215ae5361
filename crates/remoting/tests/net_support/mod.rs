//! Shared by the transport's tests: a table with every kind of row, a server with it, a client.
#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    Client, ClientOptions, CloseReason, Drained, Events, NetError, Peer, Processor, ProcessorTable, Reply,
    Requests, Security, Server, ServerOptions, Shutdown, Stats, UnfinishedFrames,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Answers with the request's own fields and body.
pub(crate) const ECHO: i32 = 9001;
/// Keeps the reply until the test answers it.
pub(crate) const HOLD: i32 = 9002;
/// Panics.
pub(crate) const PANIC: i32 = 9003;
/// Goes to the Python queue, which no worker serves.
pub(crate) const PYTHON: i32 = 9004;
/// Is refused with a reason.
pub(crate) const REFUSED: i32 = 9005;
/// Drops the reply.
pub(crate) const FORGET: i32 = 9006;
/// Answers with a body of the length in the field `bytes`.
pub(crate) const BIG: i32 = 9007;
/// Ends without an answer.
pub(crate) const SILENT: i32 = 9008;

pub(crate) const SECOND: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) opened: Mutex<Vec<Peer>>,
    pub(crate) closed: Mutex<Vec<CloseReason>>,
    pub(crate) held: Mutex<Vec<(Command, Reply)>>,
}

impl Seen {
    pub(crate) fn opened(&self) -> usize {
        self.opened.lock().unwrap().len()
    }
    pub(crate) fn closed(&self) -> usize {
        self.closed.lock().unwrap().len()
    }
    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }
    pub(crate) fn take_held(&self) -> Vec<(Command, Reply)> {
        std::mem::take(&mut self.held.lock().unwrap())
    }
    pub(crate) fn peer(&self, at: usize) -> Peer {
        self.opened.lock().unwrap()[at].clone()
    }
}

impl Events for Seen {
    fn opened(&self, peer: &Peer) {
        self.opened.lock().unwrap().push(peer.clone());
    }
    fn closed(&self, _peer: &Peer, reason: &CloseReason) {
        self.closed.lock().unwrap().push(reason.clone());
    }
}

pub(crate) fn table(seen: &Arc<Seen>, requests: &Arc<Requests>) -> ProcessorTable {
    let native = |process: fn(Command, Reply)| -> Arc<dyn Processor> {
        Arc::new(move |request: Command, _: &Peer, reply: Reply| process(request, reply))
    };
    let mut table = ProcessorTable::new();
    table.native(&[ECHO], &native(|request, reply| reply.send(echo(request))));
    table.native(
        &[PANIC],
        &native(|_, _reply| panic!("a processor that panics on purpose")),
    );
    table.native(&[FORGET], &native(|_, reply| drop(reply)));
    table.native(&[SILENT], &native(|_, reply| reply.silence()));
    table.native(
        &[BIG],
        &native(|request, reply| {
            let bytes = request.fields.get("bytes").unwrap().parse().unwrap();
            reply.send(Command::response(0).with_body(vec![7; bytes]));
        }),
    );
    let held = seen.clone();
    let hold: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, reply: Reply| {
        held.held.lock().unwrap().push((request, reply));
    });
    table.native(&[HOLD], &hold);
    table.python(&[PYTHON], requests);
    table.refused(REFUSED, "its turn has not come");
    table
}

pub(crate) fn echo(request: Command) -> Command {
    Command {
        fields: request.fields,
        body: request.body,
        ..Command::response(0)
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) unfinished: UnfinishedFrames,
    pub(crate) shutdown: Shutdown,
    pub(crate) requests: Arc<Requests>,
    task: JoinHandle<Result<Drained, NetError>>,
}

impl Running {
    pub(crate) fn start(options: ServerOptions) -> Self {
        Self::start_secured(options, &Security::default())
    }

    pub(crate) fn start_secured(options: ServerOptions, security: &Security) -> Self {
        let seen = Arc::new(Seen::default());
        let requests = Arc::new(Requests::new(2));
        let table = table(&seen, &requests);
        Self::start_with(options, security, table, seen, requests)
    }

    pub(crate) fn start_with(
        options: ServerOptions,
        security: &Security,
        table: ProcessorTable,
        seen: Arc<Seen>,
        requests: Arc<Requests>,
    ) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(any, options, Arc::new(table), seen.clone()).unwrap();
        let server = server.secured(security);
        let (address, stats) = (server.local_addr(), server.stats());
        let unfinished = server.unfinished_frames();
        let shutdown = Shutdown::new();
        let task = tokio::task::spawn(server.run(shutdown.clone()));
        Self {
            address,
            seen,
            stats,
            unfinished,
            shutdown,
            requests,
            task,
        }
    }

    pub(crate) fn at(&self) -> String {
        self.address.to_string()
    }

    pub(crate) async fn stop(self) -> Drained {
        self.shutdown.stop();
        self.join().await
    }

    pub(crate) async fn join(self) -> Drained {
        self.task.await.unwrap().unwrap()
    }
}

pub(crate) fn client(options: ClientOptions) -> Client {
    let seen = Arc::new(Seen::default());
    let requests = Arc::new(Requests::new(2));
    client_with(options, &seen, &requests)
}

pub(crate) fn client_with(options: ClientOptions, seen: &Arc<Seen>, requests: &Arc<Requests>) -> Client {
    let handle = tokio::runtime::Handle::current();
    Client::new(&handle, options, Arc::new(table(seen, requests))).unwrap()
}

pub(crate) fn ask(code: i32, body: &[u8]) -> Command {
    Command::request(code).with_body(body.to_vec())
}
