//! Puts of one thread that go into the log together: an append batch.
//!
//! A put of an append batch is laid out in a buffer of its thread and has no place in the log yet; when the batch is
//! committed, all of them get theirs under one hold of the append lock and go into the page cache in one write for each
//! segment that they reach. Nobody is told, and nothing is readable, before that write.
//!
//! An append batch belongs to one store. A put to another one on the same thread writes what the first has waiting.

use crate::append::buffer::AppendBuffer;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::store::{OnDurable, OnStored};
use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

/// What waits is written once it has this many bytes: they are still in the processor's cache then.
const FLUSH_AT: usize = 128 << 10;

#[derive(Default)]
struct StagedPuts {
    store: Option<Arc<Engine>>,
    append_buffer: AppendBuffer,
    /// The listener of each queue append in the buffer.
    done: Vec<Box<dyn OnStored>>,
    /// Those of them that wait for the disk.
    waiters: Vec<(i64, OnDurable)>,
}

thread_local! {
    static STAGED: RefCell<StagedPuts> = RefCell::default();
}

/// Adds a put to the thread's append batch. What cannot be laid out is reported at once.
pub(crate) fn stage(
    store: &Arc<Engine>,
    done: Box<dyn OnStored>,
    encode: impl FnOnce(&mut AppendBuffer) -> Result<(), StoreError>,
) {
    commit_unless(|of| Arc::ptr_eq(of, store));
    let bytes = STAGED.with_borrow_mut(|staged| {
        if let Err(error) = encode(&mut staged.append_buffer) {
            return Err((done, error));
        }
        staged.done.push(done);
        staged.store.get_or_insert_with(|| Arc::clone(store));
        Ok(staged.append_buffer.bytes())
    });
    // Outside of the borrow: the listener may put again.
    match bytes {
        Ok(FLUSH_AT..) => commit_staged(store),
        Ok(_) => {}
        Err((done, error)) => {
            let waiters = done.stored(Err(error));
            store.when_durable_in_batch(waiters.into_iter());
        }
    }
}

/// Writes what the thread's append batch has waiting for this store.
pub(crate) fn commit_staged(store: &Arc<Engine>) {
    commit_unless(|of| !Arc::ptr_eq(of, store));
}

/// Writes what waits for a store, unless it is one that may wait on.
fn commit_unless(may_wait: impl Fn(&Arc<Engine>) -> bool) {
    // A listener may put again.
    while let Some((store, mut staged)) = STAGED.with_borrow_mut(|staged| {
        let store = staged.store.take_if(|store| !may_wait(store))?;
        Some((store, mem::take(staged)))
    }) {
        let mut done = staged.done.drain(..);
        store.append_all(&mut staged.append_buffer, |stored| {
            let waiters = done.next().and_then(|done| done.stored(stored));
            staged.waiters.extend(waiters);
        });
        drop(done);
        if !staged.waiters.is_empty() {
            store.when_durable_in_batch(staged.waiters.drain(..));
        }
        staged.append_buffer.clear();
        STAGED.with_borrow_mut(|slot| {
            if slot.store.is_none() {
                // Its buffers serve the next append batch.
                *slot = staged;
            }
        });
    }
}
