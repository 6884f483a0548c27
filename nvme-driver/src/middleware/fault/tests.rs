//! Each kind does what it says, over `mem:`.

use super::*;
use crate::block::{
    Completion, Event, Flags, Lba, Progress, Request, Segment, Sink, Status, Token, Uri, WakeSet,
};
use crate::loopback::Mem;
use crate::memory::{IovaAllocator, Memory, Region};
use crate::time::Instant;

const BLOCK: usize = 512;
const ERROR: Status = Status::Device { code: fate::INJECTED_CODE, retryable: true };

/// A faulty device of 64 blocks, a channel on it and one on the device below.
struct Rig {
    fault: Fault,
    faulty: Box<dyn Channel>,
    below: Box<dyn Channel>,
    region: Arc<Region>,
    memory: Arc<Memory>,
    out: Sink,
}

impl Rig {
    fn new(plan: FaultPlan) -> Self {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let region = memory.add_anonymous(64 * BLOCK).unwrap();
        let mem: Arc<dyn Device> = Arc::new(Mem::new("m", 512, 64).unwrap());
        let fault = Fault::new(Arc::clone(&mem), plan);
        let options =
            OpenOptions { poller: crate::poller::PollerId(0), depth: 16, memory: memory.clone() };
        let faulty = fault.open(&fault.claim(ClaimMode::Write).unwrap(), &options).unwrap();
        let below = mem.open(&mem.claim(ClaimMode::Read).unwrap(), &options).unwrap();
        Self { fault, faulty, below, region, memory, out: Sink::new(64) }
    }

    fn segment(&self, blocks: u32) -> Segment {
        self.region.segment(0, blocks * BLOCK as u32)
    }

    fn poll(&mut self, micros: u64) -> Vec<Completion> {
        self.out.clear();
        self.faulty.poll(Instant::from_nanos(micros * 1000), &mut self.out);
        self.out.as_slice().to_vec()
    }

    /// Polls until it completes.
    fn run(&mut self, request: Request, data: &[Segment]) -> Status {
        while self.faulty.submit(&request, data).is_err() {
            assert!(self.poll(0).is_empty());
        }
        for micros in 0..10_000 {
            if let [completion] = self.poll(micros)[..] {
                assert_eq!(completion.token, request.token);
                assert_eq!(self.faulty.oldest(), None);
                return completion.status;
            }
        }
        panic!("{request:?} never completed");
    }

    fn write(&mut self, lba: u64, blocks: u32, byte: u8) -> Status {
        assert!(self.region.write_at(0, &vec![byte; blocks as usize * BLOCK]));
        self.run(Request::write(Lba(lba), blocks, Token(!lba)), &[self.segment(blocks)])
    }

    fn read(&mut self, lba: u64, blocks: u32) -> (Status, Vec<u8>) {
        let mut bytes = vec![0xee; blocks as usize * BLOCK];
        assert!(self.region.write_at(0, &bytes));
        // Two segments, so that faults have to find their way among them.
        let half = blocks * BLOCK as u32 / 2;
        let data = [self.region.segment(0, half), self.region.segment(half.into(), half)];
        let status = self.run(Request::read(Lba(lba), blocks, Token(lba)), &data);
        assert!(self.region.read_at(0, &mut bytes));
        (status, bytes)
    }

    /// The first byte of each block of the device below.
    fn device(&mut self) -> Vec<u8> {
        let data = [self.segment(64)];
        self.below.submit(&Request::read(Lba(0), 64, Token(0)), &data).unwrap();
        let mut out = Sink::new(1);
        self.below.poll(Instant::ZERO, &mut out);
        assert_eq!(out.as_slice()[0].status, Status::Ok);
        let mut bytes = vec![0; 64 * BLOCK];
        assert!(self.region.read_at(0, &mut bytes));
        bytes.iter().copied().step_by(BLOCK).collect()
    }

    fn written(&mut self) -> Vec<u64> {
        let device = self.device();
        (0..64).filter(|lba| device[*lba as usize] != 0).collect()
    }

    fn fired(&self, kind: FaultKind) -> u64 {
        self.fault.fired().of(kind)
    }
}

