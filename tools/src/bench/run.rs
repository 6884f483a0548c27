//! A run: from options to a report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use core_affinity::CoreId;
use nix::sys::resource::{UsageWho, getrusage};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use strake_nvme_driver::block::{
    Claim, ClaimMode, CounterSnapshot, Device, Kind, OpenOptions, Progress, WakeSet, leaf_counters,
};
use strake_nvme_driver::memory::{IovaAllocator, Memory};
use strake_nvme_driver::poller::{
    Follower, Leader, Poller, PollerId, PollerStats, TaskInbox, Waker, spawn,
};
use strake_nvme_driver::time::Instant;

use tracing::warn;

use super::guard;
use super::job::{Job, JobResult};
use super::lane::{Lane, LaneShape};
use super::options::BenchOptions;
use super::plan::{Ending, JobPlan};
use super::readback::Readback;
use super::report::{CpuUsage, DeviceReport, JobReport, Report};
use super::workload::{Extent, Workload};
use crate::clock::RealClock;
use crate::devices;
use crate::exit::Failure;

/// What goes on beside a run: shown while it lasts.
pub trait Watch {
    /// Called a few times a second in real time, and once a round in virtual time: `done` is what
    /// the devices have done since the start.
    fn tick(&mut self, done: CounterSnapshot);
}

/// A device and what was decided about it.
struct Benched {
    device: Arc<dyn Device>,
    claim: Claim,
    extent: Extent,
    block_bytes: u32,
    before: (CounterSnapshot, CounterSnapshot),
}

/// Runs a bench on `devices` until it is over or `stop` is set.
///
/// # Errors
/// Nothing was started, or the machine gave out under it.
pub fn run(
    options: &BenchOptions,
    devices: Vec<Arc<dyn Device>>,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn Watch,
) -> Result<Report, Failure> {
    let extents = plan(options, &devices)?;
    let memory = Memory::new(IovaAllocator::for_39_bits());
    if options.rw.changes() && !options.force {
        guard::refuse_if_in_use(&devices, &memory).map_err(Failure::Run)?;
    }
    let mode = if options.rw.changes() { ClaimMode::Write } else { ClaimMode::Read };
    let mut benched = Vec::new();
    for (device, (extent, block_bytes)) in devices.into_iter().zip(extents) {
        let claim = device.claim(mode).map_err(|e| Failure::Run(e.to_string()))?;
        let before = (device.counters(), below(device.as_ref()));
        benched.push(Benched { device, claim, extent, block_bytes, before });
    }

    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let verify_run = options.verify.map(|_| match options.virtual_time {
        true => options.seed,
        // Another run with the same seed must not take this one's blocks for its own.
        false => options.seed ^ (started.as_nanos() as u64).rotate_left(32),
    });
    let wakers: Vec<Waker> = (0..options.numjobs)
        .map(|_| Waker::new())
        .collect::<Result<_, _>>()
        .map_err(|e| Failure::Run(format!("no eventfd for a poller: {e}")))?;
    let (_leader, followers) = Leader::new(wakers.clone());
    let (results, finished) = mpsc::channel();
    let mut pollers = Vec::new();
    for (number, (waker, follower)) in (0..options.numjobs).zip(wakers.into_iter().zip(followers)) {
        let job = job(options, number, &benched, &memory, verify_run, stop, results.clone())
            .map_err(Failure::Run)?;
        pollers.push(start(number, waker, follower, job)?);
    }
    drop(results);

    let ended = if options.virtual_time {
        run_virtually(pollers, &benched, watch)?
    } else {
        run_really(options, pollers, &finished, &benched, stop, watch)?
    };
    let mut results: Vec<JobResult> = ended.results;
    results.extend(finished.try_iter());
    results.sort_by_key(|r| r.number);
    if results.len() != usize::from(options.numjobs) {
        return Err(Failure::Run("a job ended without a result".to_owned()));
    }
    let verify = verify_run.is_some().then(|| {
        results.iter().filter_map(|r| r.verify.as_ref()).fold(Default::default(), |mut sum, v| {
            super::report::VerifyReport::add(&mut sum, v);
            sum
        })
    });
    let jobs = results
        .into_iter()
        .zip(ended.threads)
        .map(|(result, thread)| JobReport {
            directions: result.directions,
            series: result.series,
            runtime_nanos: result.runtime_nanos,
            errors: result.errors,
            cpu: thread.cpu,
            poller: thread.poller,
            core: thread.core,
        })
        .collect();
    let devices: Vec<DeviceReport> = benched
        .iter()
        .map(|b| DeviceReport {
            identity: b.device.identity().clone(),
            limits: (*b.device.limits()).clone(),
            top: b.device.counters() - b.before.0,
            leaves: below(b.device.as_ref()) - b.before.1,
        })
        .collect();
    Ok(Report {
        job_name: options.name.clone(),
        options: options.words(),
        jobs,
        modelled: benched.iter().any(|b| has_model(&b.device)),
        devices,
        started_unix_seconds: if options.virtual_time { 0 } else { started.as_secs() },
        virtual_time: options.virtual_time,
        interrupted: stop.load(Ordering::Relaxed),
        verify,
    })
}

