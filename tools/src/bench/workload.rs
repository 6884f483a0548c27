//! Which request comes next: pure, from a seed.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::options::Rw;
use super::report::Direction;

/// The part of a device that a job works on, in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first: u64,
    pub blocks: u64,
}

/// One request to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub direction: Direction,
    pub lba: u64,
    pub blocks: u32,
}

/// Draws a job's requests on one device.
#[derive(Clone, Debug)]
pub struct Workload {
    rw: Rw,
    random: bool,
    /// Chance of a read in 2^32, in mixed workloads.
    reads: u64,
    extent: Extent,
    blocks_min: u32,
    blocks_max: u32,
    /// Places that a request of the largest size can have; they are aligned to the smallest size,
    /// as fio's are.
    places: u64,
    rng: Xoshiro256PlusPlus,
    /// Next block of each direction's sequential stream, from the extent's start.
    next: [u64; 2],
    /// With a pass, each position of the extent comes once, in an order of its own.
    pass: Option<Pass>,
}

#[derive(Clone, Debug)]
struct Pass {
    order: Permutation,
    at: u64,
}

/// A number from 0 to `below` - 1, by Lemire's multiplication; the bias is below 2^-64 * `below`.
#[inline]
fn below(rng: &mut Xoshiro256PlusPlus, below: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(below)) >> 64) as u64
}

impl Workload {
    /// Requests of `blocks_min` to `blocks_max` blocks in `extent`, which holds at least one of
    /// the largest. `once`: each place is written once before any is written again.
    #[must_use]
    pub fn new(
        rw: Rw,
        rwmixread: u8,
        extent: Extent,
        blocks: (u32, u32),
        seed: u64,
        once: bool,
    ) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let whole = extent.blocks / u64::from(blocks.1);
        let pass = (once && rw.is_random())
            .then(|| Pass { order: Permutation::new(whole, rng.next_u64()), at: 0 });
        Self {
            rw,
            random: rw.is_random(),
            reads: (u64::from(rwmixread) << 32) / 100,
            extent,
            blocks_min: blocks.0,
            blocks_max: blocks.1,
            places: (extent.blocks - u64::from(blocks.1)) / u64::from(blocks.0) + 1,
            rng,
            next: [0; 2],
            pass,
        }
    }

    #[inline]
    fn direction(&mut self) -> Direction {
        match self.rw {
            Rw::Read | Rw::Randread => Direction::Read,
            Rw::Write | Rw::Randwrite => Direction::Write,
            Rw::Trim | Rw::Randtrim => Direction::Trim,
            Rw::Rw | Rw::Randrw if self.rng.next_u64() >> 32 < self.reads => Direction::Read,
            Rw::Rw | Rw::Randrw => Direction::Write,
        }
    }

    /// The direction and size of every request, if all are alike and nothing waits at the end of
    /// a pass: [`Workload::place`] then is all that is left to draw.
    #[must_use]
    pub fn uniform(&self) -> Option<(Direction, u32)> {
        let alike = self.blocks_min == self.blocks_max && !self.rw.is_mixed();
        let direction = match self.rw {
            Rw::Read | Rw::Randread => Direction::Read,
            Rw::Trim | Rw::Randtrim => Direction::Trim,
            _ => Direction::Write,
        };
        (alike && self.pass.is_none()).then_some((direction, self.blocks_max))
    }

    /// Where the next request of a uniform workload starts.
    #[inline]
    pub fn place(&mut self) -> u64 {
        let blocks = u64::from(self.blocks_max);
        let at = if self.random {
            below(&mut self.rng, self.places) * blocks
        } else {
            let at = if self.next[0] + blocks > self.extent.blocks { 0 } else { self.next[0] };
            self.next[0] = at + blocks;
            at
        };
        self.extent.first + at
    }

    /// The next request. `None` at the end of a pass: the caller waits for what is outstanding,
    /// so that no place has two writes under way, and draws again.
    #[inline]
    pub fn draw(&mut self) -> Option<Draw> {
        let direction = self.direction();
        let span = self.blocks_max - self.blocks_min;
        let blocks = if span == 0 {
            self.blocks_max
        } else {
            self.blocks_min + below(&mut self.rng, u64::from(span) + 1) as u32
        };
        let stream = usize::from(direction != Direction::Read);
        let at = if let Some(pass) = self.pass.as_mut().filter(|_| stream == 1) {
            if pass.at == pass.order.n {
                pass.at = 0;
                pass.order = Permutation::new(pass.order.n, self.rng.next_u64());
                return None;
            }
            pass.at += 1;
            pass.order.at(pass.at - 1) * u64::from(self.blocks_max)
        } else if self.random {
            below(&mut self.rng, self.places) * u64::from(self.blocks_min)
        } else {
            let next = &mut self.next[stream];
            if *next + u64::from(blocks) > self.extent.blocks {
                *next = 0;
                if stream == 1 {
                    return None;
                }
            }
            let at = *next;
            *next += u64::from(blocks);
            at
        };
        Some(Draw { direction, lba: self.extent.first + at, blocks })
    }
}

