//! One user's view of a file through a ring.
#![expect(
    unsafe_code,
    reason = "its slots hold addresses for the kernel, and move between threads"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::errno;
use super::ring::{Memory, Ring};
use crate::block::{
    Channel, ClaimMode, Completion, Counters, DeviceCore, Flags, Full, Lba, Limits, Op,
    OpenOptions, Progress, Request, Segment, Sink, Status, Token, WakeSet,
};
use crate::memory::{EpochMemory, RegionId};
use crate::poller::Epoch;
use crate::time::Instant;

/// The kernel's largest ring holds 32,768 entries, and a cancellation needs one beside each.
const DEPTH_MAX: u16 = 8192;
/// How often a request is sent again for an error that passes (EAGAIN, EINTR).
const ATTEMPTS_MAX: u8 = 16;
/// User data of entries whose completion means nothing: cancellations.
const NOBODY: u64 = u64::MAX;

/// What a channel reads and writes.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) file: Arc<File>,
    pub(crate) is_node: bool,
}

/// A channel on a ring of its own.
// On cache lines of its own: its neighbours on the heap are other cores'.
#[repr(align(128))]
pub(crate) struct UringChannel {
    limits: Arc<Limits>,
    memory: EpochMemory,
    counters: Arc<Counters>,
    ring: Ring,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// `max_segments` for each slot.
    segments: Box<[Segment]>,
    lists: Box<[libc::iovec]>,
    max_segments: usize,
    /// Requests that failed their checks and wait for the next poll.
    refused: VecDeque<(Completion, u8)>,
    /// Requests with a deadline, and the earliest of them as far as known.
    deadlines: usize,
    next_deadline: Instant,
    /// Slots to send (again) that found no entry.
    resend: Vec<u16>,
    armed: bool,
    mode: ClaimMode,
    target: Target,
    core: Arc<DeviceCore>,
}

// SAFETY: the raw addresses in `lists` point into regions that `memory` keeps mapped, and are used
// by the kernel only; nothing in a channel is tied to a thread before its first poll.
unsafe impl Send for UringChannel {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Free,
    /// The request itself.
    Main,
    /// Zeroes by punching a hole, after the kernel refused the plain way.
    Punch,
    /// Room for the hole just punched, where zeroes must stay allocated.
    Allocate,
    /// The flush that makes a FUA request without data durable.
    Sync,
}

#[derive(Clone, Copy)]
struct Slot {
    request: Request,
    stage: Stage,
    epoch: u8,
    attempts: u8,
    /// What it ends with if the kernel cancels it.
    stopped: Option<Status>,
    count: u16,
    /// Where it lies in the file, in bytes; by the limits it was submitted under.
    start: u64,
    bytes: u64,
    done: u64,
    block_bytes: u32,
}

const FREE: Slot = Slot {
    request: Request::flush(Token(0)),
    stage: Stage::Free,
    epoch: 0,
    attempts: 0,
    stopped: None,
    count: 0,
    start: 0,
    bytes: 0,
    done: 0,
    block_bytes: 512,
};

