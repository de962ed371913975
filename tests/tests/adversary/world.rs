//! The leak of one round and everybody around it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use reaper_userspace::fact::{Controllers, MountFact};
use reaper_userspace::ident::{Lookup, ProcessKey, StartTicks};
use reaper_userspace::procfs;

use crate::bundle::Bundle;
use crate::by_hand;
use crate::process::{Fate, Processes, moment};
use crate::random::Random;
use crate::records::Records;
use crate::stage::{Stage, Tree, below, enter, enter_threaded, listed, remove_below};

const REFUGE: &[u8] = b"refuge";
const BELOW: &str = "below";
/// Names that runtimes, people and attackers give.
const NAMES: [&[u8]; 8] = [
    b"leak",
    b"3f0c9a1be2d4",
    b"cri-containerd-3f0c9a1be2d4.scope",
    b"with blank:colon",
    b"..dots",
    b"\x1b[2Jescape\r",
    b"not\xffutf8\xfe",
    &[b'x'; 255],
];

#[derive(Debug)]
pub(crate) struct World {
    stages: Vec<Stage>,
    view: usize,
    name: &'static [u8],
    pub(crate) processes: Processes,
    /// Of the leak, as long as the number is theirs.
    pub(crate) members: Vec<i32>,
    /// Those of them that fork when released.
    pub(crate) forkers: usize,
    /// The one without its main thread: moved, it would leave that behind, and still be listed.
    pub(crate) headless: Option<i32>,
    /// Signals were sent: whoever is moved away from now on may be dying.
    pub(crate) signalled: bool,
    /// Moved away before they could be held: they must live.
    pub(crate) left: Vec<i32>,
    /// Bystanders that may be anywhere in the trees.
    pub(crate) guests: Vec<i32>,
    /// Somebody else closed a freezer, before or during the act.
    pub(crate) others_froze: bool,
    /// Where the product is told that the leak is, if it is lied to.
    pub(crate) told: Option<PathBuf>,
    /// The containerd that answers.
    pub(crate) server: ProcessKey,
    pub(crate) bundle: Bundle,
    pub(crate) bundle_in_use: bool,
    pub(crate) records: Records,
    /// Ids of the roots that are to go.
    roots: Vec<(Tree, u64)>,
}

// === impl World ===

impl World {
    pub(crate) fn new(stages: Vec<Stage>) -> Result<Self> {
        Ok(Self {
            stages,
            view: 0,
            name: NAMES[0],
            processes: Processes::new()?,
            members: vec![],
            forkers: 0,
            headless: None,
            signalled: false,
            left: vec![],
            guests: vec![],
            others_froze: false,
            told: None,
            server: by_hand::server(),
            bundle: Bundle::new()?,
            bundle_in_use: false,
            records: Records::new()?,
            roots: vec![],
        })
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stages[self.view]
    }

    pub(crate) fn path(&self) -> PathBuf {
        let mut path = PathBuf::from("/");
        path.push(&self.stage().base);
        path.push(std::ffi::OsStr::from_bytes(self.name));
        path
    }

    /// Each hierarchy with the leak's directory in it.
    pub(crate) fn dirs(&self) -> Vec<(Tree, PathBuf)> {
        let stage = self.stage();
        stage.trees.iter().map(|tree| (tree.clone(), tree.dir(&stage.base, self.name))).collect()
    }

    pub(crate) fn base_dirs(&self) -> Vec<(Tree, PathBuf)> {
        let stage = self.stage();
        stage.trees.iter().map(|tree| (tree.clone(), tree.root.join(&stage.base))).collect()
    }

    /// Makes a leak: none to three processes, perhaps frozen, perhaps in a cgroup below.
    pub(crate) fn set(&mut self, random: &mut Random) -> Result<()> {
        self.processes.refill()?;
        (self.members, self.left, self.guests) = (vec![], vec![], vec![]);
        (self.others_froze, self.forkers, self.headless) = (false, 0, None);
        self.view = random.below(self.stages.len());
        self.name = random.pick(&NAMES);
        self.told = random.once_in(24).then(|| self.lie(random));
        self.server = by_hand::server();
        self.signalled = false;
        self.bundle_in_use = random.once_in(12);
        if self.bundle_in_use {
            self.bundle.set()?;
        }
        let nested = random.once_in(4);
        let threaded = nested && random.once_in(2);
        for (tree, dir) in self.dirs() {
            fs::create_dir(&dir)?;
            if nested {
                fs::create_dir(dir.join(BELOW))?;
            }
            if threaded && !tree.make_threaded(&dir.join(BELOW)) {
                bail!("cannot make a threaded cgroup");
            }
        }
        let count = random.pick(&[0, 1, 1, 2, 3]);
        for _ in 0..count {
            let pid = self.processes.take(Fate::Leaked)?;
            self.members.push(pid);
            self.put(pid, "")?;
            if nested && random.once_in(2) {
                self.put(pid, BELOW)?;
            }
        }
        if count > 0 && random.once_in(4) {
            let pid = self.processes.forker()?;
            self.forkers = 1;
            self.members.push(pid);
            self.put(pid, "")?;
        }
        if count > 0 && random.once_in(8) {
            let pid = self.processes.leader()?;
            self.members.push(pid);
            self.put(pid, "")?;
            self.processes.behead(pid)?;
            self.headless = Some(pid);
        }
        if count > 0 && random.once_in(6) {
            self.put_elsewhere(self.members[0]);
        }
        if random.once_in(2) {
            self.others_froze = self.freeze_leak(true);
        }
        self.note_roots();
        Ok(())
    }

