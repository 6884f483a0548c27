//! Passes requests to the inner channel and holds their completions until they are due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::drive::{Drive, Work};
use crate::block::{
    Channel, ClaimMode, Completion, Counters, DeviceCore, Full, Lba, Limits, Op, OpenOptions,
    Progress, Request, Segment, Sink, Status, Token, WakeSet,
};
use crate::memory::EpochMemory;
use crate::poller::Epoch;
use crate::time::Instant;

/// One user's queue to a modelled drive.
///
/// A request starts at the poll after its submit: that is when the doorbell rings. It leaves when
/// the inner channel has completed it *and* the drive would be done. A deadline that passes before
/// ends it with [`Status::TimedOut`] as soon as the inner channel has completed it; the drive's
/// unit stays busy, as a drive's does after an abort.
pub(super) struct ModelChannel {
    inner: Box<dyn Channel>,
    drive: Arc<Mutex<Drive>>,
    limits: Arc<Limits>,
    /// Epochs only: segments are checked by the inner channel.
    memory: EpochMemory,
    counters: Arc<Counters>,
    /// By slot; the slot's number is the inner channel's token.
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Taken since the last poll, in order.
    fresh: VecDeque<u16>,
    /// Completed by the inner channel, by due time and then in the order of their submission.
    held: BinaryHeap<Reverse<(Instant, u64, u16)>>,
    from_inner: Sink,
    submitted: u64,
    scale: u32,
    mode: ClaimMode,
    core: Arc<DeviceCore>,
}

#[derive(Clone, Copy)]
struct Slot {
    token: Token,
    deadline: Option<Instant>,
    work: Work,
    sequence: u64,
    due: Instant,
    status: Status,
    epoch: u8,
    /// The deadline is before the time at which the drive would be done.
    late: bool,
    at: Place,
}

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nowhere: the slot is free.
    Free,
    /// Refused here; the drive never sees it.
    Refused,
    /// With the inner channel.
    Inner,
    /// Completed by the inner channel, and held.
    Held,
}

const FREE: Slot = Slot {
    token: Token(0),
    deadline: None,
    work: Work { op: Op::Flush, offset: 0, bytes: 0, sized: true },
    sequence: 0,
    due: Instant::ZERO,
    status: Status::Ok,
    epoch: 0,
    late: false,
    at: Place::Free,
};

impl ModelChannel {
    pub(super) fn new(
        core: &Arc<DeviceCore>,
        inner: Box<dyn Channel>,
        drive: &Arc<Mutex<Drive>>,
        scale: u32,
        mode: ClaimMode,
        options: &OpenOptions,
    ) -> Self {
        let depth = usize::from(options.depth);
        Self {
            inner,
            drive: Arc::clone(drive),
            limits: core.limits_for(mode),
            memory: EpochMemory::new(&options.memory),
            counters: core.counters().open(),
            slots: vec![FREE; depth].into(),
            free: (0..options.depth).rev().collect(),
            fresh: VecDeque::with_capacity(depth),
            held: BinaryHeap::with_capacity(depth),
            from_inner: Sink::new(depth),
            submitted: 0,
            scale,
            mode,
            core: Arc::clone(core),
        }
    }

    /// The request in the inner device's blocks, or the status that it is refused with.
    fn translate(&self, request: &Request, data: &[Segment], slot: u16) -> Result<Request, Status> {
        self.limits.check(request, data)?;
        let blocks = request.blocks.checked_mul(self.scale).ok_or(Status::Invalid)?;
        // The range lies in the device, whose bytes fit an i64.
        let lba = Lba(request.lba.0 * u64::from(self.scale));
        Ok(Request { blocks, lba, token: Token(slot.into()), ..*request })
    }

    fn work(&self, request: &Request) -> Work {
        let bytes = self.limits.bytes(request.blocks);
        let offset = request.lba.0.saturating_mul(self.limits.block_bytes.into());
        let sized = request.op != Op::Write || self.limits.is_sized(offset, bytes);
        Work { op: request.op, offset, bytes, sized }
    }

