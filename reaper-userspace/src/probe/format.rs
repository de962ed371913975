//! Where fields of tracepoints' records are: the `format` files of tracefs, for exactly the fields that the classic
//! programs read.
//!
//! They move between kernels and vendors (`sched_process_fork` of 6.18, `common_preempt_lazy_count` of real-time
//! kernels), so no offset is known beforehand.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use reaper_ebpf::abi::GROUP_DEAD;

use super::ProbeError;

/// Where tracefs is looked for, by us and by aya.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A field that the programs read, and the global that takes its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    global: &'static str,
    category: &'static str,
    tracepoint: &'static str,
    name: &'static str,
    bytes: u16,
}

/// Why a tracepoint cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The record has no such field.
    #[error("records no {0}")]
    Missing(&'static str),
    /// The field is smaller than what is read: ids of cgroups had 32 bits before Linux 5.17, and were cut.
    #[error("records {name} in {bytes} bytes, {needed} are needed")]
    Small {
        /// The field.
        name: &'static str,
        /// Its size.
        bytes: u16,
        /// What is read.
        needed: u16,
    },
}

macro_rules! fields {
    ($($global:ident = $category:ident / $tracepoint:ident . $name:ident, $bytes:literal;)*) => {
        &[ $( Field {
            global: stringify!($global),
            category: stringify!($category),
            tracepoint: stringify!($tracepoint),
            name: stringify!($name),
            bytes: $bytes,
        } ),* ]
    };
}

const FIELDS: &[Field] = reaper_ebpf::tracepoint_fields!(fields);

/// Global and offset of each field.
pub(super) fn offsets() -> Result<Vec<(&'static str, u16)>, ProbeError> {
    let tracefs = tracefs()?;
    let mut found = Vec::with_capacity(FIELDS.len().saturating_add(1));
    for field in FIELDS {
        let format = read(&tracefs, field.category, field.tracepoint)?;
        let at = place(&format, field.name, field.bytes)
            .map_err(|source| ProbeError::Format { tracepoint: field.tracepoint, source })?;
        found.push((field.global, at));
    }
    let [global, category, tracepoint, name] = GROUP_DEAD;
    let format = read(&tracefs, category, tracepoint)?;
    found.push((global, place(&format, name, 1).unwrap_or_default()));
    Ok(found)
}

/// The first place that has tracepoints: a kernel without a mounted tracefs has an empty directory there.
fn tracefs() -> Result<PathBuf, ProbeError> {
    let found = TRACEFS.iter().map(Path::new).find(|place| place.join("events").is_dir());
    found.map(Path::to_owned).ok_or(ProbeError::NoTracefs)
}

fn read(tracefs: &Path, category: &str, tracepoint: &'static str) -> Result<String, ProbeError> {
    let path = tracefs.join("events").join(category).join(tracepoint).join("format");
    fs::read_to_string(&path).map_err(|source: io::Error| ProbeError::ReadFormat { path, source })
}

/// Offset of a field: `\tfield:u64 id;\toffset:16;\tsize:8;\tsigned:0;`.
fn place(format: &str, name: &'static str, needed: u16) -> Result<u16, FormatError> {
    let line = format.lines().filter_map(|line| line.trim_start().strip_prefix("field:")).find_map(|line| {
        let (declared, rest) = line.split_once(';')?;
        let declared = declared.split_whitespace().next_back()?.split('[').next()?;
        (declared == name).then_some(rest)
    });
    let number = |key: &str| line?.split(';').find_map(|part| part.trim().strip_prefix(key)?.parse().ok());
    let (Some(offset), Some(bytes)) = (number("offset:"), number("size:")) else {
        return Err(FormatError::Missing(name));
    };
    if bytes < needed {
        return Err(FormatError::Small { name, bytes, needed });
    }
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MKDIR: &str = "name: cgroup_mkdir\nID: 544\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int root;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int level;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:u64 id;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] path;\toffset:24;\tsize:4;\tsigned:0;\n\
        \nprint fmt: \"root=%d id=%llu\", REC->root, REC->id\n";

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(place(MKDIR, "root", 4), Ok(8));
        assert_eq!(place(MKDIR, "id", 8), Ok(16));
        assert_eq!(place(MKDIR, "path", 4), Ok(24));
        assert_eq!(place(MKDIR, "pid", 4), Err(FormatError::Missing("pid")));
        let array = "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;";
        assert_eq!(place(array, "comm", 16), Ok(8));
    }

    #[test]
    fn an_id_of_32_bits_is_refused() {
        let old = MKDIR.replace("u64 id;\toffset:16;\tsize:8", "int id;\toffset:12;\tsize:4");
        let small = FormatError::Small { name: "id", bytes: 4, needed: 8 };
        assert_eq!(place(&old, "id", 8), Err(small));
    }

    #[test]
    fn every_order_of_fields_that_kernels_had_is_read() {
        let shifted = "\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\tsigned:0;\n\
                       \tfield:u64 id;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:int root;\toffset:12;\tsize:4;";
        assert_eq!((place(shifted, "root", 4), place(shifted, "id", 8)), (Ok(12), Ok(24)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\tfield:[a-z ]{0,8};\toffset:[0-9]{0,7};\tsize:-?[0-9]{0,3};\n|.{0,20}\n){0,6}") {
            let _answer = place(&text, "id", 8);
        }
    }
}
