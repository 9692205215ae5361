//! The threads of a broker, and the task that answers pops that waited.

use super::Broker;
use super::ready_requests::ReadyRequests;
use super::tasks::wake_pops;
use crate::context::BrokerContext;
use crate::processor;
use pyrmq_remoting::sync::lock;
use std::sync::Arc;
use std::thread::JoinHandle;

impl Broker {
    /// `unfinished_since`: since when a stop may have interrupted what brings messages back, in ms.
    pub(super) fn run_pops(&self, ready: Arc<ReadyRequests>, unfinished_since: Option<i64>) {
        self.tasks.spawn(ready.answer_pops(self.background.clone()));
        self.tasks
            .spawn(wake_pops(self.context.clone(), self.background.clone()));
        let context = self.context.clone();
        let thread = std::thread::Builder::new().name("pyrmq-revive".to_owned());
        self.keep_thread(
            "pyrmq-revive",
            thread.spawn(move || processor::pop::revive(&context, unfinished_since)),
        );
    }

    pub(super) fn start_thread(&self, name: &str, run: impl FnOnce(&BrokerContext) + Send + 'static) {
        let context = self.context.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&context));
        self.keep_thread(name, thread);
    }

    fn keep_thread(&self, name: &str, thread: std::io::Result<JoinHandle<()>>) {
        match thread {
            Ok(thread) => lock(&self.deliverers).push(thread),
            Err(error) => {
                tracing::error!(name, %error, "cannot start a thread: messages that wait in the broker will not be delivered");
            }
        }
    }
}
