//! One channel and its memory, driven by hand.

use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use strake_nvme_driver::block::{
    Channel, Claim, ClaimMode, Completion, Device, Lba, Limits, OpenOptions, Request, Segment,
    Sink, Status, Token,
};
use strake_nvme_driver::memory::{IovaAllocator, Memory, Region};
use strake_nvme_driver::poller::PollerId;
use strake_nvme_driver::time::Instant;

/// Longer than any request on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Rig {
    pub limits: Arc<Limits>,
    pub memory: Arc<Memory>,
    pub region: Arc<Region>,
    pub channel: Box<dyn Channel>,
    pub claim: Claim,
    pub now: Instant,
    next_token: u64,
}

impl Rig {
    pub fn new(device: &Arc<dyn Device>, mode: ClaimMode, depth: u16) -> Self {
        let claim = claim(device.as_ref(), mode);
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let region = memory.add_anonymous(1 << 20).expect("memory");
        let options = OpenOptions { poller: PollerId(0), depth, memory: Arc::clone(&memory) };
        let channel = device.open(&claim, &options).expect("a channel");
        Self {
            limits: device.limits(),
            memory,
            region,
            channel,
            claim,
            now: Instant::from_nanos(1_000),
            next_token: 0,
        }
    }

    pub fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Bytes of one logical block.
    pub fn block(&self) -> u32 {
        self.limits.block_bytes
    }

    pub fn submit(&mut self, request: &Request, data: &[Segment]) {
        self.channel.submit(request, data).expect("there is room");
    }

    pub fn poll(&mut self, sink: &mut Sink) {
        self.now = self.now.plus_nanos(100);
        self.channel.poll(self.now, sink);
    }

    /// Polls until `count` requests are done.
    pub fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        let mut sink = Sink::new(64);
        let start = Moment::now();
        while done.len() < count {
            assert!(start.elapsed() < PATIENCE, "{} of {count} completed", done.len());
            sink.clear();
            self.poll(&mut sink);
            done.extend_from_slice(sink.as_slice());
            if sink.is_empty() {
                std::thread::yield_now();
            }
        }
        assert_eq!(done.len(), count, "more completions than requests");
        done
    }

    /// One request from start to end.
    pub fn run(&mut self, mut request: Request, data: &[Segment]) -> Status {
        request.token = self.token();
        self.submit(&request, data);
        let done = self.wait(1);
        assert_eq!(done[0].token, request.token);
        done[0].status
    }

    /// One segment of `blocks` blocks at `offset` in the region.
    pub fn segment(&self, offset: u64, blocks: u32) -> Segment {
        self.region.segment(offset, blocks * self.block())
    }

    pub fn write(&mut self, lba: u64, bytes: &[u8]) -> Status {
        assert!(self.region.write_at(0, bytes));
        let blocks = bytes.len() as u32 / self.block();
        let data = [self.segment(0, blocks)];
        self.run(Request::write(Lba(lba), blocks, Token(0)), &data)
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        let mut bytes = vec![0xee; blocks as usize * self.block() as usize];
        assert!(self.region.write_at(0, &bytes), "no old data may pass for new");
        let data = [self.segment(0, blocks)];
        match self.run(Request::read(Lba(lba), blocks, Token(0)), &data) {
            Status::Ok => {
                assert!(self.region.read_at(0, &mut bytes));
                Ok(bytes)
            }
            status => Err(status),
        }
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Claims a device that is free, or will be at once. A process that another test starts holds copies
/// of all our descriptors, and with them their locks, for the moment between fork and exec.
#[track_caller]
pub fn claim(device: &dyn Device, mode: ClaimMode) -> Claim {
    let start = Moment::now();
    loop {
        match device.claim(mode) {
            Ok(claim) => return claim,
            Err(e) => assert!(start.elapsed() < PATIENCE, "{e}"),
        }
        std::thread::yield_now();
    }
}

/// Waits until nobody has a claim on it.
#[track_caller]
pub fn wait_until_free(device: &dyn Device) {
    drop(claim(device, ClaimMode::Exclusive));
}
