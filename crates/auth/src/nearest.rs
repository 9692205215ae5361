//! The known key that a misspelt one resembles.

/// Maximum number of edits between a misspelt key and the key that is meant.
const TYPO_EDITS: usize = 3;

/// Returns the known key that is probably meant; `None` if the key resembles none of them.
pub(crate) fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let lower = key.to_lowercase();
    let edits = |known: &&'static str| strsim::damerau_levenshtein(&lower, &known.to_lowercase());
    let found = known.iter().map(|known| (edits(known), *known)).min();
    let (_, nearest) = found.filter(|(edits, _)| *edits <= TYPO_EDITS && edits * 2 < key.len())?;
    Some(nearest)
}
