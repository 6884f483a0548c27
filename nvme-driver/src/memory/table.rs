//! The region table: immutable snapshots, one index to an address.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::iova::{Iova, IovaAllocator, IovaLease};
use super::mapping::Mapping;
use super::region::{Region, RegionId};
use crate::block::{Segment, Status};

/// Why a mapping could not be registered or a region not be retired.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Every slot is taken.
    #[error("{} regions are registered already, and there can be no more", RegionId::SLOTS)]
    NoSlot,
    /// The IOMMU's ranges are used up.
    #[error("no free I/O-virtual range of {len} bytes")]
    NoIova {
        /// Bytes asked for.
        len: usize,
    },
    /// The region is not registered (any more).
    #[error("{0:?} is not registered")]
    Unknown(RegionId),
    /// The kernel gives no memory.
    #[error("cannot map memory: {0}")]
    Map(#[from] std::io::Error),
}

/// All memory that this process's devices may touch. Shared by everything on the control plane;
/// channels hold snapshots ([`RegionTable`]).
#[derive(Debug)]
pub struct Memory {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    table: Arc<RegionTable>,
    /// Generation that each slot's next region gets.
    generations: Vec<u32>,
    iovas: Arc<Mutex<IovaAllocator>>,
    /// Where the search for a free slot goes on, so that names are reused as late as can be.
    next_slot: usize,
}

impl Memory {
    /// Nothing registered yet; I/O-virtual addresses come from `iovas`.
    #[must_use]
    pub fn new(iovas: IovaAllocator) -> Arc<Self> {
        let state = State {
            table: Arc::new(RegionTable::default()),
            generations: Vec::new(),
            iovas: Arc::new(Mutex::new(iovas)),
            next_slot: 0,
        };
        Arc::new(Self { state: RwLock::new(state) })
    }

    /// Registers a mapping. Channels opened from now on know it; those that are open know it once
    /// they have turned to an epoch published after this.
    ///
    /// # Errors
    /// No slot, or no I/O-virtual range.
    pub fn add(&self, mapping: Mapping) -> Result<Arc<Region>, MemoryError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let used = &state.table.regions;
        let slot = (0..RegionId::SLOTS)
            .map(|i| (state.next_slot + i) % RegionId::SLOTS)
            .find(|slot| used.get(*slot).is_none_or(Option::is_none))
            .ok_or(MemoryError::NoSlot)?;
        let len = mapping.len();
        let iova = IovaLease::take(&state.iovas, len as u64).ok_or(MemoryError::NoIova { len })?;
        if state.generations.len() <= slot {
            state.generations.resize(slot + 1, 1);
        }
        let id = RegionId::new(slot, state.generations[slot]);
        let region = Arc::new(Region { id, iova, mapping });
        let mut regions = state.table.regions.clone();
        if regions.len() <= slot {
            regions.resize(slot + 1, None);
        }
        regions[slot] = Some(Arc::clone(&region));
        state.table = Arc::new(RegionTable::new(regions));
        state.next_slot = (slot + 1) % RegionId::SLOTS;
        Ok(region)
    }

    /// Registers zeroed memory of this process.
    ///
    /// # Errors
    /// As [`Memory::add`], or no memory.
    pub fn add_anonymous(&self, len: usize) -> Result<Arc<Region>, MemoryError> {
        self.add(Mapping::anonymous(len)?)
    }

    /// Takes a region out of the table. Segments in it are [`Status::BadMemory`] for every channel
    /// that has turned to an epoch published after this; it is unmapped when the last channel has
    /// done so and finished what it began before, and the returned handle is dropped.
    ///
    /// # Errors
    /// It is not registered.
    pub fn retire(&self, id: RegionId) -> Result<Arc<Region>, MemoryError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut regions = state.table.regions.clone();
        let slot = regions.get_mut(id.slot()).ok_or(MemoryError::Unknown(id))?;
        let region = slot.take_if(|r| r.id == id).ok_or(MemoryError::Unknown(id))?;
        let generation = &mut state.generations[id.slot()];
        *generation = if *generation == RegionId::GENERATION_MAX { 1 } else { *generation + 1 };
        state.table = Arc::new(RegionTable::new(regions));
        Ok(region)
    }

    /// The table as of now.
    #[must_use]
    pub fn table(&self) -> Arc<RegionTable> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state.table)
    }
}

/// What is registered, at one moment. Keeps its regions mapped.
#[derive(Debug, Default)]
pub struct RegionTable {
    /// Indexed by slot: what the data path needs, side by side.
    entries: Box<[Entry]>,
    regions: Vec<Option<Arc<Region>>>,
    /// Slots sorted by virtual address, for [`RegionTable::find`].
    by_address: Box<[(usize, usize)]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: RegionId,
    base: usize,
    len: u64,
    iova: u64,
}

const VACANT: Entry = Entry { id: RegionId::NONE, base: 0, len: 0, iova: 0 };

