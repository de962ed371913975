//! What is done to a leak while it is reaped.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use reaper_userspace::reap::hook::Point;

use crate::random::Random;
use crate::stage::{enter, remove_below};
use crate::world::World;

/// One kind of trouble. Each says whether it could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A member dies and a bystander gets its number, outside or inside.
    ReusedNumber,
    /// The cgroups are removed and made again, with a living process in them.
    Recreated,
    /// A container is started again: its process enters every hierarchy.
    Successor,
    /// A process is moved into one hierarchy.
    MovedIn,
    /// A process is put into a new cgroup below.
    NewChild,
    /// A member is moved away.
    MovedOut,
    /// A member forks.
    Forks,
    /// Somebody freezes the leak.
    Frozen,
    /// Somebody freezes what the leak is in.
    FrozenAbove,
    /// Somebody thaws the leak.
    Thawed,
    /// A v1 cgroup gets another name.
    Renamed,
    /// Somebody else ends the processes and removes the cgroups.
    Vanished,
    /// The same, and an empty one has the name.
    EmptySuccessor,
    /// Another containerd serves the socket.
    Restarted,
    /// The bundle is a symbolic link to somebody else's.
    SwappedBundle,
    /// Something is mounted over the rootfs.
    CoveredRootfs,
}

// === impl Trouble ===

impl Trouble {
    pub(crate) const ALL: [Self; 16] = [
        Self::ReusedNumber,
        Self::Recreated,
        Self::Successor,
        Self::MovedIn,
        Self::NewChild,
        Self::MovedOut,
        Self::Forks,
        Self::Frozen,
        Self::FrozenAbove,
        Self::Thawed,
        Self::Renamed,
        Self::Vanished,
        Self::EmptySuccessor,
        Self::Restarted,
        Self::SwappedBundle,
        Self::CoveredRootfs,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::ReusedNumber => "reused_number",
            Self::Recreated => "recreated",
            Self::Successor => "successor",
            Self::MovedIn => "moved_in",
            Self::NewChild => "new_child",
            Self::MovedOut => "moved_out",
            Self::Forks => "forks",
            Self::Frozen => "frozen",
            Self::FrozenAbove => "frozen_above",
            Self::Thawed => "thawed",
            Self::Renamed => "renamed",
            Self::Vanished => "vanished",
            Self::EmptySuccessor => "empty_successor",
            Self::Restarted => "restarted",
            Self::SwappedBundle => "swapped_bundle",
            Self::CoveredRootfs => "covered_rootfs",
        }
    }

    pub(crate) fn make(self, world: &mut World, random: &mut Random, point: Point) -> Result<bool> {
        match self {
            Self::ReusedNumber => reuse_number(world, random),
            Self::Recreated => {
                if !succeed(world)? {
                    return Ok(false);
                }
                world.guest(&world.dirs())
            }
            Self::Successor => world.guest(&world.dirs()),
            Self::MovedIn => {
                let dirs = world.dirs();
                let one = random.below(dirs.len());
                world.guest(&dirs[one..=one])
            }
            Self::NewChild => {
                let made: Vec<_> = world
                    .dirs()
                    .into_iter()
                    .map(|(tree, dir)| (tree, dir.join("new")))
                    .filter(|(_, dir)| fs::create_dir(dir).is_ok())
                    .collect();
                world.guest(&made)
            }
            Self::MovedOut => Ok(move_out(world, random, point)),
            Self::Forks => {
                let any = world.forkers > 0;
                world.forkers = 0;
                if any {
                    world.processes.release()?;
                }
                Ok(any)
            }
            Self::Frozen => {
                world.others_froze = true;
                Ok(world.freeze_leak(true))
            }
            Self::FrozenAbove => {
                world.others_froze = true;
                Ok(world.base_dirs().iter().any(|(tree, dir)| tree.freeze(dir, true)))
            }
            Self::Thawed => Ok(world.freeze_leak(false)),
            Self::Renamed => Ok(world.dirs().iter().any(|(_, dir)| {
                let other = dir.with_file_name(OsStr::from_bytes(b"other name"));
                fs::rename(dir, other).is_ok()
            })),
            Self::Vanished => Ok(vanish(world)),
            Self::EmptySuccessor => succeed(world),
            Self::Restarted => Ok(world.restart()),
            Self::SwappedBundle => Ok(world.bundle_in_use && world.bundle.swap()),
            Self::CoveredRootfs => Ok(world.bundle_in_use && world.bundle.cover()),
        }
    }
}

fn reuse_number(world: &mut World, random: &mut Random) -> Result<bool> {
    if world.members.is_empty() {
        return Ok(false);
    }
    let pid = random.pick(&world.members);
    let Some(born) = World::start_of(pid) else { return Ok(false) };
    if !world.end(pid) {
        return Ok(false);
    }
    world.members.retain(|member| *member != pid);
    let Some(new) = world.processes.with_number(pid)? else { return Ok(false) };
    world.guests.push(new);
    // Within one clock tick the two cannot be told apart by their start, and on a node no number comes back so soon.
    if World::start_of(new) == Some(born) {
        return Ok(false);
    }
    if random.once_in(2) {
        for (_, dir) in world.dirs() {
            enter(&dir, new);
        }
    }
    Ok(true)
}

/// The cgroups are others now, with the same names.
fn succeed(world: &mut World) -> Result<bool> {
    if !vanish(world) {
        return Ok(false);
    }
    for (_, dir) in world.dirs() {
        fs::create_dir(dir)?;
    }
    Ok(true)
}

/// Ends the members and removes the cgroups, as a runtime's own delete does. Not where v1 keeps a member frozen.
fn vanish(world: &mut World) -> bool {
    let members = std::mem::take(&mut world.members);
    world.members = members.into_iter().filter(|pid| !world.end(*pid)).collect();
    world.dirs().iter().fold(true, |all, (_, dir)| {
        remove_below(dir);
        !dir.exists() && all
    })
}

fn move_out(world: &mut World, random: &mut Random, point: Point) -> bool {
    if world.members.is_empty() {
        return false;
    }
    let pid = random.pick(&world.members);
    if world.headless == Some(pid) || !world.processes.is_unharmed(pid) || !world.move_out(pid) {
        return false;
    }
    // Held and proven a member, it may be killed wherever it is by then: it is what was judged.
    if point < Point::Relisted && !world.signalled {
        world.members.retain(|member| *member != pid);
        world.left.push(pid);
    }
    true
}
