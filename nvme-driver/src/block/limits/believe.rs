//! From what a device claims to what is believed.

use std::fmt;
use std::num::NonZeroU32;

use super::{Atomicity, Deallocation, Limits, UNIT_BYTES_MAX};

/// Longest transfer that a request can carry: its block count times the block, below 4 GiB.
const MAX_TRANSFER_BYTES: u64 = 1 << 31;

/// What a device says of itself, in bytes; 0 = it does not say.
///
/// Nothing here is checked. `block_bytes` and `blocks` must be sane for the device to be usable at
/// all; everything else is ignored if it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedLimits {
    /// Logical block.
    pub block_bytes: u64,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Preferred write granularity.
    pub write_granularity_bytes: u64,
    /// Preferred write alignment.
    pub write_alignment_bytes: u64,
    /// Optimal write size.
    pub optimal_write_bytes: u64,
    /// Atomic write unit under power failure.
    pub atomic_unit_bytes: u64,
    /// Boundary that atomic writes may not cross.
    pub atomic_boundary_bytes: u64,
    /// Where those boundaries start.
    pub atomic_boundary_offset_bytes: u64,
    /// Longest transfer.
    pub max_transfer_bytes: u64,
    /// Most segments a request.
    pub max_segments: u64,
    /// Alignment of memory.
    pub segment_alignment_bytes: u64,
    /// Boundary that requests had better not cross.
    pub boundary_bytes: u64,
    /// Where reads are best cut.
    pub read_split_bytes: u64,
    /// Where writes are best cut.
    pub write_split_bytes: u64,
    /// It deallocates.
    pub can_deallocate: bool,
    /// Deallocation granularity.
    pub deallocate_granularity_bytes: u64,
    /// Deallocation alignment.
    pub deallocate_alignment_bytes: u64,
    /// Longest deallocation.
    pub deallocate_max_bytes: u64,
    /// Deallocated blocks read as zeros.
    pub deallocate_reads_zero: bool,
    /// It writes zeros by itself.
    pub write_zeroes: bool,
    /// It has a volatile write cache.
    pub volatile_cache: bool,
    /// It seeks.
    pub rotational: bool,
    /// It takes no writes.
    pub read_only: bool,
}

/// A device that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// No power of two, or out of bounds.
    #[error("logical block of {0} bytes: expected a power of two from 512 to 65536")]
    Block(u64),
    /// Nothing there, or more than any device holds.
    #[error("capacity of {blocks} blocks of {block_bytes} bytes: expected 1 byte to 8 EiB")]
    Capacity {
        /// Claimed number of blocks.
        blocks: u64,
        /// Logical block.
        block_bytes: u64,
    },
    /// Devices that cannot form one.
    #[error("no members to derive limits from")]
    NoMembers,
    /// A member that cannot transfer one block of another's size.
    #[error(
        "a member transfers {transfer_bytes} bytes at most, less than another's block of {block_bytes}"
    )]
    Transfer {
        /// The smallest maximum transfer.
        transfer_bytes: u32,
        /// The largest logical block.
        block_bytes: u32,
    },
    /// A part that does not lie in the whole.
    #[error("blocks {first} to {end} do not lie in a device of {blocks} blocks")]
    Slice {
        /// First block asked for.
        first: u64,
        /// One past the last block asked for.
        end: u64,
        /// What there is.
        blocks: u64,
    },
}

/// A claim that is ignored, and why: one log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disbelief {
    /// The limit's name.
    pub what: &'static str,
    /// What the device claims.
    pub claimed: u64,
    /// What is believed instead.
    pub believed: u64,
    /// The rule it breaks.
    pub why: &'static str,
}

impl fmt::Display for Disbelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, claimed, believed, why } = self;
        write!(f, "ignored {what} of {claimed} bytes ({why}); using {believed}")
    }
}

/// Why `bytes` cannot be a unit of a device with blocks of `block`; `None` if it can.
fn unit_fault(bytes: u64, block: u64) -> Option<&'static str> {
    if !bytes.is_multiple_of(block) {
        Some("no multiple of the logical block")
    } else if bytes > UNIT_BYTES_MAX.into() {
        Some("larger than 8 MiB")
    } else if bytes < 4096 && !bytes.is_power_of_two() {
        Some("below 4 KiB and no power of two")
    } else if bytes > 4096 && !bytes.is_multiple_of(4096) {
        Some("above 4 KiB and no multiple of it")
    } else {
        None
    }
}

