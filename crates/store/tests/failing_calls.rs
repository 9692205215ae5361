//! Every kind of file with every kind of failing call, while a store runs and while it starts after a kill: what the
//! store does about it, as the tables of docs/store.md say, and that no acknowledged message is lost by it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod common;

use common::{message, props, small};
use pyrmq_store::{Durability, MaintenanceTask, Options, Store};
use pyrmq_testkit::SimDisk;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use pyrmq_testkit::sim::{Loss, Session};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const START_MS: i64 = 1_800_000_000_000;
/// Each of these queues is fsynced by itself.
const FEW_QUEUES: i32 = 30;
/// Enough queues for one fsync of their whole file system.
const MANY_QUEUES: i32 = 70;
const ROUNDS: usize = 12;

/// Each kind of file, with the parts of paths that name it.
const KINDS: [(&str, &[&str]); 6] = [
    ("segments of the log", &["/commitlog"]),
    ("queue files", &["/consumequeue"]),
    ("index files", &["/index"]),
    ("`checkpoint`", &["/checkpoint"]),
    ("`abort`", &["/abort"]),
    (
        "`queueEnds`, `deletedTopics`, `nulRecords`",
        &["/queueEnds", "/deletedTopics", "/nulRecords"],
    ),
];

const CALLS: [(&str, Operation); 10] = [
    ("open, create", Operation::Open),
    ("exists", Operation::Exists),
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("zero bytes where a write found no space", Operation::Clear),
    ("fsync", Operation::Sync),
    ("fsync of its directory", Operation::SyncDirectory),
    ("`syncfs`", Operation::SyncAll),
    ("rename", Operation::Rename),
    ("remove", Operation::Remove),
];

fn options() -> Options {
    let mut options = small(Path::new("/store"));
    options.segment_bytes = 32 << 10;
    options.index_entries = 200;
    options.file_reserved_hours = 0;
    options
}

/// An acknowledged message.
struct Sent {
    queue: i32,
    body: String,
    position: i64,
    end: i64,
}

/// A store on a disk of which one kind of call fails on one kind of file.
struct Run {
    sim: SimDisk,
    session: Session,
    disk: FaultyDisk,
    store: Arc<Store>,
    queues: i32,
    sent: Vec<Sent>,
    refused: bool,
}

impl Run {
    fn new(queues: i32) -> Self {
        let sim = SimDisk::default();
        sim.set_now(START_MS);
        let session = sim.session();
        let disk = FaultyDisk::new(Arc::new(session.clone()));
        let store = Store::open_without_threads(options(), Arc::new(disk.clone())).unwrap();
        let mut run = Self {
            sim,
            session,
            disk,
            store,
            queues,
            sent: Vec::new(),
            refused: false,
        };
        run.round(0);
        assert!(!run.refused, "nothing fails yet");
        run
    }

    fn put(&mut self, topic: &str, queue: i32, number: usize) {
        let body = format!("{topic}-{queue}-{number:0400}");
        let mut properties = props(&[("UNIQ_KEY", &body)]);
        if queue == 3 {
            // Needs a note in `nulRecords`.
            properties.push_str("nul\u{1}\0");
        }
        match self
            .store
            .put(&message(topic, queue, body.as_bytes(), &properties))
        {
            Ok(stored) if topic == "T" => self.sent.push(Sent {
                queue,
                body,
                position: stored.physical_offset,
                end: stored.end_position,
            }),
            Ok(_) => {}
            Err(_) => self.refused = true,
        }
    }

    /// Everything that a store does, once. Errors are what is tested.
    fn round(&mut self, number: usize) {
        let deleted = format!("D{number}");
        for queue in 0..self.queues {
            self.put("T", queue, number);
        }
        self.put(&deleted, 0, number);
        for task in [
            MaintenanceTask::Flush,
            MaintenanceTask::PrepareSegment,
            MaintenanceTask::WriteQueues,
            MaintenanceTask::SyncQueues,
            MaintenanceTask::SaveCheckpoint,
            MaintenanceTask::Index,
            MaintenanceTask::WriteIndex,
            MaintenanceTask::ReleaseIdle,
        ] {
            drop(self.store.run(task));
        }
        for queue in 0..self.queues {
            let offset = self.store.min_offset("T", queue);
            drop(common::try_get(&self.store, "T", queue, offset));
        }
        drop(self.store.delete_topic(&deleted));
        drop(self.store.delete_expired());
        self.sim.set_now(self.sim.now() + 1000);
    }

