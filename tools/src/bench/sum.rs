//! Arithmetic on a [`Report`] that more than one of its readers needs: jobs added up, device I/O
//! per user I/O, steps of the series as rates.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use strake_nvme_driver::block::{CounterSnapshot, Op};
use strake_nvme_driver::poller::PollerStats;

use super::report::{CpuUsage, Direction, DirectionReport, JobReport, Report, Series};

/// fio's percentiles.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

impl JobReport {
    /// One direction's numbers.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionReport {
        &self.directions[direction as usize]
    }

    /// Nanoseconds as seconds.
    #[must_use]
    pub fn runtime_seconds(&self) -> f64 {
        self.runtime_nanos as f64 / 1e9
    }

    /// `amount` a second of this job's runtime; 0 for a job that never ran.
    #[must_use]
    pub fn rate(&self, amount: u64) -> f64 {
        ratio(amount as f64, self.runtime_seconds())
    }

    /// Requests of all directions completed without an error.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.directions.iter().map(|d| d.requests).sum()
    }

    /// Requests that ended in an error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// A direction's completions and bytes a second in each step, with the step's middle in
    /// seconds. The last step counts for as long as it lasted, and not at all if it lasted less
    /// than a quarter: a rate over a few microseconds is noise.
    #[must_use]
    pub fn rates(&self, direction: Direction) -> Vec<StepRate> {
        let series = &self.series;
        let index = direction as usize;
        let steps = series.requests.iter().map(Vec::len).max().unwrap_or(0);
        let at = |list: &[Vec<u64>; 4], step| list[index].get(step).copied().unwrap_or(0) as f64;
        let mut rates = Vec::with_capacity(steps);
        for step in 0..steps {
            let start = series.step_nanos.saturating_mul(step as u64);
            let nanos = self.runtime_nanos.saturating_sub(start).min(series.step_nanos);
            let whole = nanos == series.step_nanos;
            if nanos == 0 || (nanos < series.step_nanos / 4 && step > 0) {
                break;
            }
            let seconds = nanos as f64 / 1e9;
            rates.push(StepRate {
                middle_seconds: start as f64 / 1e9 + seconds / 2.0,
                requests: at(&series.requests, step) / seconds,
                bytes: at(&series.bytes, step) / seconds,
                whole,
            });
        }
        rates
    }
}

/// What a step of the series comes to a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRate {
    /// The middle of the step, in seconds from the start.
    pub middle_seconds: f64,
    /// Completions a second.
    pub requests: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// False for a last step that was cut short.
    pub whole: bool,
}

/// A quotient, or 0 where there is nothing to divide by.
#[must_use]
pub fn ratio(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

impl Report {
    /// All jobs as one, as fio's `--group_reporting`: amounts are added, the runtime is the
    /// longest one.
    #[must_use]
    pub fn group(&self) -> JobReport {
        let empty = || DirectionReport {
            latency: Histogram::new(3).expect("3 digits are allowed"),
            requests: 0,
            bytes: 0,
        };
        let mut sum = JobReport {
            directions: [empty(), empty(), empty(), empty()],
            series: Series::default(),
            runtime_nanos: 0,
            errors: BTreeMap::new(),
            cpu: CpuUsage::default(),
            poller: PollerStats::default(),
            core: None,
        };
        for job in &self.jobs {
            add_job(&mut sum, job);
        }
        sum
    }

    /// What reached the leaves of all devices.
    #[must_use]
    pub fn leaves(&self) -> CounterSnapshot {
        self.devices.iter().fold(CounterSnapshot::default(), |sum, d| sum + d.leaves)
    }

    /// What the devices did for what the user asked; only the kinds of which there was something.
    #[must_use]
    pub fn device_io(&self) -> Vec<DeviceIo> {
        let leaves = self.leaves();
        let group = self.group();
        let kinds = (0..Op::KINDS).filter(|&kind| leaves.requests[kind] > 0);
        kinds
            .map(|kind| {
                let per = asked_by(&group, kind);
                let user = per.map(|d| group.direction(d));
                let (requests, bytes) = (leaves.requests[kind], leaves.bytes[kind]);
                DeviceIo {
                    kind: Op::NAMES[kind],
                    requests,
                    bytes,
                    per,
                    requests_per_request: ratio(
                        requests as f64,
                        user.map_or(0, |u| u.requests) as f64,
                    ),
                    bytes_per_byte: ratio(bytes as f64, user.map_or(0, |u| u.bytes) as f64),
                }
            })
            .collect()
    }
}

/// Device I/O of one kind, beside the user's I/O that it was for.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceIo {
    /// The kind of request, from [`Op::NAMES`].
    pub kind: &'static str,
    /// Requests that reached the leaves.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// What the ratios are over: the user's own I/O of that direction, or else the writes that
    /// must have caused it (parity reads old data, a bitmap flushes). `None` if the user did
    /// nothing at all.
    pub per: Option<Direction>,
    /// Device requests for each user request.
    pub requests_per_request: f64,
    /// Device bytes for each user byte; 0 where the user's direction moves none.
    pub bytes_per_byte: f64,
}