struct Believer {
    block: u64,
    ignored: Vec<Disbelief>,
}

impl Believer {
    fn ignore(
        &mut self,
        what: &'static str,
        claimed: u64,
        believed: u64,
        why: &'static str,
    ) -> u64 {
        self.ignored.push(Disbelief { what, claimed, believed, why });
        believed
    }

    /// A unit; `otherwise` if the device does not say or what it says is not sane.
    fn unit(&mut self, what: &'static str, claimed: u64, otherwise: u64) -> u64 {
        if claimed == 0 {
            return otherwise;
        }
        match unit_fault(claimed, self.block) {
            None => claimed,
            Some(why) => self.ignore(what, claimed, otherwise, why),
        }
    }

    /// A unit that is also a multiple of `of`.
    fn multiple(&mut self, what: &'static str, claimed: u64, of: u64, why: &'static str) -> u64 {
        let believed = self.unit(what, claimed, of);
        if believed.is_multiple_of(of) { believed } else { self.ignore(what, claimed, of, why) }
    }

    fn optional(&mut self, what: &'static str, claimed: u64) -> Option<NonZeroU32> {
        NonZeroU32::new(narrow(self.unit(what, claimed, 0)))
    }
}

/// For values that were just checked against a bound below 4 GiB.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Limits {
    /// Keeps of a device's claims what is sane; the rest is ignored, and named in the list.
    ///
    /// # Errors
    /// A logical block or capacity that makes the device unusable.
    pub fn believe(claimed: &ClaimedLimits) -> Result<(Self, Vec<Disbelief>), LimitsError> {
        let c = claimed;
        let block = c.block_bytes;
        if !block.is_power_of_two() || !(512..=65_536).contains(&block) {
            return Err(LimitsError::Block(block));
        }
        let capacity = c.blocks.checked_mul(block).and_then(|b| i64::try_from(b).ok());
        if c.blocks == 0 || capacity.is_none() {
            return Err(LimitsError::Capacity { blocks: c.blocks, block_bytes: block });
        }
        let mut b = Believer { block, ignored: Vec::new() };

        let granularity = b.unit("preferred write granularity", c.write_granularity_bytes, block);
        let mut alignment =
            b.unit("preferred write alignment", c.write_alignment_bytes, granularity);
        if !granularity.is_multiple_of(alignment) {
            let why = "does not divide the granularity";
            alignment = b.ignore("preferred write alignment", alignment, granularity, why);
        }
        let optimal = b.multiple(
            "optimal write size",
            c.optimal_write_bytes,
            granularity,
            "no multiple of the write granularity",
        );

        let atomic_unit = b.unit("atomic write unit", c.atomic_unit_bytes, block);
        let mut atomic_boundary = b.unit("atomic boundary", c.atomic_boundary_bytes, 0);
        if atomic_boundary != 0 && atomic_boundary < atomic_unit {
            let why = "smaller than the atomic write unit";
            atomic_boundary = b.ignore("atomic boundary", atomic_boundary, 0, why);
        }
        let mut atomic_offset =
            if atomic_boundary == 0 { 0 } else { c.atomic_boundary_offset_bytes };
        if atomic_offset != 0
            && (atomic_offset >= atomic_boundary || !atomic_offset.is_multiple_of(block))
        {
            let why = "beyond the boundary, or no multiple of the logical block";
            atomic_offset = b.ignore("atomic boundary offset", atomic_offset, 0, why);
        }

        let mut transfer = MAX_TRANSFER_BYTES;
        if c.max_transfer_bytes != 0 {
            transfer = c.max_transfer_bytes.min(MAX_TRANSFER_BYTES) / block * block;
            if transfer == 0 {
                let why = "smaller than the logical block";
                transfer = b.ignore("maximum transfer", c.max_transfer_bytes, block, why);
            }
        }
        let mut segment_alignment = c.segment_alignment_bytes.max(1);
        if !segment_alignment.is_power_of_two() || segment_alignment > block {
            let why = "no power of two up to the logical block";
            segment_alignment = b.ignore("memory alignment", segment_alignment, block, why);
        }

        let deallocate = c.can_deallocate.then(|| {
            let granularity =
                b.unit("deallocate granularity", c.deallocate_granularity_bytes, block);
            let alignment =
                b.unit("deallocate alignment", c.deallocate_alignment_bytes, granularity);
            let max_bytes = match c.deallocate_max_bytes / block * block {
                0 => i64::MAX as u64 / block * block,
                bytes => bytes,
            };
            Deallocation {
                granularity_bytes: narrow(granularity),
                alignment_bytes: narrow(alignment),
                max_bytes,
                reads_zero: c.deallocate_reads_zero,
            }
        });

        let limits = Self {
            block_bytes: narrow(block),
            blocks: c.blocks,
            write_granularity_bytes: narrow(granularity),
            write_alignment_bytes: narrow(alignment),
            optimal_write_bytes: narrow(optimal),
            atomic: Atomicity {
                unit_bytes: narrow(atomic_unit),
                boundary_bytes: NonZeroU32::new(narrow(atomic_boundary)),
                boundary_offset_bytes: narrow(atomic_offset),
            },
            max_transfer_bytes: narrow(transfer),
            max_segments: u16::try_from(c.max_segments).unwrap_or(u16::MAX).max(1),
            segment_alignment_bytes: narrow(segment_alignment),
            boundary_bytes: b.optional("boundary", c.boundary_bytes),
            read_split_bytes: b.optional("read split", c.read_split_bytes),
            write_split_bytes: b.optional("write split", c.write_split_bytes),
            deallocate,
            write_zeroes: c.write_zeroes,
            volatile_cache: c.volatile_cache,
            rotational: c.rotational,
            read_only: c.read_only,
        };
        Ok((limits, b.ignored))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim() -> ClaimedLimits {
        ClaimedLimits { block_bytes: 512, blocks: 1 << 21, ..ClaimedLimits::default() }
    }

    #[test]
    fn nonsense_optimal_sizes_of_real_controllers_are_ignored_with_a_reason() {
        for nonsense in [33_553_920, 32_767 * 512, 3_584, 4_608, 1 << 25] {
            let claimed = ClaimedLimits { optimal_write_bytes: nonsense, ..claim() };
            let (limits, ignored) = Limits::believe(&claimed).unwrap();
            assert_eq!(limits.optimal_write_bytes, 512, "{nonsense}");
            assert_eq!(ignored.len(), 1, "{nonsense}");
            assert!(ignored[0].to_string().contains(&nonsense.to_string()));
        }
        for sane in [4096, 16_384, 12_288, 262_144, 1 << 20] {
            let claimed = ClaimedLimits { optimal_write_bytes: sane, ..claim() };
            let (limits, ignored) = Limits::believe(&claimed).unwrap();
            assert_eq!((u64::from(limits.optimal_write_bytes), ignored.len()), (sane, 0));
        }
    }

    #[test]
    fn an_alignment_below_the_granularity_is_believed() {
        // Some drives state NPWA 4 KiB and NPWG 16 KiB.
        let claimed = ClaimedLimits {
            write_granularity_bytes: 16_384,
            write_alignment_bytes: 4_096,
            ..claim()
        };
        let (limits, ignored) = Limits::believe(&claimed).unwrap();
        assert_eq!((limits.write_granularity_bytes, limits.write_alignment_bytes), (16_384, 4_096));
        assert!(ignored.is_empty());
        assert!(limits.is_sized(4_096, 16_384) && !limits.is_sized(4_096, 4_096));
    }

    #[test]
    fn a_device_without_a_sane_block_or_capacity_is_refused() {
        for block_bytes in [0, 1, 511, 520, 131_072, u64::MAX] {
            let claimed = ClaimedLimits { block_bytes, ..claim() };
            assert_eq!(Limits::believe(&claimed), Err(LimitsError::Block(block_bytes)));
        }
        for blocks in [0, u64::MAX, 1 << 54] {
            let claimed = ClaimedLimits { blocks, ..claim() };
            assert!(matches!(Limits::believe(&claimed), Err(LimitsError::Capacity { .. })));
        }
    }

    /// Sizes as devices state them: mostly sane, sometimes anything.
    fn size() -> impl Strategy<Value = u64> {
        prop_oneof![
            3 => Just(0),
            6 => (9u32..24).prop_map(|shift| 1 << shift),
            2 => (1u64..64).prop_map(|n| n * 4096),
            2 => (1u64..70_000).prop_map(|n| n * 512),
            1 => any::<u64>(),
        ]
    }

    pub(in crate::block::limits) fn claimed() -> impl Strategy<Value = ClaimedLimits> {
        let sizes = prop::collection::vec(size(), 13);
        let flags = prop::collection::vec(any::<bool>(), 6);
        let block = prop_oneof![4 => Just(512u64), 3 => Just(4096), 1 => size()];
        let blocks = prop_oneof![9 => 1u64..1 << 40, 1 => any::<u64>()];
        (block, blocks, sizes, 0u64..100_000, flags).prop_map(
            |(block_bytes, blocks, s, max_segments, f)| ClaimedLimits {
                block_bytes,
                blocks,
                write_granularity_bytes: s[0],
                write_alignment_bytes: s[1],
                optimal_write_bytes: s[2],
                atomic_unit_bytes: s[3],
                atomic_boundary_bytes: s[4],
                atomic_boundary_offset_bytes: s[5],
                max_transfer_bytes: s[6],
                max_segments,
                segment_alignment_bytes: s[7] / 512,
                boundary_bytes: s[8],
                read_split_bytes: s[9],
                write_split_bytes: s[10],
                can_deallocate: f[0],
                deallocate_granularity_bytes: s[11],
                deallocate_alignment_bytes: s[12],
                deallocate_max_bytes: s[6],
                deallocate_reads_zero: f[1],
                write_zeroes: f[2],
                volatile_cache: f[3],
                rotational: f[4],
                read_only: f[5],
            },
        )
    }

    /// The invariants that the type promises.
    pub(in crate::block::limits) fn assert_consistent(l: &Limits) {
        let block = l.block_bytes;
        assert!(block.is_power_of_two() && (512..=65_536).contains(&block));
        assert!(l.blocks > 0 && i64::try_from(l.capacity_bytes()).is_ok());
        let optional = [l.boundary_bytes, l.read_split_bytes, l.write_split_bytes];
        let sizes = [
            l.write_granularity_bytes,
            l.write_alignment_bytes,
            l.optimal_write_bytes,
            l.max_transfer_bytes,
        ];
        assert!(l.atomic.unit_bytes >= 512);
        for size in sizes.into_iter().chain(optional.into_iter().flatten().map(NonZeroU32::get)) {
            assert!(size >= block && size.is_multiple_of(block), "{size} in {l:?}");
        }
        assert!(l.optimal_write_bytes.is_multiple_of(l.write_granularity_bytes), "{l:?}");
        assert!(l.write_granularity_bytes.is_multiple_of(l.write_alignment_bytes), "{l:?}");
        assert!(l.segment_alignment_bytes.is_power_of_two() && l.segment_alignment_bytes <= block);
        assert!(l.max_segments > 0);
        if let Some(boundary) = l.atomic.boundary_bytes {
            assert!(
                boundary.get() >= l.atomic.unit_bytes
                    && l.atomic.boundary_offset_bytes < boundary.get()
            );
        }
        if let Some(d) = l.deallocate {
            assert!(d.granularity_bytes.is_multiple_of(block) && d.max_bytes >= u64::from(block));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_believed_keeps_the_invariants(claimed in claimed()) {
            if let Ok((limits, _)) = Limits::believe(&claimed) {
                assert_consistent(&limits);
            }
        }

        #[test]
        fn what_was_believed_once_is_believed_again_without_a_word(claimed in claimed()) {
            if let Ok((limits, _)) = Limits::believe(&claimed) {
                let again = limits.as_claimed();
                let (twice, ignored) = Limits::believe(&again).unwrap();
                prop_assert_eq!(ignored, vec![]);
                prop_assert_eq!(twice, limits);
            }
        }
    }
}
