//! A set of request codes, asked for each request.

/// Codes below this number are bits.
const BITS: i32 = 4096;

/// A set of request codes.
#[derive(Debug, Clone, Default)]
pub struct CodeSet {
    bits: Vec<u64>,
    rest: Vec<i32>,
}

impl CodeSet {
    /// Whether a code is in it.
    pub fn contains(&self, code: i32) -> bool {
        match place(code) {
            Some((word, bit)) => self.bits.get(word).is_some_and(|bits| bits & bit != 0),
            None => self.rest.contains(&code),
        }
    }
}

impl FromIterator<i32> for CodeSet {
    fn from_iter<T: IntoIterator<Item = i32>>(codes: T) -> Self {
        let mut set = Self::default();
        for code in codes {
            match place(code) {
                Some((word, bit)) => {
                    set.bits.resize(set.bits.len().max(word + 1), 0);
                    if let Some(bits) = set.bits.get_mut(word) {
                        *bits |= bit;
                    }
                }
                None => set.rest.push(code),
            }
        }
        set
    }
}

fn place(code: i32) -> Option<(usize, u64)> {
    let index = usize::try_from(code).ok().filter(|_| code < BITS)?;
    Some((index / 64, 1 << (index % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let codes = [0, 17, 63, 64, 4095, 4096, 200_050, -1, i32::MIN, i32::MAX];
        let set: CodeSet = codes.into_iter().collect();
        assert!(codes.iter().all(|code| set.contains(*code)));
        assert!(
            [1, 62, 65, 4094, 4097, -2]
                .iter()
                .all(|code| !set.contains(*code))
        );
        assert!(!CodeSet::default().contains(17));
    }
}
