//! What stays in memory of the daemon that watches many real cgroups.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::place::Place;
use crate::summary::Summary;

const CGROUPS: usize = 200;
const NAMESPACE: &str = "bench";
/// MiB.
const TARGET: f64 = 10.0;

/// A program that is ended with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already: then there is nothing to end.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) fn run(product: &Path, summary: &mut Summary) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = Place::new("memory")?;
    let mut cgroups = vec![];
    let mut sleepers = vec![];
    for number in 0..CGROUPS {
        let cgroup = place.child(&format!("c{number}"))?;
        let sleeper = Running(Command::new("sleep").arg("1000").spawn()?);
        cgroup.add(sleeper.0.id())?;
        bundle(directory.path(), &format!("c{number}"), &format!("/{}/c{number}", place.name()))?;
        sleepers.push(sleeper);
        cgroups.push(cgroup);
    }
    let daemon = start(product, directory.path())?;
    // The first look, and two periodic ones.
    std::thread::sleep(Duration::from_secs(8));
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id()))?;
    let tracked = tracked(&directory.path().join("state/state.json"))?;
    ensure!(tracked >= CGROUPS, "only {tracked} cgroups known to the daemon");
    let fields = ["VmRSS:", "RssAnon:", "RssFile:", "RssShmem:", "VmHWM:"];
    let [resident, own, binary, rings, peak] = fields.map(|field| mebibytes(&status, field));
    let (resident, own, binary, rings, peak) = (resident?, own?, binary?, rings?, peak?);
    println!(
        "memory of the daemon with {tracked} cgroups of as many containers: {resident:.1} MiB resident: {own:.1} MiB \
         its own, {binary:.1} MiB of the binary and of BPF maps, {rings:.1} MiB shared; {peak:.1} MiB at most since its \
         start"
    );
    summary.judge(format!("resident with {tracked} cgroups"), resident, "MiB", TARGET);
    summary.tell("  at most since the start", peak, "MiB");
    drop(daemon);
    drop(sleepers);
    drop(cgroups);
    Ok(())
}

fn start(product: &Path, directory: &Path) -> Result<Running> {
    let log = fs::File::create(directory.join("log"))?;
    let child = Command::new(product)
        .args(["run", "--probes", "btf", "--interval", "2s", "--metrics-listen", "127.0.0.1:0"])
        .args(["--containerd-address", "/nonexistent/containerd.sock"])
        .arg("--containerd-state")
        .arg(directory)
        .arg("--state-dir")
        .arg(directory.join("state"))
        .arg("--audit-log")
        .arg(directory.join("audit.jsonl"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {}", product.display()))?;
    Ok(Running(child))
}

/// A bundle as containerd writes it, as far as it matters.
fn bundle(state: &Path, id: &str, cgroup: &str) -> Result<()> {
    let bundle = state.join("io.containerd.runtime.v2.task").join(NAMESPACE).join(id);
    fs::create_dir_all(&bundle)?;
    let config = serde_json::json!({ "ociVersion": "1.0.2", "linux": { "cgroupsPath": cgroup } });
    fs::write(bundle.join("config.json"), config.to_string())?;
    fs::write(bundle.join("options.json"), "{}")?;
    Ok(())
}

/// How many containers the daemon remembers.
fn tracked(state: &Path) -> Result<usize> {
    let state: serde_json::Value = serde_json::from_slice(&fs::read(state)?)?;
    Ok(state.get("seen").and_then(|seen| seen.as_array()).map_or(0, Vec::len))
}

fn mebibytes(status: &str, field: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(f64::from(kib) / 1024.0)
}
