//! Filters: the cases of Apache's `ParserTest` and `ExpressionTest`, corner cases of the grammar, and error texts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use pyrmq_remoting::message::properties::{Properties, append};
use pyrmq_routing::filter::{EvaluateError, Filter, Mismatch, Reason};

type Pairs = &'static [(&'static str, &'static str)];

fn evaluate(expression: &str, pairs: &[(&str, &str)]) -> Result<Option<bool>, EvaluateError> {
    let filter = Filter::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let mut text = String::new();
    for (name, value) in pairs {
        append(&mut text, name, value);
    }
    let by_text = filter.evaluate(Properties::new(&text));
    let by_pairs = filter.evaluate_with(|slot| {
        let wanted = filter.names().get(slot)?;
        let found = pairs.iter().find(|(name, _)| *name == &**wanted)?;
        Some(found.1)
    });
    assert_eq!(by_text, by_pairs, "{expression} with {pairs:?}");
    assert_eq!(filter.matches(Properties::new(&text)), by_text == Ok(Some(true)));
    by_text
}

fn refused(expression: &str) -> (usize, Reason) {
    let error = Filter::compile(expression).expect_err(expression);
    (error.position, error.reason)
}

const AND: &str = "a=3 and b<>4 And c>5 AND d<=4";
const OR: &str = "a=3 or b<>4 Or c>5 OR d<=4";

#[test]
fn expressions_that_apaches_parser_test_accepts_are_accepted() {
    for expression in [
        AND,
        "a=3  and    b<>4 And c>5 AND d<=4",
        OR,
        "a in ('3', '4', '5')",
        "(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))",
        "(a between 2 and 10) AND (b not between 6 and 9)",
        "a is null",
        "a is not null",
        "a <= now",
        "a=3 and b contains 'xxx' and c not contains 'xxx'",
    ] {
        Filter::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    }
}

#[test]
fn expressions_that_apaches_parser_test_refuses_are_refused() {
    let long = format!("a > {}.{}", "1".repeat(30_000), "1".repeat(30_000));
    for expression in [
        "a and between 2 and 10",
        "a > 100000000000000000000000",
        &long,
        " a between 10 and 0",
        "value contains x",
        "value not contains x",
        "value contains 123",
        "value not contains 123",
        "'axb' contains ",
        "'axb' not contains ",
    ] {
        assert!(Filter::compile(expression).is_err(), "{expression}");
    }
}

