//! The whole ground floor at once: a mirror over two faulty devices, used by two pollers in
//! virtual time, ten thousand times.
//!
//! A seed that fails is printed; `STRAKE_SEED=n cargo test -p strake-tests --test
//! mirror_under_faults` replays it alone.

use std::ops::Add;
use std::sync::{Arc, Weak};

use strake_nvme_driver::block::{
    Channel, ClaimMode, Device, Lba, OpenOptions, Request, Sink, Status, Token,
};
use strake_nvme_driver::loopback::Mem;
use strake_nvme_driver::memory::{IovaAllocator, Memory, Pool, Region};
use strake_nvme_driver::middleware::{Fault, FaultCounts, FaultKind, FaultPlan};
use strake_nvme_driver::poller::{Leader, PollerId};
use strake_nvme_driver::time::Instant;
use strake_tests::mirror::{Mirror, Mutation};
use strake_tests::sim::{Random, Simulation};
use strake_tests::workload::{BLOCK_BYTES, BLOCKS_MAX, Shared, Workload, values};

const SEEDS: u64 = 10_000;
const POLLERS: u16 = 2;
const RUN_BLOCKS: u64 = 32;
const BLOCKS: u64 = 4 * RUN_BLOCKS;
const DEPTH: u16 = 8;
const REQUESTS: u64 = 36;
/// Far more than any run takes: the longest of the ten thousand takes less than 2,000.
const STEPS_MAX: u64 = 100_000;

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    fired: FaultCounts,
    statuses: [u64; Status::KINDS],
    cancelled: u64,
    epochs: u64,
    stale: u64,
    drops: u64,
    compared: u64,
    steps: u64,
    steps_max: u64,
}

impl Add for Tally {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            fired: self.fired + other.fired,
            statuses: std::array::from_fn(|i| self.statuses[i] + other.statuses[i]),
            cancelled: self.cancelled + other.cancelled,
            epochs: self.epochs + other.epochs,
            stale: self.stale + other.stale,
            drops: self.drops + other.drops,
            compared: self.compared + other.compared,
            steps: self.steps + other.steps,
            steps_max: self.steps_max.max(other.steps_max),
        }
    }
}

/// What a seed's devices do wrong. Every seed has delays, refusals and reordering; a quarter has
/// nothing else, so that copies are still compared at the end.
fn plan(seed: u64, member: u64) -> FaultPlan {
    let base = FaultPlan {
        seed: seed * 2 + member,
        delay: 0.5,
        delay_us_max: 30,
        full: 0.2,
        reorder: 0.2,
        ..FaultPlan::default()
    };
    match seed % 8 {
        0 | 1 => base,
        2 | 3 => FaultPlan { error: 0.01, medium: 0.01, ..base },
        4 if member == seed / 8 % 2 => FaultPlan { error: 0.05, medium: 0.05, ..base },
        5 if member == seed / 8 % 2 => FaultPlan { gone_after: Some(seed / 16 % 60), ..base },
        6 => FaultPlan { error: 0.1, delay: 0.9, delay_us_max: 200, ..base },
        7 => FaultPlan { torn: 0.05, lost: 0.05, misplace: 0.05, flip: 0.05, ..base },
        _ => base,
    }
}

/// True if this seed's devices never lie.
fn is_honest(seed: u64) -> bool {
    seed % 8 != 7
}

/// The control thread: publishes epochs, and lets a region come and go under them.
struct Control {
    memory: Arc<Memory>,
    shared: Shared,
    random: Random,
    visit: Visit,
    wrong: Option<String>,
}

enum Visit {
    Away,
    /// Registered, and published.
    Coming(Arc<Region>),
    Here,
    /// Retired, and published.
    Leaving(Weak<Region>),
}

