//! A process whose first thread is gone: it ends with status 7, from another thread, when its standard input ends.

use std::io::{self, Read as _};

fn main() {
    std::thread::spawn(|| {
        let ended = io::stdin().read_to_end(&mut Vec::new());
        #[expect(clippy::disallowed_methods, reason = "nothing to unwind: this thread is all there is")]
        std::process::exit(if ended.is_ok() { 7 } else { 8 });
    });
    #[expect(unsafe_code, reason = "no safe function ends the first thread alone")]
    // SAFETY: ends this thread; nothing on its stack is borrowed by the other.
    unsafe {
        nix::libc::syscall(nix::libc::SYS_exit, 0);
    }
}