/// Expression, properties, whether the message passes. If Apache's test uses a number, the broker has its text.
#[rustfmt::skip]
const EXPRESSION_TEST: &[(&str, Pairs, bool)] = &[
    ("value contains 'x'", &[("value", "axb")], true),
    ("value startswith 'ax'", &[("value", "axb")], true),
    ("value endswith 'xb'", &[("value", "axb")], true),
    ("value not contains 'x'", &[("value", "axb")], false),
    ("value not startswith 'ax'", &[("value", "axb")], false),
    ("value not endswith 'xb'", &[("value", "axb")], false),
    ("value contains 'x'", &[("value", "abb")], false),
    ("value startswith 'x'", &[("value", "abb")], false),
    ("value endswith 'x'", &[("value", "abb")], false),
    ("value not contains 'x'", &[("value", "abb")], true),
    ("value not startswith 'x'", &[("value", "abb")], true),
    ("value not endswith 'x'", &[("value", "abb")], true),
    ("value contains ''", &[("value", "axb")], false),
    ("value startswith ''", &[("value", "axb")], false),
    ("value endswith ''", &[("value", "axb")], false),
    ("value not contains ''", &[("value", "axb")], false),
    ("value not startswith ''", &[("value", "axb")], false),
    ("value not endswith ''", &[("value", "axb")], false),
    ("value contains 'x'", &[], false),
    ("value startswith 'x'", &[], false),
    ("value endswith 'x'", &[], false),
    ("value not contains 'x'", &[], false),
    ("value not startswith 'x'", &[], false),
    ("value not endswith 'x'", &[], false),
    ("'axb' contains 'x'", &[], true),
    ("'axb' startswith 'ax'", &[], true),
    ("'axb' endswith 'xb'", &[], true),
    ("'axb' not contains 'x'", &[], false),
    ("'axb' not startswith 'ax'", &[], false),
    ("'axb' not endswith 'xb'", &[], false),
    ("'axb' contains 'u'", &[], false),
    ("'axb' not startswith 'u'", &[], true),
    ("'axb' not endswith 'u'", &[], true),
    ("'axb' contains ''", &[], false),
    ("'axb' not contains ''", &[], false),
    ("' ' contains ' '", &[], true),
    ("' ' startswith ' '", &[], true),
    ("' ' endswith ' '", &[], true),
    ("' ' not contains ' '", &[], false),
    ("'axb' contains '.'", &[], false),
    ("'axb' not contains '.'", &[], true),
    (r"'s' contains '\'", &[], false),
    (r"'s' startswith '\'", &[], false),
    (r"'s' endswith '\'", &[], false),
    ("a not in ('4', '4', '5') and b between 3 and 10 and c not contains 'axbc'", &[("a", "3"), ("b", "3"), ("c", "axbdc")], true),
    ("a not in ('4', '4', '5') and b between 3 and 10 and c not startswith 'axbc'", &[("a", "3"), ("b", "3"), ("c", "axbdc")], true),
    ("a not in ('4', '4', '5') and b between 3 and 10 and c not endswith 'axbc'", &[("a", "3"), ("b", "3"), ("c", "axbdc")], true),
    ("TAGS is not null and TAGS='''''tag'''''", &[("TAGS", "''tag''")], true),
    ("a between up and low", &[("a", "3.14")], false),
    ("a between up and low", &[("a", "3.14"), ("up", "up"), ("low", "low")], false),
    ("key is not null and key between 0 and 100", &[("key", "con")], false),
    ("a between 0 and 100", &[("a", "abc")], false),
    ("a=b", &[("a", "3.14"), ("b", "3.14")], true),
    ("a<>b", &[("a", "3.14"), ("b", "3.14")], false),
    ("a<>b", &[("a", "3.14"), ("b", "3.141")], true),
    ("a > 3.1E10", &[("a", "3.1415E10")], true),
    ("a > 3.14", &[("a", "3.1415")], true),
    ("a > b", &[("a", "10"), ("b", "20")], false),
    ("a > b", &[("a", "20"), ("b", "10")], true),
    ("a is null OR a='hello'", &[], true),
    ("a is null OR a='hello'", &[("a", "hello")], true),
    ("a is null OR a='hello'", &[("a", "abc")], false),
    ("a=TRUE OR b=FALSE", &[("a", "true"), ("b", "false")], true),
    ("a=TRUE OR b=FALSE", &[("a", "false"), ("b", "true")], false),
    ("a is not null and a='hello'", &[("a", "hello")], true),
    ("a is not null and a='hello'", &[], false),
    (AND, &[("a", "3"), ("b", "5"), ("c", "6"), ("d", "1")], true),
    (AND, &[("a", "4"), ("b", "5"), ("c", "6"), ("d", "1")], false),
    (OR, &[("a", "3")], true),
    (OR, &[("a", "4"), ("b", "5")], true),
    (OR, &[("a", "4"), ("b", "4"), ("c", "6")], true),
    (OR, &[("a", "4"), ("b", "4"), ("c", "3"), ("d", "2")], true),
    (OR, &[("a", "4"), ("b", "4"), ("c", "3"), ("d", "10")], false),
    ("a in ('3', '4', '5')", &[("a", "3")], true),
    ("a in ('3', '4', '5')", &[("a", "4")], true),
    ("a in ('3', '4', '5')", &[("a", "5")], true),
    ("a in ('3', '4', '5')", &[("a", "8")], false),
    ("a not in ('3', '4', '5')", &[("a", "8")], true),
    ("a not in ('3', '4', '5')", &[("a", "3")], false),
    ("a not in ('3', '4', '5')", &[("a", "4")], false),
    ("a not in ('3', '4', '5')", &[("a", "5")], false),
    ("a between 2 and 10", &[("a", "2")], true),
    ("a between 2 and 10", &[("a", "10")], true),
    ("a between 2 and 10", &[("a", "3")], true),
    ("a between 2 and 10", &[("a", "1")], false),
    ("a between 2 and 10", &[("a", "11")], false),
    ("a not between 2 and 10", &[("a", "1")], true),
    ("a not between 2 and 10", &[("a", "11")], true),
    ("a not between 2 and 10", &[("a", "2")], false),
    ("a not between 2 and 10", &[("a", "10")], false),
    ("a not between 2 and 10", &[("a", "3")], false),
    ("a is null", &[("abc", "2")], true),
    ("a is null", &[("a", "2")], false),
    ("a is not null", &[("a", "2")], true),
    ("a is not null", &[("abc", "2")], false),
];

