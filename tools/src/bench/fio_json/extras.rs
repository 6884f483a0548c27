//! What fio has no word for, under the key `strake`.

use std::collections::BTreeMap;

use serde::Serialize;
use strake_nvme_driver::block::{CounterSnapshot, Identity, Limits, Op};

use super::super::report::{Direction, JobReport, Report};
use super::super::sum::{DeviceIo, ratio};
use super::fields::Ordered;

#[derive(Serialize)]
pub(super) struct Extras<'a> {
    version: &'static str,
    /// Time was virtual: everything measured is modelled.
    virtual_time: bool,
    /// A device is a model.
    modelled: bool,
    /// A signal ended it early.
    interrupted: bool,
    devices: Vec<Device<'a>>,
    /// What reached the leaves of all devices for what the user asked.
    device_io: Ordered<Amplification>,
    /// One for each poller, also where `jobs` is grouped.
    jobs: Vec<Job<'a>>,
    verify: Option<Verify<'a>>,
    /// CPU time of all jobs, a request, in microseconds.
    cpu_us_per_request: f64,
}

impl<'a> Extras<'a> {
    pub(super) fn new(report: &'a Report, group: &JobReport) -> Self {
        let cpu = group.cpu.user_seconds + group.cpu.system_seconds;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            virtual_time: report.virtual_time,
            modelled: report.modelled || report.virtual_time,
            interrupted: report.interrupted,
            devices: report
                .devices
                .iter()
                .map(|device| Device {
                    identity: &device.identity,
                    capacity_bytes: device.limits.capacity_bytes(),
                    limits: &device.limits,
                    top: Counters::new(&device.top),
                    leaves: Counters::new(&device.leaves),
                })
                .collect(),
            device_io: report
                .device_io()
                .into_iter()
                .map(|io| (io.kind, Amplification::new(&io)))
                .collect(),
            jobs: report.jobs.iter().map(Job::new).collect(),
            verify: report.verify.as_ref().map(|v| Verify {
                blocks_written: v.blocks_written,
                blocks_checked: v.blocks_checked,
                blocks_wrong: v.blocks_wrong,
                first_wrong: v.first_wrong.as_ref().map(|(_, text)| text.as_str()),
            }),
            cpu_us_per_request: ratio(cpu * 1e6, group.requests() as f64),
        }
    }
}

#[derive(Serialize)]
struct Device<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    capacity_bytes: u64,
    limits: &'a Limits,
    top: Counters,
    leaves: Counters,
}

#[derive(Serialize)]
struct Counters {
    requests: Ordered<u64>,
    bytes: Ordered<u64>,
    errors: u64,
    unsized_writes: u64,
}

impl Counters {
    fn new(counters: &CounterSnapshot) -> Self {
        let by_kind = |counts: [u64; Op::KINDS]| Op::NAMES.into_iter().zip(counts).collect();
        Self {
            requests: by_kind(counters.requests),
            bytes: by_kind(counters.bytes),
            errors: counters.errors,
            unsized_writes: counters.unsized_writes,
        }
    }
}

#[derive(Serialize)]
struct Amplification {
    requests: u64,
    bytes: u64,
    /// The user's direction that the ratios are over.
    per: Option<&'static str>,
    requests_per_request: f64,
    bytes_per_byte: f64,
}

impl Amplification {
    fn new(io: &DeviceIo) -> Self {
        Self {
            requests: io.requests,
            bytes: io.bytes,
            per: io.per.map(Direction::name),
            requests_per_request: io.requests_per_request,
            bytes_per_byte: io.bytes_per_byte,
        }
    }
}

#[derive(Serialize)]
struct Job<'a> {
    core: Option<usize>,
    runtime_ns: u64,
    poller: Poller,
    errors: &'a BTreeMap<String, u64>,
    series: Series<'a>,
}

#[derive(Serialize)]
struct Poller {
    worked: u64,
    idle: u64,
    busy_ns: u64,
    idle_ns: u64,
    sleeps: u64,
}

#[derive(Serialize)]
struct Series<'a> {
    step_ns: u64,
    requests: Ordered<&'a [u64]>,
    bytes: Ordered<&'a [u64]>,
}

impl<'a> Job<'a> {
    fn new(job: &'a JobReport) -> Self {
        let by_direction = |lists: &'a [Vec<u64>; 4]| {
            Direction::ALL.iter().map(|d| d.name()).zip(lists.iter().map(Vec::as_slice)).collect()
        };
        let poller = &job.poller;
        Self {
            core: job.core,
            runtime_ns: job.runtime_nanos,
            poller: Poller {
                worked: poller.worked,
                idle: poller.idle,
                busy_ns: poller.busy_nanos,
                idle_ns: poller.idle_nanos,
                sleeps: poller.sleeps,
            },
            errors: &job.errors,
            series: Series {
                step_ns: job.series.step_nanos,
                requests: by_direction(&job.series.requests),
                bytes: by_direction(&job.series.bytes),
            },
        }
    }
}

#[derive(Serialize)]
struct Verify<'a> {
    blocks_written: u64,
    blocks_checked: u64,
    blocks_wrong: u64,
    first_wrong: Option<&'a str>,
}
