//! What every leaf channel keeps: its epoch, how much is outstanding of it and of the one before,
//! and the region tables that those requests were checked against.

use std::sync::Arc;

use super::table::{Memory, RegionTable};
use crate::poller::Epoch;

/// A channel's epochs and region tables.
///
/// The leader publishes an epoch only after the one before is acknowledged everywhere, so at most
/// two are outstanding at once, and one bit tells them apart.
#[derive(Debug)]
pub struct EpochMemory {
    memory: Arc<Memory>,
    tables: [Arc<RegionTable>; 2],
    outstanding: [u32; 2],
    epochs: [Epoch; 2],
    now: u8,
}

impl EpochMemory {
    /// Starts at epoch 0 with the table as of now.
    #[must_use]
    pub fn new(memory: &Arc<Memory>) -> Self {
        let table = memory.table();
        Self {
            memory: Arc::clone(memory),
            tables: [Arc::clone(&table), table],
            outstanding: [0; 2],
            epochs: [Epoch::default(); 2],
            now: 0,
        }
    }

    /// The table that requests are checked against now.
    #[inline]
    #[must_use]
    pub fn table(&self) -> &RegionTable {
        &self.tables[usize::from(self.now & 1)]
    }

    /// The table that a request with this tag was checked against.
    #[inline]
    #[must_use]
    pub fn table_of(&self, tag: u8) -> &RegionTable {
        &self.tables[usize::from(tag & 1)]
    }

    /// A request begins; give the tag back at its end.
    #[inline]
    #[must_use]
    pub fn begin(&mut self) -> u8 {
        self.outstanding[usize::from(self.now & 1)] += 1;
        self.now
    }

    /// A request ended.
    #[inline]
    pub fn end(&mut self, tag: u8) {
        self.end_many(tag, 1);
    }

    /// `n` requests with the same tag ended.
    #[inline]
    pub fn end_many(&mut self, tag: u8, n: u32) {
        let count = &mut self.outstanding[usize::from(tag & 1)];
        debug_assert!(*count >= n, "a request ended twice");
        *count = count.saturating_sub(n);
        if *count == 0 && tag != self.now {
            self.let_go();
        }
    }

    /// The last request of the older epoch is done: its regions may be unmapped.
    #[cold]
    fn let_go(&mut self) {
        let now = usize::from(self.now);
        self.tables[1 - now] = Arc::clone(&self.tables[now]);
    }

    /// Later requests belong to `to`, and are checked against the table of now.
    pub fn turn(&mut self, to: Epoch) {
        let now = usize::from(self.now);
        debug_assert_eq!(self.outstanding[1 - now], 0, "turned twice with work outstanding");
        if self.outstanding[1 - now] == 0 {
            self.now = 1 - self.now;
        }
        let now = usize::from(self.now);
        self.epochs[now] = to;
        self.tables[now] = self.memory.table();
        if self.outstanding[1 - now] == 0 {
            self.let_go();
        }
    }

    /// The oldest epoch with requests outstanding.
    #[must_use]
    pub fn oldest(&self) -> Option<Epoch> {
        let now = usize::from(self.now);
        [1 - now, now].into_iter().find(|i| self.outstanding[*i] > 0).map(|i| self.epochs[i])
    }

    /// Keeps every region that an outstanding request may use mapped to the end of the process: for
    /// a channel that ends without knowing when the device does.
    pub fn keep_mapped(&self) {
        self.tables.iter().for_each(|table| std::mem::forget(Arc::clone(table)));
    }

    /// How many requests are outstanding.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> usize {
        (self.outstanding[0] + self.outstanding[1]) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::IovaAllocator;

    #[test]
    fn a_retired_region_stays_mapped_until_the_last_request_of_its_epoch_has_ended() {
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let region = memory.add_anonymous(4096).unwrap();
        let segment = region.segment(0, 4096);
        let mut epochs = EpochMemory::new(&memory);
        let before = epochs.begin();
        let id = region.id();
        let watched = Arc::downgrade(&region);
        drop((region, memory.retire(id).unwrap()));
        assert!(epochs.table().address(&segment).is_ok(), "not turned yet");
        epochs.turn(Epoch(1));
        assert!(epochs.table().address(&segment).is_err());
        assert!(epochs.table_of(before).address(&segment).is_ok());
        let after = epochs.begin();
        assert_eq!(epochs.oldest(), Some(Epoch(0)));
        assert!(watched.upgrade().is_some(), "still mapped");
        epochs.end(before);
        assert!(watched.upgrade().is_none(), "unmapped with the last request");
        assert_eq!(epochs.oldest(), Some(Epoch(1)));
        epochs.end(after);
        assert_eq!(epochs.oldest(), None);
    }
}
