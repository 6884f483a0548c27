//! A [`Report`] in the layout of fio 3's `--output-format=json` and `json+`, so that whatever
//! reads fio's results reads these.
//!
//! Keys, nesting, order and JSON types are fio 3.33's. What differs, and why:
//!
//! - `fio version` says `strake-VERSION`. Who measured is part of the result.
//! - Submission is not timed apart from completion, as with fio's synchronous engines: `slat_ns`
//!   is empty, `clat_ns` and `lat_ns` are the same.
//! - `iodepth_level` is the depth that was asked for. `iodepth_submit`, `iodepth_complete` and
//!   `disk_util` are not measured and stay zero or empty.
//! - `time` is in UTC, and it and the timestamps are those of the end of the run.
//! - `sync` has bandwidth nowhere, as in fio.
//! - All that fio has no word for is under one key of ours, `strake`, beside `jobs`.

mod extras;
mod fields;
mod time;

use std::io::{self, Write};

use serde::Serialize;

use super::report::{JobReport, Report};
use extras::Extras;
use fields::{Job, JobContext, Ordered};

/// What to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FioJson {
    /// `json+`: with the latency histograms, as `bins` from nanoseconds to counts.
    pub bins: bool,
    /// All jobs as one, as `--group_reporting`.
    pub grouped: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    /// All options are the jobs' own, but readers expect the key.
    #[serde(rename = "global options")]
    global_options: Ordered<String>,
    jobs: Vec<Job>,
    disk_util: [(); 0],
    strake: Extras<'a>,
}

impl FioJson {
    /// Writes the report as one JSON document and a newline. The same report gives the same bytes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, report: &Report, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, &self.document(report))?;
        out.write_all(b"\n")
    }

    fn document(self, report: &Report) -> Document<'_> {
        let group = report.group();
        let context = JobContext { report, group: &group, bins: self.bins };
        let one = |job: &JobReport| Job::new(&context, job);
        let jobs =
            if self.grouped { vec![one(&group)] } else { report.jobs.iter().map(one).collect() };
        let timestamp_ms = end_unix_millis(report, &group);
        Document {
            version: concat!("strake-", env!("CARGO_PKG_VERSION")).into(),
            timestamp: timestamp_ms / 1000,
            timestamp_ms,
            time: time::ctime_utc(timestamp_ms / 1000),
            global_options: Ordered::default(),
            jobs,
            disk_util: [],
            strake: Extras::new(report, &group),
        }
    }
}

/// When the run ended, in milliseconds since 1970; 0 in virtual time.
fn end_unix_millis(report: &Report, group: &JobReport) -> u64 {
    if report.virtual_time {
        return 0;
    }
    report.started_unix_seconds.saturating_mul(1000).saturating_add(group.runtime_nanos / 1_000_000)
}

#[cfg(test)]
mod tests;
