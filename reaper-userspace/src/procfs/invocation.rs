//! What a runtime was told to do, word by word.
//!
//! The command lines of runc, crun and youki have one shape: global options, a verb, its options, the container's id.
//! Unlike [`runtime_processes`](super::runtime_processes), which must not miss one, this answers only where it is
//! sure; and the answer is a claim of the process about itself.

use std::path::Path;

use crate::fact::Invocation;
use crate::ident::{ContainerId, Namespace};

/// Verbs that take the id of a container.
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

/// Options without a value, of runc 1.0 to 1.3, crun 1.x and youki 0.x. All others take one, in the next word if
/// there is no `=`.
const SWITCHES: [&str; 16] = [
    "debug",
    "systemd-cgroup",
    "cgroup-manager",
    "force",
    "f",
    "all",
    "a",
    "detach",
    "d",
    "no-pivot",
    "no-new-keyring",
    "no-subreaper",
    "keep",
    "tty",
    "t",
    "rootless",
];

/// Reads one; `None` for everything that is not clearly such a command, `runc init` included.
pub fn invocation(argv: &[String]) -> Option<Invocation> {
    let (mut namespace, mut verb) = (None, None);
    let mut words = program(argv).iter();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            match verb {
                None if VERBS.contains(&word.as_str()) => verb = Some(word.clone()),
                None => return None,
                Some(verb) => {
                    let id = ContainerId::try_from(word.as_str()).ok()?;
                    return Some(Invocation { verb, namespace, id });
                }
            }
            continue;
        };
        let value = match name.split_once('=') {
            Some((_, value)) => Some(value),
            None if SWITCHES.contains(&name) => None,
            None => Some(words.next()?.as_str()),
        };
        if name.split('=').next() == Some("root") {
            namespace = value.and_then(namespace_of);
        }
    }
    None
}

/// The words behind the program, and behind a shell that runs it as a script (`sh -e /usr/local/bin/runc ..`).
fn program(argv: &[String]) -> &[String] {
    let is_shell = |word: &String| matches!(file_name(word), Some("sh" | "bash" | "dash"));
    let script = |word: &&String| !word.starts_with('-') && !is_shell(word);
    let skipped = match argv.first() {
        Some(first) if is_shell(first) => argv.iter().position(|word| script(&word)).unwrap_or(argv.len()),
        Some(_) | None => 0,
    };
    argv.get(skipped.saturating_add(1)..).unwrap_or_default()
}

/// containerd gives every namespace a state root of its own, named like it.
fn namespace_of(root: &str) -> Option<Namespace> {
    Namespace::try_from(file_name(root)?).ok()
}

fn file_name(path: &str) -> Option<&str> {
    Path::new(path).file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Option<String> {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Invocation { verb, namespace, id } = invocation(&argv)?;
        Some(format!("{verb} {}/{id}", namespace.map_or_else(|| "?".to_owned(), String::from)))
    }

    #[test]
    fn the_commands_of_a_shim_are_read() {
        let root = "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json";
        for (line, wanted) in [
            (format!("runc {root} create --bundle /b --pid-file /b/init.pid a1"), "create k8s.io/a1"),
            (format!("runc {root} --systemd-cgroup create --bundle /b --no-pivot a1"), "create k8s.io/a1"),
            (format!("/usr/bin/crun {root} start a1"), "start k8s.io/a1"),
            (format!("youki {root} delete --force a1"), "delete k8s.io/a1"),
            (format!("runc {root} kill --all a1 9"), "kill k8s.io/a1"),
            (format!("runc {root} exec --process /tmp/p --detach --pid-file /b/2.pid a1"), "exec k8s.io/a1"),
            ("runc --root=/run/runc/moby create -b /b a1".to_owned(), "create moby/a1"),
            ("/bin/sh -e /usr/local/bin/runc create --bundle /b a1".to_owned(), "create ?/a1"),
        ] {
            assert_eq!(read(&line).as_deref(), Some(wanted), "{line}");
        }
    }

    #[test]
    fn what_is_no_clear_command_is_none() {
        for line in [
            "runc init",
            "runc --root /r list",
            "runc create --bundle /b",
            "runc create --bundle",
            "runc --root",
            "runc create --bundle /b ../a1",
            "sleep create a1",
            "sh -c create",
            "",
        ] {
            let wanted = (line == "sleep create a1").then_some("create ?/a1");
            assert_eq!(read(line).as_deref(), wanted, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_argv_panics(argv in proptest::collection::vec("[-=/a-z.]{0,12}|--root|create|sh", 0..8)) {
            let _any = invocation(&argv);
        }
    }
}
