//! Loading and attaching.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use aya::maps::{Map, MapError, RingBuf};
use aya::programs::{BtfTracePoint, Program, ProgramError, TracePoint};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use reaper_ebpf::abi::name;

use super::{
    Guard, GuardError, Level, Loaded, Probe, ProbeError, Rings, btf, check, filter, format, guard, ring,
};
use crate::kernel::return_memory;

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Vendor kernels have 4 to 10 MiB.
const MAX_BTF_BYTES: u64 = 64 << 20;

/// The verifier's log can have millions of lines; the reason is at its end.
const LOG_LINES: usize = 12;

pub(super) fn load(object: &[u8], level: Level) -> Result<Loaded, ProbeError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(ProbeError::Runtime);
    }
    let (mut programs, guard) = match level {
        Level::Btf => load_typed(object)?,
        Level::Classic => (load_classic(object)?, Err(GuardError::NoTypes)),
    };
    // glibc would keep some 20 MB for later, and there is no later.
    return_memory();
    let mut processes: RingBuf<_> = take(&mut programs, name::PROCESS_RING)?;
    check::run(&mut programs, level, &mut processes)?;
    let undecodable = Arc::default();
    let ring = |name, ring| ring::Ring::new(name, ring, Arc::clone(&undecodable));
    let rings = Rings {
        cgroups: ring(name::CGROUP_RING, take(&mut programs, name::CGROUP_RING)?)?,
        processes: ring(name::PROCESS_RING, processes)?,
    };
    let mut probe = Probe {
        level,
        tracked: take(&mut programs, name::TRACKED)?,
        watch: take(&mut programs, name::WATCH)?,
        filter: filter::Filter::new(take(&mut programs, name::FILTER)?),
        lost: take(&mut programs, name::LOST)?,
        programs,
        guard,
        undecodable,
    };
    for program in level.programs() {
        attach(&mut probe.programs, program)?;
    }
    Ok((probe, rings))
}

/// No CO-RE relocations in the object: the loader's own copy of the kernel's types is dropped.
fn loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    loader
}

/// Types of the kernel need 15 MB while parsed: they live no longer than this function.
fn load_typed(object: &[u8]) -> Result<(Ebpf, Result<Guard, GuardError>), ProbeError> {
    let bytes = read_btf().map_err(|source| ProbeError::ReadBtf { path: KERNEL_BTF, source })?;
    let offsets = btf::offsets(&bytes)?;
    let offsets = offsets.iter().map(|(field, offset)| (field.global, *offset)).collect::<Vec<_>>();
    let mut programs = open(object, &offsets)?;
    let types = Btf::parse(&bytes, Endianness::default()).map_err(ProbeError::ParseBtf)?;
    drop(bytes);
    each(&mut programs, Level::Btf, |program, at| {
        <&mut BtfTracePoint>::try_from(program)?.load(at.tracepoint, &types)
    })?;
    let guard = guard::attach(&mut programs, &types);
    Ok((programs, guard))
}

fn load_classic(object: &[u8]) -> Result<Ebpf, ProbeError> {
    let mut programs = open(object, &format::offsets()?)?;
    each(&mut programs, Level::Classic, |program, _| <&mut TracePoint>::try_from(program)?.load())?;
    Ok(programs)
}

/// Parses the object, sets its globals and makes its maps.
fn open(object: &[u8], offsets: &[(&'static str, u16)]) -> Result<Ebpf, ProbeError> {
    let mut loader = loader();
    for (global, offset) in offsets {
        loader.override_global(global, offset, true);
    }
    let this_process = u64::from(std::process::id());
    loader.override_global(name::SELF_TGID, &this_process, true);
    loader.load(object).map_err(|source| ProbeError::Object(Box::new(source)))
}

fn read_btf() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(KERNEL_BTF)?.take(MAX_BTF_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Shows the programs of a level to the kernel's verifier.
fn each(
    programs: &mut Ebpf,
    level: Level,
    load: impl Fn(&mut Program, &name::Program) -> Result<(), ProgramError>,
) -> Result<(), ProbeError> {
    for wanted in std::iter::once(&level.self_check()).chain(level.programs()) {
        let program = wanted.name;
        match load(self::program(programs, program)?, wanted) {
            Ok(()) => {}
            Err(ProgramError::LoadError { io_error, verifier_log }) => {
                let log = last_lines(&verifier_log.to_string());
                return Err(ProbeError::Refused { program, log, source: io_error });
            }
            Err(source) => return Err(ProbeError::Load { program, source: Box::new(source) }),
        }
    }
    Ok(())
}

pub(super) fn attach(programs: &mut Ebpf, wanted: &name::Program) -> Result<(), ProbeError> {
    let &name::Program { name: program, category, tracepoint } = wanted;
    let found = self::program(programs, program)?;
    let attached = if let Program::BtfTracePoint(typed) = found {
        typed.attach().map(drop)
    } else {
        <&mut TracePoint>::try_from(found).and_then(|classic| classic.attach(category, tracepoint).map(drop))
    };
    attached.map_err(|source| ProbeError::Attach { program, source: Box::new(source) })
}

/// Detaches as well.
pub(super) fn unload(programs: &mut Ebpf, wanted: &name::Program) -> Result<(), ProbeError> {
    let program = wanted.name;
    let found = self::program(programs, program)?;
    let unloaded = if let Program::BtfTracePoint(typed) = found {
        typed.unload()
    } else {
        <&mut TracePoint>::try_from(found).and_then(TracePoint::unload)
    };
    unloaded.map_err(|source| ProbeError::Attach { program, source: Box::new(source) })
}

fn program<'a>(programs: &'a mut Ebpf, program: &'static str) -> Result<&'a mut Program, ProbeError> {
    programs.program_mut(program).ok_or(ProbeError::Program { program })
}

/// A map, by name and as the type it is used as.
fn take<T: TryFrom<Map, Error = MapError>>(programs: &mut Ebpf, map: &'static str) -> Result<T, ProbeError> {
    let found = programs.take_map(map).ok_or(ProbeError::Map { map, source: None })?;
    T::try_from(found).map_err(|source| ProbeError::Map { map, source: Some(source) })
}

fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(LOG_LINES).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_verifiers_log_the_end_is_kept() {
        let log = (0..100).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n");
        let kept = last_lines(&log);
        assert_eq!(kept.lines().count(), LOG_LINES);
        assert!(kept.ends_with("line 99"), "{kept}");
        assert_eq!(last_lines(""), "");
    }
}