#[test]
fn without_a_plan_nothing_is_different() {
    let mut rig = Rig::new(FaultPlan::default());
    assert_eq!(rig.write(8, 4, 7), Status::Ok);
    assert_eq!(rig.read(8, 4), (Status::Ok, vec![7; 4 * BLOCK]));
    assert_eq!(rig.written(), [8, 9, 10, 11]);
    assert_eq!(rig.fault.fired(), FaultCounts::default());
    let invalid = Request::read(Lba(0), 0, Token(1));
    assert_eq!(rig.run(invalid, &[]), Status::Invalid);
    assert_eq!(rig.fault.members()[0].identity().name, "m");
    assert_eq!(Uri::parse(&rig.fault.identity().uri).unwrap().inner(), Some("mem:32768"));
}

#[test]
fn an_error_is_retryable_and_nothing_reaches_the_device() {
    let mut rig = Rig::new(FaultPlan { error: 1.0, ..FaultPlan::default() });
    assert_eq!(rig.write(8, 4, 7), ERROR);
    assert_eq!(rig.run(Request::flush(Token(1)), &[]), ERROR);
    let sent = rig.fault.members()[0].counters();
    assert_eq!(sent.requests, [0; 5]);
    assert_eq!(rig.fired(FaultKind::Error), 2);
    let invalid = Request::read(Lba(63), 2, Token(2));
    let data = [rig.segment(2)];
    assert_eq!(rig.run(invalid, &data), Status::OutOfRange, "a mistake stays a mistake");
}

#[test]
fn blocks_before_a_medium_error_are_transferred_and_none_after() {
    let mut rig = Rig::new(FaultPlan { medium_at: Some(Lba(10)), ..FaultPlan::default() });
    let bad = Status::Medium { first_bad: Lba(10) };
    assert_eq!(rig.write(8, 4, 7), bad);
    assert_eq!(rig.written(), [8, 9]);
    let (status, bytes) = rig.read(8, 4);
    assert_eq!(status, bad);
    assert_eq!(bytes[..2 * BLOCK], [7; 2 * BLOCK]);
    assert_eq!(bytes[2 * BLOCK..], [0xee; 2 * BLOCK]);
    assert_eq!(rig.write(10, 1, 7), bad);
    assert_eq!(rig.write(11, 1, 7), Status::Ok);

    let mut rig = Rig::new(FaultPlan { medium: 1.0, ..FaultPlan::default() });
    let mut firsts = [false; 4];
    for _ in 0..64 {
        let Status::Medium { first_bad } = rig.read(8, 4).0 else { panic!("no medium error") };
        firsts[first_bad.0 as usize - 8] = true;
    }
    assert_eq!(firsts, [true; 4]);
}

#[test]
fn a_torn_write_ends_early_and_says_ok() {
    let mut rig = Rig::new(FaultPlan { torn_at: Some(Lba(11)), ..FaultPlan::default() });
    assert_eq!(rig.write(8, 8, 7), Status::Ok);
    assert_eq!(rig.written(), [8, 9, 10]);
    assert_eq!(rig.write(8, 8, 7), Status::Ok);
    assert_eq!(rig.written(), [8, 9, 10, 11, 12, 13, 14, 15], "the second one is whole");

    let mut rig = Rig::new(FaultPlan { torn: 1.0, ..FaultPlan::default() });
    assert_eq!(rig.write(8, 8, 7), Status::Ok);
    let written = rig.written();
    assert!((1..8).contains(&written.len()) && written[0] == 8, "{written:?}");
    assert_eq!(rig.fired(FaultKind::Torn), 1);
}

#[test]
fn a_lost_write_says_ok() {
    let mut rig = Rig::new(FaultPlan { lost_at: Some(Lba(9)), ..FaultPlan::default() });
    assert_eq!(rig.write(8, 1, 7), Status::Ok);
    assert_eq!(rig.write(8, 2, 7), Status::Ok);
    assert_eq!(rig.written(), [8]);
    assert_eq!(rig.write(9, 1, 7), Status::Ok);
    assert_eq!(rig.written(), [8, 9]);
    let mut rig = Rig::new(FaultPlan { lost: 1.0, ..FaultPlan::default() });
    assert_eq!(rig.write(8, 1, 7), Status::Ok);
    assert_eq!(rig.written(), [0; 0]);
}

