//! Passes everything on, and records each completion on its way up.

use std::sync::Arc;
use std::time::Duration;

use super::line::Record;
use super::log::Recorder;
use crate::block::{
    Channel, Counters, Device, Flags, Full, Op, Progress, Request, Segment, Sink, Status, Token,
    WakeSet,
};
use crate::poller::Epoch;
use crate::time::Instant;

/// How soon a sleeping poller looks again for room in a ring that nobody drains.
const RETRY: Duration = Duration::from_millis(1);

/// A channel that records what goes through it.
pub(super) struct TraceChannel {
    inner: Box<dyn Channel>,
    device: Arc<dyn Device>,
    block_bytes: u32,
    recorder: Recorder,
    /// Records that fitted at the last poll; each request outstanding reserves one of them.
    places: usize,
    polled_at: Instant,
    /// By slot; the slot's number is the inner channel's token.
    slots: Box<[Option<Outstanding>]>,
    free: Vec<u16>,
    /// Taken since the last poll.
    fresh: Vec<u16>,
}

#[derive(Clone, Copy)]
struct Outstanding {
    token: Token,
    started: Instant,
    op: Op,
    flags: Flags,
    sector: u64,
    bytes: u64,
}

impl Outstanding {
    fn record(&self, at: Instant, status: Status) -> Record {
        let Self { started, op, flags, sector, bytes, .. } = *self;
        Record { started, at, op, flags, sector, bytes, status }
    }
}

impl TraceChannel {
    pub(super) fn new(
        inner: Box<dyn Channel>,
        device: &Arc<dyn Device>,
        mut recorder: Recorder,
        depth: u16,
    ) -> Self {
        Self {
            inner,
            block_bytes: device.limits().block_bytes,
            device: Arc::clone(device),
            places: recorder.room(),
            recorder,
            polled_at: Instant::ZERO,
            slots: vec![None; depth.into()].into(),
            free: (0..depth).rev().collect(),
            fresh: Vec::with_capacity(depth.into()),
        }
    }

    /// Places for records that no request has reserved.
    fn unreserved(&self) -> usize {
        self.places.saturating_sub(self.slots.len() - self.free.len())
    }
}

impl Channel for TraceChannel {
    /// As the inner channel, but no more than there are places for records.
    fn room(&self) -> usize {
        self.inner.room().min(self.free.len()).min(self.unreserved())
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        let slot = *self.free.last().filter(|_| self.unreserved() > 0).ok_or(Full)?;
        self.inner.submit(&Request { token: Token(slot.into()), ..*request }, data)?;
        self.free.pop();
        self.fresh.push(slot);
        let sectors_a_block = u64::from(self.block_bytes / 512);
        self.slots[usize::from(slot)] = Some(Outstanding {
            token: request.token,
            started: self.polled_at,
            op: request.op,
            flags: request.flags,
            // An address beyond the end is recorded too, and completes as such.
            sector: request.lba.0.saturating_mul(sectors_a_block),
            bytes: u64::from(request.blocks) * u64::from(self.block_bytes),
        });
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        self.polled_at = now;
        for slot in self.fresh.drain(..) {
            if let Some(outstanding) = &mut self.slots[usize::from(slot)] {
                outstanding.started = now;
            }
        }
        let before = out.len();
        let progress = self.inner.poll(now, out);
        let Self { slots, free, recorder, .. } = self;
        out.retain_from(before, |completion| {
            // Only tokens given to the inner channel come back; an unknown one names no slot.
            let number = u16::try_from(completion.token.0).unwrap_or(u16::MAX);
            let slot = slots.get_mut(usize::from(number)).and_then(Option::take);
            debug_assert!(slot.is_some(), "the inner channel completed what it was not given");
            let Some(outstanding) = slot else { return false };
            free.push(number);
            completion.token = outstanding.token;
            recorder.push(outstanding.record(now, completion.status));
            true
        });
        recorder.publish();
        self.places = recorder.room();
        progress
    }

    fn cancel(&mut self, token: Token) {
        let asked = |slot: &Option<Outstanding>| slot.is_some_and(|o| o.token == token);
        if let Some(number) = self.slots.iter().position(asked) {
            self.inner.cancel(Token(number as u64));
        }
    }

    fn turn(&mut self, to: Epoch) {
        self.inner.turn(to);
        self.block_bytes = self.device.limits().block_bytes;
    }

    fn oldest(&self) -> Option<Epoch> {
        self.inner.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        // The reader wakes nobody, so that a request costs it no system call.
        if self.unreserved() == 0 {
            wake.at(self.polled_at + RETRY);
        }
        self.inner.arm(wake);
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    /// The inner channel's: a trace sends nothing of its own.
    fn counters(&self) -> &Arc<Counters> {
        self.inner.counters()
    }
}
