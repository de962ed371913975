//! Reads a trace line by line, with a bound, and says which line is wrong.

use std::io::{self, BufRead, Read as _};

use super::{LINE_LIMIT, TracedLook, VERSION};

/// Why a line is no look.
#[derive(Debug, thiserror::Error)]
pub enum ReadTraceError {
    /// The file could not be read on.
    #[error("cannot read line {line}")]
    Read {
        /// Number of the line, from 1.
        line: usize,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Longer than any that is written.
    #[error("line {line} is longer than {LINE_LIMIT} bytes")]
    TooLong {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The recording was cut off.
    #[error("line {line} has no end: the recording was cut off there")]
    Torn {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Not what is written.
    #[error("line {line} is no recorded look")]
    Parse {
        /// Number of the line, from 1.
        line: usize,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// Written by another version of this program.
    #[error("line {line} has version {found} of the format, this program reads {VERSION}")]
    Version {
        /// Number of the line, from 1.
        line: usize,
        /// Its version.
        found: u32,
    },
}

/// The looks of a trace, in order; ends after the first error.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: usize,
    broken: bool,
}

// === impl Reader ===

impl<R: BufRead> Reader<R> {
    /// Reads from the beginning.
    pub const fn new(input: R) -> Self {
        Self { input, line: 0, broken: false }
    }

    fn read(&mut self) -> Result<Option<TracedLook<'static>>, ReadTraceError> {
        self.line = self.line.saturating_add(1);
        let line = self.line;
        let mut text = vec![];
        let bounded = self.input.by_ref().take(LINE_LIMIT.saturating_add(1));
        let length = { bounded }
            .read_until(b'\n', &mut text)
            .map_err(|source| ReadTraceError::Read { line, source })?;
        if length == 0 {
            return Ok(None);
        }
        if u64::try_from(length).is_ok_and(|length| length > LINE_LIMIT) {
            return Err(ReadTraceError::TooLong { line });
        }
        if !text.ends_with(b"\n") {
            return Err(ReadTraceError::Torn { line });
        }
        parse(&text, line).map(Some)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<TracedLook<'static>, ReadTraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        let look = self.read().transpose();
        self.broken = matches!(look, None | Some(Err(_)));
        look
    }
}

/// The version first: the fields of another version may be others.
fn parse(text: &[u8], line: usize) -> Result<TracedLook<'static>, ReadTraceError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        trace: u32,
    }
    let failed = |source| ReadTraceError::Parse { line, source };
    let Versioned { trace: found } = serde_json::from_slice(text).map_err(failed)?;
    if found != VERSION {
        return Err(ReadTraceError::Version { line, found });
    }
    serde_json::from_slice(text).map_err(failed)
}