#[test]
fn the_cases_of_apaches_expression_test_hold() {
    for (expression, pairs, passes) in EXPRESSION_TEST {
        let result = evaluate(expression, pairs);
        assert_eq!(
            result == Ok(Some(true)),
            *passes,
            "{expression} with {pairs:?}: {result:?}"
        );
    }
}

#[test]
fn null_is_neither_true_nor_false() {
    const T: Option<bool> = Some(true);
    const F: Option<bool> = Some(false);
    for (expression, pairs, value) in [
        ("a = 1", &[] as &[(&str, &str)], None),
        ("a > 1", &[], None),
        ("NOT (a > 1)", &[], None),
        ("a > 1 AND b = '1'", &[("b", "2")], F),
        ("a > 1 AND b = '1'", &[("b", "1")], None),
        ("a > 1 OR b = '1'", &[("b", "1")], T),
        ("a > 1 OR b = '1'", &[("b", "2")], None),
        ("a IN ('x')", &[], None),
        ("a NOT IN ('x')", &[], None),
        ("NOT (a CONTAINS 'x')", &[], T),
        // NOT binds tightest: its result is not a text.
        ("NOT a CONTAINS 'x'", &[("a", "x")], F),
        // Null equals null, and a value does not equal null; whether null equals a value is unknown.
        ("a = b", &[], T),
        ("a <> b", &[], F),
        ("a = b", &[("a", "1")], F),
        ("a <> b", &[("a", "1")], T),
        ("a = b", &[("b", "1")], None),
        ("a <> b", &[("b", "1")], None),
        ("NULL", &[], None),
        ("NULL IS NULL", &[], T),
        // A property alone is text, and text is never true.
        ("a", &[("a", "true")], F),
        ("NOT a", &[("a", "true")], T),
        ("NOT a", &[], None),
        // Only numbers of the expression can be negated.
        ("-a IS NULL", &[("a", "1")], T),
        ("-1 = a", &[("a", "-1")], T),
    ] {
        assert_eq!(
            evaluate(expression, pairs),
            Ok(value),
            "{expression} with {pairs:?}"
        );
    }
}

#[test]
fn texts_are_read_as_the_type_of_the_other_operand() {
    for (expression, value, result) in [
        ("a = 5", "5", Ok(Some(true))),
        ("a = 5", "+05", Ok(Some(true))),
        ("a = 5", "\u{ff15}", Ok(Some(true))),
        ("a = 5", "\u{665}", Ok(Some(true))),
        ("a = 5", "5.0", Err(Mismatch::Int)),
        ("a = 5", " 5", Err(Mismatch::Int)),
        ("a = 5", "-", Err(Mismatch::Int)),
        ("a < 5", "2147483648", Err(Mismatch::Int)),
        ("a < 5L", "2147483648", Err(Mismatch::Int)),
        ("a > 2147483648", "9223372036854775807", Ok(Some(true))),
        ("a > 2147483648", "9223372036854775808", Err(Mismatch::Long)),
        ("a < -2147483648", "-9223372036854775808", Ok(Some(true))),
        ("a = 5.0", " 5 ", Ok(Some(true))),
        ("a = 5.0", "5d", Ok(Some(true))),
        ("a = 5.0", "0x1.4p2", Ok(Some(true))),
        ("a = 5.0", ".5e1f", Ok(Some(true))),
        ("a = 5.0", "five", Err(Mismatch::Double)),
        ("a = 5.0", "\u{ff15}", Err(Mismatch::Double)),
        ("a > 5.0", "NaN", Ok(Some(true))),
        ("a > 5.0", "Infinity", Ok(Some(true))),
        ("a > 5.0", "inf", Err(Mismatch::Double)),
        ("a <= a", "NaN", Ok(Some(true))),
        ("a <= a", "x", Err(Mismatch::Double)),
        ("a = TRUE", "tRuE", Ok(Some(true))),
        ("a = FALSE", "anything", Ok(Some(true))),
        ("TRUE = a", "true", Err(Mismatch::Condition)),
        ("'5' = 5", "", Ok(Some(true))),
    ] {
        let found = evaluate(expression, &[("a", value)]).map_err(|error| error.mismatch);
        assert_eq!(found, result, "{expression} with {value:?}");
    }
}

