//! Memory that is free but still ours.

/// Gives what was freed back to the system. glibc keeps it for the next time, which after a peak is a waste: a full
/// look needs several times of what stays.
pub fn return_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the C library's own switch, which nothing safe offers")]
    // SAFETY: takes a number and locks what it touches; any thread may call it at any time (malloc_trim(3)).
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
