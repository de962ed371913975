//! Every read of kernel memory.
//!
//! [`Task`] and [`Cgroup`] hold pointers that the verifier knows as BTF pointers: they come from a tracepoint's
//! arguments or from another such field, and nothing else can make them. A load through them that faults reads
//! zero (`BPF_PROBE_MEM`), so a stale pointer yields a wrong hint, never an oops.
#![expect(unsafe_code, reason = "this is where kernel memory is read")]

use aya_ebpf::helpers::generated::{bpf_get_current_cgroup_id, bpf_get_current_comm};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use aya_ebpf::programs::{BtfTracePointContext, LsmContext, TracePointContext};
use aya_ebpf::{EbpfContext as _, Global};
use reaper_ebpf::abi::Comm;

use crate::maps;

/// Some kernel structure.
enum Opaque {}

/// A `struct task_struct *`.
#[derive(Clone, Copy)]
pub(crate) struct Task(*const Opaque);

/// A `struct cgroup *`.
#[derive(Clone, Copy)]
pub(crate) struct Cgroup(*const Opaque);

/// A `struct dentry *`.
#[derive(Clone, Copy)]
pub(crate) struct Dentry(*const Opaque);

// === impl Dentry ===

impl Dentry {
    /// Argument `n` of the hook, which must be an entry of a directory that exists.
    pub(crate) fn arg(ctx: &LsmContext, n: usize) -> Self {
        Self(ctx.arg(n))
    }

    /// Its inode's number; in cgroupfs the cgroup's id. An entry may have no inode, and newer verifiers want to see that
    /// asked.
    pub(crate) fn inode_number(self) -> Option<u64> {
        let inode: *const Opaque = read(self.0, &maps::OFF_DENTRY_INODE);
        (!inode.is_null()).then(|| read(inode, &maps::OFF_INODE_NUMBER))
    }
}

// === impl Task ===

impl Task {
    /// Argument `n` of the tracepoint, which must be a task.
    pub(crate) fn arg(ctx: &BtfTracePointContext, n: usize) -> Self {
        Self(ctx.arg(n))
    }

    /// The thread's own id.
    pub(crate) fn pid(self) -> u32 {
        read(self.0, &maps::OFF_TASK_PID)
    }

    /// The process.
    pub(crate) fn tgid(self) -> u32 {
        read(self.0, &maps::OFF_TASK_TGID)
    }

    /// When this thread started, in nanoseconds since boot. The process started when its leader did.
    pub(crate) fn start(self) -> u64 {
        read(self.0, &maps::OFF_TASK_START)
    }

    /// The thread whose id is the process's; stays until every other thread is gone.
    pub(crate) fn leader(self) -> Self {
        Self(read(self.0, &maps::OFF_TASK_LEADER))
    }

    /// The process that waits for this one, unless traced.
    pub(crate) fn parent(self) -> Self {
        Self(read(self.0, &maps::OFF_TASK_PARENT))
    }

    /// Threads that have not begun to exit. `do_exit` decrements before the tracepoint fires.
    pub(crate) fn live_threads(self) -> i32 {
        let signal: *const Opaque = read(self.0, &maps::OFF_TASK_SIGNAL);
        read(signal, &maps::OFF_SIGNAL_LIVE)
    }

    /// Wait status of this thread.
    pub(crate) fn exit_code(self) -> i32 {
        read(self.0, &maps::OFF_TASK_EXIT_CODE)
    }

    /// Its name, which it chose itself.
    pub(crate) fn comm(self) -> Comm {
        read(self.0, &maps::OFF_TASK_COMM)
    }

    /// Its cgroup in the v2 hierarchy.
    pub(crate) fn cgroup(self) -> Cgroup {
        let set: *const Opaque = read(self.0, &maps::OFF_TASK_CGROUPS);
        Cgroup(read(set, &maps::OFF_CSS_SET_CGROUP))
    }
}

