//! The objects of fio's document, field by field in fio's order.

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use super::super::report::{Direction, JobReport, Report};
use super::super::sum::{PERCENTILES, ratio};

/// A JSON object whose keys keep their order.
pub(super) struct Ordered<V>(Vec<(String, V)>);

impl<V> Default for Ordered<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V, K: Into<String>> FromIterator<(K, V)> for Ordered<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Six decimals, as fio writes.
fn six(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

/// What a job's object needs beside the job.
pub(super) struct JobContext<'a> {
    pub(super) report: &'a Report,
    pub(super) group: &'a JobReport,
    pub(super) bins: bool,
}

#[derive(Serialize)]
pub(super) struct Job {
    jobname: String,
    groupid: u32,
    /// In milliseconds since 1970; fio has it since 3.36.
    job_start: u64,
    /// An errno; 0 if all went well.
    error: u32,
    eta: u64,
    /// In seconds, rounded up.
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Ordered<String>,
    read: Data,
    write: Data,
    trim: Data,
    sync: Sync,
    /// In milliseconds.
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Ordered<f64>,
    iodepth_submit: Ordered<f64>,
    iodepth_complete: Ordered<f64>,
    latency_ns: Ordered<f64>,
    latency_us: Ordered<f64>,
    latency_ms: Ordered<f64>,
    latency_depth: u64,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
}

impl Job {
    pub(super) fn new(context: &JobContext<'_>, job: &JobReport) -> Self {
        let report = context.report;
        let data = |direction| Data::new(context, job, direction);
        let percent = |seconds: f64| six(100.0 * ratio(seconds, job.runtime_seconds()));
        let started = if report.virtual_time { 0 } else { report.started_unix_seconds };
        let depth = report.options.get("iodepth").and_then(|d| d.parse().ok()).unwrap_or(1);
        let [latency_ns, latency_us, latency_ms] = latency_spread(job);
        Self {
            jobname: report.job_name.clone(),
            groupid: 0,
            job_start: started.saturating_mul(1000),
            error: errno(report, job),
            eta: 0,
            elapsed: job.runtime_nanos.div_ceil(1_000_000_000),
            options: options(report),
            read: data(Direction::Read),
            write: data(Direction::Write),
            trim: data(Direction::Trim),
            sync: Sync::new(context, job),
            job_runtime: job.runtime_nanos / 1_000_000,
            usr_cpu: percent(job.cpu.user_seconds),
            sys_cpu: percent(job.cpu.system_seconds),
            ctx: job.cpu.voluntary_switches + job.cpu.involuntary_switches,
            majf: job.cpu.major_faults,
            minf: job.cpu.minor_faults,
            iodepth_level: depth_levels(if job.requests() > 0 { depth } else { 0 }),
            iodepth_submit: zeros(&["0", "4", "8", "16", "32", "64", ">=64"]),
            iodepth_complete: zeros(&["0", "4", "8", "16", "32", "64", ">=64"]),
            latency_ns,
            latency_us,
            latency_ms,
            latency_depth: depth,
            latency_target: 0,
            latency_percentile: 100.0,
            latency_window: 0,
        }
    }
}

/// The options, and the two among them that plots sort by and that the report itself knows.
fn options(report: &Report) -> Ordered<String> {
    let mut options = report.options.clone();
    options.entry("name".into()).or_insert_with(|| report.job_name.clone());
    options.entry("numjobs".into()).or_insert_with(|| report.jobs.len().to_string());
    options.into_iter().collect()
}

/// `EIO` if a request failed, `EILSEQ` as fio has it if a verification did.
fn errno(report: &Report, job: &JobReport) -> u32 {
    const EIO: u32 = 5;
    const EILSEQ: u32 = 84;
    if job.failed() > 0 {
        EIO
    } else if report.verify.as_ref().is_some_and(|v| v.blocks_wrong > 0) {
        EILSEQ
    } else {
        0
    }
}

