//! One ring, read without blocking.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ProbeError;
use crate::event::Event;

/// Records taken at once, so that a storm in one ring cannot keep the daemon from the other.
const BATCH: usize = 4_096;

pub(super) struct Ring {
    name: &'static str,
    fd: AsyncFd<RingBuf<MapData>>,
    undecodable: Arc<AtomicU64>,
}

// === impl Ring ===

impl Ring {
    /// Records that are no event are counted in `undecodable`.
    pub(super) fn new(
        name: &'static str,
        ring: RingBuf<MapData>,
        undecodable: Arc<AtomicU64>,
    ) -> Result<Self, ProbeError> {
        #[expect(deprecated, reason = "the successor is unsafe; aya's ring owns its one descriptor")]
        let fd = AsyncFd::with_interest(ring, Interest::READABLE)
            .map_err(|source| ProbeError::Wait { ring: name, source })?;
        Ok(Self { name, fd, undecodable })
    }

    /// Appends what is there, at most a batch; ready only if that is something.
    pub(super) fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<Event>,
    ) -> Poll<Result<(), ProbeError>> {
        loop {
            let before = events.len();
            ready!(self.poll_take(context, events))
                .map_err(|source| ProbeError::Wait { ring: self.name, source })?;
            if events.len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The kernel wakes a reader only when it had taken everything, so readiness is given back on an empty
    /// ring only.
    fn poll_take(&mut self, context: &mut Context<'_>, events: &mut Vec<Event>) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.fd.poll_read_ready_mut(context))?;
        let ring = guard.get_inner_mut();
        for _ in 0..BATCH {
            let Some(bytes) = ring.next() else {
                guard.clear_ready();
                break;
            };
            take(&bytes, events, &self.undecodable, self.name);
        }
        Poll::Ready(Ok(()))
    }
}

/// What is no event is counted, said and left out.
fn take(record: &[u8], events: &mut Vec<Event>, undecodable: &AtomicU64, ring: &'static str) {
    match Event::decode(record) {
        Ok(event) => events.push(event),
        Err(error) => {
            undecodable.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, ring, "record dropped, a resync will make up for it");
        }
    }
}

/// Ready as soon as one of two is; a failure of either is not hidden by the other.
pub(super) fn either(
    first: Poll<Result<(), ProbeError>>,
    second: Poll<Result<(), ProbeError>>,
) -> Poll<Result<(), ProbeError>> {
    match (first, second) {
        (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
        (Poll::Pending, Poll::Pending) => Poll::Pending,
        (Poll::Ready(Ok(())), _) | (_, Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
    }
}

#[cfg(test)]
mod tests {
    use reaper_ebpf::abi::{Kind, Record};
    use zerocopy::IntoBytes as _;

    use super::*;

    #[test]
    fn what_is_no_event_is_counted_and_the_next_one_is_taken() {
        let (mut events, undecodable) = (vec![], AtomicU64::new(0));
        let (unknown, known) = (Record::new(Kind(99), 1), Record::new(Kind::RMDIR, 2));
        for record in [unknown.as_bytes(), known.as_bytes().split_at(40).0, known.as_bytes()] {
            take(record, &mut events, &undecodable, "a ring");
        }
        assert_eq!((events.len(), undecodable.load(Ordering::Relaxed)), (1, 2));
    }
}