// === impl Cgroup ===

impl Cgroup {
    /// Argument `n` of the tracepoint, which must be a cgroup.
    pub(crate) fn arg(ctx: &BtfTracePointContext, n: usize) -> Self {
        Self(ctx.arg(n))
    }

    /// Its id within its hierarchy.
    pub(crate) fn id(self) -> u64 {
        let node: *const Opaque = read(self.0, &maps::OFF_CGROUP_NODE);
        read(node, &maps::OFF_NODE_ID)
    }

    /// Its hierarchy; 0 is v2.
    pub(crate) fn hierarchy(self) -> u32 {
        let root: *const Opaque = read(self.0, &maps::OFF_CGROUP_ROOT);
        read(root, &maps::OFF_ROOT_HIERARCHY)
    }

    /// Depth; 0 is the root.
    pub(crate) fn level(self) -> u32 {
        read(self.0, &maps::OFF_CGROUP_LEVEL)
    }

    /// The enclosing cgroup, `None` for a root. Through `self.parent`, as `kernfs_node.parent` was renamed in
    /// Linux 6.15, and `css->cgroup`, as the verifier would take the css itself for a css only.
    pub(crate) fn parent(self) -> Option<Self> {
        // SAFETY: adds the offset of an embedded structure to the pointer it is embedded in.
        let css = unsafe { self.0.byte_add(offset(&maps::OFF_CGROUP_SELF)) };
        let parent: *const Opaque = read(css, &maps::OFF_CSS_PARENT);
        (!parent.is_null()).then(|| Self(read(parent, &maps::OFF_CSS_CGROUP)))
    }
}

/// Reads a field. Not public: only the methods above say which structure a field belongs to.
#[inline(always)]
fn read<T: Copy>(structure: *const Opaque, field: &Global<u16>) -> T {
    // SAFETY: the offset is that of the field in the running kernel's BTF, so the sum is within the structure;
    // the verifier refuses the program otherwise.
    let field = unsafe { structure.byte_add(offset(field)) };
    // SAFETY: `T` has the field's size and is plain data; a fault reads zero.
    unsafe { field.cast::<T>().read() }
}

#[inline(always)]
fn offset(field: &Global<u16>) -> usize {
    usize::from(field.load())
}

/// The running process.
#[inline(always)]
pub(crate) fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// The running thread's name.
#[inline(always)]
pub(crate) fn current_comm() -> Comm {
    let mut comm = Comm::default();
    // SAFETY: the helper writes at most the given number of bytes, all of which are ours; on failure it clears
    // them, so its answer adds nothing.
    unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), size_of::<Comm>() as u32) };
    comm
}

/// The running thread's v2 cgroup, as the kernel says it.
#[inline(always)]
pub(crate) fn current_cgroup_id() -> u64 {
    // SAFETY: the helper takes nothing and returns a number.
    unsafe { bpf_get_current_cgroup_id() }
}

/// The running thread, as its process and itself in one number.
#[inline(always)]
pub(crate) fn current_thread() -> u64 {
    bpf_get_current_pid_tgid()
}

/// The running thread and its process.
#[inline(always)]
pub(crate) fn current_ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    (both as u32, (both >> 32) as u32)
}

/// A field of what a tracepoint recorded. By helper: the verifier takes only constants of the program's own text
/// as offsets into this context (`kernel/bpf/verifier.c:check_ptr_off_reg`), not those of frozen data.
#[inline(always)]
pub(crate) fn recorded<T: Copy>(ctx: &TracePointContext, field: &Global<u16>) -> Option<T> {
    // SAFETY: the sum is within the record, whose format the kernel gave; the helper checks the address besides.
    let field = unsafe { ctx.as_ptr().byte_add(offset(field)) };
    // SAFETY: `T` is plain data of at most the field's size; the helper reads zero bytes on a fault.
    unsafe { bpf_probe_read_kernel(field.cast::<T>()) }.ok()
}
