//! A job's queue on one device: sends, completes, reads back.

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_nvme_driver::block::{
    Channel, Flags, Lba, Op, Progress, Request, Segment, Sink, Status, Token,
};
use strake_nvme_driver::memory::Region;
use strake_nvme_driver::time::Instant;

use super::plan::JobPlan;
use super::readback::Readback;
use super::report::Direction;
use super::tally::{Run, Tally};
use super::workload::{Draw, Workload};

/// What a job is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Work,
    /// Reading back what was written.
    Verify,
}

/// What the lanes of a job share.
pub struct Shared {
    pub plan: JobPlan,
    pub phase: Phase,
    /// Send nothing more.
    pub stopping: bool,
    /// Someone wants the run to end: whatever is outstanding is cancelled.
    pub interrupted: bool,
    pub started: Instant,
    /// Time of the last completion of the workload.
    pub ended: Instant,
    pub started_requests: u64,
    /// Lanes that have nothing left to send.
    pub lanes_over: usize,
    pub tally: Tally,
    /// By device, request and status; the first keep their place, and the rest are summed up.
    pub errors: BTreeMap<String, u64>,
}

/// Different errors that are kept apart.
const ERRORS_MAX: usize = 8;

impl Shared {
    /// How many requests the rate allows to be started by `now`.
    #[inline]
    fn allowance(&self, now: Instant) -> u64 {
        let Some(rate) = self.plan.rate_iops else { return u64::MAX };
        let elapsed = now.nanos_since(self.started);
        let due = (u128::from(elapsed) * u128::from(rate) / 1_000_000_000) as u64 + 1;
        due.saturating_sub(self.started_requests)
    }
}

/// A queue on one device.
// On cache lines of its own: its neighbours on the heap are other cores'.
#[repr(align(128))]
pub struct Lane {
    pub channel: Box<dyn Channel>,
    name: String,
    workload: Workload,
    region: Arc<Region>,
    block_bytes: u32,
    buffer_bytes: u64,
    sink: Sink,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    sent_bytes: u64,
    sent_requests: u64,
    writes_since_flush: u64,
    flush_due: bool,
    /// A request that the channel refused: tried again before any other.
    held: Option<(u16, Draw)>,
    /// A pass ended: wait for what is outstanding.
    draining: bool,
    over: bool,
    /// Asked for an early end of everything outstanding.
    cancelled: bool,
    uniform: Option<Uniform>,
    readback: Option<Readback>,
}

#[derive(Clone, Copy)]
struct Slot {
    start: Instant,
    lba: u64,
    blocks: u32,
    direction: Direction,
}

/// The plainest workloads: requests that differ in place only. What they have in common is made
/// once.
struct Uniform {
    request: Request,
    segment: Segment,
    direction: Direction,
    /// How many are still to be sent.
    left: u64,
}

/// A request of this direction, without place and length.
#[inline]
fn request(direction: Direction) -> Request {
    let op = match direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
        Direction::Trim => Op::Deallocate,
        Direction::Sync => Op::Flush,
    };
    Request { op, flags: Flags::STABLE, ..Request::flush(Token(0)) }
}

/// Sizes of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneShape {
    pub block_bytes: u32,
    /// A request's buffer.
    pub buffer_bytes: u32,
    pub depth: u16,
}

impl Lane {
    /// A queue on `channel`. `region` holds a buffer for each place in it.
    #[must_use]
    pub fn new(
        name: String,
        channel: Box<dyn Channel>,
        workload: Workload,
        region: Arc<Region>,
        shape: LaneShape,
        plan: &JobPlan,
        readback: Option<Readback>,
    ) -> Self {
        let plain = plan.fsync == 0 && readback.is_none();
        let uniform = workload.uniform().filter(|_| plain).map(|(direction, blocks)| {
            let bytes = u64::from(blocks) * u64::from(shape.block_bytes);
            let by_bytes = plan.ending.bytes.map_or(u64::MAX, |n| n.div_ceil(bytes));
            Uniform {
                request: Request { blocks, ..request(direction) },
                segment: region.segment(0, blocks * shape.block_bytes),
                direction,
                left: by_bytes.min(plan.ending.requests.unwrap_or(u64::MAX)),
            }
        });
        let idle = Slot { start: Instant::ZERO, direction: Direction::Read, lba: 0, blocks: 0 };
        Self {
            channel,
            name,
            workload,
            region,
            block_bytes: shape.block_bytes,
            buffer_bytes: shape.buffer_bytes.into(),
            sink: Sink::new(shape.depth.into()),
            slots: vec![idle; shape.depth.into()].into(),
            free: (0..shape.depth).rev().collect(),
            sent_bytes: 0,
            sent_requests: 0,
            writes_since_flush: 0,
            flush_due: false,
            held: None,
            draining: false,
            over: false,
            cancelled: false,
            uniform,
            readback,
        }
    }

    /// True if nothing is outstanding.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// True if a request could be sent but for the rate.
    #[must_use]
    pub fn could_send(&self) -> bool {
        !self.over && !self.free.is_empty() && !self.draining
    }

