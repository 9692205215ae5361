//! Message traces in Apache's form (`AsyncTraceDispatcher`, `TraceDataEncoder`): what was sent, where, how long it
//! took.
//!
//! ```text
//! Pub 01 time 01 region 01 group 01 topic 01 msgId 01 tags 01 keys 01 storeHost 01 bodyLength 01 cost 01 msgType 01
//! offsetMsgId 01 success 02       (one context for each frame; what is missing reads "null")
//! EndTransaction 01 time 01 region 01 group 01 topic 01 msgId 01 tags 01 keys 01 storeHost 01 2 01 transactionId 01 state
//! 01 fromCheck 02
//! Recall 01 time 01 region 01 group 01 topic 01 msgId 01 success 02
//! ``` Names are without the client's namespace, as Java's are. Contexts wait in a bounded list and leave together, at
//! most 20 or 128,000 bytes in a message to the trace topic; its keys are the ids and keys of all. Traces never delay
//! sends: if the list is full, a trace is dropped and counted, and one that cannot be sent is dropped.

use crate::error::ClientError;
use crate::producer::end_transaction::EndTransaction;
use crate::producer::outgoing::{OutgoingMessage, Properties, Target};
use crate::producer::result::{SendResult, SendStatus};
use crate::producer::shared::ProducerShared;
use crate::session::options::ClientOptions;
use bytes::Bytes;
use pyrmq_remoting::clock;
use pyrmq_remoting::message::properties::Properties as Pairs;
use pyrmq_remoting::message::properties::names::{
    DELAY, KEYS, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
};
use pyrmq_remoting::sync::lock;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Apache `AsyncTraceDispatcher`: contexts that wait, contexts and bytes of a message, longest wait.
const LIST: usize = 2048;
/// Bytes of contexts that wait: the context of a full batch has the ids of a thousand messages.
const LIST_BYTES: usize = 8 * 1024 * 1024;
const CONTEXTS: usize = 20;
const BYTES: usize = 128_000;
const WAIT: Duration = Duration::from_secs(5);
/// All properties of a message may have 32,767 bytes, so of many ids only the first become its keys.
const KEY_BYTES: usize = 16 * 1024;

/// The region if none is known (Apache `MixAll.DEFAULT_TRACE_REGION_ID`).
const REGION: &str = "DefaultRegion";

const FIELD: char = '\u{1}';
const CONTEXT: char = '\u{2}';

#[derive(Debug)]
struct Context {
    text: String,
    keys: String,
}

impl Context {
    fn bytes(&self) -> usize {
        self.text.len() + self.keys.len()
    }
}

/// Contexts that wait, and their bytes.
#[derive(Debug, Default)]
struct PendingTraces {
    list: Vec<Context>,
    bytes: usize,
}

/// Traces of one producer that wait to leave.
#[derive(Debug)]
pub(crate) struct Traces {
    topic: Arc<str>,
    // Guards what waits.
    waiting: Mutex<PendingTraces>,
    full: Notify,
    dropped: AtomicU64,
}

impl Traces {
    pub(crate) fn new(topic: &str) -> Self {
        Self {
            topic: topic.into(),
            waiting: Mutex::default(),
            full: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, PendingTraces> {
        lock(&self.waiting)
    }

    /// Traces that were dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records a frame that was stored.
    pub(crate) fn note(&self, sent: &SentMessage<'_>) {
        if *sent.outgoing.topic == *self.topic {
            return;
        }
        self.keep(sent.context());
    }

    /// Records the end of a transaction.
    pub(crate) fn note_end(&self, end: &EndTransaction, names: &ClientOptions, address: &str) {
        let state = match end.state {
            8 => "COMMIT_MESSAGE",
            12 => "ROLLBACK_MESSAGE",
            _ => "UNKNOW",
        };
        let text = context(&[
            &"EndTransaction",
            &clock::now_ms(),
            &end.region.as_deref().unwrap_or(REGION),
            &names.inside(&names.group),
            &names.inside(&end.topic),
            &end.message_id,
            &end.tags.as_deref().unwrap_or("null"),
            &end.keys.as_deref().unwrap_or("null"),
            &address,
            &2,
            &end.message_id,
            &state,
            &end.from_check,
        ]);
        let keys = format!("{} {}", end.message_id, end.keys.as_deref().unwrap_or_default());
        self.keep(Context { text, keys });
    }

    /// Records that a timer message was recalled, or that the broker refused to.
    pub(crate) fn note_recall(
        &self,
        topic: &str,
        id: &str,
        names: &ClientOptions,
        region: Option<&str>,
        done: bool,
    ) {
        let text = context(&[
            &"Recall",
            &clock::now_ms(),
            &region.unwrap_or(REGION),
            &names.inside(&names.group),
            &names.inside(topic),
            &id,
            &done,
        ]);
        self.keep(Context {
            text,
            keys: id.to_owned(),
        });
    }

    fn keep(&self, context: Context) {
        let mut waiting = self.waiting();
        let before = waiting.bytes;
        let after = before + context.bytes();
        if waiting.list.len() >= LIST || after > LIST_BYTES {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.list.push(context);
        waiting.bytes = after;
        // A message is full, by its count or by its bytes.
        let many = waiting.list.len().is_multiple_of(CONTEXTS) || before / BYTES != after / BYTES;
        drop(waiting);
        if many {
            self.full.notify_one();
        }
    }

    /// What waits, as (keys, text) of messages.
    fn take(&self) -> Vec<(String, String)> {
        let mut messages: Vec<(String, String)> = Vec::new();
        let mut count = 0;
        for context in std::mem::take(&mut *self.waiting()).list {
            let fits =
                |(_, text): &(String, String)| count < CONTEXTS && text.len() + context.text.len() <= BYTES;
            if !messages.last().is_some_and(fits) {
                messages.push(Default::default());
                count = 0;
            }
            count += 1;
            if let Some((keys, text)) = messages.last_mut() {
                text.push_str(&context.text);
                for key in context.keys.split(' ').filter(|key| !key.is_empty()) {
                    if keys.len() + key.len() < KEY_BYTES {
                        keys.push_str(if keys.is_empty() { "" } else { " " });
                        keys.push_str(key);
                    }
                }
            }
        }
        messages
    }
}

/// Fields as text.
fn context(fields: &[&dyn std::fmt::Display]) -> String {
    let mut text = String::with_capacity(256);
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            text.push(FIELD);
        }
        // Writing into a String cannot fail.
        write!(text, "{field}").unwrap_or_default();
    }
    text.push(CONTEXT);
    text
}

/// What a trace reports of a stored frame.
pub(crate) struct SentMessage<'a> {
    pub(crate) outgoing: &'a OutgoingMessage,
    pub(crate) result: &'a SendResult,
    pub(crate) region: &'a str,
    pub(crate) names: &'a ClientOptions,
    pub(crate) address: &'a str,
    pub(crate) began_ms: i64,
    pub(crate) took: Duration,
}

