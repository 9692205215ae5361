//! Requests messages from brokers, and handles their answers. No thread waits for them.

use crate::consumer::pop::answer::{self, PopAnswer, SentPop};
use crate::consumer::pop::batch::PopBatch;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::simple::PopShared;
use crate::consumer::pop::state::{Pop, PopTarget, Probe};
use crate::consumer::requests::is_transient;
use crate::error::ClientError;
use crate::session::membership::Subscription;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::pop::{PopMessageRequestHeader, PopMessageResponseHeader};
use pyrmq_remoting::net::NetError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WHAT: &str = "a pop";
/// The request's wait beyond what the broker may hold it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long a call waits for its first broker before it asks the others, too.
const PROBE_TIME: Duration = Duration::from_millis(200);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(3);
/// A broker that answers "nothing there" sooner than this does not hold pops: it is popped less often.
const MIN_HOLD: Duration = Duration::from_millis(5);

impl PopShared {
    /// Sends the pops that calls wait for.
    pub(crate) fn send_pops(self: &Arc<Self>) {
        let topics = self.heartbeat.membership.topics();
        let pops = {
            let mut state = self.state();
            // With listeners, brokers assign the queues that are popped.
            if state.demand.is_none() {
                for topic in &topics {
                    if let Some(route) = self.routes.cached(topic) {
                        state.follow_route(topic, &route);
                    }
                }
            }
            let pops = state.plan(Instant::now());
            if pops.is_empty() && state.demand.is_some() {
                self.has_spare_demand.store(true, Ordering::Release);
            }
            pops
        };
        for pop in pops {
            self.send(pop);
        }
    }

    fn send(self: &Arc<Self>, pop: Pop) {
        let target = pop.target.clone();
        let Some(subscription) = self.heartbeat.membership.subscription(&target.topic) else {
            return self.settle_target(&pop, None);
        };
        let Some(address) = self.routes.master(&target.broker) else {
            let error = ClientError::NoMaster {
                broker: target.broker.to_string(),
            };
            return self.failed(&pop, None, &error);
        };
        let attempt = pop
            .attempt
            .clone()
            .or_else(|| self.options.is_ordered.then(|| self.next_attempt()));
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let header = PopMessageRequestHeader {
            consumer_group: &self.options.client.group,
            topic: &target.topic,
            queue_id: target.queue_id,
            max_msg_nums: i32::try_from(pop.max).unwrap_or(i32::MAX),
            invisible_time: millis(pop.invisible),
            poll_time: millis(pop.hold),
            // The broker uses its own clock, so that a hold does not depend on how far the clocks differ.
            born_time: 0,
            init_mode: self.options.init_mode(),
            exp_type: Some(subscription.expression_type()),
            exp: Some(&subscription.expression),
            order: Some(self.options.is_ordered),
            attempt_id: attempt.as_deref(),
        };
        let command = Command::request(request::POP_MESSAGE).with_header(&header);
        if let Some(receive) = pop.probe_of {
            self.limit_probe(receive);
        }
        let (shared, sent_at) = (self.clone(), Instant::now());
        let time = pop.hold + ANSWER_TIME;
        self.client
            .request_with(&address.clone(), command, time, move |outcome| {
                shared.answered(&pop, &subscription, attempt, (&address, sent_at), outcome);
            });
    }

    /// Lets a call ask the other brokers if its first one is silent.
    fn limit_probe(self: &Arc<Self>, receive: u64) {
        let shared = self.clone();
        self.tracker.spawn(async move {
            if shared.shutdown.sleep_or_stop(PROBE_TIME).await {
                return;
            }
            let is_slow = shared.end_probe(Some(receive));
            if is_slow {
                shared.send_pops();
            }
        });
    }

    /// Returns whether the call was still waiting for its first target.
    fn end_probe(&self, receive: Option<u64>) -> bool {
        let mut state = self.state();
        let Some(receive) = receive.and_then(|receive| state.pending.get_mut(&receive)) else {
            return false;
        };
        std::mem::replace(&mut receive.probe, Probe::Done) == Probe::Running
    }

    fn answered(
        self: &Arc<Self>,
        pop: &Pop,
        subscription: &Subscription,
        attempt: Option<String>,
        (address, sent_at): (&str, Instant),
        outcome: Result<Command, NetError>,
    ) {
        if self.shutdown.is_stopped() && outcome.is_err() {
            // The consumer ends: its own close has cut the pop off.
            return;
        }
        let now = Instant::now();
        let found = match outcome {
            Ok(answer) => read(pop, subscription, address, answer, now),
            Err(source) => Err(ClientError::net(WHAT, address, source)),
        };
        match found {
            Ok(Some(found)) => {
                self.settle_target(pop, None);
                self.count_received(pop, &found, now - sent_at);
                self.arrived(pop, found, now);
            }
            Ok(None) if now - sent_at < MIN_HOLD && !pop.hold.is_zero() => {
                self.pause(pop, None, Duration::ZERO);
            }
            Ok(None) => self.settle_target(pop, None),
            Err(error) => return self.failed(pop, attempt, &error),
        }
        self.send_pops();
    }

