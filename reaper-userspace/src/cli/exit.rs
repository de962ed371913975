//! Exit codes, as scripts rely on them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done; nothing leaked, where that was asked.
    Success,
    /// Leaks were found or remain.
    LeaksFound,
    /// A guard refused.
    Refused,
    /// A reap failed, did in part, or took too long.
    ReapFailed,
    /// This node lacks something that cannot be done without.
    Unsupported,
}

// === impl Status ===

impl Status {
    /// The number. 1 is any error and 2 a wrong command line.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::LeaksFound => 3,
            Self::Refused => 4,
            Self::ReapFailed => 5,
            Self::Unsupported => 7,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_manual() {
        let all =
            [Status::Success, Status::LeaksFound, Status::Refused, Status::ReapFailed, Status::Unsupported];
        assert_eq!(all.map(Status::code), [0, 3, 4, 5, 7]);
    }
}