    /// The drive sees what was submitted since the last poll.
    fn ring_doorbell(&mut self, now: Instant) -> Progress {
        if self.fresh.is_empty() {
            return Progress::Resting;
        }
        let mut drive = self.drive.lock().unwrap_or_else(PoisonError::into_inner);
        for number in self.fresh.drain(..) {
            let slot = &mut self.slots[usize::from(number)];
            if slot.at == Place::Refused {
                slot.due = now;
                slot.at = Place::Held;
                self.held.push(Reverse((now, slot.sequence, number)));
                continue;
            }
            slot.due = drive.serve(&slot.work, now);
            if let Some(deadline) = slot.deadline.filter(|deadline| *deadline < slot.due) {
                slot.due = deadline.max(now);
                slot.late = true;
            }
        }
        Progress::Worked
    }

    /// Takes what the inner channel has completed, and holds it.
    fn collect(&mut self, now: Instant) -> Progress {
        let progress = self.inner.poll(now, &mut self.from_inner);
        for completion in self.from_inner.as_slice() {
            // Only tokens given to the inner channel come back; an unknown one names no slot.
            let number = u16::try_from(completion.token.0).unwrap_or(u16::MAX);
            let slot = self.slots.get_mut(usize::from(number));
            let Some(slot) = slot.filter(|slot| slot.at == Place::Inner) else {
                debug_assert!(false, "the inner channel completed what it was not given");
                continue;
            };
            slot.status = match completion.status {
                Status::Ok if slot.late => Status::TimedOut,
                Status::Medium { first_bad } => {
                    Status::Medium { first_bad: Lba(first_bad.0 / u64::from(self.scale)) }
                }
                status => status,
            };
            slot.at = Place::Held;
            self.held.push(Reverse((slot.due, slot.sequence, number)));
        }
        self.from_inner.clear();
        progress
    }

    /// Hands up what is due.
    fn hand_up(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let mut progress = Progress::Resting;
        while let Some(Reverse((due, _, number))) = self.held.peek().copied() {
            if due > now || out.room() == 0 {
                return progress | Progress::Waiting;
            }
            self.held.pop();
            let slot = &mut self.slots[usize::from(number)];
            out.push(Completion { token: slot.token, status: slot.status });
            self.counters.completion(slot.status);
            self.memory.end(slot.epoch);
            slot.at = Place::Free;
            self.free.push(number);
            progress = Progress::Worked;
        }
        progress
    }
}

impl Channel for ModelChannel {
    fn room(&self) -> usize {
        self.free.len().min(self.inner.room())
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        let number = *self.free.last().ok_or(Full)?;
        let (status, at) = match self.translate(request, data, number) {
            Ok(inner) => {
                self.inner.submit(&inner, data)?;
                (Status::Ok, Place::Inner)
            }
            Err(status) => (status, Place::Refused),
        };
        let work = self.work(request);
        if at == Place::Inner {
            self.counters.request(request.op, work.bytes);
            if !work.sized {
                self.counters.unsized_write();
            }
        }
        self.free.pop();
        self.slots[usize::from(number)] = Slot {
            token: request.token,
            deadline: request.deadline,
            work,
            sequence: self.submitted,
            due: Instant::ZERO,
            status,
            epoch: self.memory.begin(),
            late: false,
            at,
        };
        self.submitted = self.submitted.wrapping_add(1);
        self.fresh.push_back(number);
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let rang = self.ring_doorbell(now);
        let collected = self.collect(now);
        rang | collected | self.hand_up(now, out)
    }

    /// What the inner channel has completed is as if not asked.
    fn cancel(&mut self, token: Token) {
        let asked = |slot: &Slot| slot.at == Place::Inner && slot.token == token;
        if let Some(number) = self.slots.iter().position(asked) {
            self.inner.cancel(Token(number as u64));
        }
    }

    fn turn(&mut self, to: Epoch) {
        self.memory.turn(to);
        self.inner.turn(to);
        self.limits = self.core.limits_for(self.mode);
    }

    fn oldest(&self) -> Option<Epoch> {
        self.memory.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        if !self.fresh.is_empty() {
            wake.ready();
        }
        if let Some(Reverse((due, _, _))) = self.held.peek() {
            wake.at(*due);
        }
        self.inner.arm(wake);
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
