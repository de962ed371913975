//! The runc that a container is given: the real one behind a script that makes it crash at a chosen moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::command::run;

const LIMIT: Duration = Duration::from_secs(10);

/// What happens in the `createRuntime` hook, after the cgroup is made and before `state.json` is written.
#[derive(Clone, Debug)]
pub(crate) enum Hook {
    /// SIGKILL to `runc create`, the hook's parent, after an optional freeze through this file.
    KillCreate { freeze: Option<(PathBuf, &'static str)> },
    /// Waits until the file exists, at most so many tenths of a second.
    Wait { until: PathBuf, tenths: u32 },
}

/// How one container's runc deviates from the real one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// A `createRuntime` hook put into the bundle's `config.json`.
    pub(crate) hook: Option<Hook>,
    /// The container shares the PID namespace of the machine.
    pub(crate) host_pid: bool,
    /// `runc delete` dies of SIGKILL before it does anything.
    pub(crate) delete_crashes: bool,
}

// The bundle's config.json is one line written by containerd's JSON encoder: a fixed text that ends the maker's
// verification if it ever changes.
const WRAPPER: &str = r#"#!/bin/sh
bundle= verb= previous=
for word; do
    case $previous in --bundle) bundle=$word ;; esac
    case $word in create | delete) verb=${verb:-$word} ;; esac
    previous=$word
done
case $verb in
create) CREATE ;;
delete) DELETE ;;
esac
exec runc "$@"
"#;

// === impl Faults ===

impl Faults {
    /// Writes the scripts and returns the path for `--runc-binary`.
    pub(crate) fn install(&self, bin: &Path, id: &str) -> Result<PathBuf> {
        let mut edits = Vec::new();
        if let Some(hook) = &self.hook {
            let script = bin.join(format!("hook-{id}"));
            write_script(&script, &hook.script())?;
            let hooks = format!(r#""hooks":{{"createRuntime":[{{"path":"{}"}}]}},"#, script.display());
            edits.push(format!("1s|^{{|{{{hooks}|"));
        }
        if self.host_pid {
            edits.push(r#"1s|{"type":"pid"},||"#.to_owned());
        }
        let create = match edits.as_slice() {
            [] => ":".to_owned(),
            edits => format!("sed -i '{}' \"$bundle/config.json\"", edits.join(";")),
        };
        let delete = if self.delete_crashes { "kill -KILL $$" } else { ":" };
        let wrapper = bin.join(format!("runc-{id}"));
        write_script(&wrapper, &WRAPPER.replace("CREATE", &create).replace("DELETE", delete))?;
        Ok(wrapper)
    }
}

// === impl Hook ===

impl Hook {
    fn script(&self) -> String {
        let body = match self {
            Self::KillCreate { freeze: Some((file, value)) } => {
                format!("echo {value} > {}\nkill -KILL $PPID\n", file.display())
            }
            Self::KillCreate { freeze: None } => "kill -KILL $PPID\n".to_owned(),
            Self::Wait { until, tenths } => format!(
                "i=0\nwhile [ ! -e {} ] && [ $i -lt {tenths} ]; do sleep 0.1; i=$((i + 1)); done\n",
                until.display()
            ),
        };
        format!("#!/bin/sh\n{body}")
    }
}

/// Another process writes the file that will be executed: a descriptor open for writing here would be inherited by
/// whatever other threads start at this moment, and make the execution fail with ETXTBSY.
fn write_script(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
    let mut install = Command::new("install");
    install.args(["-m", "0755"]).arg(&draft).arg(path);
    run(&mut install, LIMIT)?.expect_success("install a script").map(drop)
}
