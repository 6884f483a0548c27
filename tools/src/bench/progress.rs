//! Live progress, on a terminal only.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use strake_nvme_driver::block::CounterSnapshot;

use super::run::Watch;
use super::units;

/// A line on standard error that is rewritten a few times a second; nothing if that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    limit: Option<Duration>,
    started: Instant,
    last: (Instant, CounterSnapshot),
}

impl Progress {
    /// For a run that ends after `limit`, if it does.
    #[must_use]
    pub fn new(limit: Option<Duration>, virtual_time: bool) -> Self {
        let bar = if stderr().is_terminal() && !virtual_time {
            let length = limit.map_or(0, |l| l.as_millis() as u64);
            ProgressBar::new(length).with_style(style(limit.is_some()))
        } else {
            ProgressBar::hidden()
        };
        let now = Instant::now();
        Self { bar, limit, started: now, last: (now, CounterSnapshot::default()) }
    }

    /// For laying out `bytes` bytes.
    #[must_use]
    pub fn laying_out(bytes: u64) -> ProgressBar {
        if !stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let template = "laying out the temporary file {wide_bar} {bytes}/{total_bytes}";
        let style = ProgressStyle::with_template(template);
        ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(bounded: bool) -> ProgressStyle {
    let template = if bounded {
        "{elapsed_precise} {wide_bar} {msg}  eta {eta}"
    } else {
        "{elapsed_precise} {spinner} {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Watch for Progress {
    fn tick(&mut self, done: CounterSnapshot) {
        if self.bar.is_hidden() {
            return;
        }
        let now = Instant::now();
        let (then, before) = self.last;
        let seconds = now.duration_since(then).as_secs_f64();
        let delta = done - before;
        let rate = |n: u64| n as f64 / seconds;
        let requests = rate(delta.requests.iter().sum());
        let bytes = rate(delta.bytes.iter().sum());
        let bandwidth = units::binary_bytes(bytes);
        self.bar.set_message(format!("{} IOPS  {bandwidth}/s", units::count(requests)));
        if self.limit.is_some() {
            self.bar.set_position(self.started.elapsed().as_millis() as u64);
        } else {
            self.bar.tick();
        }
        self.last = (now, done);
    }
}