impl UringChannel {
    pub(crate) fn new(
        core: &Arc<DeviceCore>,
        target: Target,
        mode: ClaimMode,
        options: &OpenOptions,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        if options.depth > DEPTH_MAX {
            return Err(io::Error::other(format!("depth is at most {DEPTH_MAX} here")));
        }
        let depth = usize::from(options.depth);
        let limits = core.limits_for(mode);
        let max_segments = usize::from(limits.max_segments);
        let memory = EpochMemory::new(&options.memory);
        let mut ring = Ring::new(u32::from(options.depth) * 2, target.file.as_raw_fd())?;
        ring.register(memory.table());
        let no_segment = Segment { region: RegionId::NONE, len: 0, offset: 0 };
        let no_piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            limits,
            memory,
            counters,
            ring,
            slots: vec![FREE; depth].into(),
            free: (0..options.depth).rev().collect(),
            segments: vec![no_segment; depth * max_segments].into(),
            lists: vec![no_piece; depth * max_segments].into(),
            max_segments,
            refused: VecDeque::with_capacity(depth),
            deadlines: 0,
            next_deadline: Instant::MAX,
            resend: Vec::with_capacity(depth),
            armed: false,
            mode,
            target,
            core: Arc::clone(core),
        })
    }

    /// A flush that belongs to a request done otherwise: nobody asked for it, so nobody counts it.
    pub(crate) fn flush_behind(&mut self, token: Token) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        let epoch = self.memory.begin();
        self.take(&Request::flush(token), &[], epoch)
    }

    /// Takes a request that passed its checks.
    fn take(&mut self, request: &Request, data: &[Segment], epoch: u8) -> Result<(), Full> {
        let index = self.free.pop().ok_or(Full)?;
        let bytes = self.limits.bytes(request.blocks);
        let first = usize::from(index) * self.max_segments;
        self.segments[first..first + data.len()].copy_from_slice(data);
        self.slots[usize::from(index)] = Slot {
            request: *request,
            stage: Stage::Main,
            epoch,
            attempts: 0,
            stopped: None,
            // At most `max_segments`, a u16.
            count: data.len() as u16,
            start: request.lba.0 * u64::from(self.limits.block_bytes),
            bytes,
            done: 0,
            block_bytes: self.limits.block_bytes,
        };
        if let Some(deadline) = request.deadline {
            self.deadlines += 1;
            self.next_deadline = self.next_deadline.min(deadline);
        }
        self.send(index);
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len() + self.refused.len()
    }

    /// Puts a slot's next entry into the ring, or notes it for the next poll.
    fn send(&mut self, index: u16) {
        let slot = self.slots[usize::from(index)];
        let user = u64::from(index);
        let fua = slot.request.flags.contains(Flags::FUA);
        let (at, len) = (slot.start, slot.bytes);
        let sent = match (slot.stage, slot.request.op) {
            (Stage::Free, _) => true,
            (Stage::Sync, _) | (_, Op::Flush) => self.ring.fdatasync(user),
            (_, Op::Read | Op::Write) => {
                let memory = match self.pieces(index) {
                    Ok(memory) => memory,
                    Err(status) => return self.refuse(index, status),
                };
                if slot.request.op == Op::Read {
                    self.ring.read(memory, at + slot.done, user)
                } else {
                    self.ring.write(memory, at + slot.done, fua, user)
                }
            }
            (Stage::Main, Op::WriteZeroes { .. }) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                self.ring.fallocate(mode, at, len, user)
            }
            (Stage::Main, Op::Deallocate) if self.target.is_node => {
                self.ring.discard(at, len, user)
            }
            (Stage::Allocate, _) => self.ring.fallocate(libc::FALLOC_FL_KEEP_SIZE, at, len, user),
            (_, Op::WriteZeroes { .. } | Op::Deallocate) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                self.ring.fallocate(mode, at, len, user)
            }
        };
        if !sent {
            // Each slot is at most once in the list, so it never grows beyond its capacity.
            self.resend.push(index);
        }
    }

    /// The memory of what is left of a slot's transfer.
    fn pieces(&mut self, index: u16) -> Result<Memory, Status> {
        let slot = &self.slots[usize::from(index)];
        let first = usize::from(index) * self.max_segments;
        let segments = &self.segments[first..first + usize::from(slot.count)];
        let table = self.memory.table_of(slot.epoch);
        if let ([only], 0) = (segments, slot.done) {
            let address = table.address(only)?.as_ptr();
            return Ok(Memory::One { region: only.region, address, len: only.len });
        }
        let mut skip = slot.done;
        let mut count = 0;
        for segment in segments {
            let len = u64::from(segment.len);
            let skipped = skip.min(len);
            skip -= skipped;
            if skipped < len {
                let rest = Segment {
                    offset: segment.offset + skipped,
                    len: (len - skipped) as u32,
                    ..*segment
                };
                self.lists[first + count] = libc::iovec {
                    iov_base: table.address(&rest)?.as_ptr().cast(),
                    iov_len: rest.len as usize,
                };
                count += 1;
            }
        }
        Ok(Memory::Many { list: &raw const self.lists[first], count: count as u32 })
    }

    /// Ends a slot's request at the next poll, without the kernel.
    fn refuse(&mut self, index: u16, status: Status) {
        let slot = self.release(index);
        self.refused.push_back((Completion { token: slot.request.token, status }, slot.epoch));
    }

    fn release(&mut self, index: u16) -> Slot {
        let slot = std::mem::replace(&mut self.slots[usize::from(index)], FREE);
        self.deadlines -= usize::from(slot.request.deadline.is_some());
        self.free.push(index);
        slot
    }

    /// What a completion of a slot means: its status, or nothing yet.
    fn judge(&mut self, index: u16, result: i32) -> Option<Status> {
        let slot = &mut self.slots[usize::from(index)];
        let op = slot.request.op;
        if result < 0 {
            return self.judge_error(index, -result);
        }
        if op.has_data() && slot.stage == Stage::Main {
            slot.done += result as u64;
            if slot.done < slot.bytes {
                if result == 0 {
                    // The end of a file that is shorter than it was, or a full file system.
                    let done = slot.done / u64::from(slot.block_bytes);
                    return Some(Status::Medium { first_bad: Lba(slot.request.lba.0 + done) });
                }
                self.send(index);
                return None;
            }
            return Some(Status::Ok);
        }
        if slot.stage == Stage::Punch && op == (Op::WriteZeroes { may_deallocate: false }) {
            slot.stage = Stage::Allocate;
            self.send(index);
            return None;
        }
        let fua = slot.request.flags.contains(Flags::FUA);
        if fua && slot.stage != Stage::Sync && op != Op::Flush {
            slot.stage = Stage::Sync;
            self.send(index);
            return None;
        }
        Some(Status::Ok)
    }

    fn judge_error(&mut self, index: u16, code: i32) -> Option<Status> {
        let slot = &mut self.slots[usize::from(index)];
        if errno::is_passing(code) && slot.attempts < ATTEMPTS_MAX && slot.stopped.is_none() {
            slot.attempts += 1;
            self.send(index);
            return None;
        }
        // A worker that is stopped in the middle answers EINTR.
        if (code == libc::ECANCELED || errno::is_passing(code))
            && let Some(status) = slot.stopped
        {
            return Some(status);
        }
        if code == libc::EOPNOTSUPP
            && matches!(slot.request.op, Op::WriteZeroes { .. })
            && slot.stage == Stage::Main
            && !self.target.is_node
        {
            slot.stage = Stage::Punch;
            self.send(index);
            return None;
        }
        Some(errno::status(code, slot.request.lba, slot.done, slot.block_bytes))
    }

    /// Asks the kernel to end a slot early with `status`; it completes all the same, as the kernel
    /// then says.
    fn stop(&mut self, index: u16, status: Status) {
        let slot = &mut self.slots[usize::from(index)];
        if slot.stopped.is_none() {
            slot.stopped = Some(status);
            // Without a free entry it runs to its natural end.
            self.ring.cancel(u64::from(index), NOBODY);
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        self.next_deadline = Instant::MAX;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let Some(deadline) = slot.request.deadline.filter(|_| slot.stopped.is_none()) else {
                continue;
            };
            if deadline < now {
                self.stop(index as u16, Status::TimedOut);
            } else {
                self.next_deadline = self.next_deadline.min(deadline);
            }
        }
    }

    fn finish(&mut self, index: u16, status: Status, out: &mut Sink) {
        let slot = self.release(index);
        self.memory.end(slot.epoch);
        self.counters.completion(status);
        out.push(Completion { token: slot.request.token, status });
    }
}

