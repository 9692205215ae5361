//! Evaluating a filter never allocates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use pyrmq_remoting::message::properties::Properties;
use pyrmq_routing::filter::Filter;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no cell any more and is not measured.
        COUNT.try_with(|count| count.set(count.get() + 1)).ok();
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_evaluation_allocates_nothing() {
    let many: Vec<String> = (0..40).map(|number| format!("p{number} = 'x'")).collect();
    let expressions = [
        "a = 1 AND b > 2.5 OR c IN ('x', 'y') AND NOT d CONTAINS 'z' AND e BETWEEN 1 AND 2 OR f = TRUE",
        "a > 0 AND a > 0.5 AND TRUE = a",
        &many.join(" OR "),
    ];
    for expression in expressions {
        let filter = Filter::compile(expression).expect("a filter");
        for text in [
            "",
            "a\x011\x02b\x013\x02e\x01wrong\x02",
            "a\x011\x02p39\x01x\x02",
            "a\x010x1.8p1\x02",
        ] {
            let before = COUNT.get();
            let matches = filter.matches(Properties::new(text));
            assert_eq!(COUNT.get(), before, "{expression} with {text:?}: {matches}");
        }
    }
}
