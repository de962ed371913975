//! Bytes to events.

use reaper_ebpf::abi::{BY_NUMBER, Kind, Record, VERSION, version_of};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{Act, Actor, Comm, Event, Occurrence};
use crate::ident::{CgroupId, CgroupRef, Hierarchy, ProcessKey, StartTicks, Tgid};
use crate::time::BootTime;

/// Why bytes are not an event. Each says that the object and this program do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter or longer than a record.
    #[error("a record of {0} bytes, expected {expected}", expected = size_of::<Record>())]
    Length(usize),
    /// Made by another version of the programs.
    #[error("a record of version {0}, expected {VERSION}")]
    Version(u8),
    /// A kind that this version does not have.
    #[error("a record of unknown kind {0}")]
    Kind(u16),
    /// A process number that no process can have.
    #[error("a record of kind {kind} about process {tgid}")]
    Process {
        /// The record's kind.
        kind: u16,
        /// The number.
        tgid: u32,
    },
    /// A flag that is neither 0 nor 1.
    #[error("a record of kind {kind} with the flag {value}")]
    Flag {
        /// The record's kind.
        kind: u16,
        /// The value.
        value: u8,
    },
}

// === impl Event ===

impl Event {
    /// Decodes one record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let record = Record::read_from_bytes(bytes).map_err(|_size| DecodeError::Length(bytes.len()))?;
        let version = version_of(record.version);
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        Ok(Self { at: BootTime::from_nanos(record.at), what: occurrence(&record)? })
    }
}

fn occurrence(record: &Record) -> Result<Occurrence, DecodeError> {
    let cgroup = CgroupRef { hierarchy: Hierarchy(record.hierarchy), id: CgroupId(record.id) };
    let actor = Actor { tgid: Tgid::new(record.tgid.into()), comm: comm(record) };
    let level = record.level;
    match Kind(record.kind) {
        Kind::MKDIR => {
            let parent = (record.aux != 0).then_some(CgroupId(record.aux));
            Ok(Occurrence::CgroupMade { cgroup, parent, level, maker: actor })
        }
        Kind::RMDIR => Ok(Occurrence::CgroupRemoved { cgroup, level, remover: actor }),
        Kind::POPULATED => flag(record).map(|populated| Occurrence::CgroupPopulated { cgroup, populated }),
        Kind::FROZEN => flag(record).map(|frozen| Occurrence::CgroupFrozen { cgroup, frozen }),
        Kind::FORK if record.value == BY_NUMBER => by_number(record, Act::Forked),
        Kind::EXEC if record.value == BY_NUMBER => by_number(record, Act::Execed),
        Kind::EXIT if record.value == BY_NUMBER => by_number(record, Act::Exited),
        Kind::FORK => Ok(Occurrence::Forked {
            creator: process(record, record.peer, record.aux2)?,
            child: subject(record)?,
            born: BootTime::from_nanos(record.aux),
            comm: comm(record),
        }),
        Kind::EXEC => Ok(Occurrence::Execed {
            process: subject(record)?,
            born: BootTime::from_nanos(record.aux),
            comm: comm(record),
        }),
        Kind::EXIT => Ok(Occurrence::Exited {
            process: subject(record)?,
            born: BootTime::from_nanos(record.aux),
            status: Some(record.code),
            comm: comm(record),
        }),
        Kind::KILL => Ok(Occurrence::Killed {
            process: subject(record)?,
            born: BootTime::from_nanos(record.aux),
            comm: comm(record),
        }),
        Kind(unknown) => Err(DecodeError::Kind(unknown)),
    }
}

fn by_number(record: &Record, act: Act) -> Result<Occurrence, DecodeError> {
    let tgid = number(record, record.tgid)?;
    let creator = match act {
        Act::Forked => Some(number(record, record.peer)?),
        Act::Execed | Act::Exited => None,
    };
    Ok(Occurrence::Unidentified { act, tgid, creator, comm: comm(record) })
}

fn flag(record: &Record) -> Result<bool, DecodeError> {
    match record.value {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(DecodeError::Flag { kind: record.kind, value }),
    }
}

fn subject(record: &Record) -> Result<ProcessKey, DecodeError> {
    process(record, record.tgid, record.aux)
}

fn process(record: &Record, tgid: u32, start: u64) -> Result<ProcessKey, DecodeError> {
    Ok(ProcessKey { tgid: number(record, tgid)?, start: StartTicks::from_boot_nanos(start) })
}

