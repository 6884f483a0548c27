//! A task that reads, writes, flushes, zeroes and cancels at random, and judges every completion.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strake_nvme_driver::block::{
    Channel, Completion, Flags, Lba, Op, Progress, Request, Segment, Sink, Status, Token, WakeSet,
};
use strake_nvme_driver::memory::{Buffer, Pool, Region};
use strake_nvme_driver::poller::{Epoch, Task, TaskState, Waker};
use strake_nvme_driver::time::Instant;

use crate::oracle::{Oracle, Read, Write, ZERO};
use crate::sim::Random;

/// Logical block of the devices under test.
pub const BLOCK_BYTES: usize = 512;
/// Longest request of the workload, in blocks; also the size of its pool buffers.
pub const BLOCKS_MAX: u64 = 4;
/// How many blocks at the start of each run are hot, so that requests meet.
const HOT_BLOCKS: u64 = 10;
/// Longest pause between two bursts, in nanoseconds.
const PAUSE_NANOS: u64 = 20_000;
/// Most requests outstanding.
const DEPTH: usize = 12;

/// A region that comes and goes under epochs.
#[derive(Debug, Default)]
pub struct Visitor {
    /// Known to every poller.
    pub live: Option<Arc<Region>>,
    /// Retired, but perhaps not for every poller yet.
    pub leaving: Option<Arc<Region>>,
    /// Retired for every poller: whoever names it gets `BadMemory`.
    pub stale: Option<Segment>,
    /// How many requests were refused for naming it.
    pub refused: u64,
}

/// What the tasks of one run share. In the simulator nobody ever waits for its lock.
#[derive(Debug)]
pub struct World {
    /// What may be read.
    pub oracle: Oracle,
    /// The region that comes and goes.
    pub visitor: Visitor,
    /// Requests cancelled before their end.
    pub cancelled: u64,
    /// Requests that ended, by [`Status::index`].
    pub statuses: [u64; Status::KINDS],
    /// The first thing that was wrong.
    pub wrong: Option<String>,
    /// False if the device may hand back wrong data: contents are not judged then.
    pub judge_contents: bool,
}

/// How to reach it.
#[derive(Clone, Debug)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    /// Tasks with requests left. A task that is done stays, because others may need its channel to
    /// do their writes.
    busy: Arc<AtomicUsize>,
    wakers: Arc<[Waker]>,
}

impl Shared {
    /// For `tasks` tasks on a device of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: usize, tasks: usize, wakers: &[Waker], judge_contents: bool) -> Self {
        let world = World {
            oracle: Oracle::new(blocks),
            visitor: Visitor::default(),
            cancelled: 0,
            statuses: [0; Status::KINDS],
            wrong: None,
            judge_contents,
        };
        Self {
            world: Arc::new(Mutex::new(world)),
            busy: Arc::new(AtomicUsize::new(tasks)),
            wakers: wakers.into(),
        }
    }

    /// Looks at it.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when every task has done its requests.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }
}

/// Fills blocks with a value.
#[must_use]
pub fn filled(value: u64, blocks: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK_BYTES / 8 * blocks as usize)
}

/// The value of each block, or an error if a block holds two.
///
/// # Errors
/// In words, the torn block.
pub fn values(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let value = |block: &[u8]| {
        let (words, _) = block.as_chunks::<8>();
        if words.iter().all(|w| *w == words[0]) {
            Ok(u64::from_le_bytes(words[0]))
        } else {
            Err("a block holds parts of two writes".to_owned())
        }
    };
    bytes.chunks(BLOCK_BYTES).map(value).collect()
}

#[derive(Debug)]
enum What {
    Read(Read),
    Write(Write),
    /// A write from the visitor; `stale` if it was gone for everyone by then.
    Visit {
        write: Write,
        segment: Segment,
        stale: bool,
    },
    Flush,
}

#[derive(Debug)]
struct Job {
    token: Token,
    what: What,
    buffer: Option<Buffer>,
    blocks: u64,
    cancelled: bool,
}

/// The task.
pub struct Workload {
    at: usize,
    channel: Box<dyn Channel>,
    pool: Pool,
    shared: Shared,
    random: Random,
    out: Sink,
    jobs: Vec<Job>,
    left: u64,
    run_blocks: u64,
    blocks: u64,
    next_token: u64,
    next_burst: Instant,
    counted_out: bool,
}

