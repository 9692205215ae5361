//! Records as tests need them.

use pyrmq_remoting::message::NewRecord;
use std::net::{Ipv4Addr, SocketAddr};

/// Returns a record of a queue without properties, with the body `x`. Records are 1,000 bytes apart in the log.
pub fn new_record(topic: &str, queue_id: i32, queue_offset: i64) -> NewRecord<'_> {
    NewRecord {
        topic,
        queue_id,
        flag: 0,
        queue_offset,
        physical_offset: queue_offset * 1000,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        store_timestamp_ms: 2,
        store_host: SocketAddr::from((Ipv4Addr::LOCALHOST, 2)),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"x",
        properties: b"",
    }
}
