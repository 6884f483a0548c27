//! One job: a poller's task that keeps every device's queue full and measures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use hdrhistogram::Histogram;
use strake_nvme_driver::block::{
    Channel, Completion, Flags, Lba, Op, Progress, Request, Sink, Status, Token, WakeSet,
};
use strake_nvme_driver::memory::Region;
use strake_nvme_driver::poller::{Epoch, Task, TaskState};
use strake_nvme_driver::time::Instant;

use super::report::{Direction, DirectionReport, Series, VerifyReport};
use super::series::SeriesRecorder;
use super::verify::{self, Stamp};
use super::workload::{Draw, Workload};

/// When a job stops sending.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Nanoseconds after its first poll.
    pub after_nanos: Option<u64>,
    /// Bytes sent to each device.
    pub bytes: Option<u64>,
    /// Requests sent to each device.
    pub requests: Option<u64>,
}

/// What a job is to do, apart from its lanes.
#[derive(Clone, Debug)]
pub struct JobPlan {
    pub ending: Ending,
    pub rate_iops: Option<u64>,
    pub fsync: u64,
    pub continue_on_error: bool,
    /// Which run stamps the blocks, if they are to be verified.
    pub verify_run: Option<u64>,
}

/// What a job measured.
#[derive(Debug)]
pub struct JobResult {
    /// Which job, from 0.
    pub number: u16,
    pub directions: [DirectionReport; 4],
    pub series: Series,
    pub runtime_nanos: u64,
    pub errors: BTreeMap<String, u64>,
    pub verify: Option<VerifyReport>,
}

/// A job's queue on one device.
pub struct Lane {
    name: String,
    channel: Box<dyn Channel>,
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
    /// Direction and size of every request, if they are all alike and need no care.
    uniform: Option<(Direction, u32)>,
    /// How many requests a uniform workload sends in all.
    uniform_requests: u64,
    verify: Option<Verifier>,
}

#[derive(Clone, Copy)]
struct Slot {
    start: Instant,
    direction: Direction,
    lba: u64,
    blocks: u32,
}

/// What a lane remembers of its writes, and how far it has read them back.
struct Verifier {
    run: u64,
    first: u64,
    /// How often each block of the lane's extent was written.
    generations: Vec<u32>,
    next: u64,
    scratch: Vec<u8>,
    report: VerifyReport,
}

impl Lane {
    /// A queue of `depth` on `channel`. `region` holds a buffer of `buffer_bytes` for each place.
    #[must_use]
    pub fn new(
        name: String,
        channel: Box<dyn Channel>,
        workload: Workload,
        region: Arc<Region>,
        block_bytes: u32,
        buffer_bytes: u32,
        depth: u16,
        plan: &JobPlan,
    ) -> Self {
        let uniform = workload.uniform().filter(|_| plan.fsync == 0 && plan.verify_run.is_none());
        let idle = Slot { start: Instant::ZERO, direction: Direction::Read, lba: 0, blocks: 0 };
        Self {
            name,
            channel,
            workload,
            region,
            block_bytes,
            buffer_bytes: buffer_bytes.into(),
            sink: Sink::new(depth.into()),
            slots: vec![idle; depth.into()].into(),
            free: (0..depth).rev().collect(),
            sent_bytes: 0,
            sent_requests: 0,
            writes_since_flush: 0,
            flush_due: false,
            held: None,
            draining: false,
            over: false,
            uniform,
            uniform_requests: uniform.map_or(0, |(_, blocks)| {
                let ending = &plan.ending;
                let bytes = u64::from(blocks) * u64::from(block_bytes);
                let by_bytes = ending.bytes.map_or(u64::MAX, |n| n.div_ceil(bytes));
                by_bytes.min(ending.requests.unwrap_or(u64::MAX))
            }),
            verify: None,
        }
    }

