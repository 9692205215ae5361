//! What retention deletes, and when: by age, hour, disk ratio and on request; and the effect on readers, queues and
//! index. Time and space are those of a simulated disk.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, decoded, get, message, props, put, small};
use pyrmq_store::fs::Space;
use pyrmq_store::{Boundary, GetStatus, KeyKind, KeyQuery, MaintenanceTask, Options, Store};
use pyrmq_testkit::SimDisk;
use pyrmq_testkit::sim::Session;
use std::path::Path;
use std::sync::Arc;

const HOUR: i64 = 3_600_000;
const GIB: u64 = 1 << 30;

struct Site {
    disk: SimDisk,
    session: Session,
    store: Arc<Store>,
    options: Options,
}

impl Site {
    fn new(change: impl FnOnce(&mut Options)) -> Self {
        let disk = SimDisk::default();
        disk.set_now(1_800_000_000_000);
        let mut options = small(Path::new("/store"));
        // No hour of the day is set for deletion.
        options.delete_when = Vec::new();
        change(&mut options);
        let session = disk.session();
        let store = Store::open_without_threads(options.clone(), Arc::new(session.clone())).unwrap();
        Self {
            disk,
            session,
            store,
            options,
        }
    }

    fn kill_and_start(&mut self) {
        self.session.kill();
        self.session = self.disk.session();
        self.store =
            Store::open_without_threads(self.options.clone(), Arc::new(self.session.clone())).unwrap();
    }

    /// Two segments and a bit of messages at this time, all flushed.
    fn fill(&self, from: usize) {
        for number in from..from + 140 {
            let properties = props(&[("UNIQ_KEY", &format!("U{number}"))]);
            let body = format!("{number:01000}");
            self.store
                .put(&message("T", 0, body.as_bytes(), &properties))
                .unwrap();
        }
        for task in [
            MaintenanceTask::Flush,
            MaintenanceTask::Index,
            MaintenanceTask::SyncQueues,
        ] {
            self.store.run(task).unwrap();
        }
    }

    fn after(&self, hours: i64) {
        self.disk.set_now(self.disk.now() + hours * HOUR);
    }

    fn clean(&self) -> i64 {
        self.store.run(MaintenanceTask::Clean).unwrap();
        self.store.health().min_physical_offset
    }