    /// What the store did about a failing call.
    fn outcome(mut self, parts: &[&str], operation: Operation, kind: ErrorKind) -> &'static str {
        for part in parts {
            self.disk.fail(operation, part, 0, Fault::Error(kind));
            if operation == Operation::Clear {
                let full = Fault::Error(ErrorKind::StorageFull);
                self.disk.fail(Operation::Write, part, 0, full);
            }
        }
        self.refused = false;
        for number in 1..ROUNDS {
            self.round(number);
        }
        let (has_failed, hits) = (self.store.has_failed(), self.disk.injected());
        self.check_kept();
        match (hits, has_failed, self.refused) {
            (0, ..) => "",
            (_, true, _) => "read-only",
            (_, false, true) => "puts refused",
            _ => "retried",
        }
    }

    /// After a kill every acknowledged message is there, after a power loss every durable one.
    fn check_kept(&self) {
        self.disk.heal();
        let durable = |sent: &&Sent| self.store.durability(sent.end) == Durability::Local;
        let durable: BTreeSet<_> = self.sent.iter().filter(durable).map(|sent| &sent.body).collect();
        self.session.kill();
        for (loss, is_kill) in [(Loss::Nothing, true), (Loss::All, false)] {
            let disk = self.sim.crash(self.sim.steps(), loss, 1);
            let store = Store::open_without_threads(options(), Arc::new(disk.session())).unwrap();
            let found: BTreeSet<_> = (0..self.queues)
                .flat_map(|queue| common::bodies(&store, "T", queue))
                .collect();
            let start = store.health().min_physical_offset;
            for sent in self.sent.iter().filter(|sent| sent.position >= start) {
                let must_be_there = is_kill || durable.contains(&sent.body);
                assert!(
                    !must_be_there || found.contains(sent.body.as_bytes()),
                    "{} of queue {} is gone after {loss:?}",
                    sent.body,
                    sent.queue
                );
            }
        }
    }
}

fn few_or_many(operation: Operation) -> i32 {
    if operation == Operation::SyncAll {
        MANY_QUEUES
    } else {
        FEW_QUEUES
    }
}

/// What a running store does about a failing call.
fn running(parts: &[&str], operation: Operation, kind: ErrorKind) -> &'static str {
    Run::new(few_or_many(operation)).outcome(parts, operation, kind)
}

/// What a start after a kill does about a failing call.
fn starting(parts: &[&str], operation: Operation, kind: ErrorKind) -> &'static str {
    let mut run = Run::new(few_or_many(operation));
    run.round(1);
    run.session.kill();
    run.session = run.sim.session();
    run.disk = FaultyDisk::new(Arc::new(run.session.clone()));
    for part in parts {
        run.disk.fail(operation, part, 0, Fault::Error(kind));
    }
    let outcome = match Store::open_without_threads(options(), Arc::new(run.disk.clone())) {
        Err(_) => "refused",
        Ok(_) if run.disk.injected() == 0 => "",
        Ok(store) if store.has_failed() => "read-only",
        Ok(_) => "starts",
    };
    run.check_kept();
    outcome
}

/// Whether a file system may answer a call with "no space".
fn takes_space(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::Exists | Operation::Read | Operation::Remove | Operation::Clear
    )
}

/// Outcomes with an error of the disk, and with one that means a full disk if that differs.
fn table(outcome: impl Fn(&[&str], Operation, ErrorKind) -> &'static str) -> String {
    let cell = |operation: Operation, parts: &[&str]| {
        let broken = outcome(parts, operation, ErrorKind::Other);
        let full = if takes_space(operation) {
            outcome(parts, operation, ErrorKind::StorageFull)
        } else {
            broken
        };
        match broken {
            "" => String::new(),
            _ if broken == full => format!(" {broken}"),
            _ => format!(" {broken}; full: {full}"),
        }
    };
    let kinds: Vec<_> = KINDS.iter().map(|(kind, _)| format!(" {kind}")).collect();
    let head = format!(
        "| failing call |{} |\n|{}\n",
        kinds.join(" |"),
        "---|".repeat(KINDS.len() + 1)
    );
    let rows = CALLS.map(|(call, operation)| {
        let cells = KINDS.map(|(_, parts)| cell(operation, parts));
        format!("| {call} |{} |\n", cells.join(" |"))
    });
    head + &rows.concat()
}

#[test]
fn a_failing_call_has_the_outcome_of_the_tables_and_loses_nothing() {
    let page = include_str!("../../../docs/store.md");
    let tables = [table(running), table(starting)];
    for table in tables {
        assert!(
            page.contains(&table),
            "docs/store.md has another table, this one is true:\n{table}"
        );
    }
}
