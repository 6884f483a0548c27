//! What is counted of each completion.

use hdrhistogram::Histogram;
use strake_nvme_driver::time::Instant;

use super::report::{Direction, DirectionReport, Series};
use super::series::SeriesRecorder;

/// Longer than any request that someone waits for: an hour. Longer ones count as this.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;

/// Latencies below this, in nanoseconds, are counted each by itself and put into the histogram at
/// the end: one addition instead of a search for the bucket, where it matters most.
const SHORT_NANOS: usize = 4096;

/// Completions of one poll of requests that began together.
#[derive(Clone, Copy)]
pub struct Run {
    pub direction: Direction,
    pub start: Instant,
    pub requests: u64,
    pub blocks: u64,
}

/// A job's counts.
pub struct Tally {
    latency: [Histogram<u64>; 4],
    short: Box<[[u64; SHORT_NANOS]; 4]>,
    requests: [u64; 4],
    bytes: [u64; 4],
    pub series: SeriesRecorder,
}

impl Tally {
    /// Nothing counted yet; allocates everything it will ever need.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constants.
    #[must_use]
    pub fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("bounds that fit 3 digits")
        };
        Self {
            latency: std::array::from_fn(|_| histogram()),
            short: Box::new([[0; SHORT_NANOS]; 4]),
            requests: [0; 4],
            bytes: [0; 4],
            series: SeriesRecorder::new(),
        }
    }

    /// Counts a run of completions seen at `now`.
    #[inline]
    pub fn count(&mut self, run: Run, now: Instant, block_bytes: u32) {
        let d = run.direction as usize;
        let bytes = run.blocks * u64::from(block_bytes);
        let nanos = now.nanos_since(run.start);
        match self.short[d].get_mut(nanos as usize) {
            Some(count) => *count += run.requests,
            None => self.latency[d].saturating_record_n(nanos, run.requests),
        }
        self.requests[d] += run.requests;
        self.bytes[d] += bytes;
        self.series.add(d, run.requests, bytes);
    }

    /// Hands everything over.
    #[must_use]
    pub fn finish(&mut self) -> ([DirectionReport; 4], Series) {
        let Self { mut latency, short, requests, bytes, series } = std::mem::take(self);
        for (latency, short) in latency.iter_mut().zip(short.iter()) {
            for (nanos, count) in short.iter().enumerate().filter(|(_, count)| **count > 0) {
                latency.saturating_record_n(nanos as u64, *count);
            }
        }
        let mut latency = latency.into_iter();
        let directions = std::array::from_fn(|d| DirectionReport {
            latency: latency.next().expect("one for each direction"),
            requests: requests[d],
            bytes: bytes[d],
        });
        let mut series = series;
        (directions, series.finish())
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}