    /// A leak of two processes, without a draw.
    pub(crate) fn set_plain(&mut self, view: usize, frozen: bool) -> Result<()> {
        self.processes.refill()?;
        (self.members, self.left, self.guests) = (vec![], vec![], vec![]);
        (self.view, self.name, self.forkers) = (view, NAMES[0], 0);
        (self.told, self.server, self.bundle_in_use) = (None, by_hand::server(), false);
        for (_, dir) in self.dirs() {
            fs::create_dir(&dir)?;
            fs::create_dir(dir.join(BELOW))?;
        }
        for below in ["", BELOW] {
            let pid = self.processes.take(Fate::Leaked)?;
            self.members.push(pid);
            self.put(pid, below)?;
        }
        self.others_froze = frozen && self.freeze_leak(true);
        self.note_roots();
        Ok(())
    }

    fn note_roots(&mut self) {
        self.roots = self
            .dirs()
            .into_iter()
            .filter_map(|(tree, dir)| Some((tree, fs::metadata(dir).ok()?.ino())))
            .collect();
    }

    /// Whether a root of the leak still is where it was.
    pub(crate) fn is_standing(&self) -> bool {
        let mut all = self.dirs().into_iter().zip(&self.roots);
        all.any(|((_, dir), (_, id))| fs::metadata(dir).is_ok_and(|metadata| metadata.ino() == *id))
    }

    pub(crate) fn is_freeze_requested(&self) -> bool {
        self.dirs().iter().any(|(tree, dir)| tree.is_freeze_requested(dir))
    }

    /// Whether no process of the leak is alive.
    pub(crate) fn is_leak_dead(&mut self) -> bool {
        let members = self.members.clone();
        members.into_iter().all(|pid| !self.processes.is_alive(pid))
    }

    fn put(&self, pid: i32, below: &str) -> Result<()> {
        for (_, dir) in self.dirs() {
            let dir = dir.join(below);
            if !enter(&dir, pid) && !enter_threaded(&dir, pid) {
                bail!("cannot move {pid} to {}", dir.display());
            }
        }
        Ok(())
    }

    /// Out of the hierarchies that neither freeze nor kill, as devices and misc of healthy containers are.
    fn put_elsewhere(&self, pid: i32) {
        let stage = self.stage();
        for tree in stage.trees.iter().filter(|tree| tree.controllers == Controllers::Other) {
            let refuge = tree.dir(&stage.base, REFUGE);
            let _there_already = fs::create_dir(&refuge);
            enter(&refuge, pid);
        }
    }

    /// A `cgroupsPath` that somebody wrote to hit something else, or to confuse.
    fn lie(&self, random: &mut Random) -> PathBuf {
        let base = &self.stage().base;
        let name = String::from_utf8_lossy(self.name);
        PathBuf::from(
            random
                .pick(&[
                    "/",
                    "",
                    "..",
                    "/BASE",
                    "/BASE/",
                    "/BASE/NAME/..",
                    "/BASE/NAME/../refuge",
                    "/BASE/../BASE/refuge/.",
                    "BASE/NAME",
                    "//BASE///NAME/",
                    "/BASE/NAME\n",
                    "/BASE/NAME:refuge",
                    "/sys/fs/cgroup/BASE/NAME",
                    "/BASE/LONG",
                    "/LONGER",
                    "/BASE/NAME/below",
                    "/BASE/refuge\0",
                    "system.slice:BASE:NAME",
                ])
                .replace("BASE", base)
                .replace("NAME", &name)
                .replace("LONGER", &"long/".repeat(900))
                .replace("LONG", &"x".repeat(4096)),
        )
    }

    pub(crate) fn restart(&mut self) -> bool {
        let start = StartTicks::from_ticks(self.server.start.get() + 1);
        self.server = ProcessKey { start, ..self.server };
        true
    }

