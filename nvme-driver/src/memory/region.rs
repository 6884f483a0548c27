//! A registered mapping.

use std::fmt;

use super::iova::{Iova, IovaLease};
use super::mapping::Mapping;
use crate::block::Segment;

/// Names a region: its slot in the table, and the generation of that slot, so that the name of a
/// region that is gone is never taken for its successor's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u32);

const SLOT_BITS: u32 = 10;

impl RegionId {
    /// Names no region, ever.
    pub const NONE: Self = Self(0);
    /// How many regions there can be at once.
    pub const SLOTS: usize = 1 << SLOT_BITS;
    /// Generations run from 1 to this and start again.
    pub(super) const GENERATION_MAX: u32 = u32::MAX >> SLOT_BITS;

    pub(super) const fn new(slot: usize, generation: u32) -> Self {
        Self(generation << SLOT_BITS | slot as u32)
    }

    /// The slot in the table.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & (Self::SLOTS as u32 - 1)) as usize
    }

    /// The generation of the slot, from 1.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 >> SLOT_BITS
    }
}

impl fmt::Debug for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionId({}#{})", self.slot(), self.generation())
    }
}

/// A registered mapping: what a [`Segment`] lies in.
#[derive(Debug)]
pub struct Region {
    pub(super) id: RegionId,
    /// Dropped before the mapping; both go when the last user of the region does, so neither
    /// address is given to anyone else while a device could still use it.
    pub(super) iova: IovaLease,
    pub(super) mapping: Mapping,
}

impl Region {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Where devices behind an IOMMU see it.
    #[must_use]
    pub fn iova(&self) -> Iova {
        Iova(self.iova.start())
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// The mapping itself.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// `len` bytes from `offset`, as a segment. Whether they lie in the region is checked where
    /// the segment is used.
    #[inline]
    #[must_use]
    pub fn segment(&self, offset: u64, len: u32) -> Segment {
        Segment { region: self.id, len, offset }
    }

    /// Copies out; see [`Mapping::read_at`].
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        self.mapping.read_at(offset, to)
    }

    /// Copies in; see [`Mapping::write_at`].
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        self.mapping.write_at(offset, from)
    }
}