impl Control {
    fn step(&mut self, mirror: &Mirror, leader: &mut Leader) -> bool {
        let quiet = mirror.control(leader);
        if !leader.is_settled() {
            return false;
        }
        let chance = self.random.below(256);
        let mut world = self.shared.world();
        let visitor = &mut world.visitor;
        self.visit = match std::mem::replace(&mut self.visit, Visit::Away) {
            Visit::Coming(region) => {
                visitor.live = Some(region);
                Visit::Here
            }
            Visit::Leaving(region) => {
                visitor.stale = visitor.leaving.take().map(|region| region.segment(0, 0));
                if region.upgrade().is_some() {
                    self.wrong = Some("a retired region is still mapped after its epoch".into());
                }
                Visit::Away
            }
            Visit::Away if chance < 8 => {
                let region = self.memory.add_anonymous(4096).unwrap();
                visitor.stale = None;
                leader.publish().unwrap();
                Visit::Coming(region)
            }
            Visit::Here if chance < 8 => {
                visitor.leaving = visitor.live.take();
                let region = visitor.leaving.as_ref().unwrap();
                drop(self.memory.retire(region.id()).unwrap());
                let region = Arc::downgrade(region);
                leader.publish().unwrap();
                Visit::Leaving(region)
            }
            visit => {
                if chance == 8 {
                    leader.publish().unwrap();
                }
                visit
            }
        };
        drop(world);
        quiet && self.shared.is_done()
    }
}

/// What the blocks of a device hold in the end.
fn contents(device: &dyn Device, memory: &Arc<Memory>) -> Result<Vec<u64>, String> {
    let region = memory.add_anonymous(BLOCKS as usize * BLOCK_BYTES).unwrap();
    let claim = device.claim(ClaimMode::Read).unwrap();
    let options = OpenOptions { poller: PollerId(0), depth: 1, memory: Arc::clone(memory) };
    let mut channel = device.open(&claim, &options).unwrap();
    let segment = region.segment(0, region.len() as u32);
    channel.submit(&Request::read(Lba(0), BLOCKS as u32, Token(0)), &[segment]).unwrap();
    let mut out = Sink::new(1);
    channel.poll(Instant::ZERO, &mut out);
    assert_eq!(out.as_slice()[0].status, Status::Ok);
    let mut bytes = vec![0; region.len()];
    assert!(region.read_at(0, &mut bytes));
    values(&bytes)
}

/// One run; what happened, or in words what was wrong.
fn run(seed: u64, mutation: Mutation) -> Result<Tally, String> {
    let memory = Memory::new(IovaAllocator::for_39_bits());
    let mut sim = Simulation::new(POLLERS, seed).unwrap();
    let leaf =
        |name| -> Arc<dyn Device> { Arc::new(Mem::new(name, BLOCK_BYTES as u32, BLOCKS).unwrap()) };
    let leaves = [leaf("a"), leaf("b")];
    let fault = |m: usize| Arc::new(Fault::new(Arc::clone(&leaves[m]), plan(seed, m as u64)));
    let faults = [fault(0), fault(1)];
    let members = faults.clone().map(|fault| -> Arc<dyn Device> { fault });
    let mirror = Mirror::new(members, sim.wakers(), RUN_BLOCKS, DEPTH, mutation).unwrap();
    let shared = Shared::new(BLOCKS as usize, POLLERS.into(), sim.wakers(), is_honest(seed));
    let claim = mirror.claim(ClaimMode::Write).unwrap();
    // All pools before any channel: a write may go out through another poller's.
    let buffer_bytes = BLOCKS_MAX as u32 * BLOCK_BYTES as u32;
    let pools = [(); POLLERS as usize].map(|()| Pool::new(&memory, 16, buffer_bytes).unwrap());
    for (at, pool) in (0..POLLERS).zip(pools) {
        let options = OpenOptions { poller: PollerId(at), depth: DEPTH, memory: memory.clone() };
        let channel: Box<dyn Channel> = mirror.open(&claim, &options).unwrap();
        let work_seed = seed ^ (u64::from(at + 1) << 48);
        let task = Workload::new(
            at.into(),
            channel,
            pool,
            shared.clone(),
            work_seed,
            REQUESTS,
            (RUN_BLOCKS, BLOCKS),
        );
        sim.inbox(at.into()).add(Box::new(task)).unwrap();
    }
    let mut control = Control {
        memory: Arc::clone(&memory),
        shared: shared.clone(),
        random: Random::new(!seed),
        visit: Visit::Away,
        wrong: None,
    };
    let steps = sim.run(STEPS_MAX, |leader| control.step(&mirror, leader));
    let steps = steps.map_err(|stuck| stuck.to_string())?;
    let mut world = shared.world();
    if let Some(wrong) = control.wrong.take().or(world.wrong.take()) {
        return Err(wrong);
    }
    let in_sync = mirror.in_sync();
    let mut compared = 0;
    if is_honest(seed) {
        let copies = [contents(&*leaves[0], &memory)?, contents(&*leaves[1], &memory)?];
        for (m, copy) in copies.iter().enumerate().filter(|(m, _)| in_sync[*m]) {
            let read = world.oracle.begin_read(0, BLOCKS);
            let judged = world.oracle.end_read(read, Some(copy));
            judged.map_err(|wrong| format!("in the end, on member {m}: {wrong}"))?;
        }
        if in_sync == [true; 2] {
            compared = 1;
            if let Some(lba) = (0..BLOCKS as usize).find(|i| copies[0][*i] != copies[1][*i]) {
                let [a, b] = copies.map(|copy| copy[lba]);
                return Err(format!("the copies of block {lba} differ: {a:#x} and {b:#x}"));
            }
        }
    }
    if mirror.left_over() > 0 {
        return Err(format!("{} requests were left over in the mirror", mirror.left_over()));
    }
    Ok(Tally {
        fired: faults[0].fired() + faults[1].fired(),
        statuses: world.statuses,
        cancelled: world.cancelled,
        epochs: sim.epoch().0,
        stale: world.visitor.refused,
        drops: in_sync.iter().filter(|in_sync| !**in_sync).count() as u64,
        compared,
        steps,
        steps_max: steps,
    })
}

