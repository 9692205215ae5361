//! Which client reads which queue, and whether by pulls or by pops: 400, 401, 402 (Apache `QueryAssignmentProcessor`).
//!
//! The queues are those of all brokers, so 400 asks a name server for the topic's route.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::pop::request_mode::{POP, PULL};
use crate::processor::{Answer, answer, read_body};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{
    Body, MessageModel, MessageQueue, MessageQueueAssignment, QueryAssignmentRequestBody,
    QueryAssignmentResponseBody, SetMessageRequestModeRequestBody, TopicRouteData,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::GetRouteInfoRequestHeader;
use pyrmq_remoting::names::{self, PERM_READ};
use pyrmq_remoting::net::{Client, Peer, Processor, Reply};
use pyrmq_routing::allocate::{self, AVERAGE, AVERAGE_BY_CIRCLE};
use std::sync::Arc;
use std::time::Duration;

/// How long the last name server may take. Clients wait for 3 s.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the others may take.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers 400.
#[derive(Debug)]
pub(crate) struct QueryAssignment(pub(crate) Arc<BrokerContext>);

impl Processor for QueryAssignment {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        let body: QueryAssignmentRequestBody = match read_body(&request) {
            Ok(body) => body,
            Err(refusal) => return self.0.refuse(&request, reply, refusal),
        };
        let context = self.0.clone();
        let Some((client, name_servers)) = context.name_servers() else {
            let queues = own_queues(&context, &body.topic);
            return reply.send(assigned(&context, &body, queues));
        };
        answer_by_route(context, (client, name_servers), body, reply);
    }
}

/// Asks one name server after the other for the route. If none can be reached, the answer says nothing: a share of this
/// broker's queues alone would make members give up those of other brokers.
fn answer_by_route(
    context: Arc<BrokerContext>,
    (client, mut name_servers): (Client, Vec<String>),
    body: QueryAssignmentRequestBody,
    reply: Reply,
) {
    let Some(name_server) = name_servers.pop() else {
        return reply.send(assigned(&context, &body, None));
    };
    let timeout = if name_servers.is_empty() {
        ROUTE_TIMEOUT
    } else {
        FIRST_TIMEOUT
    };
    let route_request =
        Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfoRequestHeader {
            topic: &body.topic,
            accept_standard_json_only: Some(true),
        });
    let requester = client.clone();
    requester.request_with(&name_server, route_request, timeout, move |route| match route {
        Err(error) => {
            tracing::warn!(topic = body.topic, %error, "a name server did not give the route of a topic");
            answer_by_route(context, (client, name_servers), body, reply);
        }
        Ok(answer) => {
            // The last clone of a client ends its requests.
            drop(client);
            let queues = queues_of(answer, &context, &body.topic);
            reply.send(assigned(&context, &body, queues));
        }
    });
}

/// The readable queues of this broker; nothing for an unknown topic.
fn own_queues(context: &BrokerContext, topic: &str) -> Option<Vec<MessageQueue>> {
    let known = context.topics.get(topic)?;
    let queues = 0..known.read_queue_nums;
    let broker = &context.options.broker_name;
    Some(
        queues
            .map(|queue_id| MessageQueue::new(topic, broker, queue_id))
            .collect(),
    )
}

/// The readable queues of a route. This broker's own if the name server refuses.
fn queues_of(answer: Command, context: &BrokerContext, topic: &str) -> Option<Vec<MessageQueue>> {
    let found = match answer.code {
        response::SUCCESS => answer.body,
        response::TOPIC_NOT_EXIST => return None,
        code => {
            tracing::warn!(topic, code, "a name server refused the route of a topic");
            return own_queues(context, topic);
        }
    };
    let route = TopicRouteData::decode(found.as_deref().unwrap_or_default());
    let Ok(route) = route else {
        return own_queues(context, topic);
    };
    let readable = route.queue_datas.iter().filter(|data| data.perm & PERM_READ != 0);
    let mut queues: Vec<MessageQueue> = readable
        .flat_map(|data| {
            (0..data.read_queue_nums).map(|queue_id| MessageQueue::new(topic, &data.broker_name, queue_id))
        })
        .collect();
    queues.sort();
    Some(queues)
}

