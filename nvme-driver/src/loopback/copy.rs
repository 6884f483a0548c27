//! A channel that copies between a mapping and the caller's segments, at the poll after the
//! submit.
#![expect(unsafe_code, reason = "copies between mappings by raw pointer")]

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use nix::sys::statvfs::fstatvfs;

use super::ahead;
use crate::block::{
    Channel, ClaimMode, Completion, Counters, DeviceCore, Full, Lba, Limits, Op, OpenOptions,
    Progress, Request, Segment, Sink, Status, Token, WakeSet,
};
use crate::memory::{EpochMemory, Fault, Mapping};
use crate::poller::Epoch;
use crate::time::Instant;

/// A poll copies at least one request, and stops after this many bytes, so that one channel's
/// large requests do not hold up the poller's other work.
const POLL_BYTES: u64 = 256 << 10;

/// Copies between a mapping and segments.
// On cache lines of its own: its neighbours on the heap are other cores'.
#[repr(align(128))]
pub(super) struct CopyChannel {
    limits: Arc<Limits>,
    store: Arc<Mapping>,
    /// The file that the store maps, if it does.
    file: Option<Arc<File>>,
    memory: EpochMemory,
    counters: Arc<Counters>,
    queue: VecDeque<Job>,
    /// Slots of `max_segments` each; a job with more than one segment has one.
    segments: Box<[Segment]>,
    free_slots: Vec<u16>,
    depth: usize,
    mode: ClaimMode,
    core: Arc<DeviceCore>,
}

/// A request on its way.
struct Job {
    request: Request,
    /// Where it lies in the store, in bytes; by the limits it was submitted under.
    start: u64,
    bytes: u64,
    /// The status it was submitted with: not `Ok` if a check failed.
    status: Status,
    epoch: u8,
    count: u16,
    slot: u16,
    first: Segment,
}

const NO_SEGMENT: Segment = Segment { region: crate::memory::RegionId::NONE, len: 0, offset: 0 };

impl CopyChannel {
    pub(super) fn new(
        core: &Arc<DeviceCore>,
        store: &Arc<Mapping>,
        file: Option<Arc<File>>,
        mode: ClaimMode,
        options: &OpenOptions,
        counters: Arc<Counters>,
    ) -> Self {
        let limits = core.limits_for(mode);
        let depth = usize::from(options.depth);
        Self {
            segments: vec![NO_SEGMENT; depth * usize::from(limits.max_segments)].into(),
            limits,
            store: Arc::clone(store),
            file,
            memory: EpochMemory::new(&options.memory),
            counters,
            queue: VecDeque::with_capacity(depth),
            free_slots: (0..options.depth).rev().collect(),
            depth,
            mode,
            core: Arc::clone(core),
        }
    }

    #[inline]
    fn checked(&self, request: &Request, data: &[Segment]) -> Result<(), Status> {
        self.limits.check(request, data)?;
        self.memory.table().check(data)
    }

    /// Does the work of a job that passed the checks.
    #[inline]
    fn execute(&self, job: &Job) -> Status {
        let next = self.queue.front().filter(|next| next.bytes > 0);
        // A hint only, so an address beyond the store is no harm.
        let next = next.map(|next| store_hint(&self.store, next.start));
        let (start, len) = (job.start, job.bytes);
        if start + len > self.store.len() as u64 {
            return Status::OutOfRange;
        }
        let store = self.store.base().as_ptr();
        // SAFETY: start..start + len lies in the mapping, checked above.
        let mut at = unsafe { store.add(start as usize) };
        match job.request.op {
            Op::Flush => return Status::Ok,
            Op::WriteZeroes { .. } | Op::Deallocate => {
                // SAFETY: as above; nobody holds a Rust reference into a mapping.
                unsafe { at.write_bytes(0, len as usize) };
            }
            Op::Read | Op::Write => {
                let table = self.memory.table_of(job.epoch);
                let first = std::slice::from_ref(&job.first);
                let data = if job.count == 1 { first } else { self.slot(job.slot, job.count) };
                for segment in data {
                    let memory = match table.address(segment) {
                        Ok(address) => address.as_ptr(),
                        Err(status) => return status,
                    };
                    let len = segment.len as usize;
                    // SAFETY: the table just checked the segment; the store's side was checked in
                    // whole above, and the lengths of the segments add up to it (`Limits::check`).
                    // A store is never a registered region, so the two do not overlap.
                    unsafe {
                        if job.request.op == Op::Read {
                            ahead::copy(memory, at, len, next);
                        } else {
                            ahead::copy(at, memory, len, next);
                        }
                        at = at.add(len);
                    }
                }
                if let Err(status) = table.check_faults(data) {
                    return status;
                }
            }
        }
        match self.store.fault() {
            None => Status::Ok,
            Some(fault) => self.vanished(job, fault),
        }
    }

