//! Reads events on a thread of its own, so that none waits for a look: what a process was told can be read only while it
//! lives, and a runtime's command lives for milliseconds.
//!
//! # Invariants
//! - At most [`LIMIT`] events are kept for a daemon that does not take them. Then the rings fill, which is counted and
//!   healed by a full look.

use std::sync::mpsc as blocking;
use std::thread;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::clock;
use super::follow::claim;
use crate::event::{Event, Occurrence};
use crate::ident::{StartTicks, Tgid};
use crate::kernel::chain;
use crate::lineage::{Claim, is_command};
use crate::probe::{Failed, Level, Probe, ProbeError, Rings};
use crate::procfs;
use crate::reap;
use crate::time::BootTime;

/// More than both rings hold.
const LIMIT: usize = 8_192;

/// An event, and what was found out at once.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// The event; of a process that is still there, with its identity.
    pub(super) event: Event,
    /// When it was read.
    pub(super) at: BootTime,
    /// What a process said about itself directly after its exec.
    pub(super) claim: Option<Box<Claim>>,
}

/// All events since the last batch, in order.
pub(super) type Batch = Result<Vec<Heard>, ProbeError>;

/// Probes, and their events from a thread of its own.
pub(super) type Listening = (Probe, Receiver<Batch>);

/// Loads the first level that works and begins to listen. Loading runs on the new thread too, as the rings belong to it
/// from then on. It ends when the receiver is dropped.
pub(super) fn listen(
    levels: &'static [Level],
    object: &'static [u8],
) -> anyhow::Result<(Option<Listening>, Failed)> {
    let (tell, told) = blocking::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let listen = move || {
        runtime.block_on(async {
            let (mut loaded, failed) = Probe::first_of(levels, object);
            guard_removals(loaded.as_mut().map(|(probe, _)| probe));
            let (sender, receiver) = channel(1);
            let (probe, rings) = loaded.unzip();
            // Nobody waits any more: then there is nobody to read for either.
            let waited = tell.send((probe.map(|probe| (probe, receiver)), failed)).is_ok();
            if let (Some(rings), true) = (rings, waited) {
                read(rings, &sender).await;
            }
        });
    };
    thread::Builder::new().name("events".to_owned()).spawn(listen)?;
    Ok(told.recv()?)
}

/// The guard is one more safety and no condition.
fn guard_removals(probe: Option<&mut Probe>) {
    let Some(probe) = probe else { return };
    match probe.take_guard() {
        Ok(guard) => {
            tracing::info!("removals are guarded by the kernel");
            reap::guard::install(Some(guard));
        }
        Err(error) => tracing::debug!(reason = chain(&error), "removals are not guarded by the kernel"),
    }
}

async fn read(mut rings: Rings, sender: &Sender<Batch>) {
    let mut kept: Vec<Heard> = vec![];
    loop {
        tokio::select! {
            biased;
            () = sender.closed() => return,
            events = rings.next_batch(), if kept.len() < LIMIT => match events {
                Ok(events) => kept.extend(events.into_iter().map(hear)),
                Err(error) => {
                    // Whether anybody takes it or not, this is the end.
                    let _nobody_listens = sender.send(Err(error)).await.is_err();
                    return;
                }
            },
            room = sender.reserve(), if !kept.is_empty() => match room {
                Ok(room) => room.send(Ok(std::mem::take(&mut kept))),
                Err(_closed) => return,
            },
        }
    }
}

fn hear(event: Event) -> Heard {
    let event = event.identified(start_of);
    let claim = match event.what {
        Occurrence::Execed { process, comm, .. } if is_command(comm) => claim(process).map(Box::new),
        Occurrence::Forked { .. }
        | Occurrence::Execed { .. }
        | Occurrence::Exited { .. }
        | Occurrence::Killed { .. }
        | Occurrence::Unidentified { .. }
        | Occurrence::CgroupMade { .. }
        | Occurrence::CgroupRemoved { .. }
        | Occurrence::CgroupPopulated { .. }
        | Occurrence::CgroupFrozen { .. } => None,
    };
    Heard { event, at: clock::boot(), claim }
}

fn start_of(tgid: Tgid) -> Option<StartTicks> {
    procfs::start_of(tgid).found().copied()
}
