//! Texts of bounded length: what an unknown client sends may be a megabyte.

/// Maximum length of a client's text that reasons and remarks repeat, in characters.
const MAX_CHARS: usize = 100;

/// A text, or its beginning if it is long.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("bob"), "bob");
        assert_eq!(short(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(short(&"ä".repeat(1 << 20)), format!("{}...", "ä".repeat(100)));
    }
}
