//! The kernel fields that the programs read.

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
        }
    };
}