/// The user's direction that device I/O of this kind is set beside.
fn asked_by(group: &JobReport, kind: usize) -> Option<Direction> {
    let own = match Op::NAMES[kind] {
        "read" => Direction::Read,
        "flush" => Direction::Sync,
        "deallocate" => Direction::Trim,
        _ => Direction::Write,
    };
    let likely = [own, Direction::Write, Direction::Trim, Direction::Read, Direction::Sync];
    likely.into_iter().find(|&d| group.direction(d).requests > 0)
}

fn add_job(sum: &mut JobReport, job: &JobReport) {
    for (sum, direction) in sum.directions.iter_mut().zip(&job.directions) {
        // It resizes itself, so the only fault it could find is out of the question.
        let _ = sum.latency.add(&direction.latency);
        sum.requests += direction.requests;
        sum.bytes += direction.bytes;
    }
    sum.series.step_nanos = sum.series.step_nanos.max(job.series.step_nanos);
    add_series(&mut sum.series.requests, &job.series.requests);
    add_series(&mut sum.series.bytes, &job.series.bytes);
    sum.runtime_nanos = sum.runtime_nanos.max(job.runtime_nanos);
    for (text, count) in &job.errors {
        *sum.errors.entry(text.clone()).or_default() += count;
    }
    let cpu = &job.cpu;
    sum.cpu.user_seconds += cpu.user_seconds;
    sum.cpu.system_seconds += cpu.system_seconds;
    sum.cpu.voluntary_switches += cpu.voluntary_switches;
    sum.cpu.involuntary_switches += cpu.involuntary_switches;
    sum.cpu.major_faults += cpu.major_faults;
    sum.cpu.minor_faults += cpu.minor_faults;
    sum.poller.worked += job.poller.worked;
    sum.poller.idle += job.poller.idle;
    sum.poller.busy_nanos += job.poller.busy_nanos;
    sum.poller.idle_nanos += job.poller.idle_nanos;
    sum.poller.sleeps += job.poller.sleeps;
}

/// Step by step; all jobs have steps of the same length.
fn add_series(sum: &mut [Vec<u64>; 4], series: &[Vec<u64>; 4]) {
    for (sum, series) in sum.iter_mut().zip(series) {
        sum.resize(sum.len().max(series.len()), 0);
        for (sum, step) in sum.iter_mut().zip(series) {
            *sum += step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_group_adds_its_jobs_and_lasts_as_long_as_the_longest() {
        let report = sample::mixed();
        let group = report.group();
        let requests: u64 = report.jobs.iter().map(JobReport::requests).sum();
        assert_eq!(group.requests(), requests);
        let reads: u64 = report.jobs.iter().map(|j| j.directions[0].latency.len()).sum();
        assert_eq!(group.direction(Direction::Read).latency.len(), reads);
        let longest = report.jobs.iter().map(|j| j.runtime_nanos).max();
        assert_eq!(Some(group.runtime_nanos), longest);
        let steps: u64 = group.series.requests[0].iter().sum();
        assert_eq!(steps, group.direction(Direction::Read).requests);
    }

    #[test]
    fn device_reads_of_a_writing_user_are_counted_per_write() {
        let report = sample::parity_writes();
        let io = report.device_io();
        let read = io.iter().find(|io| io.kind == "read").expect("parity reads old data");
        assert_eq!(read.per, Some(Direction::Write));
        assert_eq!(read.requests_per_request, 2.0);
        assert_eq!(read.bytes_per_byte, 2.0);
    }

    #[test]
    fn a_last_step_that_was_cut_short_counts_for_as_long_as_it_lasted() {
        let mut job = sample::mixed().group();
        job.series = Series { step_nanos: 1_000_000_000, ..Series::default() };
        job.series.requests[0] = vec![100, 100, 50];
        job.runtime_nanos = 2_500_000_000;
        let rates = job.rates(Direction::Read);
        assert_eq!(rates.len(), 3);
        assert!(rates.iter().all(|r| r.requests == 100.0));
        assert_eq!(rates[2].middle_seconds, 2.25);
        assert!(!rates[2].whole);
        job.runtime_nanos = 2_000_000_100;
        assert_eq!(job.rates(Direction::Read).len(), 2);
    }

    #[test]
    fn an_empty_report_sums_to_nothing_and_divides_by_nothing() {
        let mut report = sample::mixed();
        report.jobs.clear();
        report.devices.clear();
        assert_eq!(report.group().requests(), 0);
        assert_eq!(report.group().rate(5), 0.0);
        assert_eq!(report.device_io(), []);
    }
}