    /// Remember what is written, for reading it back at the end.
    pub fn verify(&mut self, run: u64, extent: super::workload::Extent) {
        self.verify = Some(Verifier {
            run,
            first: extent.first,
            generations: vec![0; usize::try_from(extent.blocks).unwrap_or(usize::MAX)],
            next: 0,
            scratch: vec![0; self.buffer_bytes as usize],
            report: VerifyReport::default(),
        });
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The next request, and the slot it gets; `None` if there is none to send now.
    #[inline]
    fn take_next(&mut self, plan: &JobPlan) -> Option<(u16, Draw)> {
        if self.held.is_some() || self.flush_due || self.draining {
            return self.take_special(plan);
        }
        let sent_enough = plan.ending.bytes.is_some_and(|n| self.sent_bytes >= n)
            || plan.ending.requests.is_some_and(|n| self.sent_requests >= n);
        if self.over || sent_enough {
            self.over = true;
            return None;
        }
        let Some(draw) = self.workload.draw() else {
            // The end of a pass. Only verification must know which of two writes came last.
            self.draining = self.verify.is_some();
            return self.take_next(plan);
        };
        let slot = self.free.pop()?;
        self.sent_requests += 1;
        self.sent_bytes += u64::from(draw.blocks) * u64::from(self.block_bytes);
        if draw.direction == Direction::Write {
            self.note_write(slot, draw, plan.fsync);
        }
        Some((slot, draw))
    }

    /// What comes before the workload's next: a request that was refused, a flush that is due;
    /// nothing while a pass drains.
    #[cold]
    fn take_special(&mut self, plan: &JobPlan) -> Option<(u16, Draw)> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        if self.flush_due {
            let slot = self.free.pop()?;
            self.flush_due = false;
            return Some((slot, Draw { direction: Direction::Sync, lba: 0, blocks: 0 }));
        }
        if self.outstanding() > 0 {
            return None;
        }
        self.draining = false;
        self.take_next(plan)
    }

    #[inline]
    fn note_write(&mut self, slot: u16, draw: Draw, fsync: u64) {
        if self.verify.is_some() {
            self.stamp(slot, draw);
        }
        if fsync > 0 {
            self.writes_since_flush += 1;
            if self.writes_since_flush == fsync {
                self.writes_since_flush = 0;
                self.flush_due = true;
            }
        }
    }

