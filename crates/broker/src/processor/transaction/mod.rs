//! Requests about transactions: 37 and 323; and the check of open ones, which sends 39.

mod check;
mod end;
mod resume;
#[cfg(test)]
mod tests;

pub(crate) use check::check;
pub(crate) use end::End;
pub(crate) use resume::resume;