    /// Adds messages that arrived. Those that were tried too often become dead letters.
    fn arrived(self: &Arc<Self>, pop: &Pop, found: PopAnswer, now: Instant) {
        let max_tries = self.max_tries();
        let mut messages: VecDeque<_> = found.messages.into();
        let mut dead = Vec::new();
        messages.retain(|message| {
            let is_dead = message.reconsume_times() > max_tries;
            if is_dead {
                dead.push(message.clone());
            }
            !is_dead
        });
        for message in dead {
            let shared = self.clone();
            self.tracker
                .spawn(async move { shared.move_to_dead_letters(message).await });
        }
        if !found.unwanted.is_empty() {
            let shared = self.clone();
            let unwanted: Vec<Arc<Receipt>> = found.unwanted;
            self.tracker.spawn(async move {
                for error in shared
                    .acknowledge(&unwanted)
                    .await
                    .into_iter()
                    .filter_map(Result::err)
                {
                    tracing::debug!(%error, "a message with another tag is delivered again");
                }
            });
        }
        if messages.is_empty() {
            return;
        }
        if !self.state().targets.contains_key(&pop.target) {
            // The topic was left meanwhile.
            return self.give_back_later(messages.into());
        }
        let batch = PopBatch {
            messages,
            invisible: pop.invisible,
            arrived: now,
        };
        if let Some(late) = self.hold(batch, false) {
            self.give_back_later(late);
        }
    }

    /// Marks the target as ready for another pop. A lost ordered pop keeps its attempt.
    fn settle_target(&self, pop: &Pop, attempt: Option<String>) {
        self.end_probe(pop.probe_of);
        let mut state = self.state();
        if let Some(target) = state.targets.get_mut(&pop.target) {
            target.answer_due = None;
            target.attempt = attempt;
            target.failures = 0;
        }
    }

    fn failed(self: &Arc<Self>, pop: &Pop, attempt: Option<String>, error: &ClientError) {
        let PopTarget { topic, broker, .. } = &*pop.target;
        let mut longer = Duration::ZERO;
        match error {
            ClientError::Refused { code, .. } if *code == response::POLLING_FULL => {
                tracing::debug!(%topic, %broker, "the broker holds as many pops as it may");
                longer = Duration::from_secs(1);
            }
            ClientError::Refused { code, .. } if !is_transient(*code) && *code != response::GO_AWAY => {
                tracing::warn!(%topic, %broker, %error, "pop refused");
                let mut state = self.state();
                state.failure = Some(error.clone());
                self.wake(&state);
                longer = Duration::from_secs(1);
            }
            _ => tracing::warn!(%topic, %broker, %error, "pop failed"),
        }
        self.routes.mark_stale(topic);
        self.pause(pop, attempt, longer);
        self.send_pops();
    }

    /// Pops from the target again after a pause of at least `least`, which grows with each failure.
    fn pause(self: &Arc<Self>, pop: &Pop, attempt: Option<String>, least: Duration) {
        self.end_probe(pop.probe_of);
        let failures = {
            let mut state = self.state();
            let Some(target) = state.targets.get_mut(&pop.target) else {
                return;
            };
            target.answer_due = None;
            target.is_paused = true;
            target.attempt = attempt;
            target.failures += 1;
            target.failures
        };
        let pause = MAX_PAUSE
            .min(FIRST_PAUSE * 2_u32.saturating_pow(failures.min(8)))
            .max(least);
        let (shared, target) = (self.clone(), pop.target.clone());
        self.tracker.spawn(async move {
            if shared.shutdown.sleep_or_stop(pause).await {
                return;
            }
            if let Some(state) = shared.state().targets.get_mut(&target) {
                state.is_paused = false;
            }
            shared.send_pops();
        });
    }
}

/// The messages of an answer; `None` when the broker has none.
fn read(
    pop: &Pop,
    subscription: &Subscription,
    address: &str,
    answer: Command,
    now: Instant,
) -> Result<Option<PopAnswer>, ClientError> {
    match answer.code {
        response::SUCCESS => {}
        response::POLLING_TIMEOUT | response::PULL_NOT_FOUND => return Ok(None),
        response::REQUEST_CODE_NOT_SUPPORTED => {
            let remark =
                "it does not serve POP, which brokers do from 5.0 on: use a PullConsumer or PushConsumer";
            return Err(ClientError::refused(
                WHAT,
                address,
                answer.code,
                Some(remark.to_owned()),
            ));
        }
        code => return Err(ClientError::refused(WHAT, address, code, answer.remark)),
    }
    let sent = SentPop {
        topic: &pop.target.topic,
        broker: &pop.target.broker,
        subscription,
        until: now + pop.invisible,
    };
    let body = answer.body.clone().unwrap_or_default();
    PopMessageResponseHeader::decode(&answer.fields)
        .and_then(|header| answer::read(&sent, &header, &body))
        .map(Some)
        .map_err(|source| ClientError::UnreadableAnswer {
            what: WHAT,
            address: address.to_owned(),
            source,
        })
}