impl Workload {
    /// Poller `at`'s task: `requests` requests through `channel`.
    #[must_use]
    pub fn new(
        at: usize,
        channel: Box<dyn Channel>,
        pool: Pool,
        shared: Shared,
        seed: u64,
        requests: u64,
        (run_blocks, blocks): (u64, u64),
    ) -> Self {
        Self {
            at,
            channel,
            pool,
            shared,
            random: Random::new(seed),
            out: Sink::new(DEPTH / 2),
            jobs: Vec::with_capacity(DEPTH),
            left: requests,
            run_blocks,
            blocks,
            next_token: (at as u64) << 32,
            next_burst: Instant::ZERO,
            counted_out: false,
        }
    }

    fn complete(&mut self, completion: Completion) {
        let mut world = self.shared.world();
        let Some(i) = self.jobs.iter().position(|job| job.token == completion.token) else {
            let wrong = format!("{completion:?} is of no request, or its second");
            world.wrong.get_or_insert(wrong);
            return;
        };
        let job = self.jobs.swap_remove(i);
        let status = completion.status;
        world.statuses[status.index()] += 1;
        let mut may_be_bad = false;
        let mut must_be_bad = false;
        let judged = match &job.what {
            What::Read(read) => {
                let mut bytes = vec![0; job.blocks as usize * BLOCK_BYTES];
                let buffer = job.buffer.as_ref().map(Buffer::segment);
                let at = buffer.map_or(0, |segment| segment.offset as usize);
                let ok = status.is_ok() && world.judge_contents;
                let found = if ok && self.pool.region().read_at(at, &mut bytes) {
                    values(&bytes).map(Some)
                } else {
                    Ok(None)
                };
                let told = found.as_ref().ok().and_then(Option::as_deref);
                let judged = world.oracle.end_read(*read, told);
                found.and(judged)
            }
            What::Write(write) => {
                world.oracle.end_write(write, status.is_ok());
                Ok(())
            }
            What::Visit { write, segment, stale } => {
                world.oracle.end_write(write, status.is_ok());
                let live = world.visitor.live.as_ref().map(|region| region.id());
                may_be_bad = live != Some(segment.region);
                must_be_bad = *stale && !job.cancelled;
                world.visitor.refused += u64::from(status == Status::BadMemory);
                Ok(())
            }
            What::Flush => Ok(()),
        };
        let expected = match status {
            Status::Ok | Status::Medium { .. } | Status::Device { .. } => !must_be_bad,
            // A device that is gone looks at nothing.
            Status::Gone => true,
            Status::Cancelled => job.cancelled,
            Status::BadMemory => may_be_bad,
            _ => false,
        };
        world.cancelled += u64::from(status == Status::Cancelled);
        let judged = judged.and(if expected {
            Ok(())
        } else {
            Err(format!("{job:?} may not complete with: {status}"))
        });
        if let Err(wrong) = judged {
            world.wrong.get_or_insert(wrong);
        }
        drop(world);
        if let Some(buffer) = job.buffer {
            // Whoever still writes from it would write this.
            let at = buffer.segment().offset as usize;
            let _ = self.pool.region().write_at(at, &[0xdb; BLOCK_BYTES]);
            self.pool.put(buffer);
        }
    }

    /// A range inside one run, most often where others go too.
    fn range(&mut self) -> (u64, u64) {
        let blocks = 1 + self.random.below(BLOCKS_MAX);
        let run = self.random.below(self.blocks / self.run_blocks) * self.run_blocks;
        let hot = if self.random.one_in(8) { self.run_blocks } else { HOT_BLOCKS };
        (run + self.random.below(hot + 1 - blocks), blocks)
    }

