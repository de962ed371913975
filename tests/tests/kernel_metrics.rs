//! The metrics page against Prometheus' own checker.
#![expect(clippy::tests_outside_test_module, reason = "the whole file is a test")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use reaper_userspace::metrics::{BuildInfo, Metrics};

#[test]
fn promtool_finds_nothing_to_say_about_the_page() {
    let metrics = Metrics::new(BuildInfo { version: "0.1.0", revision: "none", rustc: "1.95.0" }).unwrap();
    let page = metrics.render().unwrap();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, of the package prometheus, is installed");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}\n{page}", output.status);
}
