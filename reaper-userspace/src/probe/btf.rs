//! Where the kernel's fields are: a scan of its BTF for exactly the members that the programs read.
//!
//! The format is `Documentation/bpf/btf.rst`: a header, types in order of their ids, strings. The scan holds
//! nothing but the answers.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Types nest anonymous members at most this deep before the scan gives up.
const MAX_NESTING: u32 = 4;

/// A field that the programs read, and the global that takes its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Name of the global.
    pub(super) global: &'static str,
    /// `struct` that has it.
    structure: &'static str,
    /// Its name there.
    member: &'static str,
}

/// Why the fields were not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not BTF, or of another byte order, or cut.
    #[error("the type information is damaged: {0}")]
    Damaged(&'static str),
    /// A kind of type this program does not know the length of.
    #[error("the type information has a type of unknown kind {0}")]
    Kind(u32),
    /// The kernel's structure has no such member.
    #[error("struct {structure} has no member {member}")]
    Missing {
        /// The structure.
        structure: &'static str,
        /// The member.
        member: &'static str,
    },
    /// The member lies behind the first 64 KiB: no kernel's does.
    #[error("member {member} of struct {structure} is too far from its beginning")]
    Far {
        /// The structure.
        structure: &'static str,
        /// The member.
        member: &'static str,
    },
    /// The member does not begin at a byte.
    #[error("member {member} of struct {structure} is a bit field")]
    BitField {
        /// The structure.
        structure: &'static str,
        /// The member.
        member: &'static str,
    },
}

macro_rules! fields {
    ($($global:ident = $structure:ident . $member:ident;)*) => {
        &[ $( Field {
            global: stringify!($global),
            structure: stringify!($structure),
            member: stringify!($member),
        } ),* ]
    };
}

const FIELDS: &[Field] = reaper_ebpf::kernel_fields!(fields);

/// The byte offset of each field.
pub(super) fn offsets(btf: &[u8]) -> Result<Vec<(Field, u16)>, LayoutError> {
    let btf = Btf::parse(btf)?;
    let mut bits = vec![None; FIELDS.len()];
    for kernel_type in btf.types() {
        let kernel_type = kernel_type?;
        if kernel_type.kind() != KIND_STRUCT {
            continue;
        }
        for (field, found) in FIELDS.iter().zip(&mut bits) {
            if found.is_none() && btf.is_named(kernel_type.head.name, field.structure) {
                *found = btf.member(kernel_type, field.member, MAX_NESTING)?;
            }
        }
    }
    FIELDS.iter().zip(bits).map(|(field, bits)| Ok((*field, bytes(field, bits)?))).collect()
}

fn bytes(field: &Field, bits: Option<u32>) -> Result<u16, LayoutError> {
    let &Field { structure, member, .. } = field;
    match bits {
        None => Err(LayoutError::Missing { structure, member }),
        Some(bits) if bits % 8 == 0 => {
            u16::try_from(bits / 8).map_err(|_far| LayoutError::Far { structure, member })
        }
        Some(_) => Err(LayoutError::BitField { structure, member }),
    }
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: u16,
    version: u8,
    flags: u8,
    len: u32,
    types_at: u32,
    types_len: u32,
    strings_at: u32,
    strings_len: u32,
}

/// `struct btf_type`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    name: u32,
    info: u32,
    size_or_type: u32,
}

/// `struct btf_member`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Member {
    name: U32,
    type_id: U32,
    offset: U32,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    head: Head,
    tail: &'a [u8],
}

#[derive(Clone, Copy)]
struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;

// === impl Type ===

impl Type<'_> {
    const fn kind(&self) -> u32 {
        self.head.info >> 24 & 0x1f
    }

    /// With this flag the high byte of a member's offset is the width of a bit field.
    const fn offset_mask(&self) -> u32 {
        if self.head.info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX }
    }

    fn members(&self) -> &[Member] {
        <[Member]>::ref_from_bytes(self.tail).unwrap_or_default()
    }
}

// === impl Btf ===

impl<'a> Btf<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_size| LayoutError::Damaged("header"))?;
        if header.magic != MAGIC || header.version != 1 {
            return Err(LayoutError::Damaged("magic"));
        }
        let body = bytes.get(index(header.len)..).ok_or(LayoutError::Damaged("header length"))?;
        let section = |at, len| body.get(index(at)..)?.get(..index(len));
        Ok(Self {
            types: section(header.types_at, header.types_len).ok_or(LayoutError::Damaged("types"))?,
            strings: section(header.strings_at, header.strings_len).ok_or(LayoutError::Damaged("strings"))?,
        })
    }

    /// All types in order; the first has id 1. Ends after the first error.
    fn types(&self) -> impl Iterator<Item = Result<Type<'a>, LayoutError>> + use<'a> {
        let mut rest = self.types;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let next = split_type(rest);
            rest = next.as_ref().map_or(&[], |(_, after)| after);
            Some(next.map(|(kernel_type, _)| kernel_type))
        })
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let found = self.strings.get(index(name)..).and_then(|rest| rest.strip_prefix(wanted.as_bytes()));
        found.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Offset in bits of a member, also of one within an anonymous structure or union.
    fn member(&self, of: Type<'_>, wanted: &str, depth: u32) -> Result<Option<u32>, LayoutError> {
        for member in of.members() {
            let offset = member.offset.get() & of.offset_mask();
            if self.is_named(member.name.get(), wanted) {
                return Ok(Some(offset));
            }
            if let (true, Some(depth)) = (self.is_named(member.name.get(), ""), depth.checked_sub(1))
                && let Some(inner) = self.aggregate(member.type_id.get())?
                && let Some(within) = self.member(inner, wanted, depth)?
            {
                return Ok(Some(offset.saturating_add(within)));
            }
        }
        Ok(None)
    }

    /// The structure or union of this id. Walks from the first type: few members are anonymous.
    fn aggregate(&self, id: u32) -> Result<Option<Type<'a>>, LayoutError> {
        let Some(before) = index(id).checked_sub(1) else { return Ok(None) };
        let found = self.types().nth(before).transpose()?;
        Ok(found.filter(|found| matches!(found.kind(), KIND_STRUCT | KIND_UNION)))
    }
}