/// What the options mean on these devices: the part of each to use, and its logical block. Touches
/// nothing.
///
/// # Errors
/// The options make no sense, or not on these devices.
pub fn plan(
    options: &BenchOptions,
    devices: &[Arc<dyn Device>],
) -> Result<Vec<(Extent, u32)>, Failure> {
    options.check().map_err(Failure::Usage)?;
    if options.virtual_time {
        devices.iter().try_for_each(check_virtual).map_err(Failure::Usage)?;
    }
    let extents = devices.iter().map(|device| extent(options, device.as_ref()));
    extents.collect::<Result<_, _>>().map_err(Failure::Usage)
}

/// What reached the leaves, with the writes that cost a read-modify-write wherever in the tree
/// they were seen: a model notices them, and the memory under it does not.
fn below(device: &dyn Device) -> CounterSnapshot {
    fn unsized_writes(device: &dyn Device) -> u64 {
        let members = device.members().iter().map(|m| unsized_writes(m.as_ref()));
        device.counters().unsized_writes.max(members.sum())
    }
    CounterSnapshot { unsized_writes: unsized_writes(device), ..leaf_counters(device) }
}

/// True if a model stands anywhere in the device's tree.
fn has_model(device: &Arc<dyn Device>) -> bool {
    device.identity().uri.starts_with("model") || device.members().iter().any(has_model)
}

fn check_virtual(device: &Arc<dyn Device>) -> Result<(), String> {
    let uri = &device.identity().uri;
    if !has_model(device) {
        return Err(format!(
            "--virtual-time needs a device that takes time, and {uri} takes none; use model:p5520 or another model"
        ));
    }
    let real = |leaf: &Arc<dyn Device>| {
        matches!(leaf.identity().kind, Kind::File | Kind::Node | Kind::Namespace)
    };
    match devices::leaves(device).iter().find(|leaf| real(leaf)) {
        Some(leaf) => Err(format!(
            "--virtual-time cannot wait for {}, which is real; put mem: or null: under the model",
            leaf.identity().uri
        )),
        None => Ok(()),
    }
}

/// The part of a device that the options name, and its logical block.
fn extent(options: &BenchOptions, device: &dyn Device) -> Result<(Extent, u32), String> {
    let limits = device.limits();
    let name = &device.identity().uri;
    let block = u64::from(limits.block_bytes);
    let whole = |what: &str, bytes: u64| {
        if bytes.is_multiple_of(block) {
            Ok(bytes / block)
        } else {
            Err(format!(
                "{what}={bytes} is no multiple of {name}'s logical block, {block} bytes; use a multiple of it"
            ))
        }
    };
    whole("--bs", options.bs.min.into())?;
    let largest = whole("--bs", options.bs.max.into())?;
    if options.bs.max > limits.max_transfer_bytes && !options.rw.trims() {
        return Err(format!(
            "--bs={} is more than {name} transfers at once, {} bytes; use a smaller --bs",
            options.bs.max, limits.max_transfer_bytes
        ));
    }
    let first = whole("--offset", options.offset)?;
    let capacity = limits.capacity_bytes();
    if first >= limits.blocks {
        return Err(format!(
            "--offset={} is beyond the end of {name}, which holds {capacity} bytes",
            options.offset
        ));
    }
    let blocks = match options.size {
        Some(size) => whole("--size", size)?,
        None => limits.blocks - first,
    };
    if first + blocks > limits.blocks {
        return Err(format!(
            "--offset={} and --size={} reach beyond the end of {name}, which holds {capacity} bytes",
            options.offset,
            blocks * block
        ));
    }
    let parts = if splits(options) { u64::from(options.numjobs) } else { 1 };
    if blocks / parts < largest {
        return Err(format!(
            "{} bytes of {name} for each job hold no request of --bs={}; use a larger --size or a smaller --bs",
            blocks / parts * block,
            options.bs.max
        ));
    }
    if options.rw.trims() && limits.deallocate.is_none() {
        return Err(format!("{name} cannot deallocate, so --rw={} has nothing to do", options.rw));
    }
    Ok((Extent { first, blocks }, limits.block_bytes))
}

