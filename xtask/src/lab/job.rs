//! What a node is given to do, and the unit in the node that does it.
//!
//! The job is a tar archive on the second disk; its output is the second serial port. Both need no driver beyond the
//! disk's own, on any kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::disk::quietly;

/// Starts the line with which the job begins.
pub(super) const BEGIN: &str = "%lab-begin";
/// Starts the line with the exit code, after which nothing follows.
pub(super) const END: &str = "%lab-end ";

/// The only thing of the lab on a node's disk: everything else comes with the job.
pub(super) const UNIT: &str = "[Unit]
Description=Job of the lab
After=containerd.service dbus.service
Wants=containerd.service

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'mkdir -p /lab && cd /lab && tar -xf /dev/vdb && exec sh ./start'

[Install]
WantedBy=multi-user.target
";

/// `stty`: a serial port starts as a terminal that changes what it is given.
const START: &str = "export PATH=/lab:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
if [ -e shell ]; then
    TERM=linux setsid -c bash -i </dev/ttyS0 >/dev/ttyS0 2>&1
    exec systemctl poweroff --force --force
fi
stty -F /dev/ttyS1 raw
{
    echo %lab-begin
    sh ./command </dev/null 2>&1
    printf '\\n%%lab-end %d\\n' $?
} >/dev/ttyS1
";

/// Files and a command.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Copied into the node's `/lab`, where the command runs.
    pub(super) files: Vec<PathBuf>,
    /// Program and arguments; none for a shell at the console.
    pub(super) command: Vec<String>,
}

// === impl Job ===

impl Job {
    /// Makes the archive in an empty directory.
    #[expect(clippy::disallowed_methods, reason = "files of the lab's own")]
    pub(super) fn pack(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let content = dir.join("job");
        fs::create_dir(&content)?;
        for file in &self.files {
            let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
            fs::copy(file, content.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
        fs::write(content.join("start"), START)?;
        if self.command.is_empty() {
            fs::write(content.join("shell"), "")?;
        } else {
            fs::write(content.join("command"), format!("exec {}\n", quoted(&self.command)))?;
        }
        let archive = dir.join("job.tar");
        quietly(
            Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&content).arg("."),
            &dir.join("tar.log"),
        )?;
        Ok(archive)
    }
}

/// Words as a shell reads them back.
fn quoted(words: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words_back() {
        let words = ["printf", "%s|", "a b", "it's", "$HOME", ""].map(str::to_owned);
        let said = Command::new("sh").arg("-c").arg(quoted(&words)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "a b|it's|$HOME||");
    }

    #[test]
    fn the_script_prints_the_lines_that_are_waited_for() {
        assert!(START.contains(&format!("echo {BEGIN}\n")));
        assert!(START.contains(&format!("'\\n%{END}%d\\n'")));
    }
}