    fn finds(&self, number: usize) -> bool {
        let query = KeyQuery {
            topic: "T",
            key: &format!("U{number}"),
            kind: KeyKind::Unique,
            max_count: 10,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        self.store.query(&query).unwrap().count == 1
    }
}

#[test]
fn old_segments_go_at_their_hour_only() {
    let mut site = Site::new(|_| ());
    site.fill(0);
    site.after(73);
    assert_eq!(site.clean(), 0, "no hour is one for deletion");
    site.options.delete_when = (0..24).collect();
    site.kill_and_start();
    site.store.run(MaintenanceTask::Flush).unwrap();
    assert_eq!(site.clean(), 2 * 65536, "the last segment stays");
}

#[test]
fn retention_settings_may_change_while_the_store_is_open() {
    let mut site = Site::new(|_| ());
    site.fill(0);
    assert_eq!(site.clean(), 0);
    site.options.delete_when = (0..24).collect();
    site.store.reconfigure(&site.options).unwrap();
    assert_eq!(
        site.clean(),
        0,
        "the hour is one for deletion, but nothing is old"
    );
    site.options.file_reserved_hours = 0;
    site.store.reconfigure(&site.options).unwrap();
    assert_eq!(site.clean(), 2 * 65536);
}

#[test]
fn segments_that_are_not_old_stay() {
    let site = Site::new(|options| options.delete_when = (0..24).collect());
    site.fill(0);
    site.after(71);
    assert_eq!(site.clean(), 0);
    site.fill(140);
    site.after(2);
    // The third segment was last written two hours ago.
    assert_eq!(site.clean(), 2 * 65536);
    assert_eq!(site.store.delete_expired().unwrap(), 0);
}

#[test]
fn a_full_disk_takes_old_segments_at_any_hour_and_a_fuller_one_young_ones() {
    let site = Site::new(|_| ());
    site.fill(0);
    let space = |free: u64, total: u64| {
        site.disk.set_space(Space {
            total: total * GIB,
            free: free * GIB,
        });
    };
    space(10, 50);
    assert_eq!(site.clean(), 0, "80 %: young ones stay");
    site.after(73);
    assert_eq!(site.clean(), 2 * 65536, "old ones go");
    site.fill(140);
    space(17, 200);
    assert_eq!(site.clean(), 2 * 65536, "91 %, but 17 GiB are enough");
    space(10, 100);
    assert!(site.clean() > 2 * 65536, "90 %: age does not count");
}

#[test]
fn at_most_ten_segments_go_in_a_round() {
    let site = Site::new(|options| options.file_reserved_hours = 0);
    (0..12).for_each(|round| site.fill(round * 140));
    assert!(site.store.delete_expired().unwrap() >= 10);
    assert_eq!(site.store.health().min_physical_offset, 10 * 65536);
}

#[test]
fn queues_index_and_readers_follow() {
    let mut site = Site::new(|options| options.file_reserved_hours = 0);
    site.fill(0);
    site.disk.set_now(site.disk.now() + 1000);
    site.fill(140);
    site.store.delete_expired().unwrap();
    for _ in 0..2 {
        let store = &site.store;
        let (min, max) = (store.min_offset("T", 0), store.max_offset("T", 0));
        assert!(min > 0 && max == 280);
        let got = get(store, "T", 0, min - 1);
        assert_eq!(
            (got.status, got.next_offset, got.min_offset),
            (GetStatus::OffsetTooSmall, min, min)
        );
        let got = get(store, "T", 0, min);
        assert_eq!(got.status, GetStatus::Found);
        let first = decoded(&got.body).next().unwrap().unwrap();
        assert!(first.physical_offset >= store.health().min_physical_offset);
        assert_eq!(get(store, "T", 0, max).status, GetStatus::OffsetOverflowOne);
        assert_eq!(get(store, "T", 0, max + 1).status, GetStatus::OffsetOverflowBadly);
        assert_eq!(bodies(store, "T", 0).len(), usize::try_from(max - min).unwrap());
        assert_eq!(store.offset_by_time("T", 0, 0, Boundary::Lower).unwrap(), min);
        assert!(store.earliest_time("T", 0).unwrap().unwrap() >= 1_800_000_000_000);
        store.run(MaintenanceTask::Index).unwrap();
        assert!(!site.finds(0) && site.finds(279));
        site.kill_and_start();
    }
    assert_eq!(put(&site.store, "T", 0, b"next").queue_offset, 280);
}

#[test]
fn a_queue_whose_messages_are_all_gone_goes_on_behind_them() {
    let mut site = Site::new(|options| options.file_reserved_hours = 0);
    put(&site.store, "Quiet", 0, b"one");
    put(&site.store, "Quiet", 0, b"two");
    site.fill(0);
    site.store.delete_expired().unwrap();
    for _ in 0..2 {
        let store = &site.store;
        assert_eq!(
            (store.min_offset("Quiet", 0), store.max_offset("Quiet", 0)),
            (2, 2)
        );
        assert_eq!(get(store, "Quiet", 0, 0).status, GetStatus::OffsetTooSmall);
        assert_eq!(get(store, "Quiet", 0, 2).status, GetStatus::OffsetOverflowOne);
        site.kill_and_start();
    }
    assert_eq!(put(&site.store, "Quiet", 0, b"three").queue_offset, 2);
    assert_eq!(bodies(&site.store, "Quiet", 0), [b"three"]);
}

#[test]
fn a_clock_that_goes_back_loses_no_queue_after_a_kill() {
    let mut site = Site::new(|_| ());
    site.fill(0);
    site.store.run(MaintenanceTask::SaveCheckpoint).unwrap();
    site.after(-1);
    // A queue that is only in memory, in a segment older than the newest one, with store times before the checkpoint.
    put(&site.store, "Late", 0, b"late");
    for number in 0..140 {
        site.store
            .put(&message("T", 1, format!("{number:01000}").as_bytes(), ""))
            .unwrap();
    }
    site.kill_and_start();
    assert_eq!(bodies(&site.store, "Late", 0), [b"late"]);
    assert_eq!(bodies(&site.store, "T", 1).len(), 140);
}

#[test]
fn above_its_limit_the_log_loses_its_oldest_segments_at_any_age() {
    let site = Site::new(|_| {});
    site.fill(0);
    site.fill(140);
    let size = |site: &Site| {
        let health = site.store.health();
        (health.max_physical_offset - health.min_physical_offset).unsigned_abs()
    };
    let (before, segment) = (size(&site), site.options.segment_bytes);
    assert_eq!(site.clean(), 0, "no limit, no hour, no age");
    assert_eq!(site.store.deleted_before(), None);

    let limited = Options {
        store_max_bytes: before - 1,
        ..site.options.clone()
    };
    site.store.reconfigure(&limited).unwrap();
    let until = site.store.deleted_before().unwrap().unsigned_abs();
    assert!(until >= segment && until.is_multiple_of(segment));
    assert_eq!(site.clean().unsigned_abs(), segment, "one segment is enough");
    assert!(size(&site) < before);
    assert_eq!(get(&site.store, "T", 0, 0).status, GetStatus::OffsetTooSmall);

    let tiny = Options {
        store_max_bytes: 1,
        ..site.options.clone()
    };
    site.store.reconfigure(&tiny).unwrap();
    site.clean();
    let last = site.store.health();
    assert!(
        last.min_physical_offset < last.max_physical_offset,
        "the last segment stays"
    );
}
