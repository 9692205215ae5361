//! Real threads of which one runs at a time; at each switch point, a seed chooses which one continues.
//!
//! Switch points are the calls to a [`SimDisk`](crate::SimDisk) and, in builds with debug assertions, the store's
//! locks: a thread that finds a lock taken lets another one run and tries again. So two runs of one seed are equal.

use crate::lock::lock;
use crate::random::Random;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One in this many switch points changes the running thread.
const CHANGES: usize = 3;

#[derive(Debug)]
struct State {
    random: Random,
    alive: Vec<usize>,
    running: usize,
}

#[derive(Debug)]
struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Schedule>, usize)>> = const { RefCell::new(None) };
}

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait(&self, state: MutexGuard<'_, State>, me: usize) {
        let waited = self.changed.wait_while(state, |state| state.running != me);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn point(&self, me: usize, is_blocked: bool) {
        let mut state = self.state();
        if !is_blocked && !state.random.one_in(CHANGES) {
            return;
        }
        let others: Vec<usize> = state
            .alive
            .iter()
            .copied()
            .filter(|other| !is_blocked || *other != me)
            .collect();
        if let Some(next) = state.random.choose(&others).copied()
            && next != me
        {
            state.running = next;
            self.changed.notify_all();
            self.wait(state, me);
        }
    }
}

/// A thread of a schedule. When it ends, even by a panic, another one continues.
struct Member {
    schedule: Arc<Schedule>,
    me: usize,
}

impl Drop for Member {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = None);
        let mut state = self.schedule.state();
        state.alive.retain(|other| *other != self.me);
        let alive = state.alive.clone();
        state.running = state.random.choose(&alive).copied().unwrap_or(usize::MAX);
        self.schedule.changed.notify_all();
    }
}

/// Lets another thread of the schedule run, if the seed says so or this one `is_blocked`. Does nothing on a thread that
/// belongs to no schedule. Returns whether it belongs to one.
pub fn point(is_blocked: bool) -> bool {
    let current = CURRENT.with_borrow(Clone::clone);
    if let Some((schedule, me)) = &current {
        schedule.point(*me, is_blocked);
    }
    current.is_some()
}

/// Runs all jobs, each on its own thread, one at a time.
pub fn run<'j>(seed: u64, jobs: Vec<Box<dyn FnOnce() + Send + 'j>>) {
    let mut random = Random::of(&[seed, 7]);
    let running = random.below(jobs.len());
    let schedule = Arc::new(Schedule {
        state: Mutex::new(State {
            random,
            alive: (0..jobs.len()).collect(),
            running,
        }),
        changed: Condvar::new(),
    });
    std::thread::scope(|scope| {
        for (me, job) in jobs.into_iter().enumerate() {
            let schedule = Arc::clone(&schedule);
            scope.spawn(move || {
                CURRENT.with_borrow_mut(|current| *current = Some((Arc::clone(&schedule), me)));
                let member = Member { schedule, me };
                member.schedule.wait(member.schedule.state(), me);
                job();
            });
        }
    });
}
