//! Why there is no probe.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;

use super::btf::LayoutError;
use super::format::FormatError;
use crate::ident::{CgroupRef, ProcessKey};

/// What failed, and on which object.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No tokio runtime to wait in.
    #[error("probes are loaded inside a tokio runtime")]
    Runtime,
    /// The kernel's type information could not be read; kernels without it lack `CONFIG_DEBUG_INFO_BTF`.
    #[error("cannot read {path}")]
    ReadBtf {
        /// The file.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A field that the programs read is not in the kernel's type information.
    #[error("cannot find the kernel's fields")]
    Layout(#[from] LayoutError),
    /// There are no tracepoints to read about: `mount -t tracefs tracefs /sys/kernel/tracing`.
    #[error("tracefs is not mounted at /sys/kernel/tracing")]
    NoTracefs,
    /// A tracepoint's format could not be read.
    #[error("cannot read {}", path.display())]
    ReadFormat {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A tracepoint does not record what the programs read.
    #[error("tracepoint {tracepoint} cannot be used")]
    Format {
        /// Its name.
        tracepoint: &'static str,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The kernel's type information could not be parsed as a whole.
    #[error("cannot parse the kernel's type information")]
    ParseBtf(#[source] aya::BtfError),
    /// The object is broken, or its maps were refused.
    #[error("cannot load the BPF object and its maps")]
    Object(#[source] Box<EbpfError>),
    /// The object lacks a program, or it is of another type.
    #[error("the BPF object has no usable program {program}")]
    Program {
        /// Its name.
        program: &'static str,
    },
    /// The object lacks a map, or it is of another type.
    #[error("the BPF object has no usable map {map}")]
    Map {
        /// Its name.
        map: &'static str,
        /// What is wrong with it; nothing if it is missing.
        source: Option<MapError>,
    },
    /// The kernel refused a program.
    #[error("the kernel refused program {program}, its verifier's last words: {log}")]
    Refused {
        /// Its name.
        program: &'static str,
        /// The last lines of the verifier's log.
        log: String,
        /// The error number.
        source: io::Error,
    },
    /// A program could not be loaded.
    #[error("cannot load program {program}")]
    Load {
        /// Its name.
        program: &'static str,
        /// Why.
        source: Box<ProgramError>,
    },
    /// A program could not be attached or detached.
    #[error("cannot attach or detach program {program}")]
    Attach {
        /// Its name.
        program: &'static str,
        /// Why.
        source: Box<ProgramError>,
    },
    /// The facts for the self check could not be had.
    #[error("cannot check what the programs read: {step} failed")]
    CheckFailed {
        /// The step.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The programs did not see this process.
    #[error("the programs did not see process {0} start a thread: not in the host's PID namespace?")]
    Unseen(u32),
    /// The programs read something else than what is true of this process.
    #[error("the programs read {field} of this process as {kernel}, it is {truth}")]
    Mismatch {
        /// What was compared.
        field: &'static str,
        /// What the programs read.
        kernel: String,
        /// What `/proc` or the kernel itself says.
        truth: String,
    },
    /// A cgroup could not be tracked or untracked.
    #[error("cannot track or untrack cgroup {} of hierarchy {}", cgroup.id.0, cgroup.hierarchy.0)]
    Track {
        /// The cgroup.
        cgroup: CgroupRef,
        /// Why; E2BIG if the map is full.
        source: MapError,
    },
    /// A process could not be watched or unwatched.
    #[error("cannot watch or unwatch process {process}")]
    Watch {
        /// The process.
        process: ProcessKey,
        /// Why; E2BIG if the map is full.
        source: MapError,
    },
    /// The filter in front of the watched processes could not be built anew: it costs more, and misses nothing.
    #[error("cannot tidy the filter of watched processes")]
    Tidy(#[source] MapError),
    /// A ring could not be waited for.
    #[error("cannot wait for ring {ring}")]
    Wait {
        /// Its name.
        ring: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Loss counters could not be read: whether something was lost is unknown.
    #[error("cannot read the loss counters")]
    Counters(#[source] MapError),
    /// A program's count of skipped runs could not be read: whether something was lost is unknown.
    #[error("cannot read how often program {program} was skipped")]
    Skipped {
        /// Its name.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
}