#[test]
fn hexadecimal_numbers_are_rounded_to_the_nearest() {
    for (text, value) in [
        ("0x1p-1074", 4.9E-324),
        ("0x0.8p-1073", 4.9E-324),
        ("0x1.8p-1075", 4.9E-324),
        ("0x1.fffffffffffff8p0", 2.0),
        ("0x1.00000000000008p0", 1.0),
        ("0x1.000000000000080000000000001p0", 1.000_000_000_000_000_2),
        ("0x1.fffffffffffffp1023", f64::MAX),
        ("0xap-1f", 5.0),
        ("0x.8P+1d", 1.0),
    ] {
        // Longer decimal digits of the same number give the same double.
        let expression = format!("a = {value:e}");
        assert_eq!(evaluate(&expression, &[("a", text)]), Ok(Some(true)), "{text}");
    }
    for wrong in [
        "0x1",
        "0xp1",
        "0x.p1",
        "0x1p",
        "0x1p1.0",
        "0x1.2.3p1",
        "0xgp1",
        "0x1p1ff",
    ] {
        let result = evaluate("a = 1.0", &[("a", wrong)]);
        assert_eq!(
            result.map_err(|error| error.mismatch),
            Err(Mismatch::Double),
            "{wrong}"
        );
    }
    assert_eq!(evaluate("a < 1.0", &[("a", "0x1p-1076")]), Ok(Some(true)));
    assert_eq!(
        evaluate("a > 1.0", &[("a", "0x1p99999999999999999999")]),
        Ok(Some(true))
    );
}

#[test]
fn a_deciding_part_hides_a_part_without_a_result() {
    let wrong = &[("a", "x"), ("b", "1")];
    assert_eq!(evaluate("b = 1 OR a > 1", wrong), Ok(Some(true)));
    assert_eq!(evaluate("b = 2 AND a > 1", wrong), Ok(Some(false)));
    assert_eq!(
        evaluate("a > 1 OR b = 1", wrong).map_err(|error| error.mismatch),
        Err(Mismatch::Int)
    );
    let error = evaluate("b = 1 AND a BETWEEN 1 AND 2", wrong).expect_err("a is no number");
    assert_eq!((error.offset, error.mismatch), (10, Mismatch::Int));
}

#[test]
fn comments_and_blanks_stand_between_tokens() {
    for expression in [
        "a/* one * two */=/***/1",
        "a = -- one\n 1",
        "a = --\r1",
        "a\t=\x0c1",
        "a = 1 -- to the end",
        "a = --1",
        "a=1--",
        "+a = + 1",
        "(((a)) = ((1)))",
        "a=1AND a=1L",
    ] {
        assert_eq!(
            evaluate(expression, &[("a", "1")]),
            Ok(Some(true)),
            "{expression}"
        );
    }
}

