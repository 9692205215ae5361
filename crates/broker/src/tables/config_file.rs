//! The files below `config/` (Apache `ConfigManager`): the bodies of their requests, indented.
//!
//! ```text
//! topics.json             TopicConfigSerializeWrapper     {dataVersion, topicConfigTable: {name: TopicConfig}}
//! subscriptionGroup.json  SubscriptionGroupWrapper        {dataVersion, forbiddenTable,
//!                                                          subscriptionGroupTable: {name: SubscriptionGroupConfig}}
//! consumerOffset.json     ConsumerOffsetSerializeWrapper  {dataVersion, groupTopicMap,
//!                                                          offsetTable: {"topic@group": {queue: offset}}}
//! delayOffset.json        DelayOffsetSerializeWrapper     {dataVersion, offsetTable: {level: offset}}
//! topicMakers.json        TopicMakers (ours)              {makerTable: {topic: user}}
//! ```
//! Written like fastjson: members sorted, tabs, whole numbers as keys without quotes. Read leniently: members that
//! files of 4.9 lack get Apache's defaults, and unknown members are kept.

use crate::error::{BrokerError, Refusal};
use pyrmq_remoting::body::{Body, Json, Key, Style};
use pyrmq_store::{Fs, StoreError, config_file};
use std::path::PathBuf;
use std::sync::Arc;

/// One file below `config/`, with its backup.
#[derive(Debug)]
pub struct ConfigFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl ConfigFile {
    /// The file at this path of this file system.
    pub fn new(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        Self { fs, path }
    }

    /// Reads the file, or its backup if the file is missing or incomplete: a complete one has the member `table`.
    /// `None`: neither exists.
    pub fn read<T: Body>(&self, table: &'static str) -> Result<Option<T>, BrokerError> {
        let check = |text: &str| {
            config_file::parse::<T>(text, table)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let loaded = config_file::load(&*self.fs, &self.path, check)?;
        let Some(text) = loaded.text() else {
            return Ok(None);
        };
        for row in null_rows(text, table) {
            let file = self.path.display();
            tracing::warn!(%file, row, "a row of {table} is null: it is left out, its messages are kept");
        }
        // It was parsed successfully above.
        Ok(config_file::parse(text, table).ok())
    }

    /// When the file was last written, in ms; 0 if that cannot be read.
    pub fn modified_ms(&self) -> i64 {
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return 0;
        };
        let entries = self.fs.list(directory).unwrap_or_default();
        let file = entries.iter().find(|entry| *name == *entry.name);
        file.map_or(0, |file| file.modified_ms)
    }

    /// Writes the file and syncs it; the old one becomes the backup.
    pub fn save(&self, body: &impl Body) -> Result<(), StoreError> {
        let text = body.encode_as(Style::PRETTY);
        // The writer gets only valid text, so its output is valid text.
        config_file::save(&*self.fs, &self.path, &String::from_utf8_lossy(&text))
    }

    /// Like [`Self::save`], for a change that a client waits for.
    pub fn write(&self, body: &impl Body) -> Result<(), Refusal> {
        self.save(body)
            .map_err(|error| Refusal::internal(format!("the change could not be written: {error}")))
    }
}

/// The names of the rows of a table whose value is null.
fn null_rows(text: &str, table: &str) -> Vec<String> {
    let tree = Json::parse(text.as_bytes()).unwrap_or_default();
    let Some(Json::Object(rows)) = tree.get(table) else {
        return Vec::new();
    };
    let nulls = rows.iter().filter(|(_, value)| *value == Json::Null);
    nulls
        .filter_map(|(key, _)| match key {
            Key::Str(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}