/// True if jobs share the range out between them: where two on one place would make no sense.
fn splits(options: &BenchOptions) -> bool {
    !options.rw.is_random() || options.verify.is_some()
}

/// A job's part of an extent.
fn share(extent: Extent, number: u16, of: u16, largest: u64) -> Extent {
    let blocks = extent.blocks / u64::from(of) / largest * largest;
    Extent { first: extent.first + u64::from(number) * blocks, blocks }
}

/// Most memory that blocks' generations may take, in blocks of 4 bytes each: 1 GiB.
const VERIFY_BLOCKS_MAX: u64 = 1 << 28;

fn job(
    options: &BenchOptions,
    number: u16,
    benched: &[Benched],
    memory: &Arc<Memory>,
    verify_run: Option<u64>,
    stop: &Arc<AtomicBool>,
    results: mpsc::Sender<JobResult>,
) -> Result<Job, String> {
    let depth = options.iodepth;
    let buffer_bytes = options.bs.max.next_multiple_of(4096);
    let mut seeds = Xoshiro256PlusPlus::seed_from_u64(options.seed ^ u64::from(number) << 48);
    let mut lanes = Vec::new();
    let nanos = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
    let mut plan = JobPlan {
        ending: Ending {
            after_nanos: options.time_limit().map(nanos),
            bytes: None,
            requests: options.number_ios,
        },
        rate_iops: options.rate_iops,
        fsync: options.fsync,
        continue_on_error: options.continue_on_error,
        verify: verify_run.is_some(),
    };
    for b in benched {
        let identity = b.device.identity();
        let namesakes = benched.iter().filter(|o| o.device.identity().name == identity.name);
        let name = if namesakes.count() > 1 { &identity.uri } else { &identity.name };
        let largest = u64::from(options.bs.max / b.block_bytes);
        let extent = match splits(options) {
            true => share(b.extent, number, options.numjobs, largest),
            false => b.extent,
        };
        if !options.time_based && options.size.is_some() {
            plan.ending.bytes = Some(extent.blocks * u64::from(b.block_bytes));
        }
        let len = u64::from(depth) * u64::from(buffer_bytes);
        let len = if options.rw.trims() { 4096 } else { len };
        let region = usize::try_from(len)
            .map_err(|e| e.to_string())
            .and_then(|len| memory.add_anonymous(len).map_err(|e| e.to_string()))
            .map_err(|e| {
                format!(
                    "no {len} bytes of memory for buffers: {e}; use a smaller --iodepth or --bs"
                )
            })?;
        if options.rw.changes() && verify_run.is_none() {
            // Data that does not compress, as drives and file systems may.
            let mut piece = [0; 4096];
            for offset in (0..region.len()).step_by(piece.len()) {
                seeds.fill_bytes(&mut piece);
                let len = piece.len().min(region.len() - offset);
                let written = region.write_at(offset, &piece[..len]);
                debug_assert!(written, "the piece lies in the region");
            }
        }
        let open = OpenOptions { poller: PollerId(number), depth, memory: Arc::clone(memory) };
        let channel = b.device.open(&b.claim, &open).map_err(|e| e.to_string())?;
        let blocks = (options.bs.min / b.block_bytes, options.bs.max / b.block_bytes);
        let once = verify_run.is_some();
        let workload =
            Workload::new(options.rw, options.rwmixread, extent, blocks, seeds.next_u64(), once);
        if verify_run.is_some() && extent.blocks > VERIFY_BLOCKS_MAX {
            return Err(format!(
                "--verify remembers each block, and {} of {name} are too many; use --size of at most {} bytes",
                extent.blocks,
                VERIFY_BLOCKS_MAX * u64::from(b.block_bytes)
            ));
        }
        let readback =
            verify_run.map(|run| Readback::new(run, extent, b.block_bytes, buffer_bytes));
        let shape = LaneShape { block_bytes: b.block_bytes, buffer_bytes, depth };
        let lane = Lane::new(name.clone(), channel, workload, region, shape, &plan, readback);
        lanes.push(lane);
    }
    Ok(Job::new(number, plan, lanes, Arc::clone(stop), results))
}

fn start(
    number: u16,
    waker: Waker,
    follower: Follower,
    job: Job,
) -> Result<(Poller, TaskInbox), Failure> {
    let (poller, inbox) = Poller::new(PollerId(number), waker, follower);
    inbox.add(Box::new(job)).map_err(|_| Failure::Run("a poller ended early".to_owned()))?;
    Ok((poller, inbox))
}

/// Ticks of the run's watch, of 100 ms each, after which a stop that takes long is explained.
const WAIT_TICKS: u32 = 10;

/// What is left of the pollers.
struct Ended {
    results: Vec<JobResult>,
    threads: Vec<Thread>,
}