    fn submit(&mut self) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let (lba, mut blocks) = self.range();
        let shared = self.shared.clone();
        let mut world = shared.world();
        let mut buffer = None;
        let mut segment = None;
        let (op, what) = match self.random.below(32) {
            0..12 => (Op::Read, What::Read(world.oracle.begin_read(lba, blocks))),
            12..27 => {
                let value = world.oracle.value();
                (Op::Write, What::Write(world.oracle.begin_write(lba, blocks, value)))
            }
            27 => {
                let write = world.oracle.begin_write(lba, blocks, ZERO);
                (Op::WriteZeroes { may_deallocate: self.random.one_in(2) }, What::Write(write))
            }
            28 => (Op::Flush, What::Flush),
            29.. => match self.visit(&mut world, lba) {
                Some((what, from)) => {
                    segment = Some(from);
                    blocks = 1;
                    (Op::Write, what)
                }
                None => (Op::Flush, What::Flush),
            },
        };
        if op.has_data() && segment.is_none() {
            let taken = self.pool.take().expect("one buffer for each request outstanding");
            let whole = taken.segment();
            if let What::Write(write) = &what {
                let bytes = filled(write.value(), blocks);
                assert!(self.pool.region().write_at(whole.offset as usize, &bytes));
            }
            segment = Some(Segment { len: (blocks * BLOCK_BYTES as u64) as u32, ..whole });
            buffer = Some(taken);
        }
        drop(world);
        let fua = matches!(op, Op::Write) && self.random.one_in(4);
        let flags = if fua { Flags::FUA } else { Flags::empty() };
        let mut request = Request { op, flags, ..Request::read(Lba(lba), blocks as u32, token) };
        if op == Op::Flush {
            request = Request::flush(token);
        }
        let taken = self.channel.submit(&request, segment.as_slice());
        taken.expect("there is room: asked a moment ago");
        self.jobs.push(Job { token, what, buffer, blocks, cancelled: false });
        self.left -= 1;
    }

    /// A write of one block from the visitor, wherever that is by now. One at a time, since there
    /// is one block of it for each task.
    fn visit(&self, world: &mut World, lba: u64) -> Option<(What, Segment)> {
        if self.jobs.iter().any(|job| matches!(job.what, What::Visit { .. })) {
            return None;
        }
        let value = world.oracle.value();
        let offset = (self.at * BLOCK_BYTES) as u64;
        let visitor = &world.visitor;
        let (whole, stale) = match visitor.live.as_ref().or(visitor.leaving.as_ref()) {
            Some(region) => {
                assert!(region.write_at(offset as usize, &filled(value, 1)));
                (region.segment(0, 0), false)
            }
            None => (visitor.stale?, true),
        };
        let segment = Segment { offset, len: BLOCK_BYTES as u32, ..whole };
        let write = world.oracle.begin_write(lba, 1, value);
        Some((What::Visit { write, segment, stale }, segment))
    }

    fn burst(&mut self, now: Instant) -> bool {
        if self.left == 0 || now < self.next_burst {
            return false;
        }
        let wanted = 1 + self.random.below(5);
        for _ in 0..wanted {
            if self.left == 0 || self.jobs.len() == DEPTH || self.channel.room() == 0 {
                break;
            }
            self.submit();
        }
        self.next_burst = now.plus_nanos(1 + self.random.below(PAUSE_NANOS));
        true
    }

    fn cancel_one(&mut self) {
        let i = self.random.below(self.jobs.len() as u64) as usize;
        if let Some(job) = self.jobs.get_mut(i) {
            job.cancelled = true;
            self.channel.cancel(job.token);
        }
    }
}

impl Task for Workload {
    fn poll(&mut self, now: Instant) -> TaskState {
        let mut progress = self.channel.poll(now, &mut self.out);
        for i in 0..self.out.len() {
            self.complete(self.out.as_slice()[i]);
        }
        self.out.clear();
        if self.burst(now) {
            progress = Progress::Worked;
        }
        if self.random.one_in(16) {
            self.cancel_one();
        }
        if self.left == 0 && self.jobs.is_empty() && !self.counted_out {
            self.counted_out = true;
            self.shared.busy.fetch_sub(1, Ordering::AcqRel);
            self.shared.wakers.iter().for_each(Waker::wake);
        }
        if self.shared.is_done() { TaskState::Finished } else { TaskState::Running(progress) }
    }

    fn turn(&mut self, to: Epoch) {
        self.channel.turn(to);
    }

    fn oldest(&self) -> Option<Epoch> {
        self.channel.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        if self.left > 0 {
            wake.at(self.next_burst);
        }
        if self.shared.is_done() {
            wake.ready();
        }
        self.channel.arm(wake);
    }

    fn disarm(&mut self) {
        self.channel.disarm();
    }
}
