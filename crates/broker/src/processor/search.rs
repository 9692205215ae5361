//! Requests that may read much from the disk. A few run at a time, and their connections are not held up.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::backlog::{Backlog, BacklogFull, Load, detached};
use crate::processor::{Function, send_answer};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Processor, Reply, Tracker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Maximum number of searches of one kind that run on one port at a time.
const SEARCHES: usize = 2;
/// Maximum number of searches of a port that wait or run, and of their bytes.
const MAX_SEARCHES: Load = Load {
    requests: 1000,
    bytes: 16 << 20,
};
/// A connection that has this part of the searches or bytes is not read until none of its searches waits or runs.
const SEARCH_PARTS: usize = 50;
/// A search that waited longer is not run: most clients have given up by then, and it would delay later searches.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(15);

/// The searches of a port.
#[derive(Debug, Clone)]
pub(crate) struct Searches {
    context: Arc<BrokerContext>,
    tasks: Tracker,
    backlog: Arc<Backlog>,
    timeout: Duration,
}

/// A row whose function may read much from the disk. It runs on a thread that may block, so that no other request waits
/// for it.
pub(crate) struct Search {
    searches: Searches,
    function: Function,
    permits: Arc<Semaphore>,
}

impl Searches {
    pub(crate) fn new(context: &Arc<BrokerContext>, tasks: &Tracker) -> Self {
        Self {
            context: context.clone(),
            tasks: tasks.clone(),
            backlog: Backlog::new(MAX_SEARCHES, SEARCH_PARTS),
            timeout: SEARCH_TIMEOUT,
        }
    }

    pub(crate) fn row(&self, function: Function) -> Arc<dyn Processor> {
        Arc::new(Search {
            searches: self.clone(),
            function,
            permits: Arc::new(Semaphore::new(SEARCHES)),
        })
    }
}

impl Processor for Search {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let Searches {
            context,
            tasks,
            backlog,
            timeout,
        } = self.searches.clone();
        let entry = match backlog.enter(peer, Load::of(&request), true) {
            Ok(entry) => entry,
            Err(BacklogFull(used)) => {
                let text = format!(
                    "[OVERLOAD] {} searches with {} bytes wait, allowed are {} with {} bytes: ask for less at once",
                    used.requests, used.bytes, MAX_SEARCHES.requests, MAX_SEARCHES.bytes
                );
                return context.refuse(&request, reply, Refusal::new(response::SYSTEM_BUSY, text));
            }
        };
        let (function, permits) = (self.function, self.permits.clone());
        let (request, peer, since) = (detached(request), peer.clone(), Instant::now());
        tasks.spawn(async move {
            let (_permit, has_waited) = match permits.clone().try_acquire_owned() {
                Ok(permit) => (Some(permit), false),
                // The semaphore is never closed.
                Err(_) => (permits.acquire_owned().await.ok(), true),
            };
            if reply.is_closed() {
                return reply.silence();
            }
            let waited = since.elapsed();
            if waited > timeout {
                let text = format!(
                    "[TIMEOUT_CLEAN_QUEUE] {} ms behind other searches, at most {} ms: ask for less at once",
                    waited.as_millis(),
                    timeout.as_millis()
                );
                return context.refuse(&request, reply, Refusal::new(response::SYSTEM_BUSY, text));
            }
            // Its user may have lost its rights meanwhile.
            if has_waited && let Some(refusal) = context.check_again(&request, &peer) {
                return reply.send(refusal);
            }
            let searcher = context.clone();
            let search = move || {
                let began = Instant::now();
                let answer = function(&searcher, &request, &peer);
                send_answer(&searcher, &request, reply, began, answer);
                drop(entry);
            };
            if let Err(error) = spawn_blocking(search).await {
                context.stats.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "a search panicked");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::Answer;
    use crate::processor::site::{Line, Site, soon};
    use pyrmq_remoting::codes::request;
    use pyrmq_remoting::sync::lock;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Condvar, Mutex};

    /// Holds up searches until it is open.
    struct Gate {
        is_open: Mutex<bool>,
        opened: Condvar,
        begun: AtomicUsize,
    }

    impl Gate {
        const fn new() -> Self {
            Self {
                is_open: Mutex::new(false),
                opened: Condvar::new(),
                begun: AtomicUsize::new(0),
            }
        }

        fn pass(&self) -> Answer {
            self.begun.fetch_add(1, Ordering::Relaxed);
            let is_open = lock(&self.is_open);
            drop(self.opened.wait_while(is_open, |is_open| !*is_open));
            Ok(Command::response(response::SUCCESS))
        }

        fn open(&self) {
            *lock(&self.is_open) = true;
            self.opened.notify_all();
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }
    }

    fn ask(row: &Arc<dyn Processor>, (peer, opaque): (&Peer, i32), body: usize) {
        let mut command = Command::request(request::GET_TOPIC_STATS_INFO).with_body(vec![b' '; body]);
        command.opaque = opaque;
        let reply = Reply::new(peer.clone(), &command);
        row.process(command, peer, reply);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limited_number_of_searches_and_bytes_waits() {
        static GATE: Gate = Gate::new();
        let site = Site::new();
        let mut searches = Searches::new(&site.context, &site.tasks);
        searches.timeout = Duration::MAX;
        let row = searches.row(|_, _, _| GATE.pass());
        let (peer, line) = Line::peer(1);
        let (other, refused) = Line::peer(2);
        ask(&row, (&peer, 0), 0);
        assert_eq!(line.pauses(), 0);
        for opaque in 1..16 {
            ask(&row, (&peer, opaque), 1 << 20);
        }
        assert_eq!(line.pauses(), 1);
        ask(&row, (&other, 1), 1 << 20);
        assert_eq!(refused.codes(), [(1, response::SYSTEM_BUSY)]);
        for opaque in 16..1000 {
            ask(&row, (&peer, opaque), 0);
        }
        ask(&row, (&other, 2), 0);
        assert_eq!(refused.codes()[1..], [(2, response::SYSTEM_BUSY)]);
        assert_eq!(line.codes(), []);
        GATE.open();
        soon("all are answered", || line.codes().len() == 1000).await;
        assert!(line.codes().iter().all(|(_, code)| *code == response::SUCCESS));
        soon("its connection is read on", || line.pauses() == 0).await;
        assert!(searches.backlog.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_whose_asker_has_gone_is_not_run() {
        static GATE: Gate = Gate::new();
        let site = Site::new();
        let mut searches = Searches::new(&site.context, &site.tasks);
        searches.timeout = Duration::MAX;
        let row = searches.row(|_, _, _| GATE.pass());
        let (stays, (gone, line)) = (Line::peer(1), Line::peer(2));
        ask(&row, (&stays.0, 1), 0);
        ask(&row, (&stays.0, 2), 0);
        soon("both run", || GATE.begun() == SEARCHES).await;
        ask(&row, (&gone, 3), 0);
        ask(&row, (&stays.0, 4), 0);
        line.end();
        GATE.open();
        soon("the last one is answered", || stays.1.codes().len() == 3).await;
        soon("nothing waits", || searches.backlog.is_empty()).await;
        assert_eq!(GATE.begun(), 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_that_has_waited_for_too_long_is_not_run() {
        let site = Site::new();
        let mut searches = Searches::new(&site.context, &site.tasks);
        searches.timeout = Duration::ZERO;
        let row = searches.row(|_, _, _| Ok(Command::response(response::SUCCESS)));
        let (peer, line) = Line::peer(1);
        ask(&row, (&peer, 1), 0);
        soon("it is answered", || line.codes() == [(1, response::SYSTEM_BUSY)]).await;
    }
}
