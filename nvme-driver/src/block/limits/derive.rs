//! From members' limits to a layer's own.

use std::num::NonZeroU32;

use super::{Atomicity, ClaimedLimits, Deallocation, Limits, LimitsError, UNIT_BYTES_MAX};

/// What every drive promises: a sector of 512 bytes is not torn.
const SECTOR_ONLY: Atomicity =
    Atomicity { unit_bytes: 512, boundary_bytes: None, boundary_offset_bytes: 0 };

/// The smallest unit that is whole for both; the larger of the two where that would be absurd.
///
/// Stacking by least common multiple alone is how one member's odd size spreads to an array.
fn common_unit(a: u32, b: u32) -> u32 {
    let (a, b) = (u64::from(a), u64::from(b));
    let lcm = a / gcd(a, b) * b;
    let unit = if lcm <= u64::from(UNIT_BYTES_MAX) { lcm } else { a.max(b) };
    u32::try_from(unit).unwrap_or(u32::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A boundary that holds for both: every multiple of either is a multiple of the result.
fn common_boundary(a: Option<NonZeroU32>, b: Option<NonZeroU32>) -> Option<NonZeroU32> {
    match (a, b) {
        (Some(a), Some(b)) => {
            NonZeroU32::new(u32::try_from(gcd(a.get().into(), b.get().into())).unwrap_or(0))
        }
        (one, other) => one.or(other),
    }
}

fn common_atomic(a: &Atomicity, b: &Atomicity) -> Atomicity {
    let unit_bytes = a.unit_bytes.min(b.unit_bytes);
    let same_grid = a.boundary_offset_bytes == b.boundary_offset_bytes;
    let boundary = common_boundary(a.boundary_bytes, b.boundary_bytes);
    match boundary {
        Some(_) if a.boundary_bytes.is_none() => Atomicity { unit_bytes, ..*b },
        Some(_) if b.boundary_bytes.is_none() => Atomicity { unit_bytes, ..*a },
        Some(bytes)
            if same_grid && a.boundary_offset_bytes < bytes.get() && bytes.get() >= unit_bytes =>
        {
            Atomicity {
                unit_bytes,
                boundary_bytes: boundary,
                boundary_offset_bytes: a.boundary_offset_bytes,
            }
        }
        // Grids that do not fit together: rely on nothing but single sectors.
        Some(_) => SECTOR_ONLY,
        None => Atomicity { unit_bytes, boundary_bytes: None, boundary_offset_bytes: 0 },
    }
}

fn common_deallocation(a: &Deallocation, b: &Deallocation) -> Deallocation {
    Deallocation {
        granularity_bytes: common_unit(a.granularity_bytes, b.granularity_bytes),
        alignment_bytes: common_unit(a.alignment_bytes, b.alignment_bytes),
        max_bytes: a.max_bytes.min(b.max_bytes),
        reads_zero: a.reads_zero && b.reads_zero,
    }
}

impl Limits {
    /// What every one of `members` can do at the same address: the limits of a mirror. A request
    /// that keeps them keeps each member's, in bytes.
    ///
    /// # Errors
    /// No members, or not even one block of the largest size in the smallest member.
    pub fn common<'a>(members: impl IntoIterator<Item = &'a Self>) -> Result<Self, LimitsError> {
        let mut members = members.into_iter();
        let first = members.next().ok_or(LimitsError::NoMembers)?.clone();
        members.try_fold(first, |sum, member| sum.with(member))
    }

    fn with(&self, other: &Self) -> Result<Self, LimitsError> {
        let block = self.block_bytes.max(other.block_bytes);
        // Where even that is no multiple of the larger block, the unit is given up.
        let whole = |n: u32, of: u32| if n.is_multiple_of(of) { n } else { of };
        let common = |a: u32, b: u32| whole(common_unit(common_unit(a, b), block), block);
        // A boundary inside a block cannot be kept, and a transfer is whole blocks.
        let boundary = |a, b| common_boundary(a, b).filter(|n| n.get().is_multiple_of(block));
        let write_granularity_bytes =
            common(self.write_granularity_bytes, other.write_granularity_bytes);
        let alignment = common(self.write_alignment_bytes, other.write_alignment_bytes);
        let optimal = common(self.optimal_write_bytes, other.optimal_write_bytes);
        let blocks = self.capacity_bytes().min(other.capacity_bytes()) / u64::from(block);
        if blocks == 0 {
            return Err(LimitsError::Capacity { blocks, block_bytes: block.into() });
        }
        let transfer = self.max_transfer_bytes.min(other.max_transfer_bytes);
        if transfer < block {
            return Err(LimitsError::Transfer { transfer_bytes: transfer, block_bytes: block });
        }
        Ok(Self {
            block_bytes: block,
            blocks,
            write_granularity_bytes,
            write_alignment_bytes: if write_granularity_bytes.is_multiple_of(alignment) {
                alignment
            } else {
                write_granularity_bytes
            },
            optimal_write_bytes: whole(optimal, write_granularity_bytes),
            atomic: common_atomic(&self.atomic, &other.atomic),
            max_transfer_bytes: transfer / block * block,
            max_segments: self.max_segments.min(other.max_segments),
            segment_alignment_bytes: self
                .segment_alignment_bytes
                .max(other.segment_alignment_bytes),
            boundary_bytes: boundary(self.boundary_bytes, other.boundary_bytes),
            read_split_bytes: boundary(self.read_split_bytes, other.read_split_bytes),
            write_split_bytes: boundary(self.write_split_bytes, other.write_split_bytes),
            deallocate: match (&self.deallocate, &other.deallocate) {
                (Some(a), Some(b)) => {
                    let both = common_deallocation(a, b);
                    Some(Deallocation {
                        granularity_bytes: common(both.granularity_bytes, block),
                        alignment_bytes: common(both.alignment_bytes, block),
                        max_bytes: (both.max_bytes / u64::from(block) * u64::from(block))
                            .max(block.into()),
                        ..both
                    })
                }
                _ => None,
            },
            write_zeroes: self.write_zeroes && other.write_zeroes,
            volatile_cache: self.volatile_cache || other.volatile_cache,
            rotational: self.rotational || other.rotational,
            read_only: self.read_only || other.read_only,
        })
    }

    /// The limits of `blocks` blocks from `first`, seen as a device of their own. Units whose grid
    /// the new start does not lie on are given up, down to the logical block.
    ///
    /// # Errors
    /// The range is empty or does not lie in the device.
    pub fn slice(&self, first: u64, blocks: u64) -> Result<Self, LimitsError> {
        let end = first.saturating_add(blocks);
        if blocks == 0 || end > self.blocks {
            return Err(LimitsError::Slice { first, end, blocks: self.blocks });
        }
        let start = first * u64::from(self.block_bytes);
        let on_grid = |unit: u32| start.is_multiple_of(unit.into());
        let boundary = |b: Option<NonZeroU32>| b.filter(|b| on_grid(b.get()));
        let mut part = Self { blocks, ..self.clone() };
        if !on_grid(part.write_alignment_bytes) {
            part.write_granularity_bytes = part.block_bytes;
            part.write_alignment_bytes = part.block_bytes;
            part.optimal_write_bytes = part.block_bytes;
        }
        part.boundary_bytes = boundary(part.boundary_bytes);
        part.read_split_bytes = boundary(part.read_split_bytes);
        part.write_split_bytes = boundary(part.write_split_bytes);
        if let Some(boundary) = part.atomic.boundary_bytes {
            let boundary = u64::from(boundary.get());
            let offset = (u64::from(part.atomic.boundary_offset_bytes) + boundary
                - start % boundary)
                % boundary;
            part.atomic.boundary_offset_bytes = u32::try_from(offset).unwrap_or(0);
        }
        Ok(part)
    }

    /// These limits as a claim, for a device that states another's.
    #[must_use]
    pub fn as_claimed(&self) -> ClaimedLimits {
        let optional = |n: Option<NonZeroU32>| n.map_or(0, |n| n.get().into());
        let d = self.deallocate;
        ClaimedLimits {
            block_bytes: self.block_bytes.into(),
            blocks: self.blocks,
            write_granularity_bytes: self.write_granularity_bytes.into(),
            write_alignment_bytes: self.write_alignment_bytes.into(),
            optimal_write_bytes: self.optimal_write_bytes.into(),
            atomic_unit_bytes: self.atomic.unit_bytes.into(),
            atomic_boundary_bytes: optional(self.atomic.boundary_bytes),
            atomic_boundary_offset_bytes: self.atomic.boundary_offset_bytes.into(),
            max_transfer_bytes: self.max_transfer_bytes.into(),
            max_segments: self.max_segments.into(),
            segment_alignment_bytes: self.segment_alignment_bytes.into(),
            boundary_bytes: optional(self.boundary_bytes),
            read_split_bytes: optional(self.read_split_bytes),
            write_split_bytes: optional(self.write_split_bytes),
            can_deallocate: d.is_some(),
            deallocate_granularity_bytes: d.map_or(0, |d| d.granularity_bytes.into()),
            deallocate_alignment_bytes: d.map_or(0, |d| d.alignment_bytes.into()),
            deallocate_max_bytes: d.map_or(0, |d| d.max_bytes),
            deallocate_reads_zero: d.is_some_and(|d| d.reads_zero),
            write_zeroes: self.write_zeroes,
            volatile_cache: self.volatile_cache,
            rotational: self.rotational,
            read_only: self.read_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::believe::tests::{assert_consistent, claimed};
    use super::*;

    #[test]
    fn one_members_odd_size_does_not_spread() {
        let mut a = Limits::simple(512, 1 << 20).unwrap();
        let mut b = a.clone();
        a.write_granularity_bytes = 7 * 1024 * 1024;
        a.write_alignment_bytes = a.write_granularity_bytes;
        a.optimal_write_bytes = a.write_granularity_bytes;
        b.write_granularity_bytes = 5 * 1024 * 1024;
        b.write_alignment_bytes = b.write_granularity_bytes;
        b.optimal_write_bytes = b.write_granularity_bytes;
        let both = Limits::common([&a, &b]).unwrap();
        assert_eq!(both.write_granularity_bytes, 7 * 1024 * 1024, "and not 35 MiB");
    }

    #[test]
    fn a_slice_moves_the_atomic_boundary_with_it() {
        let mut whole = Limits::simple(512, 1 << 20).unwrap();
        whole.atomic = Atomicity {
            unit_bytes: 4096,
            boundary_bytes: NonZeroU32::new(16_384),
            boundary_offset_bytes: 4096,
        };
        // A boundary lies at byte 4,096 of the whole; the slice starts at byte 1,024.
        let part = whole.slice(2, 1000).unwrap();
        assert_eq!(part.atomic.boundary_offset_bytes, 3072);
        assert!(whole.slice(1 << 20, 1).is_err());
        assert!(whole.slice(u64::MAX, u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn common_limits_are_consistent_symmetric_and_as_strict_as_each_member(a in claimed(), b in claimed()) {
            let (Ok((a, _)), Ok((b, _))) = (Limits::believe(&a), Limits::believe(&b)) else { return Ok(()) };
            let Ok(both) = Limits::common([&a, &b]) else { return Ok(()) };
            assert_consistent(&both);
            prop_assert_eq!(&both, &Limits::common([&b, &a]).unwrap());
            prop_assert_eq!(&Limits::common([&a, &a]).unwrap().block_bytes, &a.block_bytes);
            for member in [&a, &b] {
                prop_assert!(both.block_bytes.is_multiple_of(member.block_bytes));
                prop_assert!(both.capacity_bytes() <= member.capacity_bytes());
                prop_assert!(both.max_segments <= member.max_segments);
                prop_assert!(both.segment_alignment_bytes >= member.segment_alignment_bytes);
                prop_assert!(both.max_transfer_bytes <= member.max_transfer_bytes);
                prop_assert!(both.atomic.unit_bytes <= member.atomic.unit_bytes);
                prop_assert!(both.volatile_cache >= member.volatile_cache);
                prop_assert!(both.read_only >= member.read_only);
                prop_assert!(both.deallocate.is_none_or(|d| d.reads_zero <= member.deallocate.unwrap().reads_zero));
            }
        }

        #[test]
        fn a_slice_is_consistent(a in claimed(), first: u32, blocks: u32) {
            let Ok((a, _)) = Limits::believe(&a) else { return Ok(()) };
            if let Ok(part) = a.slice(first.into(), blocks.into()) {
                assert_consistent(&part);
                prop_assert_eq!(part.blocks, u64::from(blocks));
            }
        }
    }
}