fn split_type(bytes: &[u8]) -> Result<(Type<'_>, &[u8]), LayoutError> {
    const CUT: LayoutError = LayoutError::Damaged("a type is cut");
    let (head, rest) = Head::read_from_prefix(bytes).map_err(|_size| CUT)?;
    let (tail, rest) = rest.split_at_checked(tail_len(head)?).ok_or(CUT)?;
    Ok((Type { head, tail }, rest))
}

/// Bytes that follow a type's head, by kind (`include/uapi/linux/btf.h`).
fn tail_len(head: Head) -> Result<usize, LayoutError> {
    let count = index(head.info & 0xffff);
    match head.info >> 24 & 0x1f {
        // Pointers, forwards, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => Ok(0),
        // Integers, variables, declaration tags.
        1 | 14 | 17 => Ok(4),
        // Arrays.
        3 => Ok(12),
        // Structures, unions, data sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => Ok(count.saturating_mul(12)),
        // Enumerations, prototypes.
        6 | 13 => Ok(count.saturating_mul(8)),
        kind => Err(LayoutError::Kind(kind)),
    }
}

/// `usize` has at least 32 bits wherever this builds; a number that does not fit indexes nothing.
fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, type, offset in bits.
    type AMember = (&'static str, u32, u32);

    fn len<T>(items: &[T]) -> u32 {
        items.len().try_into().unwrap()
    }

    /// A BTF of types given by name, kind and members.
    fn btf(types: &[(&str, u32, &[AMember])]) -> Vec<u8> {
        let (mut words, mut strings) = (Vec::new(), vec![0]);
        let mut name = |text: &str| {
            let at = if text.is_empty() { 0 } else { len(&strings) };
            strings.extend(text.bytes().chain((!text.is_empty()).then_some(0)));
            at
        };
        for (title, kind, members) in types {
            words.extend([name(title), kind << 24 | len(members), 0]);
            members.iter().for_each(|(title, id, offset)| words.extend([name(title), *id, *offset]));
        }
        let types_len = len(&words).saturating_mul(4);
        let header = [u32::from(MAGIC) | 1 << 16, 24, 0, types_len, types_len, len(&strings)];
        [header.iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect(), strings].concat()
    }

    fn offset(bytes: &[u8], structure: &str, member: &str) -> Result<Option<u32>, LayoutError> {
        let btf = Btf::parse(bytes)?;
        for found in btf.types() {
            let found = found?;
            if btf.is_named(found.head.name, structure) {
                return btf.member(found, member, MAX_NESTING);
            }
        }
        Ok(None)
    }

    #[test]
    fn a_member_is_found_by_its_whole_name_also_within_anonymous_members() {
        let bytes = btf(&[
            ("tasks", KIND_STRUCT, &[("pid", 0, 8)]),
            ("task", KIND_STRUCT, &[("pidx", 0, 0), ("", 3, 64), ("named", 3, 640)]),
            ("", KIND_UNION, &[("", 4, 0), ("other", 0, 0)]),
            ("", KIND_STRUCT, &[("pid", 0, 32)]),
        ]);
        assert_eq!(offset(&bytes, "task", "pid"), Ok(Some(96)));
        assert_eq!(offset(&bytes, "task", "named"), Ok(Some(640)));
        assert_eq!(offset(&bytes, "task", "absent"), Ok(None));
    }

    #[test]
    fn a_structure_that_contains_itself_anonymously_ends() {
        let bytes = btf(&[("task", KIND_STRUCT, &[("", 1, 0), ("", 1, 0)])]);
        assert_eq!(offset(&bytes, "task", "pid"), Ok(None));
    }

    #[test]
    fn a_kernel_without_a_field_is_refused_by_name() {
        let bytes = btf(&[("task_struct", KIND_STRUCT, &[("pid", 0, 8)])]);
        let missing = LayoutError::Missing { structure: "task_struct", member: "tgid" };
        assert_eq!(offsets(&bytes), Err(missing));
    }

    #[test]
    fn an_unknown_kind_ends_the_scan_with_its_number() {
        assert_eq!(offsets(&btf(&[("new", 31, &[])])), Err(LayoutError::Kind(31)));
    }

    #[test]
    fn the_running_kernel_has_every_field() {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let found = offsets(&bytes).unwrap();
        assert_eq!(found.len(), FIELDS.len());
        let zero = found.iter().filter(|(_, offset)| *offset == 0).count();
        assert!(zero < 5, "{found:?}");
    }

    proptest! {
        #[test]
        fn damaged_type_information_never_panics(at in 0usize..200, byte: u8, cut in 0usize..200) {
            let mut bytes = btf(&[("task", KIND_STRUCT, &[("", 2, 0)]), ("", KIND_UNION, &[("pid", 0, 8)])]);
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
            bytes.truncate(cut.max(24));
            let _answer = offset(&bytes, "task", "pid");
        }
    }
}
