//! Reads messages for pops and peeks.

use crate::block_in_place::block_in_place;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::pop::Pass;
use crate::processor::pull::COLD_AFTER_MESSAGES;
use pyrmq_remoting::codes::response;
use pyrmq_store::{GetMessage, GetMessageResult, StoreError};

/// Reads messages in a pass over a pop. `None`: they are not in memory, and the pass may not wait for the disk.
pub(super) fn read_in(
    pass: Pass,
    context: &BrokerContext,
    get: &GetMessage<'_>,
) -> Result<Option<GetMessageResult>, Refusal> {
    let got = match pass {
        Pass::First => return read(context, get).map(Some),
        Pass::Resumed { may_wait: false, .. } => read_cached(context, get),
        Pass::Resumed { may_wait: true, .. } => context.store.get(get).map(Some),
    };
    got.map_err(|error| Refusal::internal(error.to_string()))
}

/// Reads messages on the connection's task if they are in memory. Otherwise another thread goes on with the task's
/// other connections meanwhile, since the disk may be slow or hang. SYSTEM_BUSY if too many requests wait like that.
pub(super) fn read(context: &BrokerContext, get: &GetMessage<'_>) -> Result<GetMessageResult, Refusal> {
    let mut got = read_cached(context, get);
    if matches!(got, Ok(None)) {
        block_in_place(&mut || got = context.store.get(get).map(Some));
    }
    let got = got.map_err(|error| Refusal::internal(error.to_string()))?;
    got.ok_or_else(|| {
        let text = "too many requests wait for a disk that is slow or hangs";
        Refusal::new(response::SYSTEM_BUSY, text)
    })
}

/// Reads messages that are in memory. Where the system cannot say whether they are, those that are fresh.
fn read_cached(
    context: &BrokerContext,
    get: &GetMessage<'_>,
) -> Result<Option<GetMessageResult>, StoreError> {
    let store = &context.store;
    let is_fresh = || {
        let end = store.max_offset(get.topic, get.queue_id);
        end.saturating_sub(get.offset) <= COLD_AFTER_MESSAGES
    };
    if store.knows_cached() || is_fresh() {
        store.get_cached(get)
    } else {
        Ok(None)
    }
}
