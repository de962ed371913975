//! Which processes belong to a container runtime, by their argument vectors.
//!
//! An argument vector is a claim and not a proof, so these answers only ever protect: they name shims to ask and
//! commands in flight to wait for. Recognising one process too many costs a wait; one too few could cost a
//! container in creation, so the rules are wide.

use std::path::Path;

use super::error::ProcfsError;
use super::process::select;
use crate::fact::{ProcessFact, RuntimeProcess, RuntimeRole};
use crate::ident::{ContainerId, Namespace};

const SHIM: &str = "containerd-shim";

/// Runtimes and engines: programs whose names begin like this (`kata-runtime`, `runc.real`).
const RUNTIMES: [&str; 6] = ["runc", "crun", "youki", "kata", SHIM, "conmon"];

/// Clients: programs with exactly these names (not `docker.service` in the words of `systemctl`).
const CLIENTS: [&str; 4] = ["ctr", "nerdctl", "crictl", "docker"];

/// Subcommands that make, change or end a container.
const VERBS: [&str; 11] = [
    "create",
    "run",
    "start",
    "restore",
    "delete",
    "kill",
    "exec",
    "pause",
    "resume",
    "update",
    "checkpoint",
];

/// Options of a shim that take a value (containerd `pkg/shim/shim.go`).
const SHIM_VALUES: [&str; 6] = ["namespace", "id", "address", "bundle", "publish-binary", "socket"];

/// How many words from the first on may be the program: `sh -e /usr/local/bin/runc-wrapper`.
const PROGRAM_WORDS: usize = 3;

/// The shims and the runtime commands in flight among these processes.
pub fn runtime_processes(all: &[ProcessFact]) -> Vec<RuntimeProcess> {
    let with_role = |process: &ProcessFact| {
        role(&process.argv).map(|role| RuntimeProcess { process: process.clone(), role })
    };
    all.iter().filter_map(with_role).collect()
}

/// The same of all processes of the node; fails as [`all`](super::all) does.
pub fn all_runtime_processes() -> Result<Vec<RuntimeProcess>, ProcfsError> {
    select(|process| role(&process.argv).map(|role| RuntimeProcess { process, role }))
}

fn role(argv: &[String]) -> Option<RuntimeRole> {
    shim(argv).or_else(|| command(argv))
}

/// A shim says whom it serves, whatever its program is called (`ctr run --runtime /path/to/any-name`); with one of
/// the subcommands of shims it is a short-lived helper.
fn shim(argv: &[String]) -> Option<RuntimeRole> {
    let namespace = Namespace::try_from(option(argv, "namespace")?).ok()?;
    let id = ContainerId::try_from(option(argv, "id")?).ok()?;
    let address = option(argv, "address").filter(|address| is_address(address))?.to_owned();
    match subcommand(argv) {
        Some(verb @ ("start" | "delete")) => Some(RuntimeRole::Command { verb: verb.to_owned() }),
        Some(_) | None => Some(RuntimeRole::Shim { namespace, id, address }),
    }
}

/// What can be the address of a socket and is safe to show: `sun_path` holds 107 bytes.
fn is_address(word: &str) -> bool {
    word.strip_prefix("unix://").unwrap_or(word).len() <= 107 && !word.chars().any(char::is_control)
}

fn command(argv: &[String]) -> Option<RuntimeRole> {
    // `runc init` is the container's own process, not a command about it.
    if argv.get(1).is_some_and(|word| word == "init") {
        return None;
    }
    let verb = argv.iter().find(|word| VERBS.contains(&word.as_str()))?;
    let bundle = |word: &String| word == "-b" || word == "--bundle" || word.starts_with("--bundle=");
    let program = |word: &String| {
        let name = file_name(word);
        CLIENTS.contains(&name) || RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
    };
    let known = argv.iter().take(PROGRAM_WORDS).any(program) || argv.iter().any(bundle);
    known.then(|| RuntimeRole::Command { verb: verb.clone() })
}

fn file_name(word: &str) -> &str {
    Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The name of an option word (`-x`, `--x`, `-x=y`) and the value in the same word.
fn split_option(word: &str) -> Option<(&str, Option<&str>)> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

fn option<'a>(argv: &'a [String], wanted: &str) -> Option<&'a str> {
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match split_option(word) {
            Some((name, Some(value))) if name == wanted => return Some(value),
            Some((name, None)) if name == wanted => return words.next().map(String::as_str),
            Some((name, None)) if SHIM_VALUES.contains(&name) => {
                words.next();
            }
            _ => {}
        }
    }
    None
}

