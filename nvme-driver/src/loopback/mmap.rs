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
    /// FUA writes: each becomes a flush when its copy is done.
    fua: Vec<FuaWrite>,
    epoch: Epoch,
    depth: usize,
}

/// A write that is done when it is durable.
struct FuaWrite {
    token: Token,
    /// The epoch of the write, and not of the flush that follows the copy.
    epoch: Epoch,
    copied: bool,
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
            epoch: Epoch::default(),
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
            let Some(at) = fua.iter().position(|w| w.token == done.token) else { return true };
            // There is room: all that is outstanding, this one included, fits the ring's depth.
            fua[at].copied = done.status.is_ok() && ring.flush_behind(done.token).is_ok();
            if !fua[at].copied {
                fua.swap_remove(at);
                return true;
            }
            false
        });
    }

    /// Forgets the FUA writes whose flush is done.
    fn end_fua(&mut self, start: usize, out: &Sink) {
        for done in &out.as_slice()[start..] {
            if let Some(at) = self.fua.iter().position(|w| w.copied && w.token == done.token) {
                self.fua.swap_remove(at);
            }
        }
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
            let (token, epoch) = (request.token, self.epoch);
            self.fua.push(FuaWrite { token, epoch, copied: false });
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
            let start = out.len();
            progress = progress | self.ring.poll(now, out);
            if !self.fua.is_empty() {
                self.end_fua(start, out);
            }
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        self.copy.cancel(token);
        self.ring.cancel(token);
    }

    fn turn(&mut self, to: Epoch) {
        self.epoch = to;
        self.copy.turn(to);
        self.ring.turn(to);
    }

    fn oldest(&self) -> Option<Epoch> {
        let fua = self.fua.iter().map(|w| w.epoch).min();
        [self.copy.oldest(), self.ring.oldest(), fua].into_iter().flatten().min()
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
