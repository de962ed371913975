//! Tells the service manager how it goes (`sd_notify(3)`, `Type=notify`, `WatchdogSec=`).
//!
//! Datagrams to the socket that `NOTIFY_SOCKET` names; nothing at all without it. Sent by the task that owns the state:
//! a daemon that hangs stops answering the watchdog.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::kernel::chain;

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    /// A sign of life is expected this often.
    watchdog: Option<Duration>,
}

// === impl Manager ===

impl Manager {
    /// From the environment that the service manager gives.
    pub(super) fn from_env() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(socket = %name.display(), error = %chain(&error), "no way to the service manager");
                None
            }
        });
        let variable = |name| std::env::var(name).ok();
        let watchdog = watchdog(
            variable("WATCHDOG_USEC").as_deref(),
            variable("WATCHDOG_PID").as_deref(),
            std::process::id(),
        );
        Self { socket, watchdog }
    }

    /// How long the main loop may sleep at most: signs of life twice as often as they are expected.
    pub(super) fn longest_sleep(&self, otherwise: Duration) -> Duration {
        self.watchdog
            .and_then(|watchdog| watchdog.checked_div(2))
            .map_or(otherwise, |half| half.min(otherwise))
    }

    /// The first look is done, or the one that was asked for.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// One line for `systemctl status`.
    pub(super) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// A look was asked for.
    pub(super) fn reloading(&self) {
        self.tell("RELOADING=1");
    }

    /// The main loop turns.
    pub(super) fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell("WATCHDOG=1");
        }
    }

    /// The end.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(state.as_bytes()) {
            tracing::debug!(%error, state, "the service manager does not hear");
        }
    }
}

/// `@` begins the name of an abstract socket.
fn connect(name: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.connect_addr(&address)?;
    // A manager that hangs must not make us hang: the watchdog then says so.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Meant for a process that may be another one than this: the variables are inherited.
fn watchdog(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let ours = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let usec = usec?.parse().ok().filter(|usec| *usec > 0)?;
    ours.then(|| Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_in_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let manager = Manager {
            socket: Some(connect(path.as_os_str()).unwrap()),
            watchdog: Some(Duration::from_mins(1)),
        };
        manager.alive();
        manager.reloading();
        manager.ready();
        manager.status("all well");
        manager.stopping();
        let mut heard = vec![];
        for _ in 0..5 {
            let mut buffer = [0; 200];
            let length = receiver.recv(&mut buffer).unwrap();
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        assert_eq!(heard, ["WATCHDOG=1", "RELOADING=1", "READY=1", "STATUS=all well", "STOPPING=1"]);
    }

    #[test]
    fn without_a_manager_nothing_is_told_and_nobody_is_waited_for() {
        let manager = Manager { socket: None, watchdog: None };
        manager.ready();
        assert_eq!(manager.longest_sleep(Duration::from_secs(30)), Duration::from_secs(30));
        assert!(connect(OsStr::new("/nowhere/notify")).is_err());
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let minute = Some(Duration::from_mins(1));
        assert_eq!(watchdog(Some("60000000"), Some("7"), 7), minute);
        assert_eq!(watchdog(Some("60000000"), None, 7), minute);
        assert_eq!(watchdog(Some("60000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
        let manager = Manager { socket: None, watchdog: minute };
        assert_eq!(manager.longest_sleep(Duration::from_mins(2)), Duration::from_secs(30));
    }
}
