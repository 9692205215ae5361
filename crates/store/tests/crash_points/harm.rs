//! Somebody deletes or shortens a queue's files while the store is down.

use crate::workload::ROOT;
use pyrmq_store::Fs;
use pyrmq_testkit::{Random, SimDisk};
use std::path::{Path, PathBuf};

/// The damage, and its queue.
#[derive(Debug)]
pub(crate) struct Harm {
    pub(crate) queue: (String, i32),
    #[allow(dead_code, reason = "shown where a run fails")]
    what: String,
}

/// Damages one queue that has files, if there is one.
pub(crate) fn a_queue(disk: &SimDisk, random: &mut Random) -> Option<Harm> {
    let session = disk.session();
    let names = |path: &Path| -> Vec<String> {
        let entries = session.list(path).expect("a directory");
        entries.into_iter().map(|entry| entry.name).collect()
    };
    let root = Path::new(ROOT).join("consumequeue");
    let topics = names(&root);
    let topic = random.choose(&topics)?.clone();
    let ids = names(&root.join(&topic));
    let id = random.choose(&ids)?.clone();
    let directory = root.join(&topic).join(&id);
    let files: Vec<PathBuf> = names(&directory)
        .iter()
        .map(|name| directory.join(name))
        .collect();
    let (oldest, newest) = (files.first()?, files.last()?);
    let remove = |path: &Path| session.remove(path).expect("removed");
    let length_of = |path: &Path| {
        session
            .open(path)
            .and_then(|file| file.length())
            .expect("a length")
    };
    // A store is refused if none of its queue files has the configured length: that looks like another configuration.
    let whole = length_of(newest);
    let mut all = Vec::new();
    for topic in names(&root) {
        for id in names(&root.join(&topic)) {
            let queue = root.join(&topic).join(id);
            all.extend(names(&queue).into_iter().map(|name| queue.join(name)));
        }
    }
    let is_only = !all.iter().any(|file| file != newest && length_of(file) == whole);
    let what = match random.below(if is_only { 3 } else { 4 }) {
        0 => {
            for file in &files {
                remove(file);
            }
            session.remove_directory(&directory).expect("removed");
            "the queue is gone".to_owned()
        }
        1 => {
            remove(oldest);
            format!("{} is gone", oldest.display())
        }
        2 => {
            remove(newest);
            format!("{} is gone", newest.display())
        }
        _ => {
            let file = session.open(newest).expect("a file");
            let length = random.below(usize::try_from(whole).unwrap() + 1);
            file.set_length(length as u64).expect("shortened");
            format!("{} has {length} bytes left", newest.display())
        }
    };
    for path in [&directory, directory.parent()?] {
        if session.exists(path).unwrap() {
            session.sync_directory(path).expect("durable");
        }
    }
    if let Some(file) = files.last().filter(|path| session.exists(path).unwrap()) {
        session.open(file).and_then(|file| file.sync()).expect("durable");
    }
    session.kill();
    Some(Harm {
        queue: (topic, id.parse().expect("a queue")),
        what,
    })
}
