//! A text that is nearly always short, kept where its owner is: a unique id has 32 or 56 digits, whatever wrote it.

/// Bytes that are kept without memory of their own.
const SHORT: usize = 56;

/// A short text, or a boxed one.
#[derive(Debug)]
pub(crate) enum ShortText {
    Short { bytes: [u8; SHORT], length: usize },
    Long(Box<str>),
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                let length = text.len();
                Self::Short { bytes, length }
            }
            None => Self::Long(text.into()),
        }
    }
}

impl ShortText {
    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Short { bytes, length } => {
                let text = bytes.get(..*length).unwrap_or_default();
                std::str::from_utf8(text).unwrap_or_default()
            }
            Self::Long(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_reads_as_it_is() {
        for length in [0, 1, 32, 55, 56, 57, 300] {
            let text = "ö1".repeat(length)[..length - length % 3].to_owned();
            let kept = ShortText::from(text.as_str());
            assert_eq!(kept.as_str(), text);
            assert_eq!(matches!(kept, ShortText::Long(_)), text.len() > 56);
        }
    }
}