impl SentMessage<'_> {
    fn context(&self) -> Context {
        let pairs = Pairs::new(&self.outgoing.properties);
        let [tags, keys, level, after, after_ms, at] = pairs.get_many([
            TAGS,
            KEYS,
            DELAY,
            TIMER_DELAY_SEC,
            TIMER_DELAY_MS,
            TIMER_DELIVER_MS,
        ]);
        let delay = level.or(after).or(after_ms).or(at);
        let kind = if self.outgoing.is_half() {
            1
        } else if delay.is_some() {
            3
        } else {
            0
        };
        let ids = &self.result.message_id;
        let text = context(&[
            &"Pub",
            &self.began_ms,
            &self.region,
            &self.names.inside(&self.names.group),
            &self.names.inside(&self.outgoing.topic),
            ids,
            &tags.unwrap_or("null"),
            &keys.unwrap_or("null"),
            &self.address,
            &self.outgoing.body.len(),
            &self.took.as_millis(),
            &kind,
            &self.result.offset_message_id,
            &(self.result.status == SendStatus::Ok),
        ]);
        let mut all = ids.replace(',', " ");
        if let Some(keys) = keys {
            all.push(' ');
            all.push_str(keys);
        }
        Context { text, keys: all }
    }
}

/// Sends traces until the producer ends.
pub(crate) async fn run(shared: Weak<ProducerShared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let (shutdown, traces) = (strong.shutdown.clone(), strong.traces.clone());
        drop(strong);
        let Some(traces) = traces else { return };
        tokio::select! {
            () = traces.full.notified() => {}
            stopped = shutdown.sleep_or_stop(WAIT) => if stopped { return },
        }
        let Some(strong) = shared.upgrade() else { return };
        strong.send_traces().await;
    }
}

impl ProducerShared {
    /// Sends what waits. What fails is dropped.
    pub(crate) async fn send_traces(&self) {
        let Some(traces) = &self.traces else { return };
        for (keys, text) in traces.take() {
            if let Err(error) = self.send_trace(&traces.topic, &keys, text).await {
                tracing::debug!(%error, "traces were not sent");
            }
        }
    }

    async fn send_trace(&self, topic: &Arc<str>, keys: &str, text: String) -> Result<(), ClientError> {
        let mut properties = Properties::new(topic, &self.ids);
        properties.push(KEYS, keys)?;
        let message_id = properties.message_id().to_owned();
        let outgoing = OutgoingMessage {
            topic: topic.clone(),
            charged_bytes: 0,
            body: Bytes::from(text),
            properties: properties.finish()?,
            message_id,
            flag: 0,
            sys_flag: 0,
            target: Target::Any,
            batch: None,
            reply: false,
        };
        let route = self.routes.get(topic).await?;
        let queue = self.queue_for(&route, &outgoing, None, Instant::now())?;
        let command = self.command(&outgoing, &queue);
        let answer = self.client.request(&queue.address, command, WAIT).await;
        match answer {
            Ok(answer) if SendStatus::from_code(answer.code).is_some() => Ok(()),
            Ok(answer) => Err(ClientError::refused(
                "a trace",
                &queue.address,
                answer.code,
                answer.remark,
            )),
            Err(source) => Err(ClientError::net("a trace", queue.address.to_string(), source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Context, LIST, LIST_BYTES, Traces};

    fn of(bytes: usize) -> Context {
        Context {
            text: "t".repeat(bytes),
            keys: String::new(),
        }
    }

    #[test]
    fn traces_that_wait_are_bounded_by_count_and_by_bytes() {
        let traces = Traces::new("traces");
        for _ in 0..LIST * 2 {
            traces.keep(of(70 * 1024));
        }
        let bytes: usize = traces.waiting().list.iter().map(Context::bytes).sum();
        assert!((LIST_BYTES - 70 * 1024..=LIST_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(traces.waiting().bytes, bytes);
        let kept = traces.waiting().list.len() as u64;
        assert_eq!(traces.dropped(), LIST as u64 * 2 - kept);
        // Each message stays below its bound, and there is room again.
        assert!(traces.take().iter().all(|(_, text)| text.len() <= BYTES));
        for _ in 0..=LIST {
            traces.keep(of(1));
        }
        assert_eq!(traces.waiting().list.len(), LIST);
    }
}
