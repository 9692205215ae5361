//! The handlers of request codes, and what turns a plain function into a row of the table.
#![allow(
    clippy::unnecessary_wraps,
    reason = "the functions of the table share one signature"
)]

mod auto_create;
mod auto_create_rules;
mod backlog;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod consumer_status;
pub(crate) mod group;
pub(crate) mod offset;
pub(crate) mod pop;
pub(crate) mod pull;
pub(crate) mod query;
pub(crate) mod recall;
mod refusals;
pub(crate) mod reply;
mod rows;
pub(crate) mod runtime;
mod search;
pub(crate) mod send;
pub(crate) mod send_back;
#[cfg(test)]
mod site;
pub(crate) mod stats;
pub(crate) mod store_admin;
pub(crate) mod topic;
pub(crate) mod transaction;

pub(crate) use auto_create::AutoCreateQueue;
pub use pyrmq_remoting::net::table::{Kind, RowInfo};
pub use rows::rows;
pub(crate) use rows::table;
pub(crate) use search::Searches;

use crate::context::{BrokerContext, serve_on_blocking_thread, wait_for_permit};
use crate::error::Refusal;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::Body;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Processor, Reply, Tracker};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The result of most requests: a response, or a refusal.
pub(crate) type Answer = Result<Command, Refusal>;

/// Reads a body that the request must have.
pub(crate) fn read_body<T: Body>(request: &Command) -> Result<T, Refusal> {
    let missing = || Refusal::new(response::INVALID_PARAMETER, "the request has no body");
    Ok(T::decode(request.body.as_deref().ok_or_else(missing)?)?)
}

/// A successful response with this body.
pub(crate) fn answer(body: &impl Body) -> Command {
    Command::response(response::SUCCESS).with_body(body.encode())
}

/// Answers a request that was served from `began` on, and logs it if it was slow or is refused.
fn send_answer(context: &BrokerContext, request: &Command, reply: Reply, began: Instant, answer: Answer) {
    let (from, times) = (reply.peer().remote(), reply.times(began));
    context.requests.served(request, from, times);
    match answer {
        Ok(answer) => reply.send(answer),
        Err(refusal) => context.refuse(request, reply, refusal),
    }
}

/// A function that serves a request at once.
pub(crate) type Function = fn(&BrokerContext, &Command, &Peer) -> Answer;

/// A row that calls a function.
pub(crate) struct Handler {
    context: Arc<BrokerContext>,
    function: Function,
}

impl Handler {
    pub(crate) fn row(context: &Arc<BrokerContext>, function: Function) -> Arc<dyn Processor> {
        Arc::new(Self {
            context: context.clone(),
            function,
        })
    }
}

impl Processor for Handler {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let began = Instant::now();
        let answer = (self.function)(&self.context, &request, peer);
        send_answer(&self.context, &request, reply, began, answer);
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// How long a response waits for the name servers to learn of a change.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of threads that the changes of one port use, apart from long ones, which have as many: most wait for
/// each other, and for the disk.
const CHANGES: usize = 4;

/// What the changes of a port share, long ones apart from others.
#[derive(Clone)]
pub(crate) struct Changes {
    context: Arc<BrokerContext>,
    tasks: Tracker,
    permits: Arc<Semaphore>,
}

impl Changes {
    pub(crate) fn new(context: &Arc<BrokerContext>, tasks: &Tracker) -> Self {
        Self {
            context: context.clone(),
            tasks: tasks.clone(),
            permits: Arc::new(Semaphore::new(CHANGES)),
        }
    }
}

/// A row that changes a file of the broker, or waits for the log. Its function runs on a thread that may wait for the
/// disk.
pub(crate) struct Change {
    changes: Changes,
    function: Function,
    is_announced: bool,
}

impl Change {
    pub(crate) fn row(changes: &Changes, function: Function) -> Arc<dyn Processor> {
        Arc::new(Self {
            changes: changes.clone(),
            function,
            is_announced: false,
        })
    }

    /// A row whose response waits until the name servers know the change: a client that creates a topic and then asks
    /// for its route must find it.
    pub(crate) fn announced(changes: &Changes, function: Function) -> Arc<dyn Processor> {
        Arc::new(Self {
            changes: changes.clone(),
            function,
            is_announced: true,
        })
    }
}

impl Processor for Change {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let Changes {
            context,
            tasks,
            permits,
        } = self.changes.clone();
        let (function, is_announced) = (self.function, self.is_announced);
        // Later requests of the connection find the change. So each connection has one at a time.
        let (peer, pause) = (peer.clone(), peer.pause());
        tasks.spawn(async move {
            let (permit, has_waited) = wait_for_permit(permits).await;
            // Its user may have lost its rights meanwhile.
            if has_waited && let Some(refusal) = context.check_again(&request, &peer) {
                return reply.send(refusal);
            }
            let changing = context.clone();
            let change = move || {
                let began = Instant::now();
                let answer = function(&changing, &request, &peer);
                (request, began, answer)
            };
            let changed = serve_on_blocking_thread(&context.stats, "a change", change).await;
            drop((pause, permit));
            if let Some((request, began, answer)) = changed {
                if is_announced && answer.is_ok() {
                    context.announcements.settle(SETTLE_LIMIT).await;
                }
                send_answer(&context, &request, reply, began, answer);
            }
        });
    }
}
