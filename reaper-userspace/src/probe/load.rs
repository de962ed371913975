//! Loading and attaching.

use std::fs::File;
use std::io::{self, Read as _};

use aya::maps::{Map, MapError, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use reaper_ebpf::abi::name;

use super::{Probe, ProbeError, btf, check, filter, ring};
use crate::kernel::return_memory;

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Vendor kernels have 4 to 10 MiB.
const MAX_BTF_BYTES: u64 = 64 << 20;

/// The verifier's log can have millions of lines; the reason is at its end.
const LOG_LINES: usize = 12;

pub(super) fn load(object: &[u8]) -> Result<Probe, ProbeError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(ProbeError::Runtime);
    }
    let mut programs = load_programs(object)?;
    // glibc would keep some 20 MB for later, and there is no later.
    return_memory();
    let mut processes: RingBuf<_> = take(&mut programs, name::PROCESS_RING)?;
    check::run(&mut programs, &mut processes)?;
    let probe = Probe {
        tracked: take(&mut programs, name::TRACKED)?,
        watch: take(&mut programs, name::WATCH)?,
        filter: filter::Filter::new(take(&mut programs, name::FILTER)?),
        lost: take(&mut programs, name::LOST)?,
        cgroups: ring::Ring::new(name::CGROUP_RING, take(&mut programs, name::CGROUP_RING)?)?,
        processes: ring::Ring::new(name::PROCESS_RING, processes)?,
        programs,
    };
    attach(probe)
}

/// Types of the kernel need 15 MB while parsed: they live no longer than this function.
fn load_programs(object: &[u8]) -> Result<Ebpf, ProbeError> {
    let mut loader = EbpfLoader::new();
    // No CO-RE relocations in the object; also drops the copy that the loader has parsed.
    loader.btf(None);
    let bytes = read_btf().map_err(|source| ProbeError::ReadBtf { path: KERNEL_BTF, source })?;
    let offsets = btf::offsets(&bytes)?;
    for (field, offset) in &offsets {
        loader.override_global(field.global, offset, true);
    }
    let this_process = u64::from(std::process::id());
    loader.override_global(name::SELF_TGID, &this_process, true);
    let mut programs = loader.load(object).map_err(|source| ProbeError::Object(Box::new(source)))?;
    let types = Btf::parse(&bytes, Endianness::default()).map_err(ProbeError::ParseBtf)?;
    drop(bytes);
    load_program(&mut programs, name::SELF_CHECK, name::SELF_CHECK_AT, &types)?;
    for program in name::PROGRAMS {
        load_program(&mut programs, program, program, &types)?;
    }
    Ok(programs)
}

fn read_btf() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(KERNEL_BTF)?.take(MAX_BTF_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn load_program(
    programs: &mut Ebpf,
    program: &'static str,
    tracepoint: &str,
    types: &Btf,
) -> Result<(), ProbeError> {
    match self::program(programs, program)?.load(tracepoint, types) {
        Ok(()) => Ok(()),
        Err(ProgramError::LoadError { io_error, verifier_log }) => {
            Err(ProbeError::Refused { program, log: last_lines(&verifier_log.to_string()), source: io_error })
        }
        Err(source) => Err(ProbeError::Load { program, source: Box::new(source) }),
    }
}

fn attach(mut probe: Probe) -> Result<Probe, ProbeError> {
    for program in name::PROGRAMS {
        self::program(&mut probe.programs, program)?
            .attach()
            .map_err(|source| ProbeError::Attach { program, source: Box::new(source) })?;
    }
    Ok(probe)
}

pub(super) fn program<'a>(
    programs: &'a mut Ebpf,
    program: &'static str,
) -> Result<&'a mut BtfTracePoint, ProbeError> {
    let found = programs.program_mut(program).and_then(|found| found.try_into().ok());
    found.ok_or(ProbeError::Program { program })
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
