//! Compares what the programs read about this process with what is known to be true of it.
//!
//! A wrong offset, a time namespace or a PID namespace would make every event a lie. One program reports what
//! it reads of its loader whenever that starts a thread; it is attached for the check only.

use std::thread;
use std::{fs, io};

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use procfs::process::{Process, Stat};
use reaper_ebpf::abi::{Kind, Record};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{Level, ProbeError, load};
use crate::ident::StartTicks;

/// `linux/sched.h`
const CLONE_THREAD: i32 = 0x0001_0000;

/// What is known of the thread that starts another, and of that other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Started {
    comm: String,
    new: i32,
}

pub(super) fn run(programs: &mut Ebpf, level: Level, ring: &mut RingBuf<MapData>) -> Result<(), ProbeError> {
    let check = level.self_check();
    load::attach(programs, &check)?;
    let started = start_thread();
    load::unload(programs, &check)?;
    let started = started.map_err(|source| ProbeError::CheckFailed { step: "starting a thread", source })?;
    let reports = reports(ring);
    // Other threads of this process may start some, too.
    let own = reports
        .iter()
        .find(|report| level == Level::Classic && i64::from(report.peer) == i64::from(started.new));
    let record = own.or_else(|| reports.last()).ok_or_else(|| ProbeError::Unseen(std::process::id()))?;
    match level {
        Level::Btf => compare(record, &own_stat()?),
        Level::Classic => compare_classic(record, &started),
    }
}

fn start_thread() -> io::Result<Started> {
    let comm = fs::read_to_string("/proc/thread-self/comm")?.trim_end().to_owned();
    let own_number = || rustix::thread::gettid().as_raw_nonzero().get();
    let thread = thread::Builder::new().name("self-check".to_owned()).spawn(own_number)?;
    let new = thread.join().map_err(|_panic| io::Error::other("the thread panicked"))?;
    Ok(Started { comm, new })
}

/// Empties the ring: nothing else is attached yet.
fn reports(ring: &mut RingBuf<MapData>) -> Vec<Record> {
    let mut reports = vec![];
    while let Some(bytes) = ring.next() {
        let report = Record::read_from_bytes(&bytes).ok();
        reports.extend(report.filter(|report| report.kind == Kind::SELF_CHECK.0));
    }
    reports
}

fn own_stat() -> Result<Stat, ProbeError> {
    Process::myself().and_then(|myself| myself.stat()).map_err(|error| ProbeError::CheckFailed {
        step: "reading /proc/self/stat",
        source: io::Error::other(error),
    })
}

fn compare(read: &Record, truth: &Stat) -> Result<(), ProbeError> {
    same("the number", &i64::from(read.tgid), &i64::from(truth.pid))?;
    same("the parent", &i64::from(read.peer), &i64::from(truth.ppid))?;
    same("the start in ticks", &StartTicks::from_boot_nanos(read.aux).get(), &truth.starttime)?;
    same("the name", &comm(read), &truth.comm)?;
    same("the cgroup", &read.id, &read.aux2)?;
    same("the hierarchy of cgroup v2", &read.hierarchy, &0)?;
    // The thread that was just started counts; others may come and go meanwhile.
    same("having two threads or more", &(read.code >= 2), &true)
}

/// A classic program reads less: the process by helper, the rest from the tracepoint's record.
fn compare_classic(read: &Record, truth: &Started) -> Result<(), ProbeError> {
    same("the number", &read.tgid, &std::process::id())?;
    same("the new thread's number", &i64::from(read.peer), &i64::from(truth.new))?;
    same("the name", &comm(read), &truth.comm)?;
    same("having started a thread", &(read.code & CLONE_THREAD != 0), &true)
}

fn same<T: PartialEq + ToString>(field: &'static str, kernel: &T, truth: &T) -> Result<(), ProbeError> {
    if kernel == truth {
        return Ok(());
    }
    Err(ProbeError::Mismatch { field, kernel: kernel.to_string(), truth: truth.to_string() })
}

fn comm(record: &Record) -> String {
    let name = record.comm.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(truth: &Stat) -> Record {
        let mut comm = [0; 16];
        comm[..truth.comm.len()].copy_from_slice(truth.comm.as_bytes());
        Record {
            aux: StartTicks::from_ticks(truth.starttime).boot_nanos().saturating_add(9_999_999),
            id: 5,
            aux2: 5,
            tgid: truth.pid.try_into().unwrap(),
            peer: truth.ppid.try_into().unwrap(),
            code: 2,
            comm: zerocopy::transmute!(comm),
            ..Record::new(Kind::SELF_CHECK, 0)
        }
    }

    #[test]
    fn each_wrong_field_is_refused_by_name() {
        let truth = own_stat().unwrap();
        let right = report(&truth);
        compare(&right, &truth).unwrap();
        let wrong = [
            ("the number", Record { tgid: right.tgid + 1, ..right }),
            ("the parent", Record { peer: right.peer + 1, ..right }),
            ("the start in ticks", Record { aux: right.aux + 10_000_000, ..right }),
            ("the name", Record { comm: [0; 2], ..right }),
            ("the cgroup", Record { id: 6, ..right }),
            ("the hierarchy of cgroup v2", Record { hierarchy: 1, ..right }),
            ("having two threads or more", Record { code: 0, ..right }),
        ];
        for (expected, record) in wrong {
            match compare(&record, &truth) {
                Err(ProbeError::Mismatch { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn each_wrong_field_of_a_classic_record_is_refused_by_name() {
        let truth = start_thread().unwrap();
        let mut name = [0; 16];
        name[..truth.comm.len()].copy_from_slice(truth.comm.as_bytes());
        let right = Record {
            tgid: std::process::id(),
            peer: truth.new.try_into().unwrap(),
            code: CLONE_THREAD | 0x0f00,
            comm: zerocopy::transmute!(name),
            ..Record::new(Kind::SELF_CHECK, 0)
        };
        compare_classic(&right, &truth).unwrap();
        let wrong = [
            ("the number", Record { tgid: right.tgid.wrapping_add(1), ..right }),
            ("the new thread's number", Record { peer: right.peer.wrapping_add(1), ..right }),
            ("the name", Record { comm: [0; 2], ..right }),
            ("having started a thread", Record { code: 0x0f00, ..right }),
        ];
        for (expected, record) in wrong {
            match compare_classic(&record, &truth) {
                Err(ProbeError::Mismatch { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }
}