/// Expressions and their error texts.
const ERRORS: &[(&str, &str)] = &[
    (
        "",
        "at character 0: found the end, expected a property, a text, a number, TRUE, FALSE, NULL, NOT or (",
    ),
    (
        "price > 10 AMD region = 'eu'",
        "at character 11: found `AMD`, expected a comparison, AND, OR or the end",
    ),
    (
        "'\u{1f600}' = a b",
        "at character 8: found `b`, expected a comparison, AND, OR or the end",
    ),
    (
        "a = 1)",
        "at character 5: found `)`, expected a comparison, AND, OR or the end",
    ),
    (
        "(a = 1",
        "at character 6: found the end, expected a comparison, AND, OR or )",
    ),
    (
        "a == 1",
        "at character 3: found `=`, expected a property, a text, a number, TRUE, FALSE, NULL, NOT or (",
    ),
    (
        "a LIKE 'x%'",
        "at character 2: found `LIKE`, expected a comparison, AND, OR or the end",
    ),
    ("a != 1", "at character 2: no part of a filter begins with '!'"),
    (
        "a = 'x",
        "at character 4: the text that begins here has no closing quote; a quote inside a text is written twice: ''",
    ),
    (
        "a = 1 /* x",
        "at character 6: the comment that begins here has no */",
    ),
    (
        "a NOT = 1",
        "at character 6: found `=`, expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH",
    ),
    ("a IS 1", "at character 5: found `1`, expected NULL or NOT NULL"),
    (
        "a IN 'x'",
        "at character 5: found `'x'`, expected ( and a list of texts such as ('a', 'b')",
    ),
    (
        "a IN (1)",
        "at character 6: found `1`, expected a text such as 'a'",
    ),
    (
        "a IN ('1' '2')",
        "at character 10: found `'2'`, expected a comma or )",
    ),
    (
        "'a' IN ('a')",
        "at character 0: found `'a'` on the left of IN, expected a property",
    ),
    (
        "a CONTAINS b",
        "at character 11: found `b`, expected a text such as 'a'",
    ),
    (
        "a BETWEEN 1 OR 2",
        "at character 12: found `OR`, expected AND and the upper bound",
    ),
    (
        "a BETWEEN 2 AND 1.5",
        "at character 10: BETWEEN `2` AND `1.5` holds no number, expected the smaller bound first",
    ),
    (
        "a > 'x'",
        "at character 4: `'x'` has no order, expected a number or a property",
    ),
    (
        "a > TRUE",
        "at character 4: `TRUE` has no order, expected a number or a property",
    ),
    (
        "(a = 1) < 2",
        "at character 0: `(a = 1)` has no order, expected a number or a property",
    ),
    (
        "a = NULL",
        "at character 4: nothing equals NULL, expected IS NULL or IS NOT NULL",
    ),
    (
        "TRUE = 1",
        "at character 0: `TRUE` is never equal to `1`, expected a property",
    ),
    (
        "a = 1 AND 5",
        "at character 10: `5` is neither true nor false, expected a condition such as `5` = 1",
    ),
    (
        "9223372036854775808 > a",
        "at character 0: the integer `9223372036854775808` is above 9223372036854775807",
    ),
    (
        "a > 0.0",
        "at character 4: the decimal number `0.0` is not between 4.9E-324 and 1.7976931348623157E308; write zero as 0",
    ),
    (
        "a = 00",
        "at character 5: found `0`, expected a comparison, AND, OR or the end",
    ),
];

#[test]
fn an_error_points_at_the_token() {
    for (expression, text) in ERRORS {
        let error = Filter::compile(expression).expect_err(expression);
        assert_eq!(error.to_string(), format!("wrong filter {text}"), "{expression}");
    }
}

#[test]
fn long_pieces_are_cut_in_errors() {
    let (_, reason) = refused(&format!("a = 1 {}", "\u{e9}".repeat(9)));
    assert_eq!(reason, Reason::Character { found: '\u{e9}' });
    let (_, reason) = refused(&format!("a = 1 '{}'", "\u{e9}".repeat(99)));
    let found = format!("`'{}...`", "\u{e9}".repeat(39));
    let expected = "a comparison, AND, OR or the end";
    assert_eq!(reason, Reason::Unexpected { found, expected });
}

#[test]
fn names_stand_once_in_the_order_of_their_appearance() {
    let filter = Filter::compile("b = a AND c IN ('x') OR A > b AND d").expect("a filter");
    let names: Vec<&str> = filter.names().iter().map(|name| &**name).collect();
    assert_eq!(names, ["b", "a", "c", "A", "d"]);
    assert_eq!(filter.expression(), "b = a AND c IN ('x') OR A > b AND d");
}