/// Read, write or trim.
#[derive(Serialize)]
struct Data {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    /// In KiB a second.
    bw: u64,
    iops: f64,
    /// In milliseconds.
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Latency,
    clat_ns: Latency,
    lat_ns: Latency,
    // In KiB a second.
    bw_min: u64,
    bw_max: u64,
    /// In percent of all jobs' bandwidth.
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

impl Data {
    fn new(context: &JobContext<'_>, job: &JobReport, direction: Direction) -> Self {
        let d = job.direction(direction);
        let bandwidth = job.rate(d.bytes);
        // A direction that was not used has no samples, rather than many zeros.
        let steps = if d.requests > 0 { job.rates(direction) } else { Vec::new() };
        let whole = || steps.iter().filter(|step| step.whole);
        let bw = Samples::new(whole().map(|step| step.bytes / 1024.0));
        let iops = Samples::new(whole().map(|step| step.requests));
        let all = context.group.rate(context.group.direction(direction).bytes) / 1024.0;
        Self {
            io_bytes: d.bytes,
            io_kbytes: d.bytes >> 10,
            bw_bytes: bandwidth as u64,
            bw: (bandwidth / 1024.0) as u64,
            iops: six(job.rate(d.requests)),
            runtime: if d.requests > 0 { job.runtime_nanos / 1_000_000 } else { 0 },
            total_ios: d.requests,
            short_ios: 0,
            drop_ios: 0,
            slat_ns: Latency::none(),
            clat_ns: Latency::new(&d.latency, true, context.bins),
            lat_ns: Latency::new(&d.latency, false, false),
            bw_min: bw.min as u64,
            bw_max: bw.max as u64,
            bw_agg: six((100.0 * ratio(bw.mean, all)).min(100.0)),
            bw_mean: six(bw.mean),
            bw_dev: six(bw.stddev),
            bw_samples: bw.count,
            iops_min: iops.min as u64,
            iops_max: iops.max as u64,
            iops_mean: six(iops.mean),
            iops_stddev: six(iops.stddev),
            iops_samples: iops.count,
        }
    }
}

/// Flushes.
#[derive(Serialize)]
struct Sync {
    total_ios: u64,
    lat_ns: Latency,
}

impl Sync {
    fn new(context: &JobContext<'_>, job: &JobReport) -> Self {
        let d = job.direction(Direction::Sync);
        Self { total_ios: d.requests, lat_ns: Latency::new(&d.latency, true, context.bins) }
    }
}

/// In nanoseconds.
#[derive(Serialize)]
struct Latency {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Ordered<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Ordered<u64>>,
}

impl Latency {
    fn none() -> Self {
        Self { min: 0, max: 0, mean: 0.0, stddev: 0.0, count: 0, percentile: None, bins: None }
    }

    /// Percentiles and bins are left out where there is nothing to count, as fio does: its own
    /// readers trip over empty ones.
    fn new(latency: &Histogram<u64>, percentiles: bool, bins: bool) -> Self {
        if latency.is_empty() {
            return Self::none();
        }
        let percentile = |p: f64| (format!("{p:.6}"), latency.value_at_percentile(p));
        // The value of a bin is the same as that of a percentile which falls into it.
        let bin = |value: u64| latency.highest_equivalent(value).to_string();
        let recorded = latency.iter_recorded();
        Self {
            min: latency.min(),
            max: latency.max(),
            mean: six(latency.mean()),
            stddev: six(latency.stdev()),
            count: latency.len(),
            percentile: percentiles.then(|| PERCENTILES.into_iter().map(percentile).collect()),
            bins: bins.then(|| {
                recorded.map(|b| (bin(b.value_iterated_to()), b.count_at_value())).collect()
            }),
        }
    }
}

/// What a series comes to.
struct Samples {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    stddev: f64,
}

impl Samples {
    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as u64;
        let mean = ratio(values.clone().sum(), count as f64);
        let squares: f64 = values.clone().map(|v| (v - mean) * (v - mean)).sum();
        Self {
            count,
            min: values.clone().reduce(f64::min).unwrap_or(0.0),
            max: values.reduce(f64::max).unwrap_or(0.0),
            mean,
            stddev: ratio(squares, count.saturating_sub(1) as f64).sqrt(),
        }
    }
}

fn zeros(keys: &[&str]) -> Ordered<f64> {
    keys.iter().map(|&key| (key, 0.0)).collect()
}

/// All of it at the depth that was asked for; nothing if that is 0.
fn depth_levels(depth: u64) -> Ordered<f64> {
    const LEVELS: [(&str, u64); 7] =
        [("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16), ("32", 32), (">=64", 64)];
    let level = LEVELS.iter().rposition(|&(_, least)| least <= depth);
    let percent = |(i, (key, _))| (key, if Some(i) == level { 100.0 } else { 0.0 });
    LEVELS.into_iter().enumerate().map(percent).collect()
}

/// Percent of reads, writes and trims by latency, in three ranges. A key is the first whole unit
/// that is no longer in its bin (`stat.c`, `add_lat_sample_nsec`).
fn latency_spread(job: &JobReport) -> [Ordered<f64>; 3] {
    const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    const MS_BOUNDS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];
    let (mut ns, mut us, mut ms) = ([0_u64; 10], [0_u64; 10], [0_u64; 12]);
    let mut total = 0;
    for direction in [Direction::Read, Direction::Write, Direction::Trim] {
        let latency = &job.direction(direction).latency;
        for bin in latency.iter_recorded() {
            let (nanos, count) =
                (latency.median_equivalent(bin.value_iterated_to()), bin.count_at_value());
            let place = |bounds: &[u64], value| bounds.partition_point(|&b| b <= value);
            match nanos {
                0..1_000 => ns[place(&BOUNDS, nanos)] += count,
                1_000..1_000_000 => us[place(&BOUNDS, nanos / 1_000)] += count,
                _ => ms[place(&MS_BOUNDS, nanos / 1_000_000)] += count,
            }
            total += count;
        }
    }
    let percent = |count: u64| six(100.0 * ratio(count as f64, total as f64));
    let spread = |bounds: &[u64], counts: &[u64]| {
        let keys = bounds.iter().map(u64::to_string).chain([">=2000".into()]);
        keys.zip(counts.iter().map(|&c| percent(c))).collect()
    };
    [spread(&BOUNDS, &ns), spread(&BOUNDS, &us), spread(&MS_BOUNDS, &ms)]
}
