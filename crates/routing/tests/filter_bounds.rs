//! Filters with hostile input: none panics, none takes long, none overflows the stack.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use proptest::prelude::*;
use pyrmq_remoting::message::properties::{Properties, append};
use pyrmq_routing::filter::{Filter, MAX_DEPTH, MAX_LENGTH, Reason};
use std::collections::HashMap;
use std::thread;

/// Runs on a thread with the usual stack. This code is not optimised; optimised code needs a fraction of that.
fn on_the_usual_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(2 << 20).spawn(test);
    thread.expect("a thread").join().expect("no panic");
}

/// Returns expressions that are `levels` deep.
fn deep(levels: usize) -> Vec<String> {
    let chain = |link: &str| format!("a{}", link.repeat(levels));
    vec![
        format!("{}a = 1{}", "(".repeat(levels), ")".repeat(levels)),
        format!("{}a", "NOT ".repeat(levels)),
        format!("{}1 = a", "- ".repeat(levels)),
        format!("{}1 = a", "+".repeat(levels)),
        format!("{}a{}", "(NOT ".repeat(levels / 2), ")".repeat(levels / 2)),
        format!("{}a = 1{}", "(b OR ".repeat(levels), ")".repeat(levels)),
        format!(
            "{}a = 1{}",
            "-(a BETWEEN 1 AND -".repeat(levels / 3),
            ") > 1".repeat(levels / 3)
        ),
        chain(" = b"),
        chain(" <> b"),
        chain(" IS NOT NULL"),
        chain(" CONTAINS 'x'"),
    ]
}

#[test]
fn depth_is_bounded_and_what_is_allowed_fits_the_usual_stack() {
    on_the_usual_stack(|| {
        for expression in deep(MAX_DEPTH - 2) {
            // Some are wrong for another reason; none is too deep.
            match Filter::compile(&expression) {
                Ok(filter) => drop(filter.evaluate(Properties::new("a\x01x\x02b\x01y"))),
                Err(error) => assert_ne!(error.reason, Reason::TooDeep, "{expression}"),
            }
        }
        for levels in [2 * MAX_DEPTH + 2, MAX_LENGTH / 20] {
            for expression in deep(levels) {
                let error = Filter::compile(&expression).expect_err("too deep");
                assert_eq!(error.reason, Reason::TooDeep, "{expression}");
            }
        }
    });
}

#[test]
fn length_is_bounded() {
    let fits = format!("a = '{}'", "x".repeat(MAX_LENGTH - 6));
    assert!(Filter::compile(&fits).is_ok());
    let error = Filter::compile(&format!("{fits} ")).expect_err("too long");
    assert_eq!(
        (error.position, error.reason),
        (
            0,
            Reason::TooLong {
                length: MAX_LENGTH + 1
            }
        )
    );
}

#[test]
fn the_longest_lists_are_compiled_and_evaluated() {
    on_the_usual_stack(|| {
        let texts: Vec<String> = (0..9000).map(|number| format!("'{number}'")).collect();
        let names: Vec<String> = (0..4500).map(|number| format!("p{number} = 1")).collect();
        let list = Filter::compile(&format!("a IN ({})", texts.join(","))).expect("a list");
        assert!(list.matches(Properties::new("a\x018999\x02")));
        assert!(!list.matches(Properties::new("a\x019000\x02")));
        for word in [" OR ", " AND "] {
            let many = Filter::compile(&names.join(word)).expect("many");
            assert_eq!(many.names().len(), 4500);
            assert_eq!(many.matches(Properties::new("p4499\x011\x02")), word == " OR ");
        }
    });
}

/// Pieces of filters, and other texts.
const PIECES: &[&str] = &[
    "a",
    "b",
    "c",
    "TRUE",
    "false",
    "NULL",
    "1",
    "2L",
    "0",
    "1.5",
    "'x'",
    "''",
    "'",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    ">=",
    "AND",
    "or",
    "NOT",
    "IS",
    "IN",
    "IN (",
    "BETWEEN",
    "CONTAINS",
    "startswith",
    "ENDSWITH",
    "+",
    "-",
    "--",
    "\n",
    "/*",
    "*/",
    ".",
    "e",
    "\u{e9}",
    "\0",
];

fn pairs() -> impl Strategy<Value = HashMap<String, String>> {
    let value = prop_oneof![
        "[0-9+-]{1,3}",
        "[0-9.eExpNa]{1,6}",
        Just("true".to_owned()),
        "[^\u{1}\u{2}]{1,4}"
    ];
    proptest::collection::hash_map("[abc]", value, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_panics(text in "\\PC{0,40}", raw in any::<Vec<u8>>()) {
        for expression in [&text, &*String::from_utf8_lossy(&raw)] {
            if let Err(error) = Filter::compile(expression) {
                prop_assert!(error.offset <= expression.len());
                prop_assert!(error.position <= expression.chars().count());
            }
        }
    }

    #[test]
    fn properties_as_text_and_as_pairs_give_the_same(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 1..12),
        pairs in pairs(),
        raw in any::<Vec<u8>>(),
    ) {
        if let Ok(filter) = Filter::compile(&pieces.join(" ")) {
            let mut text = String::new();
            for (name, value) in &pairs {
                append(&mut text, name, value);
            }
            let by_pairs = filter.evaluate_with(|slot| {
                let name = filter.names().get(slot)?;
                pairs.get(&**name).map(String::as_str)
            });
            prop_assert_eq!(filter.evaluate(Properties::new(&text)), by_pairs);
            // A record may contain any bytes.
            let _ = filter.matches(Properties::from_bytes(&raw));
        }
    }
}
