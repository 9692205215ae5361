//! The routes that a client knows are refreshed several at a time, whatever its name servers do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{WAIT, World};
use pyrmq_client::producer::Producer;
use pyrmq_client::session::route_refresh::RouteRefresh;
use pyrmq_client::session::routes::Routes;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TOPICS: usize = 40;
/// Requests that a client may have open for the routes it knows.
const AT_A_TIME: usize = 16;
const HOUR: Duration = Duration::from_hours(1);

/// What a name server does with a request for a route.
#[derive(Clone, Copy, Default)]
enum Answers {
    #[default]
    AtOnce,
    /// None before there are this many requests to answer.
    InGroupsOf(usize),
    /// None for this topic.
    AllBut(&'static str),
    /// As many as this of a round, and none of the others.
    First(usize),
    /// That it is too busy, except for one request of a round.
    BusyBut(usize),
    Never,
}

#[derive(Default)]
struct NameServer {
    answers: Mutex<Answers>,
    route: Mutex<String>,
    held: Mutex<Vec<Reply>>,
    /// The topics of all requests, in order.
    requested: Mutex<Vec<String>>,
}

impl NameServer {
    fn answer(&self, reply: Reply) {
        let route = self.route.lock().unwrap().clone();
        reply.send(Command::response(response::SUCCESS).with_body(route));
    }
}

impl Processor for NameServer {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        let topic = request.fields.get("topic").unwrap().to_owned();
        let answers = *self.answers.lock().unwrap();
        let mut requested = self.requested.lock().unwrap();
        let place = requested.len();
        requested.push(topic.clone());
        drop(requested);
        let holds = match answers {
            Answers::AllBut(silent) => topic == silent,
            Answers::First(count) => place >= count,
            Answers::BusyBut(one) if place != one => {
                return reply.send(Command::response(response::SYSTEM_BUSY));
            }
            Answers::AtOnce | Answers::BusyBut(_) => false,
            Answers::InGroupsOf(_) | Answers::Never => true,
        };
        if !holds {
            return self.answer(reply);
        }
        let mut held = self.held.lock().unwrap();
        held.push(reply);
        if matches!(answers, Answers::InGroupsOf(count) if held.len() >= count) {
            held.drain(..).for_each(|reply| self.answer(reply));
        }
    }
}

/// A producer that knows the routes of many topics, and its name server. It refreshes none before [`Site::refresh`].
struct Site {
    producer: Producer,
    names: Arc<NameServer>,
    topics: Vec<Arc<str>>,
    world: World,
}

impl Site {
    fn new(request_timeout: Duration) -> Self {
        let world = World::new(2);
        let names = Arc::new(NameServer::default());
        let address = serve(&world, names.clone());
        let producer = world.producer(|options| {
            options.client.name_servers = vec![address.to_string()];
            options.client.request_timeout = request_timeout;
            options.client.route_interval = HOUR;
        });
        *names.route.lock().unwrap() = common::route(&world.addresses[..1]);
        let topics: Vec<Arc<str>> = (0..TOPICS).map(|number| format!("t{number}").into()).collect();
        let by = Instant::now() + WAIT;
        for topic in &topics {
            while let Err(error) = world.runtime.block_on(producer.routes().get(topic)) {
                assert!(Instant::now() < by, "{error}");
            }
        }
        names.requested.lock().unwrap().clear();
        Self {
            producer,
            names,
            topics,
            world,
        }
    }

    /// Has the name server answer like this. Routes lead to one broker more than before.
    fn set_answers(&self, answers: Answers) {
        *self.names.answers.lock().unwrap() = answers;
        *self.names.route.lock().unwrap() = common::route(&self.world.addresses);
    }

    /// Refreshes the routes once. Returns the topics that were requested, in order.
    fn round(&self, refresh: &mut RouteRefresh) -> Vec<String> {
        self.names.requested.lock().unwrap().clear();
        self.world.runtime.block_on(refresh.round(self.topics.clone()));
        self.names.requested.lock().unwrap().clone()
    }

    /// Begins to refresh the routes.
    fn refresh(&self, answers: Answers) {
        self.set_answers(answers);
        let routes = self.producer.routes().clone();
        let often = Duration::from_millis(10);
        let shutdown = self.world.shutdown.clone();
        self.world.runtime.spawn(routes.keep_fresh(often, HOUR, shutdown));
    }

    /// Topics that are known to be on both brokers.
    fn refreshed(&self) -> HashSet<Arc<str>> {
        let routes: &Routes = self.producer.routes();
        let is_refreshed = |topic: &&Arc<str>| routes.cached(topic).unwrap().route.brokers.len() == 2;
        self.topics.iter().filter(is_refreshed).cloned().collect()
    }
}

fn serve(world: &World, names: Arc<NameServer>) -> SocketAddr {
    let mut table = ProcessorTable::new();
    let processor: Arc<dyn Processor> = names;
    table.native(&[request::GET_ROUTEINFO_BY_TOPIC], &processor);
    common::serve(&world.runtime, &world.shutdown, table)
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let by = Instant::now() + WAIT;
    while !condition() {
        assert!(Instant::now() < by, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn known_routes_are_refreshed_several_at_a_time() {
    let site = Site::new(3 * WAIT);
    // In turn, the first request would wait for the second.
    site.refresh(Answers::InGroupsOf(4));
    until("all routes are refreshed", || site.refreshed().len() == TOPICS);
}

#[test]
fn a_topic_whose_route_is_never_answered_keeps_no_other_waiting() {
    let site = Site::new(3 * WAIT);
    site.refresh(Answers::AllBut("t7"));
    until("all others are refreshed", || {
        site.refreshed().len() == TOPICS - 1
    });
    assert!(!site.refreshed().contains("t7"));
}

#[test]
fn a_silent_name_server_is_not_asked_for_every_known_route() {
    let site = Site::new(Duration::from_millis(200));
    let mut refresh = RouteRefresh::new(site.producer.routes().clone());
    for answers in [Answers::Never, Answers::BusyBut(TOPICS)] {
        site.set_answers(answers);
        let topics: HashSet<String> = site.round(&mut refresh).into_iter().collect();
        assert_eq!(topics.len(), AT_A_TIME, "{topics:?}");
    }
    site.set_answers(Answers::AtOnce);
    site.round(&mut refresh);
    assert_eq!(site.refreshed().len(), TOPICS);
}

#[test]
fn a_name_server_that_answers_a_few_in_each_round_gets_to_every_topic() {
    // With 24 a round requests every topic, and leaves 16 unanswered.
    for few in [8, TOPICS - AT_A_TIME] {
        let site = Site::new(Duration::from_millis(200));
        let mut refresh = RouteRefresh::new(site.producer.routes().clone());
        site.set_answers(Answers::First(few));
        // Requests that arrive in another order than that of the topics leave gaps, which later rounds fill.
        for _ in 0..10 * TOPICS.div_ceil(few) {
            if site.refreshed().len() < TOPICS {
                site.round(&mut refresh);
            }
        }
        assert_eq!(site.refreshed().len(), TOPICS, "{few} of a round");
    }
}

#[test]
fn one_answer_of_a_busy_name_server_allows_one_further_request() {
    let site = Site::new(3 * WAIT);
    let mut refresh = RouteRefresh::new(site.producer.routes().clone());
    site.set_answers(Answers::BusyBut(AT_A_TIME - 1));
    let requested = site.round(&mut refresh).len();
    // If the answer overtakes refusals, it allows none.
    assert!((AT_A_TIME..=AT_A_TIME + 1).contains(&requested), "{requested}");
}