/// An order of 0..n that looks random: a four-round Feistel network on the next even number of
/// bits, walked until it lands below n (less than four steps on average).
#[derive(Clone, Debug)]
struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(n: u64, seed: u64) -> Self {
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { n, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    fn at(&self, index: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut value = index;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (left, right) = (right, left ^ (mixed >> 40 & mask));
            }
            value = left << self.half_bits | right;
            if value < self.n {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_permutation_reaches_every_place_once(n in 1u64..3000, seed: u64) {
            let order = Permutation::new(n, seed);
            let mut seen: Vec<u64> = (0..n).map(|i| order.at(i)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }

        #[test]
        fn every_request_lies_in_the_extent(
            rw in prop::sample::select(vec![Rw::Read, Rw::Write, Rw::Randread, Rw::Randwrite, Rw::Rw, Rw::Randrw, Rw::Trim]),
            first in 0u64..1000, min in 1u32..9, more in 0u32..9, extra in 0u64..50, seed: u64, once: bool,
        ) {
            let max = min + more;
            let extent = Extent { first, blocks: u64::from(max) + extra };
            let mut workload = Workload::new(rw, 50, extent, (min, max), seed, once);
            let mut again = workload.clone();
            for _ in 0..100 {
                let drawn = workload.draw();
                prop_assert_eq!(drawn, again.draw(), "the same seed draws the same");
                let Some(draw) = drawn else { continue };
                prop_assert!(draw.lba >= first && draw.lba + u64::from(draw.blocks) <= first + extent.blocks);
                prop_assert!((min..=max).contains(&draw.blocks));
            }
        }
    }

    #[test]
    fn a_mixed_workload_keeps_its_mix() {
        let extent = Extent { first: 0, blocks: 1000 };
        let mut workload = Workload::new(Rw::Randrw, 70, extent, (1, 1), 3, false);
        let reads = (0..10_000).filter(|_| workload.draw().unwrap().direction == Direction::Read);
        let reads = reads.count();
        assert!((6_800..7_200).contains(&reads), "{reads}");
    }

    #[test]
    fn a_pass_writes_each_place_once_and_says_when_it_is_over() {
        let extent = Extent { first: 10, blocks: 64 };
        for rw in [Rw::Write, Rw::Randwrite] {
            let mut workload = Workload::new(rw, 0, extent, (4, 4), 7, true);
            for _ in 0..3 {
                let mut places: Vec<u64> =
                    std::iter::from_fn(|| workload.draw()).map(|d| d.lba).collect();
                places.sort_unstable();
                assert_eq!(places, (0..16).map(|i| 10 + 4 * i).collect::<Vec<_>>());
            }
        }
    }
}
