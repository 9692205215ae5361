//! Groups that a request makes by using them. Each needs a write and a sync of a whole file, which a connection's task
//! must not wait for: sends of other connections share its thread. So requests that name a new group wait in a list. A
//! blocking thread makes the groups of all that are waiting with one write, then hands the requests to their rows.

use crate::admission;
use crate::context::BrokerContext;
use crate::error::Refusal;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, HeartbeatData};
use pyrmq_remoting::net::{Peer, Processor, Reply, Tracker};
use pyrmq_remoting::sync::lock;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::task::spawn_blocking;

/// A group that is not there yet, or has no retry topic yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NewGroup {
    name: String,
    /// Whether its members may get messages again, for which it needs its retry topic.
    needs_retry_topic: bool,
}

/// A request that waits for its groups.
struct Waiting {
    groups: Vec<NewGroup>,
    request: Command,
    reply: Reply,
    row: Arc<dyn Processor>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    is_worked_off: bool,
}

/// Makes the groups of requests that wait. The rows of a table share one.
#[derive(Clone)]
pub(crate) struct GroupMaker {
    state: Arc<BrokerContext>,
    tasks: Tracker,
    // Guards the requests that wait, and whether a thread takes them.
    queue: Arc<Mutex<Queue>>,
}

impl GroupMaker {
    pub(crate) fn new(state: &Arc<BrokerContext>, tasks: &Tracker) -> Self {
        Self {
            state: state.clone(),
            tasks: tasks.clone(),
            queue: Arc::default(),
        }
    }

    /// A row that makes the group of the field `consumerGroup` first.
    pub(crate) fn row_of_field(&self, row: Arc<dyn Processor>) -> Arc<dyn Processor> {
        self.row(row, group_of_field)
    }

    /// A row like that of [`Self::row_of_field`], for requests that are refused before their group is made when their
    /// topic is unknown.
    pub(crate) fn row_of_pops(&self, row: Arc<dyn Processor>) -> Arc<dyn Processor> {
        self.row(row, group_of_pop)
    }

    /// A row that makes the groups of a heartbeat, and their retry topics, first.
    pub(crate) fn row_of_heartbeat(&self, row: Arc<dyn Processor>) -> Arc<dyn Processor> {
        self.row(row, groups_of_heartbeat)
    }

    fn row(&self, row: Arc<dyn Processor>, groups: Groups) -> Arc<dyn Processor> {
        let maker = self.clone();
        Arc::new(FirstUse { maker, row, groups })
    }

    fn wait(&self, waiting: Waiting) {
        let mut queue = lock(&self.queue);
        queue.waiting.push(waiting);
        if std::mem::replace(&mut queue.is_worked_off, true) {
            return;
        }
        drop(queue);
        let maker = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = spawn_blocking(move || maker.work_off()).await {
                tracing::error!(%error, "making consumer groups panicked");
            }
        });
    }

    fn work_off(&self) {
        // Set back also after a panic: later requests find a thread again.
        let _end = End(&self.queue);
        loop {
            let waiting = {
                let mut queue = lock(&self.queue);
                if queue.waiting.is_empty() {
                    queue.is_worked_off = false;
                    return;
                }
                std::mem::take(&mut queue.waiting)
            };
            if let Err(refusal) = self.make(&waiting) {
                for one in waiting {
                    one.reply.send(refusal.clone().into_response());
                }
                continue;
            }
            for one in waiting {
                let peer = one.reply.peer().clone();
                one.row.process(one.request, &peer, one.reply);
            }
        }
    }

    fn make(&self, waiting: &[Waiting]) -> Result<(), Refusal> {
        let groups: BTreeSet<&NewGroup> = waiting.iter().flat_map(|one| &one.groups).collect();
        let names: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let retried = groups.iter().filter(|group| group.needs_retry_topic);
        let retried: Vec<&str> = retried.map(|group| group.name.as_str()).collect();
        self.state.make_groups(&Vec::from_iter(names), &retried)
    }
}

/// Notes that no thread takes the requests any more.
struct End<'a>(&'a Mutex<Queue>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).is_worked_off = false;
        }
    }
}

type Groups = fn(&BrokerContext, &Command) -> Vec<NewGroup>;

struct FirstUse {
    maker: GroupMaker,
    row: Arc<dyn Processor>,
    groups: Groups,
}

impl Processor for FirstUse {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let groups = (self.groups)(&self.maker.state, &request);
        if groups.is_empty() {
            return self.row.process(request, peer, reply);
        }
        let row = self.row.clone();
        self.maker.wait(Waiting {
            groups,
            request,
            reply,
            row,
        });
    }
}

impl fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstUse")
    }
}

/// Whether a request may make this group.
fn may_make(state: &BrokerContext, name: &str) -> bool {
    state.live.auto_create_subscription_group() && admission::group_name(name).is_ok()
}

// Reads the one field that the headers of all these requests have, not each whole header.
fn group_of_field(state: &BrokerContext, request: &Command) -> Vec<NewGroup> {
    let Some(name) = request.fields.get("consumerGroup") else {
        return Vec::new();
    };
    if state.groups.contains(name) || !may_make(state, name) {
        return Vec::new();
    }
    vec![NewGroup {
        name: name.to_owned(),
        needs_retry_topic: false,
    }]
}

fn group_of_pop(state: &BrokerContext, request: &Command) -> Vec<NewGroup> {
    let topic = request.fields.get("topic");
    if topic.is_none_or(|topic| state.topics.get(topic).is_none()) {
        return Vec::new();
    }
    group_of_field(state, request)
}

fn groups_of_heartbeat(state: &BrokerContext, request: &Command) -> Vec<NewGroup> {
    let body = request.body.as_deref().map(HeartbeatData::decode);
    // One that cannot be read is refused by its row.
    let Some(Ok(body)) = body else {
        return Vec::new();
    };
    let consumers = body.consumer_data_set.iter();
    let welcome = consumers.filter(|consumer| {
        // The retry topics of unit groups are made with a flag of their own, by the row.
        !consumer.unit_mode && super::client::is_welcome(state, consumer)
    });
    let named = welcome.map(|consumer| consumer.group_name.as_str());
    let new = named.filter(|name| {
        let has_topic = || state.topics.get(&admission::retry_topic(name)).is_some();
        may_make(state, name) && !(state.groups.contains(name) && has_topic())
    });
    new.map(|name| NewGroup {
        name: name.to_owned(),
        needs_retry_topic: true,
    })
    .collect()
}
