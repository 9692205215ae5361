//! Messages that were popped and not acknowledged, found by name before anything is changed: as long as nobody here
//! brings them back when their time is over, opening such a store would lose them in silence.
//!
//! Apache keeps a check point for each popped message in the topic `rmq_sys_REVIVE_LOG_<cluster>`, which it reaches by
//! way of the timer (there the broker looks); or a record in `kvStore/` (`popConsumerKVServiceEnable`); and the open
//! messages of orderly groups in `config/consumerOrderInfo.json`.

use crate::error::StoreError;
use crate::format::{CONSUME_QUEUE, CQ_UNIT_SIZE, CqUnit};
use crate::fs::{Context, Fs};
use pyrmq_remoting::body::{Json, Key};
use pyrmq_remoting::names::REVIVE_TOPIC;
use std::io;
use std::path::{Path, PathBuf};

const REVIVE_GROUP: &str = "CID_RMQ_SYS_REVIVE_GROUP";
/// What such a store holds.
pub const POPPED: &str = "POP messages in flight, which are not served yet (they must be acknowledged or returned by the broker that wrote them)";

/// Refuses a store with popped messages that wait for their acknowledgement.
pub(crate) fn refuse(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let found = match revive_queue(fs, root)? {
        None => other_places(fs, root)?,
        found => found,
    };
    found.map_or(Ok(()), |path| Err(StoreError::Foreign { path, what: POPPED }))
}

fn other_places(fs: &dyn Fs, root: &Path) -> Result<Option<PathBuf>, StoreError> {
    let database = root.join("kvStore");
    for entry in fs.list(&database).at("list", &database)? {
        let kind = Path::new(&entry.name).extension();
        let has_data = kind.is_some_and(|kind| kind == "sst" || (kind == "log" && entry.length > 0));
        if !entry.is_directory && has_data {
            return Ok(Some(database));
        }
    }
    let orders = root.join("config").join("consumerOrderInfo.json");
    Ok(has_open_orders(&json(fs, &orders)?).then_some(orders))
}

/// A queue of check points that is longer than what was done of it.
fn revive_queue(fs: &dyn Fs, root: &Path) -> Result<Option<PathBuf>, StoreError> {
    let queues = root.join(CONSUME_QUEUE);
    let mut done = None;
    for topic in fs.list(&queues).at("list", &queues)? {
        if !topic.is_directory || !topic.name.starts_with(REVIVE_TOPIC) {
            continue;
        }
        let path = queues.join(&topic.name);
        for queue in fs.list(&path).at("list", &path)? {
            let directory = path.join(&queue.name);
            let end = end_of(fs, &directory)?;
            if end == 0 {
                continue;
            }
            if done.is_none() {
                done = Some(json(fs, &root.join("config").join("consumerOffset.json"))?);
            }
            let committed = done
                .as_ref()
                .and_then(|tree| tree.get("offsetTable"))
                .and_then(|table| table.get(&format!("{}@{REVIVE_GROUP}", topic.name)))
                .and_then(|offsets| of_queue(offsets, &queue.name));
            if end > committed.unwrap_or(0) {
                return Ok(Some(directory));
            }
        }
    }
    Ok(None)
}

/// The offset after a queue's last unit, by its files alone.
fn end_of(fs: &dyn Fs, directory: &Path) -> Result<i64, StoreError> {
    let mut files: Vec<(i64, String)> = fs
        .list(directory)
        .at("list", directory)?
        .into_iter()
        .filter_map(|entry| Some((entry.name.parse().ok()?, entry.name)))
        .collect();
    files.sort_unstable();
    let unit = i64::try_from(CQ_UNIT_SIZE).unwrap_or(1);
    while let Some((begin, name)) = files.pop() {
        let path = directory.join(name);
        let bytes = fs.read(&path).at("read", &path)?;
        let written = bytes
            .chunks_exact(CQ_UNIT_SIZE)
            .rposition(|bytes| CqUnit::from_bytes(bytes).is_some_and(CqUnit::is_written));
        if let Some(last) = written {
            return Ok(begin / unit + i64::try_from(last).unwrap_or(0) + 1);
        }
    }
    Ok(0)
}

/// A queue's number in a table of Apache's, whose keys are written bare.
fn of_queue(offsets: &Json, queue: &str) -> Option<i64> {
    let mut members = offsets.as_object()?.iter();
    let (_, offset) = members.find(|(key, _)| match key {
        Key::Str(name) => name == queue,
        Key::Int(number) => number.to_string() == queue,
        Key::Object(_) => false,
    })?;
    offset.as_i64()
}

/// What an object's members hold.
fn values(tree: &Json) -> impl Iterator<Item = &Json> {
    let members = tree.as_object().unwrap_or_default();
    members.iter().map(|(_, value)| value)
}

/// Whether an orderly group has a message that was handed out and not acknowledged (Apache `OrderInfo`: offsets `o`,
/// bit set `cm`).
fn has_open_orders(tree: &Json) -> bool {
    let groups = tree.get("table").into_iter().flat_map(values);
    groups.flat_map(values).any(|order| {
        let count = order.get("o").and_then(Json::as_array).map_or(0, <[_]>::len);
        let acknowledged = order.get("cm").and_then(Json::as_i64).unwrap_or(0);
        (0..count.min(64)).any(|at| acknowledged & (1 << at) == 0)
    })
}

/// A file of Apache's configuration; nothing where it is missing. What cannot be read, its own reader refuses.
fn json(fs: &dyn Fs, path: &Path) -> Result<Json, StoreError> {
    match fs.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Json::Null),
        read => Ok(Json::parse(&read.at("read", path)?).unwrap_or_default()),
    }
}
