//! What a bench run measured: made by the run, read by the text, JSON and plot writers.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use strake_nvme_driver::block::{CounterSnapshot, Identity, Limits};
use strake_nvme_driver::poller::PollerStats;

/// fio's four directions, in the order of [`JobReport::directions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    Trim,
    /// Flushes, which fio calls sync.
    Sync,
}

impl Direction {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Trim, Self::Sync];

    /// fio's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync => "sync",
        }
    }
}

/// One direction's numbers in one job.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// From submit to the poll that saw the completion, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Requests completed without an error.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
}

/// Completions over time, in steps of equal length; the last may be cut short by the end.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Length of a step in nanoseconds.
    pub step_nanos: u64,
    /// Completions in each step, by direction.
    pub requests: [Vec<u64>; 4],
    /// Bytes in each step, by direction.
    pub bytes: [Vec<u64>; 4],
}

/// What the poller's thread used. Zero in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
}

/// One job: one poller.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// In the order of [`Direction::ALL`].
    pub directions: [DirectionReport; 4],
    pub series: Series,
    /// Nanoseconds from the first submit to the last completion.
    pub runtime_nanos: u64,
    /// Errors by their text, such as "medium error, first bad block 8".
    pub errors: BTreeMap<String, u64>,
    pub cpu: CpuUsage,
    pub poller: PollerStats,
    /// The core it was pinned to.
    pub core: Option<usize>,
}

/// One device and what reached it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    pub identity: Identity,
    pub limits: Limits,
    /// What the device that was named got.
    pub top: CounterSnapshot,
    /// What reached its leaves: equal to `top` unless it is made of others.
    pub leaves: CounterSnapshot,
}

/// The options as fio's words, for fio's "job options" and for the heading.
pub type JobOptions = BTreeMap<String, String>;

/// A whole run.
#[derive(Clone, Debug)]
pub struct Report {
    pub job_name: String,
    pub options: JobOptions,
    pub jobs: Vec<JobReport>,
    pub devices: Vec<DeviceReport>,
    /// Seconds since 1970 at the start; 0 in virtual time.
    pub started_unix_seconds: u64,
    /// True if time was virtual: everything measured is modelled.
    pub virtual_time: bool,
    /// True if a device is a model in real time.
    pub modelled: bool,
    /// True if a signal ended it early.
    pub interrupted: bool,
    /// What `--verify` found, if it was asked: blocks checked, and the first wrong ones in words.
    pub verify: Option<VerifyReport>,
}

/// What `--verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub blocks_checked: u64,
    pub blocks_wrong: u64,
    /// Blocks whose last write succeeded; more than were checked if the run was cut short.
    pub blocks_written: u64,
    /// The first wrong block: its address, and what is wrong, in words.
    pub first_wrong: Option<(u64, String)>,
}

impl VerifyReport {
    /// Adds another job's or device's.
    pub fn add(&mut self, other: &Self) {
        self.blocks_checked += other.blocks_checked;
        self.blocks_wrong += other.blocks_wrong;
        self.blocks_written += other.blocks_written;
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
    }
}
