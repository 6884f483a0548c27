//! Reports made up for the tests of their readers: deterministic, and shaped like real ones.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hdrhistogram::Histogram;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use strake_nvme_driver::block::{ClaimedLimits, CounterSnapshot, Identity, Kind, Limits, Op};
use strake_nvme_driver::poller::PollerStats;

use super::report::{
    CpuUsage, DeviceReport, Direction, DirectionReport, JobReport, Report, Series, VerifyReport,
};

const STEP_NANOS: u64 = 500_000_000;

/// Requests of 4 KiB whose latency is `base_nanos`, spread as a drive's is, with a tail.
fn direction(random: &mut Xoshiro256PlusPlus, requests: u64, base_nanos: u64) -> DirectionReport {
    let mut latency = Histogram::new(3).expect("3 digits are allowed");
    for _ in 0..requests {
        let spread = random.next_u64() % (base_nanos / 2) + random.next_u64() % (base_nanos / 2);
        let tail = match random.next_u64() % 10_000 {
            0..=4 => base_nanos * 40,
            5..=99 => base_nanos * 8,
            _ => 0,
        };
        latency.record(base_nanos + spread + tail).expect("it resizes");
    }
    DirectionReport { latency, requests, bytes: requests * 4096 }
}

fn spread_over_steps(total: u64, steps: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..steps).map(|i| total / steps + (i % 3) * total / 100).collect();
    let others: u64 = list[..list.len() - 1].iter().sum();
    *list.last_mut().expect("there are steps") = total - others;
    list
}

fn job(seed: u64, requests: [u64; 4], base_nanos: [u64; 4]) -> JobReport {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut directions: [DirectionReport; 4] =
        std::array::from_fn(|i| direction(&mut random, requests[i], base_nanos[i]));
    directions[Direction::Sync as usize].bytes = 0;
    let steps = |total: fn(&DirectionReport) -> u64| {
        directions.each_ref().map(|d| spread_over_steps(total(d), 8))
    };
    JobReport {
        series: Series {
            step_nanos: STEP_NANOS,
            requests: steps(|d| d.requests),
            bytes: steps(|d| d.bytes),
        },
        directions,
        runtime_nanos: 4_000_000_000 + seed,
        errors: BTreeMap::new(),
        cpu: CpuUsage {
            user_seconds: 3.2,
            system_seconds: 0.3,
            voluntary_switches: 12,
            involuntary_switches: 5,
            major_faults: 0,
            minor_faults: 310,
        },
        poller: PollerStats {
            worked: 900_000,
            idle: 120_000,
            busy_nanos: 3_300_000_000,
            idle_nanos: 700_000_000,
            sleeps: 17,
        },
        core: usize::try_from(seed).ok(),
    }
}

fn options(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|&(key, value)| (key.into(), value.into())).collect()
}

fn flash() -> Limits {
    let claimed = ClaimedLimits {
        block_bytes: 512,
        blocks: 7_501_476_528,
        write_granularity_bytes: 16 << 10,
        write_alignment_bytes: 16 << 10,
        optimal_write_bytes: 128 << 10,
        atomic_unit_bytes: 4096,
        max_transfer_bytes: 512 << 10,
        max_segments: 128,
        can_deallocate: true,
        deallocate_granularity_bytes: 4096,
        deallocate_alignment_bytes: 4096,
        deallocate_max_bytes: 1 << 30,
        deallocate_reads_zero: true,
        volatile_cache: true,
        ..ClaimedLimits::default()
    };
    Limits::believe(&claimed).expect("sane claims").0
}