impl Channel for UringChannel {
    fn room(&self) -> usize {
        self.slots.len() - self.outstanding()
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        let checked =
            self.limits.check(request, data).and_then(|()| self.memory.table().check(data));
        let epoch = self.memory.begin();
        if let Err(status) = checked {
            self.refused.push_back((Completion { token: request.token, status }, epoch));
            return Ok(());
        }
        self.counters.request(request.op, self.limits.bytes(request.blocks));
        self.take(request, data, epoch)
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let mut progress = Progress::Resting;
        while out.room() > 0
            && let Some((completion, epoch)) = self.refused.pop_front()
        {
            self.memory.end(epoch);
            self.counters.completion(completion.status);
            out.push(completion);
            progress = Progress::Worked;
        }
        for _ in 0..self.resend.len() {
            let index = self.resend.swap_remove(0);
            self.send(index);
        }
        if self.deadlines > 0 && self.next_deadline < now {
            self.check_deadlines(now);
        }
        if self.ring.enter() {
            progress = Progress::Worked;
        }
        while out.room() > 0
            && let Some((user, result)) = self.ring.next()
        {
            progress = Progress::Worked;
            let Ok(index) = u16::try_from(user) else { continue };
            if let Some(status) = self.judge(index, result) {
                self.finish(index, status, out);
            }
        }
        // What is outstanding is the kernel's, which wakes us: polling again gains nothing.
        progress
    }

    fn cancel(&mut self, token: Token) {
        let wanted = |s: &Slot| s.stage != Stage::Free && s.request.token == token;
        if let Some(index) = self.slots.iter().position(wanted) {
            self.stop(index as u16, Status::Cancelled);
        }
    }

    fn turn(&mut self, to: Epoch) {
        self.memory.turn(to);
        self.ring.register(self.memory.table());
        let limits = self.core.limits_for(self.mode);
        // The slots were cut for the limits of `open`.
        if usize::from(limits.max_segments) <= self.max_segments {
            self.limits = limits;
        }
    }

    fn oldest(&self) -> Option<Epoch> {
        self.memory.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        if !self.refused.is_empty() || !self.resend.is_empty() {
            wake.ready();
        } else if self.free.len() < self.slots.len() {
            self.armed = true;
            match self.ring.arm(wake.bell()) {
                Some(ring) => wake.ring(ring),
                None => wake.ready(),
            }
        }
        if self.deadlines > 0 && self.next_deadline < Instant::MAX {
            wake.at(self.next_deadline);
        }
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.ring.disarm();
        }
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

impl Drop for UringChannel {
    /// Waits for what the kernel still has: the memory is given back only after that.
    fn drop(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].stage != Stage::Free {
                self.stop(index as u16, Status::Cancelled);
            }
        }
        let mut sink = Sink::new(self.slots.len());
        while self.outstanding() > 0 {
            sink.clear();
            self.poll(Instant::ZERO, &mut sink);
            // On another thread than the poller's the ring cannot be entered: the kernel ends the
            // requests by itself, some time after the ring is closed, and until then the memory
            // is not ours to give back.
            if sink.is_empty() && self.ring.wait().is_err() {
                self.memory.keep_mapped();
                std::mem::forget(std::mem::take(&mut self.lists));
                return;
            }
        }
    }
}
