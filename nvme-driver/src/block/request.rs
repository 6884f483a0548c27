//! What is asked of a device.

use std::fmt;

use crate::memory::RegionId;
use crate::time::Instant;

/// A logical block address on the device that the request is sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The caller's name for a request, unique among its channel's outstanding ones. Opaque below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Everything completed before this was submitted is durable when it completes.
    Flush,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// The device may unmap the range, if it then still reads as zeros.
        may_deallocate: bool,
    },
    /// The contents of the range are not needed any more. What it reads afterwards:
    /// [`Deallocation::reads_zero`](super::Deallocation::reads_zero).
    Deallocate,
}

impl Op {
    /// How many kinds there are, for tables indexed by [`Op::index`].
    pub const KINDS: usize = 5;
    /// Names in the order of [`Op::index`].
    pub const NAMES: [&'static str; Self::KINDS] =
        ["read", "write", "flush", "write_zeroes", "deallocate"];

    /// A small dense number for the kind.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Flush => 2,
            Self::WriteZeroes { .. } => 3,
            Self::Deallocate => 4,
        }
    }

    /// The kind in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// True if segments go with it.
    #[inline]
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// True if the device's contents may be different afterwards.
    #[inline]
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes { .. } | Self::Deallocate)
    }
}

bitflags::bitflags! {
    /// How to do it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// Durable before completion, through any volatile cache.
        const FUA = 1;
        /// Nobody changes the buffer until the completion: no stable copy is needed for parity.
        const STABLE = 2;
        /// One attempt only: the caller has another copy.
        const FAIL_FAST = 4;
    }
}

/// For whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// A user waits for it.
    #[default]
    User,
    /// Superblocks, bitmaps, logs: never held back or merged.
    Metadata,
    /// Resync, scrub and other work that gives way.
    Background,
}

/// A piece of registered memory: lent to the device until the completion.
///
/// The slice of segments itself is only borrowed for the call of `submit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The region it lies in; slot and generation.
    pub region: RegionId,
    /// Length in bytes.
    pub len: u32,
    /// Offset in the region, in bytes.
    pub offset: u64,
}

/// One request. Small, and copied freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// For whom.
    pub class: Class,
    /// Length in logical blocks; 0 for a flush and for nothing else.
    pub blocks: u32,
    /// First logical block; 0 for a flush.
    pub lba: Lba,
    /// Past this the device gives up. The completion still waits until the memory is free again.
    pub deadline: Option<Instant>,
    /// The caller's name for it.
    pub token: Token,
}

impl Request {
    const fn new(op: Op, lba: Lba, blocks: u32, token: Token) -> Self {
        Self { op, flags: Flags::empty(), class: Class::User, blocks, lba, deadline: None, token }
    }

    /// A read of `blocks` logical blocks from `lba`.
    #[must_use]
    pub const fn read(lba: Lba, blocks: u32, token: Token) -> Self {
        Self::new(Op::Read, lba, blocks, token)
    }

    /// A write of `blocks` logical blocks at `lba`.
    #[must_use]
    pub const fn write(lba: Lba, blocks: u32, token: Token) -> Self {
        Self::new(Op::Write, lba, blocks, token)
    }

    /// A flush of everything completed before.
    #[must_use]
    pub const fn flush(token: Token) -> Self {
        Self::new(Op::Flush, Lba(0), 0, token)
    }

    /// Zeros over the range; the device may unmap it if it then reads as zeros.
    #[must_use]
    pub const fn write_zeroes(lba: Lba, blocks: u32, token: Token) -> Self {
        let op = Op::WriteZeroes { may_deallocate: true };
        Self::new(op, lba, blocks, token)
    }

    /// A deallocation of the range.
    #[must_use]
    pub const fn deallocate(lba: Lba, blocks: u32, token: Token) -> Self {
        Self::new(Op::Deallocate, lba, blocks, token)
    }
}
