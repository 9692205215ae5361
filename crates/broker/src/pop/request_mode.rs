//! How groups get messages of topics: by pulls or by pops (Apache `MessageRequestModeManager`,
//! `config/messageRequestMode.json`).
//!
//! Invariant as with topics: a change is in the file, synced, before it counts.

use crate::error::{BrokerError, Refusal};
use crate::options::Options;
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::{MessageRequestModeSerializeWrapper, SetMessageRequestModeRequestBody};
use pyrmq_remoting::names;
use pyrmq_remoting::sync::lock;
use std::sync::{Mutex, MutexGuard};

/// Groups whose clients pop.
pub(crate) const POP: &str = "POP";
/// Groups whose clients pull.
pub(crate) const PULL: &str = "PULL";

/// The modes of all topics and groups.
#[derive(Debug)]
pub(crate) struct RequestModes {
    // Guards the table. It is not held while waiting for the disk.
    table: Mutex<MessageRequestModeSerializeWrapper>,
    // Serializes changes; held while the file is written.
    changes: Mutex<()>,
    file: ConfigFile,
    default_mode: String,
    default_share: i32,
}

impl RequestModes {
    pub(crate) fn load(options: &Options, file: ConfigFile) -> Result<Self, BrokerError> {
        Ok(Self {
            table: Mutex::new(file.read("messageRequestModeMap")?.unwrap_or_default()),
            changes: Mutex::new(()),
            file,
            default_mode: options.default_message_request_mode.clone(),
            default_share: options.default_pop_share_queue_num,
        })
    }

    fn table(&self) -> MutexGuard<'_, MessageRequestModeSerializeWrapper> {
        lock(&self.table)
    }

    /// How a group gets messages of a topic: as was set, else by default. Retry topics are always pulled.
    pub(crate) fn get(&self, topic: &str, group: &str) -> SetMessageRequestModeRequestBody {
        let table = self.table();
        let groups = table.message_request_mode_map.get(topic);
        if let Some(known) = groups.and_then(|groups| groups.get(group)) {
            return known.clone();
        }
        let is_pop = self.default_mode == POP && !names::is_retry(topic);
        SetMessageRequestModeRequestBody {
            consumer_group: group.to_owned(),
            mode: if is_pop { POP } else { PULL }.to_owned(),
            pop_share_queue_num: if is_pop { self.default_share } else { 0 },
            topic: topic.to_owned(),
        }
    }

    /// Sets a mode.
    pub(crate) fn set(&self, mode: SetMessageRequestModeRequestBody) -> Result<(), Refusal> {
        let _changing = lock(&self.changes);
        let mut next = self.table().clone();
        let groups = next.message_request_mode_map.entry(mode.topic.clone());
        groups.or_default().insert(mode.consumer_group.clone(), mode);
        self.file.write(&next)?;
        *self.table() = next;
        Ok(())
    }

    /// All modes that were set.
    pub(crate) fn all(&self) -> MessageRequestModeSerializeWrapper {
        self.table().clone()
    }
}
