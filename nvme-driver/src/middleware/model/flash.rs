//! Flash: parallel units behind a link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_core::RngCore;

use super::drive::{Work, fraction, nanos};
use super::params::FlashParams;
use crate::block::Op;
use crate::time::Instant;

/// The units and the link of a flash drive.
#[derive(Debug)]
pub(super) struct Flash {
    params: FlashParams,
    /// When each unit is free; the earliest on top.
    units: BinaryHeap<Reverse<Instant>>,
    to_host: Link,
    to_drive: Link,
}

/// One direction of the link: the bytes of one request after those of the other.
#[derive(Debug)]
struct Link {
    mbps: f64,
    free_at: Instant,
}

impl Link {
    fn new(mbps: f64) -> Self {
        Self { mbps, free_at: Instant::ZERO }
    }

    /// Carries `bytes` from `start` on, or when it is free: when the last one is across.
    fn carry(&mut self, bytes: u64, start: Instant) -> Instant {
        let wire_us = bytes as f64 / self.mbps;
        self.free_at = self.free_at.max(start).plus_nanos(nanos(wire_us));
        self.free_at
    }
}

impl Flash {
    pub(super) fn new(params: &FlashParams) -> Self {
        Self {
            units: (0..params.channels.max(1)).map(|_| Reverse(Instant::ZERO)).collect(),
            to_host: Link::new(params.read_mbps),
            to_drive: Link::new(params.write_mbps),
            params: params.clone(),
        }
    }

    /// The earliest free unit works on it, and the link carries its bytes meanwhile; the unit is
    /// free again when both are done.
    pub(super) fn serve(&mut self, work: &Work, now: Instant, rng: &mut impl RngCore) -> Instant {
        let p = &self.params;
        let unit_us = match work.op {
            Op::Read => p.read_us,
            Op::Write if work.sized => p.write_us,
            Op::Write => p.rmw_us_min + (p.rmw_us_max - p.rmw_us_min) * fraction(rng),
            Op::Flush => p.flush_us,
            Op::WriteZeroes { .. } | Op::Deallocate => p.deallocate_us,
        };
        // There is at least one unit; without one, time would still be a bound.
        let mut unit = self.units.peek_mut();
        let start = unit.as_ref().map_or(now, |unit| unit.0.max(now));
        let worked = start.plus_nanos(nanos(unit_us));
        let carried = match work.op {
            Op::Read => self.to_host.carry(work.bytes, start),
            Op::Write => self.to_drive.carry(work.bytes, start),
            _ => start,
        };
        let done = worked.max(carried);
        if let Some(unit) = unit.as_mut() {
            **unit = Reverse(done);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::middleware::{Mechanism, ModelParams};

    fn two_units() -> Flash {
        let Mechanism::Flash(params) = ModelParams::p5520().mechanism else { unreachable!() };
        Flash::new(&FlashParams { channels: 2, ..params })
    }

    fn work(op: Op, bytes: u64) -> Work {
        Work { op, offset: 0, bytes, sized: bytes.is_multiple_of(4096) }
    }

    #[test]
    fn the_third_request_waits_for_the_first_of_two_units() {
        let (mut flash, mut rng) = (two_units(), Xoshiro256PlusPlus::seed_from_u64(1));
        let mut serve = |op, bytes, at| {
            flash.serve(&work(op, bytes), Instant::from_nanos(at), &mut rng).as_nanos()
        };
        assert_eq!(serve(Op::Read, 4096, 0), 75_000);
        assert_eq!(serve(Op::Write, 4096, 10_000), 25_000);
        assert_eq!(serve(Op::Write, 4096, 10_000), 40_000);
        assert_eq!(serve(Op::Flush, 0, 10_000), 45_000);
        assert_eq!(serve(Op::Deallocate, 1 << 30, 100_000), 120_000);
    }

    #[test]
    fn a_long_transfer_ends_with_its_last_byte_and_holds_up_the_next_one() {
        let (mut flash, mut rng) = (two_units(), Xoshiro256PlusPlus::seed_from_u64(1));
        let mut serve =
            |op, bytes| flash.serve(&work(op, bytes), Instant::ZERO, &mut rng).as_nanos();
        assert_eq!(serve(Op::Write, 1025 * 4096), 999_619);
        let second = serve(Op::Write, 4096);
        assert_eq!(second, 999_619 + 975, "behind the first on the link");
        assert_eq!(serve(Op::Read, 4096), 999_619 + 75_000, "the other way is free");
    }

    #[test]
    fn a_write_of_part_of_a_unit_costs_a_read_modify_write() {
        let (mut flash, mut rng) = (two_units(), Xoshiro256PlusPlus::seed_from_u64(1));
        for i in 0..1000 {
            let now = Instant::from_nanos(i * 1_000_000);
            let took = flash.serve(&work(Op::Write, 3584), now, &mut rng).nanos_since(now);
            assert!((430_000..=660_000).contains(&took), "{took}");
        }
    }
}