fn run_or_say_how_to_replay(seed: u64) -> Tally {
    run(seed, Mutation::Sound).unwrap_or_else(|wrong| {
        panic!(
            "seed {seed}: {wrong}\nreplay it with: STRAKE_SEED={seed} cargo test -p strake-tests \
             --test mirror_under_faults"
        )
    })
}

#[test]
fn ten_thousand_seeds_lose_nothing_and_end() {
    if let Ok(seed) = std::env::var("STRAKE_SEED") {
        let seed = seed.parse().expect("STRAKE_SEED is a number");
        println!("{:#?}", run_or_say_how_to_replay(seed));
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let tally = std::thread::scope(|scope| {
        let part = |first| {
            let seeds = (first..SEEDS).step_by(threads as usize);
            seeds.map(run_or_say_how_to_replay).fold(Tally::default(), Add::add)
        };
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || part(first))).collect();
        let parts = parts.into_iter().map(|part| part.join().expect("a seed failed: see above"));
        parts.fold(Tally::default(), Add::add)
    });
    let fired = |kind| tally.fired.of(kind);
    let table = [
        ("device errors", fired(FaultKind::Error)),
        ("medium errors", fired(FaultKind::Medium)),
        ("torn writes", fired(FaultKind::Torn)),
        ("lost writes", fired(FaultKind::Lost)),
        ("misplaced writes", fired(FaultKind::Misplaced)),
        ("flipped bits", fired(FaultKind::Flipped)),
        ("delays", fired(FaultKind::Delayed)),
        ("full channels", fired(FaultKind::Refused)),
        ("reordered completions", fired(FaultKind::Reordered)),
        ("channels gone", fired(FaultKind::Gone)),
        ("cancelled requests", tally.cancelled),
        ("epochs", tally.epochs),
        ("stale regions refused", tally.stale),
        ("members dropped", tally.drops),
        ("errors that reached the user", tally.statuses[1..].iter().sum()),
        ("pairs of copies compared", tally.compared),
    ];
    println!("{SEEDS} seeds, {} steps, at most {} a seed", tally.steps, tally.steps_max);
    for (what, times) in table {
        println!("{times:>10}  {what}");
    }
    for (what, times) in table {
        assert!(times >= 100, "{what}: only {times} times, so this judges little");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..16 {
        assert_eq!(run(seed, Mutation::Sound), run(seed, Mutation::Sound));
    }
}

#[test]
fn the_judges_notice_a_mirror_that_is_wrong() {
    for mutation in [Mutation::FirstCopyOnly, Mutation::Unordered, Mutation::HastyDrop] {
        let noticed = (0..1000).filter(|seed| is_honest(*seed)).find_map(|seed| {
            let wrong = run(seed, mutation).err()?;
            Some((seed, wrong))
        });
        let (seed, wrong) = noticed.unwrap_or_else(|| panic!("nobody noticed {mutation:?}"));
        println!("{mutation:?}: seed {seed}: {wrong}");
    }
}