    /// Sends up to `room` requests that differ in place only: the short way for the plainest
    /// workloads, with all decisions made before the loop.
    #[inline]
    fn fill_uniform(&mut self, room: u64, now: Instant) -> u64 {
        let Some((direction, blocks)) = self.uniform else { return 0 };
        let bytes = blocks * self.block_bytes;
        let left = self.uniform_requests - self.sent_requests;
        self.over |= left == 0;
        let mut request = Request { blocks, ..request(direction) };
        let mut segment = self.region.segment(0, bytes);
        let data = usize::from(request.op.has_data());
        let mut sent = 0;
        while sent < room.min(left)
            && let Some(slot) = self.free.pop()
        {
            let lba = self.workload.place();
            request.lba = Lba(lba);
            request.token = Token(slot.into());
            segment.offset = u64::from(slot) * self.buffer_bytes;
            if self.channel.submit(&request, &std::slice::from_ref(&segment)[..data]).is_err() {
                self.held = Some((slot, Draw { direction, lba, blocks }));
                break;
            }
            self.slots[usize::from(slot)] = Slot { start: now, direction, lba, blocks };
            sent += 1;
        }
        self.sent_requests += sent + u64::from(self.held.is_some());
        sent
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

    /// Makes a write's blocks name themselves.
    #[inline]
    fn stamp(&mut self, slot: u16, draw: Draw) {
        let Some(verifier) = self.verify.as_mut() else { return };
        let offset = u64::from(slot) * self.buffer_bytes;
        let block = self.block_bytes as usize;
        let len = draw.blocks as usize * block;
        for (i, bytes) in verifier.scratch[..len].chunks_exact_mut(block).enumerate() {
            let lba = draw.lba + i as u64;
            let generation = &mut verifier.generations[(lba - verifier.first) as usize];
            *generation += 1;
            verify::fill(bytes, Stamp { run: verifier.run, lba, generation: *generation });
        }
        let written = self.region.write_at(offset as usize, &verifier.scratch[..len]);
        debug_assert!(written, "buffers lie in their region");
    }

    /// The next stretch to read back: written blocks side by side, at most a buffer.
    fn next_check(&mut self) -> Option<Draw> {
        let verifier = self.verify.as_mut()?;
        let total = verifier.generations.len() as u64;
        let written = |at: u64| verifier.generations[at as usize] > 0;
        while verifier.next < total && !written(verifier.next) {
            verifier.next += 1;
        }
        let start = verifier.next;
        let longest = self.buffer_bytes / u64::from(self.block_bytes);
        while verifier.next < total && verifier.next - start < longest && written(verifier.next) {
            verifier.next += 1;
        }
        let blocks = u32::try_from(verifier.next - start).ok().filter(|n| *n > 0)?;
        Some(Draw { direction: Direction::Read, lba: verifier.first + start, blocks })
    }

    /// Looks at a stretch that was read back.
    fn check(&mut self, index: u16) {
        let Some(verifier) = self.verify.as_mut() else { return };
        let slot = self.slots[usize::from(index)];
        let block = self.block_bytes as usize;
        let len = slot.blocks as usize * block;
        let offset = u64::from(index) * self.buffer_bytes;
        let read = self.region.read_at(offset as usize, &mut verifier.scratch[..len]);
        debug_assert!(read, "buffers lie in their region");
        for (i, bytes) in verifier.scratch[..len].chunks_exact(block).enumerate() {
            let lba = slot.lba + i as u64;
            let generation = verifier.generations[(lba - verifier.first) as usize];
            verifier.report.blocks_checked += 1;
            if let Err(wrong) = verify::check(bytes, Stamp { run: verifier.run, lba, generation }) {
                verifier.report.blocks_wrong += 1;
                // Reads complete in any order; the first wrong block is the lowest.
                if verifier.report.first_wrong.as_ref().is_none_or(|(first, _)| lba < *first) {
                    let at = lba * u64::from(self.block_bytes);
                    let text = format!("{}: block {lba} (byte {at}) {wrong}", self.name);
                    verifier.report.first_wrong = Some((lba, text));
                }
            }
        }
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Work,
    /// Reading back what was written.
    Verify,
}

/// A poller's task.
pub struct Job {
    number: u16,
    plan: JobPlan,
    lanes: Vec<Lane>,
    phase: Phase,
    started: Option<Instant>,
    /// When the workload ends at the latest.
    deadline: Instant,
    /// Time of the last completion of the workload.
    ended: Instant,
    stopping: bool,
    stop: Arc<AtomicBool>,
    tally: Tally,
    errors: BTreeMap<String, u64>,
    started_requests: u64,
    results: mpsc::Sender<JobResult>,
}

/// Completions of one poll of requests that began together.
#[derive(Clone, Copy)]
struct Run {
    direction: Direction,
    start: Instant,
    requests: u64,
    blocks: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { direction: Direction::Read, start: Instant::MAX, requests: 0, blocks: 0 }
    }
}

/// What is counted of each completion.
struct Tally {
    latency: [Histogram<u64>; 4],
    requests: [u64; 4],
    bytes: [u64; 4],
    series: SeriesRecorder,
}

impl Tally {
    #[inline]
    fn count(&mut self, run: Run, now: Instant, block_bytes: u32) {
        if run.requests == 0 {
            return;
        }
        let d = run.direction as usize;
        let bytes = run.blocks * u64::from(block_bytes);
        self.latency[d].saturating_record_n(now.nanos_since(run.start), run.requests);
        self.requests[d] += run.requests;
        self.bytes[d] += bytes;
        self.series.add(d, run.requests, bytes);
    }
}

/// Longer than any request that someone waits for: an hour. Longer ones count as this.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;

impl Job {
    /// A job that ends by itself, when `stop` is set, or at its first error, and then sends its
    /// result.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constants.
    #[must_use]
    pub fn new(
        number: u16,
        plan: JobPlan,
        lanes: Vec<Lane>,
        stop: Arc<AtomicBool>,
        results: mpsc::Sender<JobResult>,
    ) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("bounds that fit 3 digits")
        };
        Self {
            number,
            plan,
            lanes,
            phase: Phase::Work,
            started: None,
            deadline: Instant::MAX,
            ended: Instant::ZERO,
            stopping: false,
            stop,
            tally: Tally {
                latency: std::array::from_fn(|_| histogram()),
                requests: [0; 4],
                bytes: [0; 4],
                series: SeriesRecorder::new(),
            },
            errors: BTreeMap::new(),
            started_requests: 0,
            results,
        }
    }

    /// Counts what completed, and frees its slots. False if something needs more than counting.
    #[inline]
    fn complete(&mut self, lane: usize, now: Instant) -> bool {
        let Lane { sink, slots, free, block_bytes, .. } = &mut self.lanes[lane];
        let mut plain = self.phase == Phase::Work;
        // Requests that complete together mostly began together and are of one kind: such a run is
        // counted and recorded as one.
        let mut run = Run::default();
        for completion in sink.as_slice() {
            let index = completion.token.0 as u16;
            let slot = &slots[usize::from(index)];
            free.push(index);
            if !completion.status.is_ok() {
                plain = false;
                continue;
            }
            if run.start != slot.start || run.direction != slot.direction {
                if self.phase == Phase::Work {
                    self.tally.count(run, now, *block_bytes);
                }
                run = Run { direction: slot.direction, start: slot.start, requests: 0, blocks: 0 };
            }
            run.requests += 1;
            run.blocks += u64::from(slot.blocks);
        }
        if self.phase == Phase::Work {
            self.tally.count(run, now, *block_bytes);
        }
        plain
    }

    fn begin(&mut self, now: Instant) {
        self.started = Some(now);
        if let Some(nanos) = self.plan.ending.after_nanos {
            self.deadline = now.plus_nanos(nanos);
        }
        self.tally.series.start(now);
    }

    /// Errors and verification, for completions that need more than counting.
    #[cold]
    fn complete_with_care(&mut self, lane: usize) {
        for at in 0..self.lanes[lane].sink.len() {
            let Completion { token, status } = self.lanes[lane].sink.as_slice()[at];
            if status.is_ok() {
                if self.phase == Phase::Verify {
                    self.lanes[lane].check(token.0 as u16);
                }
                continue;
            }
            self.fail(lane, token, status);
        }
    }

    fn fail(&mut self, lane: usize, token: Token, status: Status) {
        let lane = &self.lanes[lane];
        let slot = lane.slots[token.0 as usize];
        let what = match slot.direction {
            Direction::Sync => "flush".to_owned(),
            direction => format!("{} at block {}", direction.name(), slot.lba),
        };
        // Counted by kind, so that a million errors are a few lines; the first keeps its place.
        let mut text = format!("{}: {what}: {status}", lane.name);
        if self.errors.len() >= 8 && !self.errors.contains_key(&text) {
            text = format!("{}: others", lane.name);
        }
        *self.errors.entry(text).or_default() += 1;
        if !self.plan.continue_on_error {
            self.stopping = true;
        }
    }

    /// How many requests the rate allows to be started by `now`.
    fn allowance(&self, now: Instant) -> u64 {
        let Some(rate) = self.plan.rate_iops else { return u64::MAX };
        let elapsed = now.nanos_since(self.started.unwrap_or(now));
        let due = (u128::from(elapsed) * u128::from(rate) / 1_000_000_000) as u64 + 1;
        due.saturating_sub(self.started_requests)
    }

    #[inline]
    fn fill(&mut self, at: usize, now: Instant) -> Progress {
        let allowance = self.allowance(now);
        let lane = &mut self.lanes[at];
        let room = lane.channel.room().min(lane.free.len() + usize::from(lane.held.is_some()));
        let room = allowance.min(room as u64);
        if lane.uniform.is_some() && lane.held.is_none() {
            let sent = lane.fill_uniform(room, now);
            self.started_requests += sent;
            return if sent > 0 { Progress::Worked } else { Progress::Resting };
        }
        let mut sent = 0;
        while sent < room
            && let Some((slot, draw)) = lane.take_next(&self.plan)
            && lane.send(slot, draw, now)
        {
            sent += 1;
        }
        self.started_requests += sent;
        if sent > 0 { Progress::Worked } else { Progress::Resting }
    }

    fn fill_checks(&mut self, at: usize, now: Instant) -> Progress {
        let mut progress = Progress::Resting;
        let lane = &mut self.lanes[at];
        while lane.held.is_some()
            || (!lane.over && !lane.free.is_empty() && lane.channel.room() > 0)
        {
            let (slot, draw) = match lane.held.take() {
                Some(held) => held,
                None => match (lane.next_check(), lane.free.pop()) {
                    (Some(draw), Some(slot)) => (slot, draw),
                    (None, slot) => {
                        lane.free.extend(slot);
                        lane.over = true;
                        break;
                    }
                    (Some(_), None) => break,
                },
            };
            if !lane.send(slot, draw, now) {
                break;
            }
            progress = Progress::Worked;
        }
        progress
    }

    fn is_drained(&self) -> bool {
        self.lanes.iter().all(|lane| lane.outstanding() == 0)
    }

    /// Moves to the next phase, or ends.
    fn advance(&mut self) -> TaskState {
        let interrupted = self.stop.load(Ordering::Relaxed);
        let verify = self.plan.verify_run.is_some() && self.errors.is_empty() && !interrupted;
        if self.phase == Phase::Work && verify {
            self.phase = Phase::Verify;
            self.stopping = false;
            for lane in &mut self.lanes {
                lane.over = false;
            }
            return TaskState::Running(Progress::Worked);
        }
        self.send_result();
        TaskState::Finished
    }

    fn send_result(&mut self) {
        let started = self.started.unwrap_or_default();
        let empty = || Histogram::new(1).expect("one digit always fits");
        let latency = std::mem::replace(&mut self.tally.latency, std::array::from_fn(|_| empty()));
        let mut latency = latency.into_iter();
        let directions = std::array::from_fn(|d| DirectionReport {
            latency: latency.next().unwrap_or_else(empty),
            requests: self.tally.requests[d],
            bytes: self.tally.bytes[d],
        });
        let verify = self.lanes.iter().filter_map(|lane| lane.verify.as_ref());
        let verify = verify.fold(VerifyReport::default(), |mut sum, v| {
            sum.add(&v.report);
            sum
        });
        let result = JobResult {
            number: self.number,
            directions,
            series: self.tally.series.finish(),
            runtime_nanos: self.ended.nanos_since(started),
            errors: std::mem::take(&mut self.errors),
            verify: self.plan.verify_run.map(|_| verify),
        };
        // Nobody listens only if the run was given up.
        let _ = self.results.send(result);
    }
}