    pub(crate) fn mounts(&self) -> Lookup<Vec<MountFact>> {
        if self.bundle_in_use { self.bundle.mounts() } else { Lookup::Found(vec![]) }
    }

    pub(crate) fn has_v1(&self) -> bool {
        self.stage().trees.iter().any(|tree| tree.controllers == Controllers::Freezer)
    }

    /// Somebody else ends one of the leaked; true once it is reaped.
    pub(crate) fn end(&mut self, pid: i32) -> bool {
        let dirs = self.dirs();
        let frozen =
            dirs.iter().any(|(tree, dir)| tree.keeps_alive(dir) || tree.keeps_alive(&dir.join(BELOW)));
        self.processes.end(pid, frozen)
    }

    /// In the hierarchy that freezes first.
    pub(crate) fn freeze_leak(&self, frozen: bool) -> bool {
        self.dirs().iter().any(|(tree, dir)| tree.freeze(dir, frozen))
    }

    /// A bystander that somebody puts into some of the leak's cgroups.
    pub(crate) fn guest(&mut self, into: &[(Tree, PathBuf)]) -> Result<bool> {
        let pid = self.processes.take(Fate::Bystander)?;
        self.guests.push(pid);
        Ok(into.iter().fold(false, |any, (_, dir)| enter(dir, pid) || any))
    }

    /// Moves a member to a cgroup beside the leak.
    pub(crate) fn move_out(&self, pid: i32) -> bool {
        let stage = self.stage();
        stage.trees.iter().fold(true, |all, tree| {
            let refuge = tree.dir(&stage.base, REFUGE);
            let _there_already = fs::create_dir(&refuge);
            enter(&refuge, pid) && all
        })
    }

    pub(crate) fn start_of(pid: i32) -> Option<u64> {
        let tgid = reaper_userspace::ident::Tgid::new(pid.into())?;
        procfs::start_of(tgid).found().map(|start| start.get())
    }

    /// What is wrong after an act that said `reaped` or not.
    pub(crate) fn judge(&mut self, reaped: bool, named: bool, failures: &mut Vec<String>) {
        self.processes.collect();
        for pid in std::mem::take(&mut self.processes.harmed) {
            failures.push(format!("bystander {pid} was killed"));
        }
        for pid in self.left.clone() {
            if !self.processes.is_alive(pid) {
                failures.push(format!("{pid} was killed outside the cgroup"));
            } else if reaped && self.told.is_none() {
                failures.push(format!("{pid} left the cgroup and is not named"));
            }
        }
        let remain: Vec<i32> =
            self.members.clone().into_iter().filter(|pid| self.processes.is_alive(*pid)).collect();
        let standing = self.is_standing();
        // Lied to, it may have acted on a part of the leak.
        if reaped && self.told.is_none() && (standing || !remain.is_empty()) {
            failures.push(format!("reaped, and yet there: cgroup {standing}, processes {remain:?}"));
        }
        if !reaped && !named {
            failures.push("not reaped, and no word why".to_owned());
        }
        if !self.others_froze && self.is_freeze_requested() {
            failures.push("a freezer is left closed".to_owned());
        }
        if self.bundle_in_use {
            self.bundle.judge(failures);
        }
    }

    /// Ends what is left of the round; bystanders go home.
    pub(crate) fn clear(&mut self) -> Result<()> {
        if self.bundle_in_use {
            self.bundle.clear()?;
        }
        let bases = self.base_dirs();
        let until = Instant::now() + Duration::from_secs(10);
        for (tree, dir) in &bases {
            thaw_below(tree, dir);
        }
        for pid in std::mem::take(&mut self.guests) {
            for (tree, _) in &bases {
                enter(&tree.root, pid);
            }
            if self.processes.is_alive(pid) {
                self.processes.give_back(pid);
            }
        }
        loop {
            for (_, dir) in &bases {
                self.processes.end_leaked(&listed_below(dir));
                for dir in below(dir) {
                    remove_below(&dir);
                }
            }
            let empty = bases.iter().all(|(_, dir)| below(dir).is_empty());
            if empty && !self.processes.leaked_left() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the round cannot be cleared");
            }
            moment();
        }
    }
}

/// What v1 froze does not die, and a PID namespace does not end before its processes.
impl Drop for World {
    fn drop(&mut self) {
        for stage in &self.stages {
            for tree in &stage.trees {
                thaw_below(tree, &tree.root.join(&stage.base));
            }
        }
    }
}

fn thaw_below(tree: &Tree, dir: &std::path::Path) {
    tree.freeze(dir, false);
    for dir in below(dir) {
        thaw_below(tree, &dir);
    }
}

fn listed_below(dir: &std::path::Path) -> Vec<i32> {
    let mut all = listed(dir);
    for dir in below(dir) {
        all.extend(listed_below(&dir));
    }
    all
}
