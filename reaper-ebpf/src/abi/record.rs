//! The one record layout of both rings.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of everything in this module tree; 4 bits, sent in every record.
pub const VERSION: u8 = 3;

/// A task's `comm`: 16 bytes (`TASK_COMM_LEN`), NUL padded, as two words that programs can copy without a loop.
pub type Comm = [u64; 2];

/// `value` of a fork, exec or exit whose starts and wait status the program could not read: all of them are zero.
pub const BY_NUMBER: u8 = 1;

/// What a record says. An integer on the wire, as a Rust enum read from foreign bytes would be undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

/// 72 bytes; which fields mean something depends on the kind, the others are zero.
///
/// | kind | `id` | `aux` | `aux2` | `hierarchy`, `level` | `tgid` | `peer` | `value` | `code` | `comm` |
/// |---|---|---|---|---|---|---|---|---|---|
/// | mkdir | cgroup | parent cgroup | | yes | the maker | | | | the maker's |
/// | rmdir | cgroup | | | yes | the remover | | | | the remover's |
/// | populated, frozen | cgroup | | | yes | | | 0 or 1 | | |
/// | fork | | child's start | creator's start | | child | creator | | | the creator's |
/// | exec | | start | | | process | | | | the new one |
/// | exit | | start | | | process | | | wait status | last thread's |
/// | kill | | start | | | the one killed | the sender | | | the one killed's |
/// | self check | v2 cgroup by offsets | start | v2 cgroup by helper | v2 | process | parent | | live threads | leader's |
///
/// A classic program does not know a new cgroup's parent (zero), nor the starts and the wait status of processes: then
/// `value` is [`BY_NUMBER`]. Its self check has only the process, the new thread as `peer` and the clone flags as `code`.
///
/// Process numbers are thread group ids in the initial PID namespace; starts are `start_boottime` of the
/// thread group leader in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// `CLOCK_BOOTTIME` in nanoseconds when the record was made.
    pub at: u64,
    /// Cgroup id (`kn->id`).
    pub id: u64,
    /// By kind.
    pub aux: u64,
    /// By kind.
    pub aux2: u64,
    /// `cgroup_root.hierarchy_id`; 0 is cgroup v2.
    pub hierarchy: u32,
    /// Depth of the cgroup; 0 is the root.
    pub level: u32,
    /// The process concerned.
    pub tgid: u32,
    /// The other process.
    pub peer: u32,
    /// What the record says; see [`Kind`].
    pub kind: u16,
    /// New value of the flag that changed.
    pub value: u8,
    /// [`VERSION`] in the high four bits, zero in the low.
    pub version: u8,
    /// By kind.
    pub code: i32,
    /// Chosen by the process itself.
    pub comm: Comm,
}

// === impl Kind ===

impl Kind {
    /// A cgroup was made.
    pub const MKDIR: Self = Self(1);
    /// A cgroup was removed.
    pub const RMDIR: Self = Self(2);
    /// The first task entered a cgroup's subtree, or the last one left.
    pub const POPULATED: Self = Self(3);
    /// A v2 cgroup became frozen or thawed.
    pub const FROZEN: Self = Self(4);
    /// A watched process made a process.
    pub const FORK: Self = Self(5);
    /// A watched or runtime process became another program.
    pub const EXEC: Self = Self(6);
    /// The last thread of a watched process is exiting.
    pub const EXIT: Self = Self(7);
    /// What the programs read about the process that loaded them.
    pub const SELF_CHECK: Self = Self(8);
    /// The process that loaded the programs sent SIGKILL. (9 is taken, see [`Counter`](super::Counter).)
    pub const KILL: Self = Self(10);
}

// === impl Record ===

impl Record {
    /// An otherwise empty record of this version.
    pub const fn new(kind: Kind, at: u64) -> Self {
        Self {
            at,
            id: 0,
            aux: 0,
            aux2: 0,
            hierarchy: 0,
            level: 0,
            tgid: 0,
            peer: 0,
            kind: kind.0,
            value: 0,
            version: VERSION << 4,
            code: 0,
            comm: [0; 2],
        }
    }
}

/// The version nibble of a record's `version` byte.
pub const fn version_of(byte: u8) -> u8 {
    byte >> 4
}

const _: () = {
    assert!(size_of::<Record>() == 72 && align_of::<Record>() == 8, "the ring aligns to 8 bytes");
    assert!(core::mem::offset_of!(Record, aux2) == 24, "three words before");
    assert!(core::mem::offset_of!(Record, hierarchy) == 32, "four words before");
    assert!(core::mem::offset_of!(Record, kind) == 48, "four half words before");
    assert!(core::mem::offset_of!(Record, version) == 51, "the last byte of the head");
    assert!(core::mem::offset_of!(Record, code) == 52, "aligned without padding");
    assert!(core::mem::offset_of!(Record, comm) == 56, "the rest");
    assert!(VERSION < 16, "four bits");
};