#[test]
fn a_misplaced_write_lands_at_another_multiple_of_its_length() {
    let mut rig = Rig::new(FaultPlan { misplace_at: Some(Lba(9)), ..FaultPlan::default() });
    assert_eq!(rig.write(8, 4, 7), Status::Ok);
    let written = rig.written();
    assert_eq!(written.len(), 4);
    assert!(written[0].is_multiple_of(4) && written[0] != 8, "{written:?}");
    let mut rig = Rig::new(FaultPlan { misplace: 1.0, ..FaultPlan::default() });
    for _ in 0..32 {
        assert_eq!(rig.write(0, 32, 7), Status::Ok);
    }
    assert_eq!(rig.written(), (32..64).collect::<Vec<u64>>(), "only one other place");
    assert_eq!(rig.write(0, 64, 7), Status::Ok);
    assert_eq!(rig.fired(FaultKind::Misplaced), 32, "no other place");
}

#[test]
fn a_flip_changes_one_bit_of_what_is_read_and_none_on_the_device() {
    let mut rig = Rig::new(FaultPlan { flip_at: Some(Lba(11)), ..FaultPlan::default() });
    rig.write(8, 8, 7);
    for _ in 0..2 {
        let (status, bytes) = rig.read(8, 8);
        assert_eq!(status, Status::Ok);
        let bad: Vec<usize> = (0..8 * BLOCK).filter(|i| bytes[*i] != 7).collect();
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0] / BLOCK, 3);
        assert_eq!((bytes[bad[0]] ^ 7).count_ones(), 1);
    }
    assert_eq!(rig.device()[8..16], [7; 8]);
    assert_eq!(rig.read(12, 2).1, [7; 2 * BLOCK]);
    assert_eq!(rig.fired(FaultKind::Flipped), 2);
}

