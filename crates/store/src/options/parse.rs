//! Parses the values of options.

use crate::error::StoreError;

/// The error for an option's invalid value.
pub(crate) fn bad(key: &'static str, value: &str, range: &str) -> StoreError {
    StoreError::BadOption {
        key,
        value: value.to_owned(),
        range: range.to_owned(),
    }
}

pub(crate) fn number<T: std::str::FromStr>(key: &'static str, value: &str) -> Result<T, StoreError> {
    value
        .parse()
        .map_err(|_| bad(key, value, "a whole number that is not negative"))
}

pub(crate) fn flag(key: &'static str, value: &str) -> Result<bool, StoreError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(key, value, "true or false")),
    }
}

/// Apache writes these two as a fraction (0.85); percent is accepted, too.
pub(crate) fn percent(key: &'static str, value: &str) -> Result<u8, StoreError> {
    if let Ok(whole) = value.parse::<u8>()
        && whole > 1
    {
        return Ok(whole);
    }
    let share: f64 = value.parse().map_err(|_| bad(key, value, "0.10 to 1.00"))?;
    (1..=100u8)
        .find(|whole| (f64::from(*whole) / 100.0 - share).abs() < 0.005)
        .ok_or_else(|| bad(key, value, "0.10 to 1.00"))
}

/// `04` or `04;16`.
pub(crate) fn hours(key: &'static str, value: &str) -> Result<Vec<u8>, StoreError> {
    value
        .split(';')
        .filter(|hour| !hour.trim().is_empty())
        .map(|hour| match hour.trim().parse::<u8>() {
            Ok(hour) if hour < 24 => Ok(hour),
            _ => Err(bad(key, value, "hours 00 to 23, separated by ;")),
        })
        .collect()
}
