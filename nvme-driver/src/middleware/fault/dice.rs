//! Chance, from a seed.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(super) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// The streams of channel `number`: one drawn from by submits, one by polls, so that how often
    /// a channel is polled changes nothing about what its requests meet.
    pub(super) fn pair(seed: u64, number: u64) -> (Self, Self) {
        let mut submits = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Each jump is 2^128 draws ahead, so no two channels' streams overlap.
        (0..number).for_each(|_| submits.jump());
        let mut polls = submits.clone();
        polls.long_jump();
        (Self(submits), Self(polls))
    }

    /// True with this probability. What cannot happen draws nothing.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        probability > 0.0 && ((self.0.next_u64() >> 11) as f64) * UNIT < probability
    }

    /// Uniform in `0..end`; 0 if `end` is.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and a bias of at most end / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }
}
