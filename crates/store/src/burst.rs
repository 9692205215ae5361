//! Puts of one thread that go into the log together: a burst.
//!
//! A put of a burst is laid out in a buffer of its thread and has no place in the log yet; at the burst's end all of them get
//! theirs under one hold of the append lock and go into the page cache in one write for each segment that they reach. Nobody
//! is told, and nothing is readable, before that write.
//!
//! A burst belongs to one store. A put to another one on the same thread writes what the first has waiting.

use crate::error::StoreError;
use crate::inner::Inner;
use crate::scratch::Scratch;
use crate::store::{OnDurable, OnStored};
use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

/// What waits is written once it is so many bytes: they are still in the processor's cache then.
const WRITE_AT: usize = 128 << 10;

#[derive(Default)]
struct Waiting {
    store: Option<Arc<Inner>>,
    scratch: Scratch,
    /// One for each target in the scratch.
    done: Vec<Box<dyn OnStored>>,
    /// Those of them that wait for the disk.
    waits: Vec<(i64, OnDurable)>,
}

thread_local! {
    static WAITING: RefCell<Waiting> = RefCell::default();
}

/// Adds a put to the thread's burst. What cannot be laid out is told at once.
pub(crate) fn put(
    store: &Arc<Inner>,
    done: Box<dyn OnStored>,
    lay_out: impl FnOnce(&mut Scratch) -> Result<(), StoreError>,
) {
    write_unless(|of| Arc::ptr_eq(of, store));
    let bytes = WAITING.with_borrow_mut(|waiting| {
        if let Err(error) = lay_out(&mut waiting.scratch) {
            return Err((done, error));
        }
        waiting.done.push(done);
        waiting.store.get_or_insert_with(|| Arc::clone(store));
        Ok(waiting.scratch.bytes())
    });
    // Outside of the borrow: who is told may put again.
    match bytes {
        Ok(WRITE_AT..) => write(store),
        Ok(_) => {}
        Err((done, error)) => {
            let waits = done.stored(Err(error));
            store.when_durable_in_burst(waits.into_iter());
        }
    }
}

/// Writes what the thread's burst has waiting for this store.
pub(crate) fn write(store: &Arc<Inner>) {
    write_unless(|of| !Arc::ptr_eq(of, store));
}

/// Writes what waits for a store, unless it is one that may wait on.
fn write_unless(may_wait: impl Fn(&Arc<Inner>) -> bool) {
    // Who is told may put again.
    while let Some((store, mut waiting)) = WAITING.with_borrow_mut(|waiting| {
        let store = waiting.store.take_if(|store| !may_wait(store))?;
        Some((store, mem::take(waiting)))
    }) {
        let mut done = waiting.done.drain(..);
        store.append_all(&mut waiting.scratch, |stored| {
            let waits = done.next().and_then(|done| done.stored(stored));
            waiting.waits.extend(waits);
        });
        drop(done);
        if !waiting.waits.is_empty() {
            store.when_durable_in_burst(waiting.waits.drain(..));
        }
        waiting.scratch.clear();
        WAITING.with_borrow_mut(|slot| {
            if slot.store.is_none() {
                // Its buffers serve the next burst.
                *slot = waiting;
            }
        });
    }
}
