//! What every reader of the node shares: bounded reads, a wait with a deadline, and the two texts of `/proc`
//! that more than one of them parses; what a pidfd says; and memory given back.
//!
//! Layer 0: no opinion, no effect, no path of its own. Nothing here turns a failure into absence: each function
//! returns the errno and leaves its meaning to the reader that knows the file.

mod membership;
mod memory;
mod mountinfo;
mod pidfd;
mod read;
mod wait;

pub use membership::{Membership, MembershipError, parse_memberships};
pub use memory::{return_memory, share_heap};
pub use mountinfo::{MountEntry, MountinfoError, parse_mountinfo};
pub use pidfd::pidfd_number;
pub use read::{ReadError, chain, read_at, read_path, read_prefix_at};
pub use wait::until;
