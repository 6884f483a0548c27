//! The mmap engine: copies for data, io_uring for what would block.

use std::fs::File as StdFile;
use std::sync::Arc;

use super::copy::CopyChannel;
use super::uring::UringChannel;
use crate::block::{
    Channel, ClaimMode, Counters, DeviceCore, Flags, Full, Op, OpenOptions, Progress, Request,
    Segment, Sink, Token, WakeSet,
};
use crate::memory::Mapping;
use crate::poller::Epoch;
use crate::time::Instant;

/// Copies between the mapped file and segments; flushes and deallocates through a ring.
pub(super) struct MmapChannel {
    copy: CopyChannel,
    ring: UringChannel,
    /// FUA writes whose copy is not done: each becomes a flush when it is.
    fua: Vec<Token>,
    depth: usize,
}

impl MmapChannel {
    pub(super) fn new(
        core: &Arc<DeviceCore>,
        store: Arc<Mapping>,
        file: Arc<StdFile>,
        ring: UringChannel,
        mode: ClaimMode,
        options: &OpenOptions,
        counters: Arc<Counters>,
    ) -> Self {
        let depth = usize::from(options.depth);
        Self {
            copy: CopyChannel::new(core, &store, Some(file), mode, options, counters),
            ring,
            fua: Vec::with_capacity(depth),
            depth,
        }
    }

    fn outstanding(&self) -> usize {
        2 * self.depth - self.copy.room() - self.ring.room()
    }

    /// Copies that were FUA are not done until a flush is.
    fn flush_fua(&mut self, start: usize, out: &mut Sink) {
        let Self { ring, fua, .. } = self;
        out.retain_from(start, |done| {
            let Some(at) = fua.iter().position(|token| *token == done.token) else { return true };
            fua.swap_remove(at);
            // There is room: all that is outstanding, this one included, fits the ring's depth.
            !(done.status.is_ok() && ring.submit(&Request::flush(done.token), &[]).is_ok())
        });
    }
}

impl Channel for MmapChannel {
    fn room(&self) -> usize {
        self.depth - self.outstanding()
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        if matches!(request.op, Op::Flush | Op::Deallocate) {
            return self.ring.submit(request, data);
        }
        self.copy.submit(request, data)?;
        if request.flags.contains(Flags::FUA) && request.op.changes() {
            self.fua.push(request.token);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let start = out.len();
        let mut progress = self.copy.poll(now, out);
        if !self.fua.is_empty() {
            self.flush_fua(start, out);
        }
        if self.ring.room() < self.depth {
            progress = progress | self.ring.poll(now, out);
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        self.copy.cancel(token);
        self.ring.cancel(token);
    }

    fn turn(&mut self, to: Epoch) {
        self.copy.turn(to);
        self.ring.turn(to);
    }

    fn oldest(&self) -> Option<Epoch> {
        [self.copy.oldest(), self.ring.oldest()].into_iter().flatten().min()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        self.copy.arm(wake);
        self.ring.arm(wake);
    }

    fn disarm(&mut self) {
        self.copy.disarm();
        self.ring.disarm();
    }

    fn counters(&self) -> &Arc<Counters> {
        self.copy.counters()
    }
}
