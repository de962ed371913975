//! A cgroup that looks leaked in every hierarchy of a view, real processes in it, and the way from facts to an act.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use reaper_tests::{CgroupView, Cgroups, Incarnation, Node, wait_for, wait_until};
use reaper_userspace::audit::Journal;
use reaper_userspace::cgroupfs::Layout;
use reaper_userspace::daemon::clock;
use reaper_userspace::fact::MountFact;
use reaper_userspace::ident::{CgroupPath, Lookup};
use reaper_userspace::plan::ReapPlan;
use reaper_userspace::reap::{Armed, Refused, Report, Timing};
use reaper_userspace::verdict::LeakProof;

use crate::by_hand::{self, ByHand};

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The leak `/NODE/leak`; it and its processes end with the test.
pub(crate) struct Leaked {
    pub(crate) node: Node,
    pub(crate) path: String,
    pub(crate) mounts: Vec<MountFact>,
    layout: Arc<Layout>,
    children: Vec<Child>,
}

impl Leaked {
    /// `None` where the machine cannot show the view.
    pub(crate) fn new(view: CgroupView) -> Option<Self> {
        if !view.is_available().unwrap() {
            assert!(Node::new(view).is_err(), "{view:?}");
            return None;
        }
        let node = Node::new(view).unwrap();
        let layout = Arc::new(Layout::discover(&[node.cgroup_root().to_owned()]).unwrap());
        let path = format!("/{}/leak", node.name());
        node.cgroups().enter(&path, &BTreeSet::new()).unwrap();
        Some(Self { node, path, mounts: vec![], layout, children: vec![] })
    }

    pub(crate) fn cgroups(&self) -> &Cgroups {
        self.node.cgroups()
    }

    /// Starts a process outside of the leak.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> Incarnation {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Incarnation::of(child.id()).unwrap().unwrap();
        self.children.push(child);
        process
    }

    pub(crate) fn sleeper(&mut self) -> Incarnation {
        self.spawn(Command::new("sleep").arg("1000"))
    }

    /// Moves a process into the leak, or below it.
    pub(crate) fn enter(&self, below: &str, process: Incarnation) {
        let path = format!("{}{below}", self.path);
        self.cgroups().enter(&path, &BTreeSet::from([process])).unwrap();
    }

    pub(crate) fn member(&mut self) -> Incarnation {
        let process = self.sleeper();
        self.enter("", process);
        process
    }

    /// Writes a line to a process that was started here.
    pub(crate) fn tell(&mut self, process: Incarnation) {
        let child = self.children.iter_mut().find(|child| child.id() == process.pid).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Ends a process that was started here, zombie and all: its number is free.
    pub(crate) fn end(&mut self, process: Incarnation) {
        let index = self.children.iter().position(|child| child.id() == process.pid).unwrap();
        let mut child = self.children.swap_remove(index);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Freezes a cgroup of the freezing hierarchy, by its path from the root.
    pub(crate) fn freeze(&self, path: &str) {
        let (file, value) = match self.node.view() {
            CgroupView::V1 => ("freezer.state", "FROZEN"),
            CgroupView::V2 => ("cgroup.freeze", "1"),
        };
        let dir = self.cgroups().freezer().unwrap().dir(path);
        std::fs::write(dir.join(file), value).unwrap();
        wait_until("a frozen cgroup", SOON, || self.cgroups().is_frozen(path)).unwrap();
    }

    /// Removes the leak's empty cgroups and makes others in their place.
    pub(crate) fn replace(&self) {
        for dir in self.cgroups().dirs(&self.path) {
            wait_until("rmdir", SOON, || Ok(std::fs::remove_dir(&dir).is_ok())).unwrap();
        }
        self.cgroups().enter(&self.path, &BTreeSet::new()).unwrap();
    }

    /// What forks without pause may look different in each hierarchy: looks until they agree.
    pub(crate) fn proof(&self) -> LeakProof {
        wait_for("a proof", SOON, || Ok(self.try_proof().ok()))
            .unwrap_or_else(|_| panic!("{:#?}", self.try_proof()))
    }

    /// One look.
    pub(crate) fn try_proof(&self) -> Result<LeakProof, String> {
        let cgroup = CgroupPath::try_from(self.path.as_str()).unwrap();
        let (layout, mounts) = (self.layout.as_ref(), self.mounts.clone());
        ByHand { layout, cgroup, mounts, server: by_hand::server() }.prove()
    }

    /// The leak's directories in hierarchies that neither freeze nor kill; none on v2.
    pub(crate) fn others(&self) -> Vec<PathBuf> {
        let all = self.cgroups().hierarchies().iter();
        all.filter(|one| !one.unified && !one.is_freezer()).map(|one| one.dir(&self.path)).collect()
    }

    pub(crate) fn arm(&self, proof: LeakProof) -> Result<Armed, Refused> {
        Armed::open(ReapPlan::new(proof), Arc::clone(&self.layout))
    }

    /// Acts on what is held, as proven at this moment.
    pub(crate) fn fire(&self, armed: Armed, fresh: &LeakProof) -> Result<Report, Refused> {
        self.fire_by(armed, fresh, || Timing::start(clock::boot))
    }

    pub(crate) fn fire_by(
        &self,
        armed: Armed,
        fresh: &LeakProof,
        timing: impl FnOnce() -> Timing,
    ) -> Result<Report, Refused> {
        let log = self.node.dir().join("audit.jsonl");
        let (mut journal, _open) = Journal::open(&log, by_hand::node(), clock::stamp()).unwrap();
        let body = by_hand::intent_body(fresh);
        let intent = journal.intent(clock::stamp(), "leak".to_owned(), body).unwrap();
        armed.fire(fresh, &intent, timing())
    }

    /// The whole act, undisturbed.
    pub(crate) fn reap(&self) -> Report {
        let armed = self.arm(self.proof()).unwrap();
        self.fire(armed, &self.proof()).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_gone(&self, report: &Report) {
        assert_eq!(report.outcome(), reaper_userspace::audit::Outcome::Reaped, "{report:#?}");
        assert_eq!(self.cgroups().dirs(&self.path), Vec::<PathBuf>::new(), "{report:#?}");
        assert!(report.bystanders.is_empty(), "{report:#?}");
    }
}

impl Drop for Leaked {
    fn drop(&mut self) {
        // First the signals: one without its main thread is no member that the removal finds. Then the thaw.
        for child in &mut self.children {
            let _dead_already = child.kill();
        }
        let removed = self.node.cgroups().remove(self.node.name());
        for mut child in self.children.drain(..) {
            child.wait().unwrap();
        }
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

#[track_caller]
pub(crate) fn found<T>(answer: Lookup<T>) -> T {
    match answer {
        Lookup::Found(value) => value,
        Lookup::NotFound => panic!("not found"),
        Lookup::Unavailable(reason) => panic!("{reason}"),
    }
}
