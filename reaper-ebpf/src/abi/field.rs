//! The fields that the programs read: of kernel structures, and of what tracepoints record.

/// Calls a macro with every kernel field that the programs read: `GLOBAL = structure.member;`.
///
/// One list makes both the globals of the object and the look-up of their values in the kernel's BTF, so that
/// neither side can forget one.
#[macro_export]
macro_rules! kernel_fields {
    ($callback:ident) => {
        $callback! {
            OFF_TASK_PID = task_struct.pid;
            OFF_TASK_TGID = task_struct.tgid;
            OFF_TASK_START = task_struct.start_boottime;
            OFF_TASK_LEADER = task_struct.group_leader;
            OFF_TASK_PARENT = task_struct.real_parent;
            OFF_TASK_SIGNAL = task_struct.signal;
            OFF_TASK_EXIT_CODE = task_struct.exit_code;
            OFF_TASK_COMM = task_struct.comm;
            OFF_TASK_CGROUPS = task_struct.cgroups;
            OFF_SIGNAL_LIVE = signal_struct.live;
            OFF_CSS_SET_CGROUP = css_set.dfl_cgrp;
            OFF_CGROUP_SELF = cgroup.self;
            OFF_CGROUP_NODE = cgroup.kn;
            OFF_CGROUP_ROOT = cgroup.root;
            OFF_CGROUP_LEVEL = cgroup.level;
            OFF_CSS_PARENT = cgroup_subsys_state.parent;
            OFF_CSS_CGROUP = cgroup_subsys_state.cgroup;
            OFF_NODE_ID = kernfs_node.id;
            OFF_ROOT_HIERARCHY = cgroup_root.hierarchy_id;
            OFF_DENTRY_INODE = dentry.d_inode;
            OFF_INODE_NUMBER = inode.i_ino;
        }
    };
}

/// Calls a macro with every field of a tracepoint's record that the classic programs read:
/// `GLOBAL = category / tracepoint . field, bytes;`. Where each lies is in the tracepoint's `format` file.
///
/// `cgroup_rmdir` records what `cgroup_mkdir` does, `cgroup_notify_frozen` what `cgroup_notify_populated` does
/// (`include/trace/events/cgroup.h`: one event class each).
#[macro_export]
macro_rules! tracepoint_fields {
    ($callback:ident) => {
        $callback! {
            AT_CGROUP_ROOT = cgroup / cgroup_mkdir . root, 4;
            AT_CGROUP_LEVEL = cgroup / cgroup_mkdir . level, 4;
            AT_CGROUP_ID = cgroup / cgroup_mkdir . id, 8;
            AT_FLAG_ROOT = cgroup / cgroup_notify_populated . root, 4;
            AT_FLAG_LEVEL = cgroup / cgroup_notify_populated . level, 4;
            AT_FLAG_ID = cgroup / cgroup_notify_populated . id, 8;
            AT_FLAG_VALUE = cgroup / cgroup_notify_populated . val, 4;
            AT_TASK_PID = task / task_newtask . pid, 4;
            AT_TASK_FLAGS = task / task_newtask . clone_flags, 4;
        }
    };
}

/// The one that not every kernel has (Linux 6.16): global, category, tracepoint, field. A global of zero says so.
pub const GROUP_DEAD: [&str; 4] = ["AT_EXIT_GROUP_DEAD", "sched", "sched_process_exit", "group_dead"];
