//! A drive's state: what its channels share. A function of state, request, time and seed.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::disk::Disk;
use super::flash::Flash;
use super::params::{Mechanism, ModelParams};
use crate::block::Op;
use crate::time::Instant;

/// One request, as far as its time depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) op: Op,
    /// First byte.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Whole, aligned write units, or no write.
    pub(super) sized: bool,
}

/// When a drive is free, where its head is, and where its random times go on from.
#[derive(Debug)]
pub(super) struct Drive {
    state: State,
    rng: Xoshiro256PlusPlus,
}

#[derive(Debug)]
enum State {
    Flash(Flash),
    Disk(Disk),
}

impl Drive {
    /// An idle drive of `capacity_bytes`.
    pub(super) fn new(params: &ModelParams, capacity_bytes: u64) -> Self {
        let state = match &params.mechanism {
            Mechanism::Flash(flash) => State::Flash(Flash::new(flash)),
            Mechanism::Disk(disk) => State::Disk(Disk::new(disk, capacity_bytes)),
        };
        Self { state, rng: Xoshiro256PlusPlus::seed_from_u64(params.seed) }
    }

    /// The drive sees the request at `now`: when it is done.
    pub(super) fn serve(&mut self, work: &Work, now: Instant) -> Instant {
        match &mut self.state {
            State::Flash(flash) => flash.serve(work, now, &mut self.rng),
            State::Disk(disk) => disk.serve(work, now, &mut self.rng),
        }
    }
}

/// Evenly spread over 0 to below 1: the upper 53 bits, which is what a float holds.
pub(super) fn fraction(rng: &mut impl RngCore) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Whole nanoseconds. A cast from float saturates, so no parameter is too odd for it.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}
