//! Time as a value: made by the application, read once a poll, passed down as `now`.
//!
//! No layer below the application reads a clock. The same code therefore runs in real time on
//! devices and in virtual time in the simulator, where a seed replays a run exactly.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds since the start of the clock that made it.
///
/// Only instants of the same clock can be compared. Arithmetic saturates, so a hostile duration
/// makes a far deadline and never a panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// The last representable instant, 584 years in.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` nanoseconds from here.
    #[inline]
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Seconds since the start of the clock, for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        self.plus_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

/// What the application reads time from. Implementations never go backwards.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Instant;
}