/// The last word that is neither an option nor its value.
fn subcommand(argv: &[String]) -> Option<&str> {
    let mut last = None;
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match split_option(word) {
            Some((name, None)) if SHIM_VALUES.contains(&name) => {
                words.next();
            }
            Some(_) => {}
            None => last = Some(word.as_str()),
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn role_of(line: &str) -> Option<String> {
        let argv: Vec<_> = line.split(' ').map(str::to_owned).collect();
        role(&argv).map(|role| match role {
            RuntimeRole::Shim { namespace, id, address } => {
                format!("shim {} {} {address}", namespace.as_str(), id.as_str())
            }
            RuntimeRole::Command { verb } => verb,
        })
    }

    #[test]
    fn a_serving_shim_is_recognised_in_every_spelling() {
        for line in [
            "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id a1 -address /run/c.sock",
            "containerd-shim-kata-v2 --id a1 --namespace k8s.io --address /run/c.sock --debug",
            "/x/containerd-shim-runc-v2 -namespace=k8s.io -id=a1 -address=/run/c.sock",
            "/opt/my-runtime -namespace k8s.io -id a1 -address /run/c.sock",
            "/bin/sh /opt/wrapped-runtime -namespace k8s.io -id a1 -address /run/c.sock",
        ] {
            assert_eq!(role_of(line).as_deref(), Some("shim k8s.io a1 /run/c.sock"), "{line}");
        }
        let named_like_a_verb = "containerd-shim-runc-v2 -namespace x -address /s -id start";
        assert_eq!(role_of(named_like_a_verb).as_deref(), Some("shim x start /s"));
    }

    #[test]
    fn a_shim_with_a_subcommand_is_a_command() {
        let start =
            "containerd-shim-runc-v2 -namespace x -id a -address /s -publish-binary /bin/containerd start";
        assert_eq!(role_of(start).as_deref(), Some("start"));
        let delete = "containerd-shim-runc-v2 -namespace x -address /s -id a -bundle /b delete";
        assert_eq!(role_of(delete).as_deref(), Some("delete"));
        let renamed = "/opt/my-runtime -namespace x -id a -address /s start";
        assert_eq!(role_of(renamed).as_deref(), Some("start"));
    }

    #[test]
    fn commands_of_runtimes_clients_and_wrappers_are_recognised() {
        for (line, verb) in [
            ("runc --root /run/runc --log-format json create --bundle /b --pid-file /p a1", "create"),
            ("/usr/bin/crun --systemd-cgroup start a1", "start"),
            ("ctr -n k8s.io run -d image a1", "run"),
            ("/bin/sh -e /usr/local/bin/runc-wrapper create a1", "create"),
            ("youki delete --force a1", "delete"),
            ("kata-runtime kill a1", "kill"),
            ("/opt/unknown-runtime create --bundle=/b a1", "create"),
            ("/opt/unknown-runtime -b /b run a1", "run"),
            ("/usr/bin/conmon -b /b -c a1 --exec-attach -e exec", "exec"),
        ] {
            assert_eq!(role_of(line).as_deref(), Some(verb), "{line}");
        }
    }

    #[test]
    fn other_processes_have_no_role() {
        for line in [
            "runc init",
            "/usr/bin/runc init create",
            "/proc/self/exe init",
            "containerd-shim-runc-v2 -v",
            "containerd-shim-runc-v2 -namespace x -id a",
            "containerd-shim-runc-v2 -namespace x -id a -address /s\u{1b}[2J",
            "containerd-shim-runc-v2 -namespace x -id a\nb -address /s",
            &format!("containerd-shim-runc-v2 -namespace x -id a -address /{}", "s".repeat(107)),
            "containerd --config /etc/create",
            "systemctl start docker.service",
            "sleep 1000",
            "",
        ] {
            assert_eq!(role_of(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_argv_panics(argv in proptest::collection::vec("[-=/a-z.]{0,12}|-id|-namespace|start", 0..8)) {
            let _role = role(&argv);
        }
    }
}