    /// True if a request waits for room.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.held.is_some()
    }

    /// Starts reading back what was written.
    pub fn read_back(&mut self) {
        self.over = false;
    }

    /// What reading back has found.
    #[must_use]
    pub fn readback(&self) -> Option<&Readback> {
        self.readback.as_ref()
    }

    /// Completes and sends.
    #[inline]
    pub fn poll(&mut self, now: Instant, shared: &mut Shared) -> Progress {
        self.sink.clear();
        let progress = self.channel.poll(now, &mut self.sink);
        if !self.sink.is_empty() {
            self.complete(now, shared);
        }
        if shared.stopping {
            self.stop_sending(shared);
            return progress;
        }
        let sent = match shared.phase {
            Phase::Work => self.fill(now, shared),
            Phase::Verify => self.fill_readback(now, shared),
        };
        shared.started_requests += sent;
        if sent > 0 { Progress::Worked } else { progress }
    }

    /// Drops a request that never got through, and after an interruption asks for the end of those
    /// that did.
    #[cold]
    fn stop_sending(&mut self, shared: &Shared) {
        if let Some((slot, draw)) = self.held.take() {
            self.free.push(slot);
            if draw.direction == Direction::Write
                && let Some(readback) = &mut self.readback
            {
                readback.forget(draw.lba, draw.blocks);
            }
        }
        if shared.interrupted && !std::mem::replace(&mut self.cancelled, true) {
            // Tokens of free slots name nothing, and are ignored.
            (0..self.slots.len() as u64).for_each(|slot| self.channel.cancel(Token(slot)));
        }
    }

    #[inline]
    fn complete(&mut self, now: Instant, shared: &mut Shared) {
        if shared.phase == Phase::Verify {
            return self.complete_readback(shared);
        }
        shared.ended = now;
        // Requests that complete together mostly began together and are of one kind: such a run is
        // counted and recorded as one.
        let mut run = Run { direction: Direction::Read, start: now, requests: 0, blocks: 0 };
        let mut failed = false;
        for completion in self.sink.as_slice() {
            let index = completion.token.0 as u16;
            let slot = &self.slots[usize::from(index)];
            self.free.push(index);
            if !completion.status.is_ok() {
                failed = true;
                continue;
            }
            if run.start != slot.start || run.direction != slot.direction {
                if run.requests > 0 {
                    shared.tally.count(run, now, self.block_bytes);
                }
                run = Run { direction: slot.direction, start: slot.start, requests: 0, blocks: 0 };
            }
            run.requests += 1;
            run.blocks += u64::from(slot.blocks);
        }
        if run.requests > 0 {
            shared.tally.count(run, now, self.block_bytes);
        }
        if failed {
            self.note_errors(shared);
        }
    }

    #[cold]
    fn complete_readback(&mut self, shared: &mut Shared) {
        for at in 0..self.sink.len() {
            let completion = self.sink.as_slice()[at];
            let index = completion.token.0 as u16;
            self.free.push(index);
            if completion.status.is_ok()
                && let Some(readback) = &mut self.readback
            {
                let slot = self.slots[usize::from(index)];
                let offset = u64::from(index) * self.buffer_bytes;
                readback.check(&self.region, offset, slot.lba, slot.blocks, &self.name);
            }
        }
        self.note_errors(shared);
    }

    #[cold]
    fn note_errors(&mut self, shared: &mut Shared) {
        for completion in self.sink.as_slice().iter().filter(|c| !c.status.is_ok()) {
            let slot = self.slots[completion.token.0 as usize];
            if slot.direction == Direction::Write
                && let Some(readback) = &mut self.readback
            {
                readback.forget(slot.lba, slot.blocks);
            }
            if shared.interrupted && completion.status == Status::Cancelled {
                continue;
            }
            let mut text = self.describe(slot, completion.status);
            if shared.errors.len() >= ERRORS_MAX && !shared.errors.contains_key(&text) {
                text = format!("{}: others", self.name);
            }
            *shared.errors.entry(text).or_default() += 1;
            shared.stopping |= !shared.plan.continue_on_error;
        }
    }

    fn describe(&self, slot: Slot, status: Status) -> String {
        match slot.direction {
            Direction::Sync => format!("{}: flush: {status}", self.name),
            direction => format!(
                "{}: {} of {} blocks at block {}: {status}",
                self.name,
                direction.name(),
                slot.blocks,
                slot.lba
            ),
        }
    }

    /// Sends what there is room for; how many.
    #[inline]
    fn fill(&mut self, now: Instant, shared: &mut Shared) -> u64 {
        let allowance = shared.allowance(now);
        if self.uniform.is_some() && self.held.is_none() {
            return self.fill_uniform(allowance, now, shared);
        }
        let mut sent = 0;
        while sent < allowance
            && let Some((slot, draw)) = self.take_next(shared)
            && self.send(slot, draw, now)
        {
            sent += 1;
        }
        sent
    }

    /// The short way for the plainest workloads, with all decisions made before the loop.
    #[inline]
    fn fill_uniform(&mut self, allowance: u64, now: Instant, shared: &mut Shared) -> u64 {
        let Some(uniform) = self.uniform.as_mut() else { return 0 };
        let data = usize::from(uniform.request.op.has_data());
        let most = allowance.min(uniform.left);
        let mut sent = 0;
        while sent < most
            && let Some(slot) = self.free.pop()
        {
            let lba = self.workload.place();
            uniform.request.lba = Lba(lba);
            uniform.request.token = Token(slot.into());
            uniform.segment.offset = u64::from(slot) * self.buffer_bytes;
            let segments = &std::slice::from_ref(&uniform.segment)[..data];
            let (direction, blocks) = (uniform.direction, uniform.request.blocks);
            if self.channel.submit(&uniform.request, segments).is_err() {
                self.held = Some((slot, Draw { direction, lba, blocks }));
                break;
            }
            self.slots[usize::from(slot)] = Slot { start: now, direction, lba, blocks };
            sent += 1;
        }
        uniform.left -= sent + u64::from(self.held.is_some());
        if uniform.left == 0 {
            self.end(shared);
        }
        sent
    }

    fn end(&mut self, shared: &mut Shared) {
        if !self.over {
            self.over = true;
            shared.lanes_over += 1;
        }
    }

    #[inline]
    fn send(&mut self, slot: u16, draw: Draw, now: Instant) -> bool {
        let request = Request {
            blocks: draw.blocks,
            lba: Lba(draw.lba),
            token: Token(slot.into()),
            ..request(draw.direction)
        };
        let offset = u64::from(slot) * self.buffer_bytes;
        let segment = self.region.segment(offset, draw.blocks * self.block_bytes);
        let data = if request.op.has_data() { std::slice::from_ref(&segment) } else { &[] };
        if self.channel.submit(&request, data).is_err() {
            self.held = Some((slot, draw));
            return false;
        }
        self.slots[usize::from(slot)] =
            Slot { start: now, direction: draw.direction, lba: draw.lba, blocks: draw.blocks };
        true
    }

    /// The next request, and the slot it gets; `None` if there is none to send now.
    #[inline]
    fn take_next(&mut self, shared: &mut Shared) -> Option<(u16, Draw)> {
        if self.held.is_some() || self.flush_due || self.draining {
            return self.take_special(shared);
        }
        if self.uniform.is_some() {
            // Only what was held up comes this way; the rest is `fill_uniform`'s.
            return None;
        }
        let ending = &shared.plan.ending;
        let sent_enough = ending.bytes.is_some_and(|n| self.sent_bytes >= n)
            || ending.requests.is_some_and(|n| self.sent_requests >= n);
        if sent_enough || self.free.is_empty() {
            if sent_enough {
                self.end(shared);
            }
            return None;
        }
        let Some(draw) = self.workload.draw() else {
            // The end of a pass. Only reading back must know which of two writes came last.
            self.draining = self.readback.is_some();
            return self.take_next(shared);
        };
        let slot = self.free.pop()?;
        self.sent_requests += 1;
        self.sent_bytes += u64::from(draw.blocks) * u64::from(self.block_bytes);
        if draw.direction == Direction::Write {
            self.note_write(slot, draw, shared.plan.fsync);
        }
        Some((slot, draw))
    }

    /// What comes before the workload's next: a request that was refused, a flush that is due;
    /// nothing while a pass drains.
    #[cold]
    fn take_special(&mut self, shared: &mut Shared) -> Option<(u16, Draw)> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        if self.flush_due {
            let slot = self.free.pop()?;
            self.flush_due = false;
            return Some((slot, Draw { direction: Direction::Sync, lba: 0, blocks: 0 }));
        }
        if !self.is_drained() {
            return None;
        }
        self.draining = false;
        self.take_next(shared)
    }

    #[inline]
    fn note_write(&mut self, slot: u16, draw: Draw, fsync: u64) {
        if let Some(readback) = &mut self.readback {
            let offset = u64::from(slot) * self.buffer_bytes;
            readback.stamp(&self.region, offset, draw.lba, draw.blocks);
        }
        if fsync > 0 {
            self.writes_since_flush += 1;
            if self.writes_since_flush == fsync {
                self.writes_since_flush = 0;
                self.flush_due = true;
            }
        }
    }

    fn fill_readback(&mut self, now: Instant, shared: &mut Shared) -> u64 {
        let mut sent = 0;
        while let Some((slot, draw)) = self.take_readback(shared)
            && self.send(slot, draw, now)
        {
            sent += 1;
        }
        sent
    }

    fn take_readback(&mut self, shared: &mut Shared) -> Option<(u16, Draw)> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        if self.over || self.free.is_empty() {
            return None;
        }
        let next = self.readback.as_mut().and_then(Readback::next_stretch);
        let Some((lba, blocks)) = next else {
            self.end(shared);
            return None;
        };
        Some((self.free.pop()?, Draw { direction: Direction::Read, lba, blocks }))
    }
}
