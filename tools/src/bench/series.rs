//! Completions over time, in a fixed number of steps that grow with the run.

use strake_nvme_driver::time::Instant;

use super::report::Series;

/// Steps to begin with: fine enough for a run of a second.
const STEP_NANOS: u64 = 50_000_000;
/// When there are this many, neighbours are merged and steps become twice as long.
const STEPS_MAX: usize = 512;

/// Counts into steps, without allocating.
#[derive(Debug)]
pub struct SeriesRecorder {
    series: Series,
    now: [(u64, u64); 4],
    end: Instant,
}

impl SeriesRecorder {
    #[must_use]
    pub fn new() -> Self {
        let steps = || Vec::with_capacity(STEPS_MAX);
        let series = Series {
            step_nanos: STEP_NANOS,
            requests: std::array::from_fn(|_| steps()),
            bytes: std::array::from_fn(|_| steps()),
        };
        Self { series, now: [(0, 0); 4], end: Instant::MAX }
    }

    /// The first step starts at `now`.
    pub fn start(&mut self, now: Instant) {
        self.end = now.plus_nanos(self.series.step_nanos);
    }

    /// Counts completions, and their bytes.
    #[inline]
    pub fn add(&mut self, direction: usize, n: u64, bytes: u64) {
        let (requests, sum) = &mut self.now[direction];
        *requests += n;
        *sum += bytes;
    }

    /// When [`advance`](Self::advance) has something to do.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.end
    }

    /// Closes the steps that ended before `now`.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        while now >= self.end {
            self.close();
            self.end = self.end.plus_nanos(self.series.step_nanos);
        }
    }

    #[cold]
    fn close(&mut self) {
        for d in 0..4 {
            let (requests, bytes) = std::mem::take(&mut self.now[d]);
            self.series.requests[d].push(requests);
            self.series.bytes[d].push(bytes);
        }
        // An even number, so that every pair is whole and the next step starts on the new grid.
        if self.series.requests[0].len() == STEPS_MAX {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let steps = self.series.requests.iter_mut().chain(&mut self.series.bytes);
        for steps in steps {
            for i in 0..steps.len() / 2 {
                steps[i] = steps[2 * i] + steps[2 * i + 1];
            }
            steps.truncate(steps.len() / 2);
        }
        self.series.step_nanos *= 2;
    }

    /// Closes the last step and hands everything over.
    pub fn finish(&mut self) -> Series {
        if self.now.iter().any(|(requests, _)| *requests > 0) {
            self.close();
        }
        std::mem::take(&mut self.series)
    }
}

impl Default for SeriesRecorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_and_nothing_is_lost() {
        let mut recorder = SeriesRecorder::new();
        recorder.start(Instant::ZERO);
        let n = 3 * STEPS_MAX as u64;
        for step in 0..n {
            recorder.advance(Instant::from_nanos(step * STEP_NANOS));
            recorder.add(1, 1, 10);
        }
        let series = recorder.finish();
        assert!(series.requests[1].len() <= STEPS_MAX);
        assert_eq!(series.requests[1].iter().sum::<u64>(), n);
        assert_eq!(series.bytes[1].iter().sum::<u64>(), 10 * n);
        assert!(series.step_nanos > STEP_NANOS);
    }
}
