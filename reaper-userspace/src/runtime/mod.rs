//! What container runtimes say: bundles on disk, runc's state, containerd over gRPC, shims over ttrpc.
//!
//! Produces the types of [`fact`](crate::fact); judges nothing and changes nothing: the only calls made are
//! those that read (`Get`, `List`, `State`). Everything read here was written by others and may be hostile,
//! truncated or half deleted.
//!
//! # Invariants
//! - [`Lookup::NotFound`](crate::ident::Lookup::NotFound) is an explicit answer: ENOENT below a directory that
//!   exists, or a `NotFound` that names the container asked for. A timeout, a refused connection, a file that
//!   cannot be parsed and a `NotFound` about something else are `Unavailable`.
//! - Every file read is bounded, and no symbolic link below a runtime's directory is followed.
//! - Every call has a deadline that covers connecting, too.

pub mod bundle;
pub mod containerd;
pub mod discover;
pub mod runc;
pub mod shim;
pub mod sockets;

mod cgroups_path;
mod directory;
mod record;
mod spec;

pub use cgroups_path::Driver;

use std::error::Error;
use std::path::Path;

/// An error with all its causes in one line, for [`Lookup::Unavailable`](crate::ident::Lookup::Unavailable). What
/// others wrote into it (a server's message, an address) can neither begin a line nor speak to a terminal.
fn reason(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.chars().fold(String::new(), |mut safe, c| {
        if c.is_control() {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// An error about a path, which is shown escaped.
fn about(path: &Path, error: &dyn Error) -> String {
    format!("{}: {}", shown(path), reason(error))
}

/// A path as text in which control bytes, which may be part of a name, are escaped.
fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_stays_in_its_line_and_speaks_to_no_terminal() {
        let error = std::io::Error::other("no\nnote: forged\u{1b}[2J \u{9b}31m é");
        assert_eq!(reason(&error), "no\\nnote: forged\\u{1b}[2J \\u{9b}31m é");
    }
}
