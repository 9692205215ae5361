//! Reads messages for pops and peeks.

use crate::block_in_place::block_in_place;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::pull::COLD_AFTER_MESSAGES;
use pyrmq_remoting::codes::response;
use pyrmq_store::{GetMessage, GetMessageResult};

/// Reads messages on the connection's task if they are in memory. Otherwise another thread goes on with the task's
/// other connections meanwhile, since the disk may be slow or hang. SYSTEM_BUSY if too many requests wait like that.
pub(super) fn read(context: &BrokerContext, get: &GetMessage<'_>) -> Result<GetMessageResult, Refusal> {
    let store = &context.store;
    let is_fresh = || {
        let end = store.max_offset(get.topic, get.queue_id);
        end.saturating_sub(get.offset) <= COLD_AFTER_MESSAGES
    };
    let mut got = Ok(None);
    if store.knows_cached() || is_fresh() {
        got = store.get_cached(get);
    }
    if matches!(got, Ok(None)) {
        block_in_place(&mut || got = store.get(get).map(Some));
    }
    let got = got.map_err(|error| Refusal::internal(error.to_string()))?;
    got.ok_or_else(|| {
        let text = "too many requests wait for a disk that is slow or hangs";
        Refusal::new(response::SYSTEM_BUSY, text)
    })
}