#[derive(Default)]
struct Thread {
    cpu: CpuUsage,
    poller: PollerStats,
    core: Option<usize>,
}

fn done(benched: &[Benched]) -> CounterSnapshot {
    let each = benched.iter().map(|b| b.device.counters() - b.before.0);
    each.fold(CounterSnapshot::default(), |sum, n| sum + n)
}

fn run_really(
    options: &BenchOptions,
    pollers: Vec<(Poller, TaskInbox)>,
    finished: &mpsc::Receiver<JobResult>,
    benched: &[Benched],
    stop: &AtomicBool,
    watch: &mut dyn Watch,
) -> Result<Ended, Failure> {
    let cores = cores(options)?;
    let clock = Arc::new(RealClock::new());
    let policy = options.idle.policy();
    let mut threads = Vec::new();
    for ((poller, inbox), core) in pollers.into_iter().zip(cores.iter().cycle()) {
        let clock = Arc::clone(&clock);
        let thread = spawn(poller, inbox, Some(*core), clock, policy, cpu_usage)
            .map_err(|e| Failure::Run(format!("cannot start a poller's thread: {e}")))?;
        threads.push((thread, *core));
    }
    let mut results = Vec::new();
    let mut asked = 0;
    while results.len() < threads.len() {
        match finished.recv_timeout(Duration::from_millis(100)) {
            Ok(result) => {
                results.push(result);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.load(Ordering::Relaxed) {
                    asked += 1;
                    if asked == WAIT_TICKS {
                        warn!(
                            "waiting for requests that the devices still have; Ctrl-C again gives up"
                        );
                    }
                    threads.iter().for_each(|(thread, _)| thread.inbox().wake());
                }
                watch.tick(done(benched));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let mut ended = Vec::new();
    for (thread, core) in threads {
        let (report, cpu) = thread.join().map_err(|e| Failure::Run(e.to_string()))?;
        let core = report.pinned.then_some(core.id);
        ended.push(Thread { cpu, poller: report.stats, core });
    }
    Ok(Ended { results, threads: ended })
}

/// The cores that pollers are pinned to, in turn.
fn cores(options: &BenchOptions) -> Result<Vec<CoreId>, Failure> {
    let all = core_affinity::get_core_ids().filter(|cores| !cores.is_empty());
    let all = all.ok_or_else(|| Failure::Run("the kernel names no cores".to_owned()))?;
    let Some(wanted) = &options.cpus_allowed else { return Ok(all) };
    let find = |id: &usize| {
        all.iter().find(|core| core.id == *id).copied().ok_or_else(|| {
            let have: Vec<String> = all.iter().map(|c| c.id.to_string()).collect();
            Failure::Usage(format!(
                "--cpus_allowed names core {id}, and this process may use {}",
                have.join(", ")
            ))
        })
    };
    wanted.0.iter().map(find).collect()
}

fn run_virtually(
    mut pollers: Vec<(Poller, TaskInbox)>,
    benched: &[Benched],
    watch: &mut dyn Watch,
) -> Result<Ended, Failure> {
    let mut now = Instant::ZERO;
    let mut wake = WakeSet::new();
    loop {
        let each = pollers.iter_mut().map(|(poller, _)| poller.step(now));
        let progress = each.fold(Progress::Resting, |sum, p| sum | p);
        watch.tick(done(benched));
        if pollers.iter().all(|(poller, _)| poller.is_empty()) {
            break;
        }
        if progress == Progress::Worked {
            continue;
        }
        let (mut next, mut ready) = (None::<Instant>, false);
        for (poller, _) in &mut pollers {
            poller.arm(&mut wake);
            ready |= wake.is_ready();
            next = next.into_iter().chain(wake.until()).min();
            poller.disarm();
        }
        now = match next {
            // A time that has come already moves on by the least there is.
            Some(at) if !ready => at.max(now.plus_nanos(1)),
            _ if ready => now.plus_nanos(1),
            _ => return Err(Failure::Run("virtual time stands still: nothing is due".to_owned())),
        };
    }
    let thread = |poller: &Poller| Thread { poller: poller.stats(), ..Thread::default() };
    let threads = pollers.iter().map(|(poller, _)| thread(poller)).collect();
    Ok(Ended { results: Vec::new(), threads })
}

fn cpu_usage() -> CpuUsage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return CpuUsage::default() };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    CpuUsage {
        user_seconds: seconds(usage.user_time()),
        system_seconds: seconds(usage.system_time()),
        voluntary_switches: count(usage.voluntary_context_switches()),
        involuntary_switches: count(usage.involuntary_context_switches()),
        major_faults: count(usage.major_page_faults()),
        minor_faults: count(usage.minor_page_faults()),
    }
}