/// The answer: without `messageQueueAssignments` where nothing can be said, as the client keeps what it has then.
fn assigned(
    context: &BrokerContext,
    body: &QueryAssignmentRequestBody,
    queues: Option<Vec<MessageQueue>>,
) -> Command {
    let mode = context.pops.modes.get(&body.topic, &body.consumer_group);
    let chosen = queues
        .filter(|queues| !queues.is_empty())
        .and_then(|queues| share(context, body, &mode, queues));
    let Some(chosen) = chosen else {
        return Command::response(response::SUCCESS).with_body("{}");
    };
    let assignments = chosen.into_iter().map(|queue| MessageQueueAssignment {
        attachments: None,
        message_queue: Some(queue),
        mode: mode.mode.clone(),
    });
    answer(&QueryAssignmentResponseBody {
        message_queue_assignments: assignments.collect(),
    })
}

fn share(
    context: &BrokerContext,
    body: &QueryAssignmentRequestBody,
    mode: &SetMessageRequestModeRequestBody,
    queues: Vec<MessageQueue>,
) -> Option<Vec<MessageQueue>> {
    if body.message_model == MessageModel::Broadcasting || !context.options.server_load_balancer_enable {
        return Some(queues);
    }
    let clients = context.clients.consumers(
        &body.consumer_group,
        crate::tables::clients::Consumers::client_ids,
    )?;
    let mut ids: Vec<&str> = clients.iter().map(String::as_str).collect();
    let own = allocate::place(&mut ids, &body.client_id);
    let by_circle = is_by_circle(body)?;
    let of_client = |client: usize| -> Vec<usize> {
        if by_circle {
            allocate::average_by_circle(queues.len(), ids.len(), client).collect()
        } else {
            allocate::average(queues.len(), ids.len(), client).collect()
        }
    };
    let indexes = if mode.mode == POP {
        let sharers = usize::try_from(mode.pop_share_queue_num).unwrap_or(0);
        if sharers == 0 || sharers >= ids.len().saturating_sub(1) {
            return Some(every_queue(&queues));
        }
        let own = own?;
        if ids.len() > queues.len() {
            vec![own % queues.len()]
        } else {
            (own..=own + sharers)
                .flat_map(|client| of_client(client % ids.len()))
                .collect()
        }
    } else {
        own.map(of_client).unwrap_or_default()
    };
    let mut chosen: Vec<MessageQueue> = indexes
        .into_iter()
        .filter_map(|at| queues.get(at))
        .cloned()
        .collect();
    chosen.sort();
    chosen.dedup();
    Some(chosen)
}

/// Whether the strategy is the average by circle; `None`: it is not known here.
fn is_by_circle(body: &QueryAssignmentRequestBody) -> Option<bool> {
    match body.strategy_name.as_deref() {
        Some(AVERAGE) => Some(false),
        Some(AVERAGE_BY_CIRCLE) => Some(true),
        other => {
            tracing::warn!(
                group = body.consumer_group,
                strategy = other,
                "unknown allocation strategy; supported: AVG, AVG_BY_CIRCLE"
            );
            None
        }
    }
}

/// The share of a member that pops every queue: one entry a broker says so.
fn every_queue(queues: &[MessageQueue]) -> Vec<MessageQueue> {
    let mut brokers: Vec<MessageQueue> = queues
        .iter()
        .map(|queue| MessageQueue::new(&queue.topic, &queue.broker_name, -1))
        .collect();
    brokers.sort();
    brokers.dedup();
    brokers
}

/// 401.
pub(crate) fn set_request_mode(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let body: SetMessageRequestModeRequestBody = read_body(request)?;
    if names::is_retry(&body.topic) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            "retry topic is not allowed to set mode",
        ));
    }
    if context.topics.get(&body.topic).is_none() {
        let text = format!("topic[{}] not exist", body.topic);
        return Err(Refusal::new(response::TOPIC_NOT_EXIST, text));
    }
    if !matches!(body.mode.as_str(), POP | PULL) {
        let text = format!("mode is {}, allowed are PULL and POP", body.mode);
        return Err(Refusal::new(response::INVALID_PARAMETER, text));
    }
    context.group(&body.consumer_group).map_err(|refusal| {
        refusal.with_group_words("subscription group does not exist: {} ; ", &body.consumer_group)
    })?;
    tracing::info!(topic = body.topic, group = body.consumer_group, mode = body.mode, peer = %peer.remote(), "set how a group gets messages");
    context.pops.modes.set(body)?;
    Ok(Command::response(response::SUCCESS))
}

/// 402.
pub(crate) fn all_request_modes(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(answer(&context.pops.modes.all()))
}