impl Task for Job {
    fn poll(&mut self, now: Instant) -> TaskState {
        if self.started.is_none() {
            self.begin(now);
        }
        if (now >= self.deadline && self.phase == Phase::Work) || self.stop.load(Ordering::Relaxed)
        {
            self.stopping = true;
        }
        self.tally.series.advance(now);
        let mut progress = Progress::Resting;
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            lane.sink.clear();
            progress = progress | lane.channel.poll(now, &mut lane.sink);
            if !lane.sink.is_empty() {
                if self.phase == Phase::Work {
                    self.ended = now;
                }
                if !self.complete(at, now) {
                    self.complete_with_care(at);
                }
            }
            if self.stopping {
                let lane = &mut self.lanes[at];
                lane.free.extend(lane.held.take().map(|(slot, _)| slot));
            } else {
                progress = progress
                    | match self.phase {
                        Phase::Work => self.fill(at, now),
                        Phase::Verify => self.fill_checks(at, now),
                    };
            }
        }
        let over = self.stopping || self.lanes.iter().all(|lane| lane.over);
        if over && self.is_drained() {
            return self.advance();
        }
        TaskState::Running(progress)
    }

    fn turn(&mut self, to: Epoch) {
        for lane in &mut self.lanes {
            lane.channel.turn(to);
        }
    }

    fn oldest(&self) -> Option<Epoch> {
        self.lanes.iter().filter_map(|lane| lane.channel.oldest()).min()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        let started = self.started.unwrap_or_default();
        if self.deadline < Instant::MAX && !self.stopping {
            wake.at(self.deadline);
        }
        if let Some(rate) = self.plan.rate_iops
            && !self.stopping
            && self.lanes.iter().any(|lane| !lane.free.is_empty())
        {
            let due = u128::from(self.started_requests) * 1_000_000_000 / u128::from(rate);
            // One nanosecond later, so that rounding down in `allowance` does not spin.
            wake.at(started.plus_nanos(u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1)));
        }
        for lane in &mut self.lanes {
            if lane.held.is_some() {
                wake.ready();
            }
            lane.channel.arm(wake);
        }
    }

    fn disarm(&mut self) {
        for lane in &mut self.lanes {
            lane.channel.disarm();
        }
    }
}