impl RegionTable {
    fn new(regions: Vec<Option<Arc<Region>>>) -> Self {
        let entry = |region: &Option<Arc<Region>>| {
            region.as_ref().map_or(VACANT, |r| Entry {
                id: r.id,
                base: r.mapping.base().as_ptr() as usize,
                len: r.len() as u64,
                iova: r.iova().0,
            })
        };
        let entries: Box<[Entry]> = regions.iter().map(entry).collect();
        let mut by_address: Vec<(usize, usize)> = entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.len > 0)
            .map(|(slot, e)| (e.base, slot))
            .collect();
        by_address.sort_unstable();
        Self { entries, regions, by_address: by_address.into() }
    }

    #[inline]
    fn entry(&self, segment: &Segment) -> Result<&Entry, Status> {
        let entry = self.entries.get(segment.region.slot()).unwrap_or(&VACANT);
        let end = segment.offset.checked_add(segment.len.into());
        if entry.id == segment.region && end.is_some_and(|end| end <= entry.len) {
            Ok(entry)
        } else {
            Err(Status::BadMemory)
        }
    }

    /// The virtual address of a segment. Valid for the segment's length while this table lives.
    ///
    /// # Errors
    /// [`Status::BadMemory`] if the region is not in this table or the segment does not lie in it.
    #[inline]
    pub fn address(&self, segment: &Segment) -> Result<NonNull<u8>, Status> {
        let entry = self.entry(segment)?;
        let region = self.regions[segment.region.slot()].as_ref();
        debug_assert!(region.is_some_and(|r| r.id == segment.region));
        let address = entry.base + segment.offset as usize;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).ok_or(Status::BadMemory)
    }

    /// The I/O-virtual address of a segment.
    ///
    /// # Errors
    /// As [`RegionTable::address`].
    #[inline]
    pub fn iova(&self, segment: &Segment) -> Result<Iova, Status> {
        self.entry(segment).map(|entry| Iova(entry.iova + segment.offset))
    }

    /// Checks that every segment lies in a region of this table.
    ///
    /// # Errors
    /// [`Status::BadMemory`] if one does not.
    #[inline]
    pub fn check(&self, data: &[Segment]) -> Result<(), Status> {
        match data {
            [only] => self.entry(only).map(drop),
            _ => data.iter().try_for_each(|segment| self.entry(segment).map(drop)),
        }
    }

    /// Checks that no region that a segment lies in has vanished under it (SIGBUS).
    ///
    /// # Errors
    /// [`Status::BadMemory`] if one has.
    #[inline]
    pub fn check_faults(&self, data: &[Segment]) -> Result<(), Status> {
        let bad = |segment: &Segment| {
            let region = self.regions.get(segment.region.slot()).and_then(Option::as_ref);
            region.is_none_or(|r| r.mapping.fault().is_some())
        };
        if data.iter().any(bad) { Err(Status::BadMemory) } else { Ok(()) }
    }

    /// The region that a segment names.
    #[must_use]
    pub fn region(&self, id: RegionId) -> Option<&Arc<Region>> {
        self.regions.get(id.slot())?.as_ref().filter(|r| r.id == id)
    }

    /// The region in a slot.
    #[must_use]
    pub fn in_slot(&self, slot: usize) -> Option<&Region> {
        self.regions.get(slot)?.as_deref()
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.regions.iter().flatten()
    }

    /// The segment for `len` bytes at virtual address `address`, if they lie in one region.
    #[inline]
    #[must_use]
    pub fn find(&self, address: usize, len: u32) -> Option<Segment> {
        let after = self.by_address.partition_point(|(base, _)| *base <= address);
        let (base, slot) = *self.by_address.get(after.checked_sub(1)?)?;
        let entry = &self.entries[slot];
        let segment = Segment { region: entry.id, len, offset: (address - base) as u64 };
        self.entry(&segment).is_ok().then_some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_is_an_error_and_never_its_successors_memory() {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let first = memory.add_anonymous(4096).unwrap();
        let old = first.segment(0, 4096);
        let before = memory.table();
        drop(memory.retire(first.id()).unwrap());
        assert!(memory.retire(first.id()).is_err());
        // All slots are used once before the first is used again.
        for _ in 0..RegionId::SLOTS {
            let region = memory.add_anonymous(4096).unwrap();
            assert_ne!(region.id(), first.id());
            memory.retire(region.id()).unwrap();
        }
        assert_eq!(memory.table().address(&old), Err(Status::BadMemory));
        assert!(before.address(&old).is_ok(), "a snapshot keeps what it knows");
    }

    #[test]
    fn segments_are_checked_against_the_ends_of_their_region() {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let region = memory.add_anonymous(8192).unwrap();
        let table = memory.table();
        assert!(table.address(&region.segment(4096, 4096)).is_ok());
        for bad in
            [region.segment(4097, 4096), region.segment(u64::MAX, 2), region.segment(8193, 0)]
        {
            assert_eq!(table.address(&bad), Err(Status::BadMemory));
            assert_eq!(table.iova(&bad), Err(Status::BadMemory));
        }
        let iova = table.iova(&region.segment(100, 1)).unwrap();
        assert_eq!(iova.0, region.iova().0 + 100);
    }

    #[test]
    fn a_virtual_address_finds_its_region() {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let regions: Vec<_> = (0..5).map(|_| memory.add_anonymous(8192).unwrap()).collect();
        let table = memory.table();
        for region in &regions {
            let base = region.mapping().base().as_ptr() as usize;
            assert_eq!(table.find(base + 10, 20), Some(region.segment(10, 20)));
            assert_eq!(table.find(base + 8192 - 10, 20), None);
        }
        assert_eq!(table.find(0, 1), None);
        assert_eq!(table.find(usize::MAX, 1), None);
    }

    #[test]
    fn a_table_full_of_regions_refuses_one_more() {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        for _ in 0..RegionId::SLOTS {
            memory.add_anonymous(1).unwrap();
        }
        assert!(matches!(memory.add_anonymous(1), Err(MemoryError::NoSlot)));
    }
}
