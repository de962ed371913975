//! A runtime's command, from its exec on.

use crate::event::Comm;
use crate::fact::{EndedCommand, Invocation, ProcessEnd};
use crate::ident::ProcessKey;
use crate::time::BootTime;

/// How names of runtimes begin that run one command and end.
const RUNTIMES: [&[u8]; 3] = [b"runc", b"crun", b"youki"];

/// What a process says about itself when asked directly after its exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The command it was given; `None` for what is no command about a container, such as `runc init`.
    pub invocation: Option<Invocation>,
    /// Its parent, if that is a shim.
    pub shim: Option<ProcessKey>,
}

/// Whether a process of this name may run a command that is followed: worth a question.
pub fn is_command(comm: Comm) -> bool {
    RUNTIMES.iter().any(|name| comm.as_bytes().starts_with(name))
}

#[derive(Clone, Debug)]
pub(super) struct Running {
    invocation: Option<Invocation>,
    shim: Option<ProcessKey>,
    began: BootTime,
}

// === impl Running ===

impl Running {
    /// An exec under a runtime's name begins a command or continues one: a wrapper executes the runtime, and runc
    /// executes a sealed copy of itself. Under another name it ends what was followed, as no exec of a runtime's
    /// command does: that is how a container's own program begins.
    pub(super) fn after_exec(
        before: Option<Self>,
        comm: Comm,
        at: BootTime,
        ask: impl FnOnce() -> Option<Claim>,
    ) -> Option<Self> {
        if !is_command(comm) {
            return None;
        }
        match (ask(), before) {
            (Some(Claim { invocation: None, .. }), _) => None,
            (Some(Claim { invocation, shim }), None) => Some(Self { invocation, shim, began: at }),
            (Some(Claim { invocation, shim }), Some(before)) => {
                Some(Self { invocation, shim: shim.or(before.shim), ..before })
            }
            (None, Some(before)) => Some(before),
            (None, None) => Some(Self { invocation: None, shim: None, began: at }),
        }
    }

    pub(super) const fn invocation(&self) -> Option<&Invocation> {
        self.invocation.as_ref()
    }

    pub(super) fn end(
        self,
        process: ProcessKey,
        shim: Option<ProcessKey>,
        end: ProcessEnd,
        at: BootTime,
    ) -> EndedCommand {
        let Self { invocation, shim: claimed, began } = self;
        EndedCommand { process, invocation, shim: shim.or(claimed), began, ended: at, end }
    }
}