#[test]
fn a_delayed_completion_comes_when_it_is_due_and_the_poller_is_told_when() {
    let plan = FaultPlan { delay: 1.0, delay_us_max: 50, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let data = [rig.segment(1)];
    for n in 0..8 {
        rig.faulty.submit(&Request::read(Lba(n), 1, Token(n)), &data).unwrap();
    }
    let mut wake = WakeSet::new();
    let (mut last, mut done) = (Instant::ZERO, 0);
    assert!(rig.poll(0).is_empty());
    while done < 8 {
        wake.clear();
        rig.faulty.arm(&mut wake);
        let until = wake.until().unwrap();
        assert!(!wake.is_ready() && until > last && until.as_nanos() <= 50_000);
        rig.out.clear();
        let early = Instant::from_nanos(until.as_nanos() - 1);
        assert_eq!(rig.faulty.poll(early, &mut rig.out), Progress::Waiting);
        assert_eq!(rig.faulty.poll(until, &mut rig.out), Progress::Worked);
        done += rig.out.len();
        last = until;
    }
    assert_eq!(rig.fired(FaultKind::Delayed), 8);
    assert_eq!(rig.faulty.room(), 16);
}

#[test]
fn what_is_held_counts_as_outstanding_and_comes_early_if_cancelled() {
    // Of this seed the first delay comes after the device, the second one before.
    let plan = FaultPlan { seed: 1, delay: 1.0, delay_us_max: 1_000_000, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let data = [rig.segment(1)];
    rig.faulty.submit(&Request::read(Lba(0), 1, Token(70)), &data).unwrap();
    assert!(rig.poll(0).is_empty());
    assert_eq!(rig.faulty.oldest(), Some(crate::poller::Epoch(0)));
    rig.faulty.turn(crate::poller::Epoch(1));
    assert_eq!(rig.faulty.oldest(), Some(crate::poller::Epoch(0)));
    rig.faulty.cancel(Token(71));
    rig.faulty.cancel(Token(70));
    let done = Completion { token: Token(70), status: Status::Ok };
    assert_eq!(rig.poll(0), [done], "done below, so its true status");
    assert_eq!(rig.faulty.oldest(), None);
    // Cancelled before the device has seen it, at once or later.
    rig.faulty.submit(&Request::read(Lba(0), 1, Token(72)), &data).unwrap();
    rig.faulty.cancel(Token(72));
    assert_eq!(rig.poll(0), [Completion { token: Token(72), status: Status::Cancelled }]);
}

#[test]
fn delays_change_the_order_in_which_the_device_works() {
    let plan = FaultPlan { delay: 0.5, delay_us_max: 50, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let mut last = [0; 2];
    for round in 0..32 {
        for n in 0..8u8 {
            let at = usize::from(n) * BLOCK;
            assert!(rig.region.write_at(at, &[n + 1; BLOCK]));
            let data = [rig.region.segment(at as u64, BLOCK as u32)];
            rig.faulty.submit(&Request::write(Lba(0), 1, Token(n.into())), &data).unwrap();
        }
        let first = round * 1000;
        let done: usize = (first..first + 100).map(|micros| rig.poll(micros).len()).sum();
        assert_eq!(done, 8);
        let in_order = rig.device()[0] == 8;
        last[usize::from(in_order)] += 1;
    }
    assert!(last[0] > 0 && last[1] > 0, "{last:?}");
}

#[test]
fn what_is_to_go_down_late_goes_down_before_its_epoch_ends() {
    for seed in 0..8 {
        let plan = FaultPlan { seed, delay: 1.0, delay_us_max: 1_000_000, ..FaultPlan::default() };
        let mut rig = Rig::new(plan);
        let data = [rig.segment(1)];
        for n in 0..4 {
            rig.faulty.submit(&Request::write(Lba(n), 1, Token(n)), &data).unwrap();
            if n == 1 {
                assert!(rig.poll(0).is_empty());
            }
        }
        rig.memory.retire(rig.region.id()).unwrap();
        rig.faulty.turn(crate::poller::Epoch(1));
        rig.faulty.submit(&Request::write(Lba(9), 1, Token(9)), &data).unwrap();
        let mut done: Vec<Completion> = Vec::new();
        for micros in [0, 2_000_000, 4_000_000] {
            done.extend(rig.poll(micros));
        }
        assert_eq!(done.len(), 5);
        let stale = |c: &&Completion| c.status == Status::BadMemory;
        assert_eq!(done.iter().find(stale).map(|c| c.token), Some(Token(9)));
        assert_eq!(done.iter().filter(|c| c.status.is_ok()).count(), 4);
        assert_eq!(rig.faulty.oldest(), None);
    }
}

#[test]
fn full_is_told_by_room_and_never_in_two_polls_running() {
    let mut rig = Rig::new(FaultPlan { full: 1.0, ..FaultPlan::default() });
    let data = [rig.segment(1)];
    for n in 0..10 {
        rig.faulty.submit(&Request::read(Lba(0), 1, Token(n)), &data).unwrap();
        assert_eq!(rig.poll(0).len(), 1);
        assert_eq!(rig.faulty.room(), 0);
        assert!(rig.faulty.submit(&Request::flush(Token(99)), &[]).is_err());
        let mut wake = WakeSet::new();
        rig.faulty.arm(&mut wake);
        assert!(wake.is_ready());
        assert!(rig.poll(0).is_empty());
        assert_eq!(rig.faulty.room(), 16);
    }
    assert_eq!(rig.fired(FaultKind::Refused), 10);
}

#[test]
fn a_completion_held_for_another_to_pass_is_passed_by_one_and_waits_for_none() {
    let mut rig = Rig::new(FaultPlan { reorder: 1.0, ..FaultPlan::default() });
    let data = [rig.segment(1)];
    for n in 0..4 {
        rig.faulty.submit(&Request::read(Lba(0), 1, Token(n)), &data).unwrap();
    }
    let tokens: Vec<u64> = rig.poll(0).iter().map(|c| c.token.0).collect();
    assert_eq!(tokens, [1, 0, 3, 2]);
    assert_eq!(rig.fired(FaultKind::Reordered), 2);
    rig.faulty.submit(&Request::read(Lba(0), 1, Token(9)), &data).unwrap();
    assert_eq!(rig.poll(0).len(), 1, "nothing else is outstanding");
}

#[test]
fn a_device_that_goes_away_says_so_and_stays_away() {
    let mut rig = Rig::new(FaultPlan { gone_after: Some(2), ..FaultPlan::default() });
    let events = rig.fault.events();
    assert_eq!(rig.write(0, 1, 1), Status::Ok);
    let data = [rig.segment(1)];
    rig.faulty.submit(&Request::write(Lba(1), 1, Token(1)), &data).unwrap();
    assert_eq!(events.next_event(), None);
    rig.faulty.submit(&Request::write(Lba(2), 1, Token(2)), &data).unwrap();
    assert_eq!(events.next_event(), Some(Event::Gone));
    let done = rig.poll(0);
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|c| c.status == Status::Gone), "those under way too");
    assert_eq!(rig.write(3, 1, 1), Status::Gone);
    assert_eq!(rig.written(), [0, 1]);
    assert_eq!((events.next_event(), rig.fired(FaultKind::Gone)), (None, 1));
}

#[test]
fn deadlines_and_flags_reach_the_device_below() {
    let mut rig = Rig::new(FaultPlan::default());
    let data = [rig.segment(1)];
    let mut request = Request::read(Lba(0), 1, Token(1));
    request.flags = Flags::FAIL_FAST;
    request.deadline = Some(Instant::from_nanos(10));
    rig.faulty.submit(&request, &data).unwrap();
    assert_eq!(rig.poll(1)[0].status, Status::TimedOut);
}

#[test]
fn the_same_seed_replays_the_same_run_however_it_is_polled() {
    let run = |seed, polls_between: usize| {
        let plan = FaultPlan {
            seed,
            error: 0.1,
            medium: 0.1,
            torn: 0.1,
            lost: 0.1,
            misplace: 0.1,
            flip: 0.1,
            delay: 0.3,
            delay_us_max: 20,
            reorder: 0.3,
            ..FaultPlan::default()
        };
        let mut rig = Rig::new(plan);
        let mut log = Vec::new();
        for n in 0..200u64 {
            // One at a time, so that order of completion does not change what is written.
            let lba = n * 7 % 56;
            let status =
                if n.is_multiple_of(3) { rig.read(lba, 8).0 } else { rig.write(lba, 8, n as u8) };
            log.push(status);
            for _ in 0..polls_between {
                assert!(rig.poll(0).is_empty());
            }
        }
        (log, rig.device(), rig.fault.fired())
    };
    let first = run(1, 0);
    assert_eq!(first, run(1, 3));
    assert_ne!(first, run(2, 0));
    for kind in FaultKind::ALL {
        let never = [FaultKind::Refused, FaultKind::Gone, FaultKind::Reordered].contains(&kind);
        assert_eq!(first.2.of(kind) == 0, never, "{kind:?}");
    }
}

#[test]
fn a_read_claim_writes_nothing_and_an_open_device_cannot_be_taken_from_below() {
    let mem: Arc<dyn Device> = Arc::new(Mem::new("m", 512, 64).unwrap());
    let fault = Fault::new(Arc::clone(&mem), FaultPlan { lost: 1.0, ..FaultPlan::default() });
    let claim = fault.claim(ClaimMode::Read).unwrap();
    assert!(mem.claim(ClaimMode::Exclusive).is_err());
    let memory = Memory::new(IovaAllocator::for_39_bits());
    let data = [memory.add_anonymous(BLOCK).unwrap().segment(0, BLOCK as u32)];
    let options = OpenOptions { poller: crate::poller::PollerId(0), depth: 1, memory };
    let mut channel = fault.open(&claim, &options).unwrap();
    channel.submit(&Request::write(Lba(0), 1, Token(0)), &data).unwrap();
    let mut out = Sink::new(1);
    channel.poll(Instant::ZERO, &mut out);
    assert_eq!(out.as_slice()[0].status, Status::ReadOnly);
    drop((channel, claim));
    mem.claim(ClaimMode::Exclusive).unwrap();
}
