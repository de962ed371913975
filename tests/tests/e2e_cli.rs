//! The command line where things are not as they should be: each answer says what is wrong and what to do, and nobody
//! who cannot see confirms a leak.
#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use reaper_tests::{CgroupView, Containerd, Crash, Finished, Node};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(1);
const NOBODY: u32 = 65_534;
const NO_SOCKET: &str = "/nonexistent/reaper-test.sock";

fn product() -> Result<PathBuf> {
    let binary = std::env::var_os("REAPER_BINARY").context(
        "REAPER_BINARY names no product to test; `cargo xtask test` builds it and sets the variable",
    )?;
    Ok(PathBuf::from(binary))
}

/// The product with a state directory of its own, so that no daemon's memory is read or written.
fn run(args: &[&str]) -> Result<Finished> {
    let state = tempfile::tempdir()?;
    reaper_tests::run(Command::new(product()?).args(args).env("CGROUP_REAPER_STATE_DIR", state.path()), LIMIT)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn checks(finished: &Finished) -> Result<Vec<Value>> {
    let doctor: Value = serde_json::from_str(&finished.stdout).context("doctor prints JSON")?;
    assert_eq!((text(&doctor, "/apiVersion"), text(&doctor, "/kind")), ("reaper/v1", "Doctor"));
    Ok(doctor.pointer("/checks").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn state_of<'a>(checks: &'a [Value], name: &str) -> Vec<&'a str> {
    let named = checks.iter().filter(|check| text(check, "/name") == name);
    named.map(|check| text(check, "/state")).collect()
}

/// A copy that anybody may execute, wherever the build directory is.
fn for_everybody() -> Result<(TempDir, PathBuf)> {
    let dir = tempfile::tempdir()?;
    let binary = dir.path().join("cgroup-reaper");
    fs::copy(product()?, &binary)?;
    for path in [dir.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok((dir, binary))
}

#[test]
fn doctor_checks_everything_and_gives_a_remedy_for_each_finding() -> Result<()> {
    let finished = run(&["doctor", "-o", "json", "--containerd-address", NO_SOCKET])?;
    assert_eq!(finished.code, Some(0), "{} {}", finished.stdout, finished.stderr);
    let checks = checks(&finished)?;
    for name in [
        "kernel",
        "btf",
        "lockdown",
        "probes",
        "cgroups",
        "cgroup_paths",
        "privileges",
        "pid_namespace",
        "processes",
        "bundles",
        "runtime_state",
        "audit_log",
        "state_dir",
        "holds",
        "systemd",
    ] {
        assert_eq!(state_of(&checks, name).len(), 1, "{name}: {}", finished.stdout);
    }
    for check in &checks {
        let remedy = check.get("remedy").is_some_and(Value::is_string);
        assert_eq!(remedy, text(check, "/state") != "ok", "{check}");
        assert!(!text(check, "/seen").is_empty(), "{check}");
    }
    let missing = checks.iter().find(|check| text(check, "/seen").contains(NO_SOCKET));
    assert_eq!(missing.map(|check| text(check, "/state")), Some("warning"), "{}", finished.stdout);
    Ok(())
}

/// What doctor says about the probes on a machine that lacks something.
fn probes_where(script: &str) -> Result<(String, String)> {
    let state = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]).arg(product()?);
    command.args(["doctor", "-o", "json", "--containerd-address", NO_SOCKET]);
    let finished = reaper_tests::run(command.env("CGROUP_REAPER_STATE_DIR", state.path()), LIMIT)?;
    let checks = checks(&finished)?;
    let probes =
        checks.iter().find(|check| text(check, "/name") == "probes").context("no line about probes")?;
    assert!(!text(probes, "/seen").contains('\n'), "{probes}");
    Ok((text(probes, "/seen").to_owned(), text(probes, "/state").to_owned()))
}

const WITHOUT_TRACEFS: &str =
    "mount -t tmpfs none /sys/kernel/tracing; mount -t tmpfs none /sys/kernel/debug;";
const WITHOUT_BTF: &str = "mount -t tmpfs none /sys/kernel/btf;";
const WITH_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing;";

#[test]
fn doctor_names_the_level_and_why_a_better_one_does_not_work() -> Result<()> {
    let run = "exec \"$0\" \"$@\"";
    let (seen, state) = probes_where(&format!("{WITHOUT_TRACEFS} {run}"))?;
    assert_eq!((seen.as_str(), state.as_str()), ("level btf: loaded, attached and checked", "ok"));
    let (seen, state) = probes_where(&format!("{WITHOUT_BTF} {WITH_TRACEFS} {run}"))?;
    assert_eq!(state, "warning");
    assert!(
        seen.starts_with("level classic: loaded, attached and checked; not btf: cannot read /sys/"),
        "{seen}"
    );
    let (seen, state) = probes_where(&format!("{WITHOUT_BTF} {WITHOUT_TRACEFS} {run}"))?;
    assert_eq!(state, "warning");
    assert!(seen.starts_with("level poll; not btf: cannot read /sys/"), "{seen}");
    assert!(seen.ends_with("not classic: tracefs is not mounted at /sys/kernel/tracing"), "{seen}");
    let setpriv = "exec setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -all \"$0\" \"$@\"";
    let (seen, state) = probes_where(&format!("{WITH_TRACEFS} {setpriv}"))?;
    assert_eq!(state, "warning");
    assert!(seen.starts_with("level poll; not btf: ") && seen.contains("Operation not permitted"), "{seen}");
    Ok(())
}

