//! Real time: the one place that reads a clock.

use strake_nvme_driver::time::{Clock, Instant};

/// The processor's time stamp counter, scaled to nanoseconds since the clock was made.
#[derive(Clone, Debug)]
pub struct RealClock {
    clock: quanta::Clock,
    start: u64,
}

impl RealClock {
    /// Starts at zero.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self { clock, start }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.delta_as_nanos(self.start, self.clock.raw()))
    }
}
