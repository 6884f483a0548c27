//! What became of a request.

use std::fmt;

use super::request::{Lba, Token};

/// The end of a request: it comes exactly once, and gives the memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for the request.
    pub token: Token,
    /// What became of it.
    pub status: Status,
}

/// What became of a request, and where.
///
/// Anything but `Ok` says nothing about which blocks of a write reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All of it was done.
    Ok,
    /// The medium failed at `first_bad`; blocks before it were transferred.
    Medium {
        /// The first block that could not be transferred.
        first_bad: Lba,
    },
    /// It ends beyond the device.
    OutOfRange,
    /// It breaks a limit of the device: no length, too long, too many or misaligned segments.
    Invalid,
    /// The device takes no writes (any more).
    ReadOnly,
    /// The backing store is full.
    NoSpace,
    /// The device cannot do this kind of request.
    Unsupported,
    /// The deadline passed.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// A segment names memory that is not (or no longer) registered, or that vanished.
    BadMemory,
    /// The device is not there any more.
    Gone,
    /// The device said something else.
    Device {
        /// The device's own code: an errno for files, status type and code for NVMe.
        code: u16,
        /// Trying again may help.
        retryable: bool,
    },
}

impl Status {
    /// How many kinds there are, for tables indexed by [`Status::index`].
    pub const KINDS: usize = 12;

    /// True if all of it was done.
    #[inline]
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// A small dense number for the kind.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Medium { .. } => 1,
            Self::OutOfRange => 2,
            Self::Invalid => 3,
            Self::ReadOnly => 4,
            Self::NoSpace => 5,
            Self::Unsupported => 6,
            Self::TimedOut => 7,
            Self::Cancelled => 8,
            Self::BadMemory => 9,
            Self::Gone => 10,
            Self::Device { .. } => 11,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Medium { first_bad } => write!(f, "medium error, first bad block {first_bad}"),
            Self::OutOfRange => f.write_str("beyond the end of the device"),
            Self::Invalid => f.write_str("request breaks a limit of the device"),
            Self::ReadOnly => f.write_str("device is read-only"),
            Self::NoSpace => f.write_str("no space left on the backing store"),
            Self::Unsupported => f.write_str("not supported by the device"),
            Self::TimedOut => f.write_str("deadline passed"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::BadMemory => f.write_str("memory is not registered or has vanished"),
            Self::Gone => f.write_str("device is gone"),
            Self::Device { code, retryable } => {
                let retry = if *retryable { "retryable" } else { "not retryable" };
                write!(f, "device code {code:#x} ({retry})")
            }
        }
    }
}
