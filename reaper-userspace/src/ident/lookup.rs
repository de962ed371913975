//! The three answers a source can give.

use serde::{Deserialize, Serialize};

/// What a source said about one thing.
///
/// The type exists so that an error can never be read as absence: the fatal mistake of a reaper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup<T> {
    /// The source has it.
    Found(T),
    /// The source answered, explicitly, that it does not have it.
    NotFound,
    /// No answer that can be relied on; the text says which source failed and how.
    Unavailable(String),
}

impl<T> Lookup<T> {
    /// The value, if the source has it.
    pub const fn found(&self) -> Option<&T> {
        match self {
            Self::Found(value) => Some(value),
            Self::NotFound | Self::Unavailable(_) => None,
        }
    }

    /// True only for an explicit "not found".
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound)
    }

    /// Why there is no answer, if there is none.
    pub const fn unavailable(&self) -> Option<&String> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::Found(_) | Self::NotFound => None,
        }
    }

    /// Maps the found value, keeping the other answers.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Found(value) => Lookup::Found(f(value)),
            Self::NotFound => Lookup::NotFound,
            Self::Unavailable(reason) => Lookup::Unavailable(reason),
        }
    }

    /// Asks a further question about the found value, keeping the other answers.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Lookup<U>) -> Lookup<U> {
        match self {
            Self::Found(value) => f(value),
            Self::NotFound => Lookup::NotFound,
            Self::Unavailable(reason) => Lookup::Unavailable(reason),
        }
    }

    /// Borrows the found value, keeping the other answers.
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Self::Found(value) => Lookup::Found(value),
            Self::NotFound => Lookup::NotFound,
            Self::Unavailable(reason) => Lookup::Unavailable(reason.clone()),
        }
    }
}
