//! The wire ABI between the BPF programs and user space.
//!
//! Both sides compile this crate: the programs (`src/bpf`, feature `bpf`, BPF target only) write what
//! user space reads. It holds layouts and names, no behaviour and no unsafe code.
#![no_std]

pub mod abi;
