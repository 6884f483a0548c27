//! A hard disk: one actuator over turning platters.

use rand_core::RngCore;

use super::drive::{Work, fraction, nanos};
use super::params::DiskParams;
use crate::block::Op;
use crate::time::Instant;

/// The actuator of a disk.
#[derive(Debug)]
pub(super) struct Disk {
    params: DiskParams,
    capacity_bytes: u64,
    free_at: Instant,
    /// The byte after the last request's.
    head: u64,
    /// Something was written since the last flush.
    dirty: bool,
}

impl Disk {
    pub(super) fn new(params: &DiskParams, capacity_bytes: u64) -> Self {
        Self {
            params: params.clone(),
            capacity_bytes: capacity_bytes.max(1),
            free_at: Instant::ZERO,
            head: 0,
            dirty: false,
        }
    }

    /// The actuator takes one request after the other. Every write pays for its movement at once,
    /// as if it were FUA; a flush after writes waits for one rotation.
    pub(super) fn serve(&mut self, work: &Work, now: Instant, rng: &mut impl RngCore) -> Instant {
        let rotation_us = self.params.rotation_ms() * 1000.0;
        let us = if work.op == Op::Flush {
            if std::mem::take(&mut self.dirty) { rotation_us } else { 0.0 }
        } else {
            let reach = self.reach_us(work.offset, rng);
            self.head = work.offset.saturating_add(work.bytes);
            self.dirty |= work.op.changes();
            // The sector comes round again to be written, with what was read from it.
            let again = if work.op == Op::Write && !work.sized { rotation_us } else { 0.0 };
            reach + again + work.bytes as f64 / self.params.mbps
        };
        self.free_at = self.free_at.max(now).plus_nanos(nanos(us));
        self.free_at
    }

    /// Until the head is over byte `to`: nothing if it is there, else a seek and part of a
    /// rotation, or for a short way ahead, waiting while it passes below.
    fn reach_us(&self, to: u64, rng: &mut impl RngCore) -> f64 {
        let p = &self.params;
        let distance = to.abs_diff(self.head);
        if distance == 0 {
            return 0.0;
        }
        let way = (distance as f64 / self.capacity_bytes as f64).min(1.0);
        let seek_ms = p.seek_min_ms + (p.seek_max_ms - p.seek_min_ms) * way.sqrt();
        let reach_us = (seek_ms + p.rotation_ms() * fraction(rng)) * 1000.0;
        if to > self.head { reach_us.min(distance as f64 / p.mbps) } else { reach_us }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::middleware::{Mechanism, ModelParams};

    fn disk() -> (Disk, Xoshiro256PlusPlus) {
        let params = ModelParams::hdd_180();
        let Mechanism::Disk(disk) = &params.mechanism else { unreachable!() };
        (Disk::new(disk, params.capacity_bytes), Xoshiro256PlusPlus::seed_from_u64(1))
    }

    const ROTATION: u64 = 8_333_333;

    #[test]
    fn what_follows_the_last_request_pays_for_its_transfer_only() {
        let (mut disk, mut rng) = disk();
        let mut serve = |op, offset, bytes, sized| {
            let from = disk.free_at;
            disk.serve(&Work { op, offset, bytes, sized }, from, &mut rng).nanos_since(from)
        };
        assert_eq!(serve(Op::Read, 0, 1_800_000, true), 10_000_000);
        assert_eq!(serve(Op::Write, 1_800_000, 180_000, true), 1_000_000);
        // A gap of 90,000 bytes passes below in 0.5 ms, sooner than any seek and rotation.
        assert_eq!(serve(Op::Read, 2_070_000, 180_000, true), 1_500_000);
        // Back by one block is a seek all the same.
        let back = serve(Op::Read, 2_249_488, 0, true);
        assert!((500_000..510_000 + ROTATION).contains(&back), "{back}");
        let across = serve(Op::Read, 4_000_000_000_000, 0, true);
        assert!((15_490_000..15_500_000 + ROTATION).contains(&across), "{across}");
    }

    #[test]
    fn a_part_of_a_sector_costs_a_rotation_and_so_does_the_first_flush_after_writes() {
        let (mut disk, mut rng) = disk();
        let mut serve = |op, bytes, sized| {
            let (from, offset) = (disk.free_at, disk.head);
            disk.serve(&Work { op, offset, bytes, sized }, from, &mut rng).nanos_since(from)
        };
        assert_eq!(serve(Op::Flush, 0, true), 0);
        assert_eq!(serve(Op::Write, 3600, false), 20_000 + ROTATION);
        assert_eq!(serve(Op::Flush, 0, true), ROTATION);
        assert_eq!(serve(Op::Flush, 0, true), 0);
    }
}
