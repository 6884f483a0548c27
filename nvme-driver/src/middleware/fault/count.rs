//! How often each kind of fault fired.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A retryable device error; nothing reached the device.
    Error,
    /// A medium error; the blocks before it were transferred.
    Medium,
    /// A write of which only a first part reached the device, acknowledged.
    Torn,
    /// A write that never reached the device, acknowledged.
    Lost,
    /// A write that landed at another address, acknowledged.
    Misplaced,
    /// One bit of a read changed on the way up.
    Flipped,
    /// A request held back for a time, before or after the device.
    Delayed,
    /// The channel said that it was full, although there was room.
    Refused,
    /// A completion held back until another passed it.
    Reordered,
    /// A channel whose device went away.
    Gone,
}

impl FaultKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Error,
        Self::Medium,
        Self::Torn,
        Self::Lost,
        Self::Misplaced,
        Self::Flipped,
        Self::Delayed,
        Self::Refused,
        Self::Reordered,
        Self::Gone,
    ];
}

/// How often each kind of fault fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl FaultCounts {
    /// How often this kind did.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }
}

impl Add for FaultCounts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
}

/// The counters that a device's channels share. A fault is rare, so sharing them costs nothing.
#[derive(Debug, Default)]
pub(super) struct Fired([AtomicU64; FaultKind::ALL.len()]);

impl Fired {
    pub(super) fn count(&self, kind: FaultKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> FaultCounts {
        FaultCounts(self.0.each_ref().map(|c| c.load(Ordering::Relaxed)))
    }
}
