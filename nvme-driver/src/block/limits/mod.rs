//! What a device does well and what it cannot do: contract 4.
//!
//! A device's report is a claim ([`ClaimedLimits`]); [`Limits::believe`] keeps what is sane, and
//! says what it ignored and why. A layer derives its own limits from its members'
//! ([`Limits::common`], [`Limits::slice`]). All of it is pure.

mod believe;
mod check;
mod derive;

pub use believe::{ClaimedLimits, Disbelief, LimitsError};

use std::num::NonZeroU32;

use serde::Serialize;

/// The largest write granularity, optimal write or boundary that is believed, in bytes. Real
/// drives state 4 KiB to 256 KiB, and some indirection units and zones' write sizes reach a few
/// MiB; controllers and bridges that state nonsense state 16 to 32 MiB less a sector.
pub const UNIT_BYTES_MAX: u32 = 8 << 20;

/// A checked snapshot of what a device can do.
///
/// Invariants, kept by every constructor here: `block_bytes` is a power of two from 512 to 65,536;
/// every size is a multiple of it; the capacity in bytes fits an `i64`; `optimal_write_bytes` is a
/// multiple of `write_granularity_bytes`; `max_transfer_bytes` is at least one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Logical block: the unit of addresses and lengths.
    pub block_bytes: u32,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Preferred write granularity (NPWG): shorter writes cost the device a read-modify-write.
    pub write_granularity_bytes: u32,
    /// Preferred alignment of writes (NPWA); divides the granularity.
    pub write_alignment_bytes: u32,
    /// Optimal write size (NOWS).
    pub optimal_write_bytes: u32,
    /// What a power failure cannot tear.
    pub atomic: Atomicity,
    /// Longest request.
    pub max_transfer_bytes: u32,
    /// Most segments a request.
    pub max_segments: u16,
    /// Address and length of every segment are a multiple of this; a power of two, 1 = any.
    pub segment_alignment_bytes: u32,
    /// Requests that cross a multiple of this are slow (NOIOB, vendor stripe, chunk); the device
    /// takes them all the same.
    pub boundary_bytes: Option<NonZeroU32>,
    /// Reads are best cut at multiples of this.
    pub read_split_bytes: Option<NonZeroU32>,
    /// Writes are best cut at multiples of this (a full stripe).
    pub write_split_bytes: Option<NonZeroU32>,
    /// How it deallocates, if it does.
    pub deallocate: Option<Deallocation>,
    /// It writes zeros without being sent them.
    pub write_zeroes: bool,
    /// Completed writes may be lost with the power unless flushed or FUA.
    pub volatile_cache: bool,
    /// It seeks.
    pub rotational: bool,
    /// It takes no writes.
    pub read_only: bool,
}

/// What a power failure cannot tear (NAWUPF, NABSPF, NABO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Atomicity {
    /// Writes up to this long are whole or not there. Where layers are stacked it can be less
    /// than the logical block.
    pub unit_bytes: u32,
    /// ...unless they cross a multiple of this,
    pub boundary_bytes: Option<NonZeroU32>,
    /// counted from here.
    pub boundary_offset_bytes: u32,
}

/// How a device deallocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Deallocation {
    /// Shorter ranges may not be deallocated (NPDG).
    pub granularity_bytes: u32,
    /// Ranges are best aligned to this (NPDA).
    pub alignment_bytes: u32,
    /// Longest request.
    pub max_bytes: u64,
    /// Deallocated blocks read as zeros (DLFEAT).
    pub reads_zero: bool,
}

impl Limits {
    /// A device of `blocks` blocks of `block_bytes` that is good at everything, to start from.
    ///
    /// # Errors
    /// A block size or capacity that no device can have.
    pub fn simple(block_bytes: u32, blocks: u64) -> Result<Self, LimitsError> {
        let claimed = ClaimedLimits {
            block_bytes: block_bytes.into(),
            blocks,
            max_transfer_bytes: 1 << 30,
            max_segments: 256,
            ..ClaimedLimits::default()
        };
        Ok(Self::believe(&claimed)?.0)
    }

    /// Capacity in bytes.
    #[inline]
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }

    /// Bytes of `blocks` logical blocks.
    #[inline]
    #[must_use]
    pub fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.block_bytes)
    }

    /// True if a write of `bytes` bytes at byte `offset` is whole, aligned write units.
    #[inline]
    #[must_use]
    pub fn is_sized(&self, offset: u64, bytes: u64) -> bool {
        offset.is_multiple_of(self.write_alignment_bytes.into())
            && bytes.is_multiple_of(self.write_granularity_bytes.into())
    }
}