/// Two jobs, reads and writes with a few flushes, on one drive in real time.
pub(super) fn mixed() -> Report {
    let jobs: Vec<JobReport> = (1..=2)
        .map(|seed| job(seed, [70_000, 30_000, 0, 40], [80_000, 16_000, 1000, 900_000]))
        .collect();
    let mut top = CounterSnapshot::default();
    let ops = [Op::Read, Op::Write, Op::Deallocate, Op::Flush];
    for (op, direction) in ops.into_iter().zip(Direction::ALL) {
        top.requests[op.index()] = jobs.iter().map(|j| j.direction(direction).requests).sum();
        top.bytes[op.index()] = jobs.iter().map(|j| j.direction(direction).bytes).sum();
    }
    top.unsized_writes = 60_000;
    Report {
        job_name: "mixed".into(),
        options: options(&[("rw", "randrw"), ("bs", "4k"), ("iodepth", "32"), ("numjobs", "2")]),
        jobs,
        devices: vec![DeviceReport {
            identity: Identity {
                id: "nqn.2019-08.example:S4X1/1".into(),
                uri: "pcie:0000:01:00.0/1".into(),
                name: "0000:01:00.0/1".into(),
                kind: Kind::Namespace,
            },
            limits: flash(),
            top,
            leaves: top,
        }],
        started_unix_seconds: 1_760_000_000,
        virtual_time: false,
        modelled: false,
        interrupted: false,
        verify: None,
    }
}

/// One job of small writes on an array with parity, in virtual time, with all that can go wrong.
pub(super) fn parity_writes() -> Report {
    let mut job = job(7, [0, 20_000, 0, 0], [1000, 300_000, 1000, 1000]);
    job.cpu = CpuUsage::default();
    job.core = None;
    job.errors.insert("medium error, first bad block 8".into(), 3);
    job.errors.insert("device is gone".into(), 1);
    let user = &job.directions[1];
    let mut top = CounterSnapshot::default();
    top.requests[Op::Write.index()] = user.requests;
    top.bytes[Op::Write.index()] = user.bytes;
    let mut leaves = top;
    for op in [Op::Read, Op::Write] {
        leaves.requests[op.index()] = 2 * user.requests;
        leaves.bytes[op.index()] = 2 * user.bytes;
    }
    leaves.requests[Op::Flush.index()] = 12;
    leaves.errors = 4;
    let mut limits = flash();
    limits.rotational = true;
    limits.deallocate = None;
    limits.write_split_bytes = std::num::NonZeroU32::new(192 << 10);
    Report {
        job_name: "parity".into(),
        options: options(&[("rw", "randwrite"), ("bs", "4k"), ("iodepth", "8"), ("numjobs", "1")]),
        jobs: vec![job],
        devices: vec![DeviceReport {
            identity: Identity {
                id: "uuid".into(),
                uri: "array:model:a,model:b,model:c,model:d".into(),
                name: "md0".into(),
                kind: Kind::Array,
            },
            limits,
            top,
            leaves,
        }],
        started_unix_seconds: 0,
        virtual_time: true,
        modelled: true,
        interrupted: true,
        verify: Some(VerifyReport {
            blocks_written: 80_000,
            blocks_checked: 80_000,
            blocks_wrong: 1,
            first_wrong: Some((4711, "block 4711 holds write 3 of 5: a lost write".into())),
        }),
    }
}

/// A sample for one point of a sweep over depths and jobs, as plots of many files want it.
pub(super) fn sweep(depth: u64, jobs: u64) -> Report {
    let mut report = mixed();
    let requests = 2000 * depth.min(16);
    report.jobs = (0..jobs)
        .map(|seed| {
            job(
                seed,
                [requests, requests / 3, 0, 0],
                [60_000 + depth * 4000, 16_000, 1, 1].map(|n: u64| n.max(2)),
            )
        })
        .collect();
    report.options.insert("iodepth".into(), depth.to_string());
    report.options.insert("numjobs".into(), jobs.to_string());
    report
}

/// Where the tests leave their samples for a person to look at: the directory named in
/// `STRAKE_SAMPLES`, or else a temporary one that is returned with its guard.
pub(super) fn directory() -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(path) = std::env::var_os("STRAKE_SAMPLES") {
        let path = PathBuf::from(path);
        std::fs::create_dir_all(&path).expect("the directory for samples can be made");
        return (path, None);
    }
    let guard = tempfile::tempdir().expect("a temporary directory");
    (guard.path().to_owned(), Some(guard))
}
