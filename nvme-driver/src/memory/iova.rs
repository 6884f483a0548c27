//! I/O-virtual addresses: given out by us, inside the ranges that the IOMMU offers, never taken
//! from virtual addresses.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// An address as a device behind an IOMMU sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl fmt::Debug for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iova({:#x})", self.0)
    }
}

/// Addresses `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IovaRange {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// Hands out aligned ranges, first fit, and takes them back.
#[derive(Clone, Debug)]
pub struct IovaAllocator {
    /// Sorted, disjoint, not touching, not empty.
    free: Vec<IovaRange>,
}

impl IovaAllocator {
    /// Every range is aligned to this: a huge page, so that the IOMMU can use large entries.
    pub const ALIGNMENT: u64 = 2 << 20;

    /// Gives from `usable`; address 0 and the rest of the first 2 MiB are never given.
    #[must_use]
    pub fn new(usable: &[IovaRange]) -> Self {
        let mut free = Self { free: Vec::new() };
        for range in usable {
            free.give_back(IovaRange { start: range.start.max(Self::ALIGNMENT), end: range.end });
        }
        free
    }

    /// What x86 IOMMUs offer at the least: 39 bits, less the interrupt window at 0xfee00000.
    #[must_use]
    pub fn for_39_bits() -> Self {
        Self::new(&[
            IovaRange { start: 0, end: 0xfee0_0000 },
            IovaRange { start: 0xfef0_0000, end: 1 << 39 },
        ])
    }

    /// A free range of `len` bytes, rounded up to whole units of the alignment; `None` if there is
    /// none.
    pub fn take(&mut self, len: u64) -> Option<IovaRange> {
        let len = len.max(1).checked_next_multiple_of(Self::ALIGNMENT)?;
        for i in 0..self.free.len() {
            let range = self.free[i];
            let Some(start) = range.start.checked_next_multiple_of(Self::ALIGNMENT) else {
                continue;
            };
            let Some(end) = start.checked_add(len).filter(|end| *end <= range.end) else {
                continue;
            };
            let rest = [
                IovaRange { start: range.start, end: start },
                IovaRange { start: end, end: range.end },
            ];
            self.free.splice(i..=i, rest.into_iter().filter(|r| r.start < r.end));
            return Some(IovaRange { start, end });
        }
        None
    }

    /// Takes a range back, or adds one.
    pub fn give_back(&mut self, range: IovaRange) {
        if range.start >= range.end {
            return;
        }
        self.free.push(range);
        self.free.sort_unstable_by_key(|r| r.start);
        let mut merged: Vec<IovaRange> = Vec::with_capacity(self.free.len());
        for range in self.free.drain(..) {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        self.free = merged;
    }
}

/// A range in use; given back when dropped.
#[derive(Debug)]
pub(super) struct IovaLease {
    range: IovaRange,
    from: Arc<Mutex<IovaAllocator>>,
}

impl IovaLease {
    pub(super) fn take(from: &Arc<Mutex<IovaAllocator>>, len: u64) -> Option<Self> {
        let range = from.lock().unwrap_or_else(PoisonError::into_inner).take(len)?;
        Some(Self { range, from: Arc::clone(from) })
    }

    pub(super) fn start(&self) -> u64 {
        self.range.start
    }
}

impl Drop for IovaLease {
    fn drop(&mut self) {
        self.from.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.range);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_interrupt_window_and_address_zero_are_never_given() {
        let mut allocator = IovaAllocator::for_39_bits();
        let mut given = Vec::new();
        while let Some(range) = allocator.take(1 << 30) {
            given.push(range);
        }
        assert_eq!(given.len(), 3 + 508);
        assert!(given.iter().all(|r| r.start >= IovaAllocator::ALIGNMENT));
        assert!(given.iter().all(|r| r.end <= 0xfee0_0000 || r.start >= 0xfef0_0000));
        assert!(allocator.take(u64::MAX).is_none());
    }

    proptest! {
        #[test]
        fn ranges_in_use_never_overlap_and_all_comes_back(steps in prop::collection::vec((any::<bool>(), 1u64..64 << 20), 1..60)) {
            let mut allocator = IovaAllocator::for_39_bits();
            let whole = allocator.free.clone();
            let mut used: Vec<IovaRange> = Vec::new();
            for (take, n) in steps {
                if take {
                    let range = allocator.take(n).unwrap();
                    prop_assert!(range.end - range.start >= n && range.start.is_multiple_of(IovaAllocator::ALIGNMENT));
                    prop_assert!(used.iter().all(|u| u.end <= range.start || range.end <= u.start));
                    used.push(range);
                } else if !used.is_empty() {
                    let i = n as usize % used.len();
                    allocator.give_back(used.swap_remove(i));
                }
            }
            for range in used {
                allocator.give_back(range);
            }
            prop_assert_eq!(allocator.free, whole);
        }
    }
}
