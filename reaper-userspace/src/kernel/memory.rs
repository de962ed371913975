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

/// One heap for all threads. glibc would give each thread its own, which keeps what that thread has freed; ours have
/// little to do and never at the same time. Before the first other thread.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the C library's own switch, which nothing safe offers")]
    // SAFETY: takes two numbers and locks what it touches; any thread may call it at any time (mallopt(3)). An
    // unknown parameter is answered with 0, which changes nothing.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}
