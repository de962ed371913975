//! Servers on containerd's socket that are no containerd: one hangs up, one answers every call with an error.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What it does with each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Closes it.
    HangUp,
    /// Speaks HTTP/2 and ends every call with this gRPC status.
    Answer(u8),
}

/// Serves until dropped.
pub(crate) struct Stub {
    path: PathBuf,
    end: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Stub {
    pub(crate) fn start(path: &Path, behaviour: Behaviour) -> Self {
        let _stale_or_none = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let serve = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                if let Behaviour::Answer(status) = behaviour {
                    // A connection ends when the client hangs up.
                    let _until_the_end = std::thread::spawn(move || answer_all(stream, status));
                }
            }
        };
        Self { path: path.to_owned(), end, server: Some(std::thread::spawn(serve)) }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        let _wakes_the_server = UnixStream::connect(&self.path);
        self.server.take().unwrap().join().unwrap();
        std::fs::remove_file(&self.path).unwrap();
    }
}

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
/// `END_STREAM` and `END_HEADERS`: trailers only, the whole answer is one frame.
const WHOLE: u8 = 1 | 4;

/// The few frames of RFC 9113 that a unary call needs.
fn answer_all(mut stream: UnixStream, status: u8) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE])?;
    send(&mut stream, SETTINGS, 0, [0; 4], &[])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [high, middle, low, kind, flags, number @ ..] = head;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        stream.read_exact(&mut payload)?;
        match kind {
            HEADERS => send(&mut stream, HEADERS, WHOLE, number, &trailers(status))?,
            SETTINGS if flags & ACK == 0 => send(&mut stream, SETTINGS, ACK, [0; 4], &[])?,
            PING if flags & ACK == 0 => send(&mut stream, PING, ACK, [0; 4], &payload)?,
            _ => {}
        }
    }
}

fn send(stream: &mut UnixStream, kind: u8, flags: u8, number: [u8; 4], payload: &[u8]) -> io::Result<()> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, flags];
    frame.extend(number);
    frame.extend(payload);
    stream.write_all(&frame)
}

/// `:status 200`, `content-type` and `grpc-status`, as HPACK literals that enter no table (RFC 7541, 6.2.2).
fn trailers(status: u8) -> Vec<u8> {
    let mut block = vec![0x88, 0x0f, 0x10];
    let mut text = |text: &str| {
        block.push(u8::try_from(text.len()).unwrap());
        block.extend(text.as_bytes());
    };
    text("application/grpc");
    let mut field = vec![0];
    for word in ["grpc-status", &status.to_string()] {
        field.push(u8::try_from(word.len()).unwrap());
        field.extend(word.as_bytes());
    }
    block.extend(field);
    block
}