#[test]
fn doctor_ends_with_7_where_there_are_no_cgroups() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let root = empty.path().to_str().context("a path in UTF-8")?;
    let finished = run(&["doctor", "-o", "json", "--cgroup-root", root])?;
    assert_eq!(finished.code, Some(7), "{}", finished.stdout);
    assert_eq!(state_of(&checks(&finished)?, "cgroups"), ["problem"]);
    Ok(())
}

#[test]
fn a_scan_without_a_containerd_names_the_socket_and_claims_nothing() -> Result<()> {
    let args = ["scan", "--containerd-address", NO_SOCKET];
    let finished = run(&[&args[..], &["-o", "json"]].concat())?;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let list: Value = serde_json::from_str(&finished.stdout)?;
    let problems = list.pointer("/problems").and_then(Value::as_array).context("problems")?;
    let names = |problem: &Value| problem.as_str().is_some_and(|problem| problem.contains(NO_SOCKET));
    assert!(problems.iter().any(names), "{list}");
    let shown = run(&args)?.stdout;
    assert!(shown.contains("nothing can be confirmed"), "{shown}");
    Ok(())
}

#[test]
fn a_misspelt_flag_is_a_usage_error_with_the_right_word() -> Result<()> {
    let finished = run(&["scan", "--contaierd-address", NO_SOCKET])?;
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("'--containerd-address'"), "{}", finished.stderr);
    Ok(())
}

#[test]
fn a_name_that_nothing_has_is_an_error_that_says_which_names_there_are() -> Result<()> {
    for command in ["reap", "explain"] {
        let finished = run(&[command, "nosuch"])?;
        assert_eq!(finished.code, Some(1), "{command}: {}", finished.stdout);
        for word in ["nosuch", "cgroup-reaper scan", "container id"] {
            assert!(finished.stderr.contains(word), "{command}: {}", finished.stderr);
        }
    }
    Ok(())
}

#[test]
fn enforcing_without_an_audit_log_is_refused() -> Result<()> {
    // A missing directory is made; a file in its place cannot be.
    let log = "/proc/version/audit.jsonl";
    let finished = run(&["run", "--mode", "enforce", "--once", "--audit-log", log])?;
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    for word in ["nothing is reaped without an audit log", "/proc/version", "File exists"] {
        assert!(finished.stderr.contains(word), "{}", finished.stderr);
    }
    assert!(!finished.stderr.contains('\u{1b}'), "colours in a file: {}", finished.stderr);
    Ok(())
}

#[test]
fn without_root_a_real_leak_is_never_confirmed_and_what_is_hidden_is_said() -> Result<()> {
    let containerd = Containerd::start(Node::new(CgroupView::preferred()?)?)?;
    let leak = containerd.crash("unprivileged", Crash::ThawedCreate)?;
    let (_dir, binary) = for_everybody()?;
    let node = containerd.node();
    let flags = [
        ("--containerd-address", containerd.address()),
        ("--containerd-state", node.state()),
        ("--cgroup-root", node.cgroup_root().to_owned()),
    ];
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).uid(NOBODY).gid(NOBODY);
        for (flag, path) in &flags {
            command.arg(flag).arg(path);
        }
        reaper_tests::run(&mut command, LIMIT)
    };
    let finished = as_nobody(&["scan", "-o", "json", "--grace", "0s"])?;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let list: Value = serde_json::from_str(&finished.stdout)?;
    assert_eq!(list.pointer("/summary/confirmed"), Some(&Value::from(0)), "{list}");
    assert!(list.pointer("/problems").and_then(Value::as_array).is_some_and(|all| !all.is_empty()), "{list}");
    let shown = as_nobody(&["scan"])?.stdout;
    assert!(shown.contains("not root") && shown.contains("Permission denied"), "{shown}");
    let reap = as_nobody(&["reap", &leak.id, "--grace", "0s"])?;
    assert!(matches!(reap.code, Some(1 | 4)), "{:?} {}", reap.code, reap.stdout);
    assert!(!leak.is_gone()?);
    let doctor = as_nobody(&["doctor", "-o", "json"])?;
    assert_eq!(doctor.code, Some(7), "{}", doctor.stdout);
    assert_eq!(state_of(&checks(&doctor)?, "privileges"), ["problem"]);
    for text in [&finished.stderr, &reap.stderr, &doctor.stderr] {
        assert!(!text.contains("panicked"), "{text}");
    }
    Ok(())
}
