//! Whether the daemon lives, and whether all it rests on works.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::time::BootTime;

/// The daemon's state, shared between the daemon, which sets it, and the server, which shows it.
#[derive(Clone)]
pub struct Health {
    state: Arc<Mutex<State>>,
    now: Arc<dyn Fn() -> BootTime + Send + Sync>,
    limit: Duration,
}

#[derive(Debug)]
struct State {
    beat: BootTime,
    components: BTreeMap<&'static str, Component>,
}

#[derive(Clone, Debug)]
enum Component {
    Starting,
    Ok,
    Noted(String),
    Failed(String),
}

/// Whether the daemon's main loop still turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Live,
    /// Its last heartbeat is this old.
    Stuck(Duration),
}

/// Whether all components work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Each component with the reason why it does not work, if it does not; in order of name.
    pub components: Vec<(&'static str, Option<String>)>,
    /// What there is to say about components that work.
    pub notes: BTreeMap<&'static str, String>,
}

// === impl Health ===

impl Health {
    /// All components start out as not ready; the time of this call counts as the first heartbeat. The daemon
    /// counts as stuck when its last heartbeat is older than `limit`.
    pub fn new(
        components: impl IntoIterator<Item = &'static str>,
        now: Arc<dyn Fn() -> BootTime + Send + Sync>,
        limit: Duration,
    ) -> Self {
        let components = components.into_iter().map(|name| (name, Component::Starting)).collect();
        let state = Arc::new(Mutex::new(State { beat: now(), components }));
        Self { state, now, limit }
    }

    /// The main loop turned.
    pub fn beat(&self) {
        let now = (self.now)();
        self.with(|state| state.beat = now);
    }

    /// A component works.
    pub fn ok(&self, component: &'static str) {
        self.with(|state| state.components.insert(component, Component::Ok));
    }

    /// A component works, and there is something to say about it.
    pub fn noted(&self, component: &'static str, note: &str) {
        self.with(|state| state.components.insert(component, Component::Noted(one_line(note))));
    }

    /// A component does not work; the reason is for people.
    pub fn failed(&self, component: &'static str, reason: &str) {
        self.with(|state| state.components.insert(component, Component::Failed(one_line(reason))));
    }

    /// Whether the main loop still turns.
    pub fn liveness(&self) -> Liveness {
        let now = (self.now)();
        let age = self.with(|state| now.since(state.beat));
        if age > self.limit { Liveness::Stuck(age) } else { Liveness::Live }
    }

    /// Whether all components work.
    pub fn readiness(&self) -> Readiness {
        let reason = |component: &Component| match component {
            Component::Ok | Component::Noted(_) => None,
            Component::Starting => Some("not started yet".to_owned()),
            Component::Failed(reason) => Some(reason.clone()),
        };
        let note = |component: &Component| match component {
            Component::Noted(note) => Some(note.clone()),
            Component::Ok | Component::Starting | Component::Failed(_) => None,
        };
        self.with(|state| {
            let all = || state.components.iter().map(|(name, component)| (*name, component));
            Readiness {
                components: all().map(|(name, component)| (name, reason(component))).collect(),
                notes: all().filter_map(|(name, component)| Some((name, note(component)?))).collect(),
            }
        })
    }

    /// A poisoned lock holds a state that is as good as any: each change is a single assignment.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("state", &self.state)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

// === impl Readiness ===

impl Readiness {
    /// True if all work.
    pub fn is_ready(&self) -> bool {
        self.components.iter().all(|(_, reason)| reason.is_none())
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, reason) in &self.components {
            match (reason, self.notes.get(name)) {
                (None, None) => writeln!(f, "[+]{name} ok")?,
                (None, Some(note)) => writeln!(f, "[+]{name} ok: {note}")?,
                (Some(reason), _) => writeln!(f, "[-]{name} failed: {reason}")?,
            }
        }
        writeln!(f, "readyz check {}", if self.is_ready() { "passed" } else { "failed" })
    }
}

/// One component, one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn health(clock: &Arc<AtomicU64>) -> Health {
        let clock = Arc::clone(clock);
        let now = move || BootTime::from_nanos(clock.load(Ordering::Relaxed));
        Health::new(["ebpf", "containerd"], Arc::new(now), Duration::from_secs(10))
    }

    #[test]
    fn a_loop_that_does_not_turn_is_stuck() {
        let clock = Arc::new(AtomicU64::new(5_000_000_000));
        let health = health(&clock);
        assert_eq!(health.liveness(), Liveness::Live);
        clock.store(15_000_000_000, Ordering::Relaxed);
        assert_eq!(health.liveness(), Liveness::Live);
        clock.store(16_000_000_000, Ordering::Relaxed);
        assert_eq!(health.liveness(), Liveness::Stuck(Duration::from_secs(11)));
        health.beat();
        assert_eq!(health.liveness(), Liveness::Live);
    }

    #[test]
    fn nothing_is_ready_before_it_said_so() {
        let health = health(&Arc::default());
        assert!(!health.readiness().is_ready());
        health.ok("ebpf");
        health.failed("containerd", "no socket\n[+]forged ok");
        let shown = health.readiness().to_string();
        assert_eq!(shown, "[-]containerd failed: no socket [+]forged ok\n[+]ebpf ok\nreadyz check failed\n");
        health.noted("containerd", "paused:\nupdate");
        assert!(health.readiness().is_ready());
        assert!(health.readiness().to_string().starts_with("[+]containerd ok: paused: update\n"));
    }
}
