//! Deletion of old files on demand: 329 (Apache `AdminBrokerProcessor.deleteExpiredCommitLog`).

use crate::context::State;
use crate::error::Refusal;
use crate::processor::Answer;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::Peer;
use std::sync::Arc;

/// 329: deletes what is older than `fileReservedTime`, whatever the hour. Answered before it is done, as Apache does:
/// it may take longer than the caller waits.
pub(crate) fn delete_expired(state: &State, _request: &Command, _peer: &Peer) -> Answer {
    let store = Arc::clone(&state.store);
    std::thread::Builder::new()
        .name("pyrmq-delete".to_owned())
        .spawn(move || match store.delete_expired() {
            Ok(files) => tracing::info!(files, "deleted old files on demand"),
            Err(error) => tracing::error!(%error, "cannot delete old files"),
        })
        .map_err(|error| Refusal::internal(format!("cannot start a thread that deletes: {error}")))?;
    Ok(Command::response(response::SUCCESS))
}