    /// The store itself failed under a copy: the file shrank, its file system has no page left for
    /// a hole, or its disk cannot read. The guard put pages of zeros there; the file takes their
    /// place again, so that only requests that touch the trouble fail, and fail anew each time.
    #[cold]
    fn vanished(&self, job: &Job, fault: Fault) -> Status {
        let Some(file) = &self.file else { return Status::Gone };
        let mended = self.store.mend(file);
        let len = file.metadata().map_or(0, |m| m.len());
        if fault.offset < len && is_full(file, job.bytes) {
            return Status::NoSpace;
        }
        // If it could not be mended, the fault may be an earlier request's.
        let first_bad = fault.offset.min(len) / u64::from(self.limits.block_bytes);
        let last = Lba(job.request.lba.0 + u64::from(job.request.blocks) - 1);
        debug_assert!(mended.is_err() || first_bad <= last.0);
        Status::Medium { first_bad: Lba(first_bad).clamp(job.request.lba, last) }
    }

    fn slot(&self, slot: u16, count: u16) -> &[Segment] {
        let start = usize::from(slot) * usize::from(self.limits.max_segments);
        &self.segments[start..start + usize::from(count)]
    }
}

fn store_hint(store: &Mapping, offset: u64) -> *const u8 {
    store.base().as_ptr().wrapping_add(offset as usize)
}

/// True if the file system has less than `bytes` left.
fn is_full(file: &File, bytes: u64) -> bool {
    fstatvfs(file).is_ok_and(|fs| fs.blocks_available() * fs.fragment_size() < bytes)
}

impl Channel for CopyChannel {
    fn room(&self) -> usize {
        self.depth - self.queue.len()
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.queue.len() == self.depth {
            return Err(Full);
        }
        let checked = self.checked(request, data);
        let mut job = Job {
            request: *request,
            start: 0,
            bytes: 0,
            status: checked.err().unwrap_or(Status::Ok),
            epoch: self.memory.begin(),
            count: 0,
            slot: 0,
            first: data.first().copied().unwrap_or(NO_SEGMENT),
        };
        if checked.is_ok() {
            job.start = request.lba.0 * u64::from(self.limits.block_bytes);
            job.bytes = self.limits.bytes(request.blocks);
            self.counters.request(request.op, job.bytes);
            // At most `max_segments`, a u16.
            job.count = data.len() as u16;
            if job.count > 1 {
                job.slot = self.free_slots.pop().expect("one slot for each place in the queue");
                let start = usize::from(job.slot) * usize::from(self.limits.max_segments);
                self.segments[start..start + data.len()].copy_from_slice(data);
            }
        }
        self.queue.push_back(job);
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress {
        let mut copied = 0;
        let mut progress = Progress::Resting;
        while out.room() > 0 && copied < POLL_BYTES {
            let Some(job) = self.queue.pop_front() else { break };
            progress = Progress::Worked;
            let late = job.request.deadline.is_some_and(|deadline| deadline < now);
            let status = match job.status {
                Status::Ok if late => Status::TimedOut,
                Status::Ok => {
                    copied += job.bytes;
                    self.execute(&job)
                }
                refused => refused,
            };
            if job.count > 1 {
                self.free_slots.push(job.slot);
            }
            self.memory.end(job.epoch);
            self.counters.completion(status);
            out.push(Completion { token: job.request.token, status });
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        // Nothing is under way between polls, so whatever is queued can still be cancelled.
        let queued = |job: &&mut Job| job.request.token == token && job.status.is_ok();
        if let Some(job) = self.queue.iter_mut().find(queued) {
            job.status = Status::Cancelled;
        }
    }

    fn turn(&mut self, to: Epoch) {
        self.memory.turn(to);
        let limits = self.core.limits_for(self.mode);
        // The segment slots were cut for the limits of `open`.
        if limits.max_segments == self.limits.max_segments {
            self.limits = limits;
        }
    }

    fn oldest(&self) -> Option<Epoch> {
        self.memory.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        if !self.queue.is_empty() {
            wake.ready();
        }
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
