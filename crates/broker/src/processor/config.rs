//! The settings: 26, as Java properties text (Apache `AdminBrokerProcessor.getBrokerConfig`).

use super::Answer;
use crate::state::State;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::Peer;
use std::fmt::Write;

/// 26.
pub(crate) fn get(state: &State, _request: &Command, _peer: &Peer) -> Answer {
    let mut text = String::new();
    for setting in state.options.settings() {
        // Writing into a String cannot fail.
        writeln!(text, "{}={}", setting.key, escape(&setting.value)).unwrap_or_default();
    }
    let root = state.options.store.root.display().to_string();
    writeln!(text, "storePathRootDir={}", escape(&root)).unwrap_or_default();
    let started = state.stats.started_ms();
    // The settings do not change while the broker runs: the version is that of its start.
    let version = format!("{{\"counter\":0,\"stateVersion\":0,\"timestamp\":{started}}}");
    Ok(Command::response(response::SUCCESS)
        .with_field("version", &version)
        .with_body(text))
}

/// A line break would begin the next property.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}
