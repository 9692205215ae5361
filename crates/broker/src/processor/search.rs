//! Requests that may read much from the disk. A few run at a time. Their connections are read meanwhile, as sends and
//! heartbeats may be behind them: one with its share of searches is refused more.

use crate::context::{BrokerContext, serve_on_blocking_thread, wait_for_permit};
use crate::error::Refusal;
use crate::processor::backlog::{Backlog, Load, NoRoom, detached};
use crate::processor::{Function, send_answer};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Processor, Reply, Tracker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Maximum number of searches of one kind that run on one port at a time.
const SEARCHES: usize = 2;
/// Maximum number of searches of a port that wait or run, and of their bytes.
const MAX_SEARCHES: Load = Load {
    requests: 1000,
    bytes: 16 << 20,
};
/// One connection may have one of these parts of both.
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
        let entry = match backlog.enter_in_share(peer, Load::of(&request)) {
            Ok(entry) => entry,
            Err(no_room) => {
                let (whose, used, most) = match no_room {
                    NoRoom::OfAll(used, most) => ("", used, most),
                    NoRoom::OfConnection(used, most) => (" of this connection", used, most),
                };
                let text = format!(
                    "[OVERLOAD] {} searches{whose} with {} bytes wait or run, allowed are {} with {} bytes: ask for \
                     less at once",
                    used.requests, used.bytes, most.requests, most.bytes
                );
                return context.refuse(&request, reply, Refusal::new(response::SYSTEM_BUSY, text));
            }
        };
        let (function, permits) = (self.function, self.permits.clone());
        let (request, peer, since) = (detached(request), peer.clone(), Instant::now());
        tasks.spawn(async move {
            let (_permit, has_waited) = wait_for_permit(permits).await;
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
            serve_on_blocking_thread(&context.stats, "a search", search).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::Answer;
    use crate::processor::site::{Line, Site, in_time};
    use pyrmq_remoting::codes::request;
    use pyrmq_remoting::sync::lock;
    use std::sync::atomic::{AtomicUsize, Ordering};
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
    async fn a_limited_number_of_searches_and_bytes_of_each_connection_waits() {
        static GATE: Gate = Gate::new();
        let site = Site::new();
        let mut searches = Searches::new(&site.context, &site.tasks);
        searches.timeout = Duration::MAX;
        let row = searches.row(|_, _, _| GATE.pass());
        let (last, refused) = Line::peer(100);
        // Each connection has its share of the requests.
        let lines: Vec<_> = (0..50)
            .map(|id| {
                let (peer, line) = Line::peer(id);
                // A large one is not more than a share of the bytes if it is the only one.
                ask(&row, (&peer, 0), if id < 15 { 1 << 20 } else { 0 });
                for opaque in 1..=20 {
                    ask(&row, (&peer, opaque), 0);
                }
                assert_eq!(line.pauses(), 0);
                let busy = if id < 15 { 1..=20 } else { 20..=20 };
                let busy: Vec<_> = busy.map(|opaque| (opaque, response::SYSTEM_BUSY)).collect();
                assert_eq!(line.codes(), busy);
                line
            })
            .collect();
        ask(&row, (&last, 1), 1 << 20);
        assert_eq!(refused.codes(), [(1, response::SYSTEM_BUSY)]);
        for opaque in 2..=16 {
            ask(&row, (&last, opaque), 0);
        }
        assert_eq!(refused.codes().len(), 1);
        GATE.open();
        in_time("all are answered", || {
            lines.iter().all(|line| line.codes().len() == 21) && refused.codes().len() == 16
        })
        .await;
        in_time("nothing waits", || searches.backlog.is_empty()).await;
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
        in_time("both run", || GATE.begun() == SEARCHES).await;
        ask(&row, (&gone, 3), 0);
        ask(&row, (&stays.0, 4), 0);
        line.end();
        GATE.open();
        in_time("the last one is answered", || stays.1.codes().len() == 3).await;
        in_time("nothing waits", || searches.backlog.is_empty()).await;
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
        in_time("it is answered", || line.codes() == [(1, response::SYSTEM_BUSY)]).await;
    }
}