fn number(record: &Record, tgid: u32) -> Result<Tgid, DecodeError> {
    Tgid::new(tgid.into()).ok_or(DecodeError::Process { kind: record.kind, tgid })
}

fn comm(record: &Record) -> Comm {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(record.comm.as_bytes());
    Comm::from_kernel(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the programs would write for an event; the inverse of decoding.
    fn encode(event: &Event) -> Record {
        let at = event.at.as_nanos();
        let cgroup = |kind, cgroup: CgroupRef| Record {
            id: cgroup.id.0,
            hierarchy: cgroup.hierarchy.0,
            ..Record::new(kind, at)
        };
        let by = |actor: Actor, record: Record| Record {
            tgid: actor.tgid.map_or(0, Tgid::get),
            comm: words(actor.comm),
            ..record
        };
        let about = |kind, process: ProcessKey, born: BootTime, comm| Record {
            tgid: process.tgid.get(),
            aux: born.as_nanos(),
            comm: words(comm),
            ..Record::new(kind, at)
        };
        match event.what {
            Occurrence::CgroupMade { cgroup: made, parent, level, maker } => by(
                maker,
                Record { aux: parent.map_or(0, |parent| parent.0), level, ..cgroup(Kind::MKDIR, made) },
            ),
            Occurrence::CgroupRemoved { cgroup: removed, level, remover } => {
                by(remover, Record { level, ..cgroup(Kind::RMDIR, removed) })
            }
            Occurrence::CgroupPopulated { cgroup: changed, populated } => {
                Record { value: populated.into(), ..cgroup(Kind::POPULATED, changed) }
            }
            Occurrence::CgroupFrozen { cgroup: changed, frozen } => {
                Record { value: frozen.into(), ..cgroup(Kind::FROZEN, changed) }
            }
            Occurrence::Forked { creator, child, born, comm } => Record {
                peer: creator.tgid.get(),
                aux2: creator.start.boot_nanos(),
                ..about(Kind::FORK, child, born, comm)
            },
            Occurrence::Execed { process, born, comm } => about(Kind::EXEC, process, born, comm),
            Occurrence::Killed { process, born, comm } => about(Kind::KILL, process, born, comm),
            Occurrence::Exited { process, born, status, comm } => {
                Record { code: status.unwrap_or_default(), ..about(Kind::EXIT, process, born, comm) }
            }
            Occurrence::Unidentified { act, tgid, creator, comm } => {
                let kind = match act {
                    Act::Forked => Kind::FORK,
                    Act::Execed => Kind::EXEC,
                    Act::Exited => Kind::EXIT,
                };
                let peer = creator.map_or(0, Tgid::get);
                let record = Record { value: BY_NUMBER, peer, ..Record::new(kind, at) };
                by(Actor { tgid: Some(tgid), comm }, record)
            }
        }
    }

    fn words(comm: Comm) -> [u64; 2] {
        Record::read_from_bytes(&[[0; 56].as_slice(), &comm.padded()].concat()).unwrap().comm
    }

    fn a_process() -> impl Strategy<Value = ProcessKey> {
        (1..=i64::from(i32::MAX), 0..u64::MAX / 10_000_000).prop_map(|(tgid, ticks)| ProcessKey {
            tgid: Tgid::new(tgid).unwrap(),
            start: StartTicks::from_ticks(ticks),
        })
    }

    fn a_birth() -> impl Strategy<Value = (ProcessKey, BootTime)> {
        (a_process(), 0..10_000_000_u64).prop_map(|(process, within)| {
            (process, BootTime::from_nanos(process.start.boot_nanos().saturating_add(within)))
        })
    }

    fn a_cgroup() -> impl Strategy<Value = CgroupRef> {
        any::<(u32, u64)>()
            .prop_map(|(hierarchy, id)| CgroupRef { hierarchy: Hierarchy(hierarchy), id: CgroupId(id) })
    }

    fn a_comm() -> impl Strategy<Value = Comm> {
        any::<[u8; 16]>().prop_map(Comm::from_kernel)
    }

    fn an_actor() -> impl Strategy<Value = Actor> {
        (proptest::option::of(a_process()), a_comm())
            .prop_map(|(process, comm)| Actor { tgid: process.map(|key| key.tgid), comm })
    }

    fn an_event() -> impl Strategy<Value = Event> {
        let what = prop_oneof![
            (a_cgroup(), any::<u64>(), any::<u32>(), an_actor()).prop_map(
                |(cgroup, parent, level, maker)| Occurrence::CgroupMade {
                    cgroup,
                    parent: (parent != 0).then_some(CgroupId(parent)),
                    level,
                    maker
                }
            ),
            (a_cgroup(), any::<u32>(), an_actor()).prop_map(|(cgroup, level, remover)| {
                Occurrence::CgroupRemoved { cgroup, level, remover }
            }),
            (a_cgroup(), any::<bool>())
                .prop_map(|(cgroup, populated)| Occurrence::CgroupPopulated { cgroup, populated }),
            (a_cgroup(), any::<bool>())
                .prop_map(|(cgroup, frozen)| Occurrence::CgroupFrozen { cgroup, frozen }),
            (a_process(), a_birth(), a_comm()).prop_map(|(creator, (child, born), comm)| {
                Occurrence::Forked { creator, child, born, comm }
            }),
            (a_birth(), a_comm()).prop_map(|((process, born), comm)| Occurrence::Execed {
                process,
                born,
                comm
            }),
            (a_birth(), a_comm()).prop_map(|((process, born), comm)| Occurrence::Killed {
                process,
                born,
                comm
            }),
            (a_birth(), any::<i32>(), a_comm()).prop_map(|((process, born), status, comm)| {
                Occurrence::Exited { process, born, status: Some(status), comm }
            }),
            (a_process(), a_process(), a_comm(), 0..3_u8).prop_map(|(process, creator, comm, act)| {
                let (act, creator) = match act {
                    0 => (Act::Forked, Some(creator.tgid)),
                    1 => (Act::Execed, None),
                    _ => (Act::Exited, None),
                };
                Occurrence::Unidentified { act, tgid: process.tgid, creator, comm }
            }),
        ];
        (any::<u64>(), what).prop_map(|(at, what)| Event { at: BootTime::from_nanos(at), what })
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_a_named_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let decoded = Event::decode(&bytes);
            if bytes.len() != 72 {
                prop_assert_eq!(decoded, Err(DecodeError::Length(bytes.len())));
            }
        }

        #[test]
        fn any_fields_of_this_version_are_an_event_or_a_named_error(
            bytes in proptest::array::uniform32(any::<u8>()), kind in 0u16..12, tgid: u32, value: u8,
        ) {
            let mut record = Record { kind, tgid, value, ..Record::new(Kind(kind), 7) };
            record.comm = words(Comm::from_kernel(*bytes.first_chunk().unwrap()));
            match Event::decode(record.as_bytes()) {
                Ok(event) => prop_assert_eq!(event.at, BootTime::from_nanos(7)),
                Err(DecodeError::Kind(unknown)) => prop_assert!([0, 8, 9, 11].contains(&unknown)),
                Err(DecodeError::Process { tgid: bad, .. }) => prop_assert!(bad == 0 || i32::try_from(bad).is_err()),
                Err(DecodeError::Flag { value: bad, .. }) => prop_assert!(bad > 1),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn what_is_encoded_decodes_to_the_same(event in an_event()) {
            prop_assert_eq!(Event::decode(encode(&event).as_bytes()), Ok(event));
        }
    }

    #[test]
    fn a_truncated_or_overlong_record_is_refused_by_length() {
        let record = Record::new(Kind::RMDIR, 1);
        let long = [record.as_bytes(), &[0]].concat();
        assert_eq!(Event::decode(&record.as_bytes()[..71]), Err(DecodeError::Length(71)));
        assert_eq!(Event::decode(&long), Err(DecodeError::Length(73)));
        assert_eq!(Event::decode(&[]), Err(DecodeError::Length(0)));
    }

    #[test]
    fn a_record_of_another_version_is_refused_before_its_kind_is_looked_at() {
        let record = Record { version: (VERSION + 1) << 4, kind: 99, ..Record::new(Kind::RMDIR, 1) };
        assert_eq!(Event::decode(record.as_bytes()), Err(DecodeError::Version(VERSION + 1)));
    }

    #[test]
    fn a_self_check_is_no_event() {
        let record = Record::new(Kind::SELF_CHECK, 1);
        assert_eq!(Event::decode(record.as_bytes()), Err(DecodeError::Kind(Kind::SELF_CHECK.0)));
    }
}
