//! What a request meets: drawn when it is submitted, as a function of the plan and the dice.

use super::count::{FaultKind, Fired};
use super::dice::Dice;
use super::plan::FaultPlan;
use crate::block::{Lba, Limits, Op, Request, Status};

/// The device code of injected errors: no errno, and no NVMe status.
pub(super) const INJECTED_CODE: u16 = 0xfa17;

/// What a request meets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) course: Course,
    /// The bit of the read's data to change, counted over all segments.
    pub(super) flip_bit: Option<u64>,
    pub(super) delay_nanos: u64,
    /// The delay comes before the device sees the request, and not after it is done.
    pub(super) late: bool,
    pub(super) reorder: bool,
}

/// What reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// All of it.
    Whole,
    /// The first `blocks` blocks, perhaps none; if those go well it completes as `status`.
    Part { blocks: u32, status: Status },
    /// All of it, at another address.
    Elsewhere(Lba),
}

impl Fate {
    /// Nothing out of the ordinary.
    pub(super) const PLAIN: Self =
        Self { course: Course::Whole, flip_bit: None, delay_nanos: 0, late: false, reorder: false };
}

/// Draws the fates of a channel's requests.
#[derive(Debug)]
pub(super) struct Fates {
    /// The `_at` targets that fire once are taken out when they do.
    plan: FaultPlan,
    dice: Dice,
}

impl Fates {
    pub(super) fn new(plan: FaultPlan, dice: Dice) -> Self {
        Self { plan, dice }
    }

    /// The fate of a request that keeps `limits`.
    pub(super) fn draw(&mut self, request: &Request, limits: &Limits, fired: &Fired) -> Fate {
        let course = match self.misfortune(request, limits) {
            Some((kind, course)) => {
                fired.count(kind);
                course
            }
            None => Course::Whole,
        };
        let flip_bit = self.flip_bit(request, limits);
        let delayed = self.dice.chance(self.plan.delay);
        let delay_nanos_max = self.plan.delay_us_max.saturating_mul(1000);
        let delay_nanos = if delayed { self.dice.below(delay_nanos_max) + 1 } else { 0 };
        let late = delayed && self.dice.below(2) == 1;
        if delayed {
            fired.count(FaultKind::Delayed);
        }
        Fate { course, flip_bit, delay_nanos, late, reorder: self.dice.chance(self.plan.reorder) }
    }

    fn misfortune(&mut self, request: &Request, limits: &Limits) -> Option<(FaultKind, Course)> {
        let (lba, blocks) = (request.lba.0, request.blocks);
        let covers = |at: &mut Lba| at.0 >= lba && at.0 - lba < blocks.into();
        let part = |blocks, status| Course::Part { blocks, status };
        let medium = |first_bad: Lba| {
            // Less than `blocks`, a u32.
            let before = (first_bad.0 - lba) as u32;
            (FaultKind::Medium, part(before, Status::Medium { first_bad }))
        };
        let write = request.op == Op::Write;
        if let Some(at) = self.plan.medium_at.filter(|at| covers(&mut at.clone())) {
            return Some(medium(at));
        }
        if write && self.plan.lost_at.take_if(covers).is_some() {
            return Some((FaultKind::Lost, part(0, Status::Ok)));
        }
        if write
            && blocks > 1
            && let Some(at) = self.plan.torn_at.take_if(covers)
        {
            let cut = ((at.0 - lba) as u32).max(1);
            return Some((FaultKind::Torn, part(cut, Status::Ok)));
        }
        let places = limits.blocks / u64::from(blocks.max(1));
        if write && places > 1 && self.plan.misplace_at.take_if(covers).is_some() {
            return Some(self.misplaced(request, places));
        }
        if self.dice.chance(self.plan.error) {
            let status = Status::Device { code: INJECTED_CODE, retryable: true };
            return Some((FaultKind::Error, part(0, status)));
        }
        if request.op != Op::Flush && self.dice.chance(self.plan.medium) {
            return Some(medium(Lba(lba + self.dice.below(blocks.into()))));
        }
        if !write {
            return None;
        }
        if self.dice.chance(self.plan.lost) {
            return Some((FaultKind::Lost, part(0, Status::Ok)));
        }
        if blocks > 1 && self.dice.chance(self.plan.torn) {
            let cut = 1 + self.dice.below(u64::from(blocks) - 1) as u32;
            return Some((FaultKind::Torn, part(cut, Status::Ok)));
        }
        if places > 1 && self.dice.chance(self.plan.misplace) {
            return Some(self.misplaced(request, places));
        }
        None
    }

    /// Another of the `places` multiples of the request's length, of which there are two or more.
    fn misplaced(&mut self, request: &Request, places: u64) -> (FaultKind, Course) {
        let blocks = u64::from(request.blocks);
        let drawn = self.dice.below(places);
        let place = if drawn * blocks == request.lba.0 { (drawn + 1) % places } else { drawn };
        (FaultKind::Misplaced, Course::Elsewhere(Lba(place * blocks)))
    }

    fn flip_bit(&mut self, request: &Request, limits: &Limits) -> Option<u64> {
        if request.op != Op::Read {
            return None;
        }
        let block_bits = u64::from(limits.block_bytes) * 8;
        if let Some(Lba(at)) = self.plan.flip_at
            && at >= request.lba.0
            && at - request.lba.0 < request.blocks.into()
        {
            return Some((at - request.lba.0) * block_bits + self.dice.below(block_bits));
        }
        let flips = self.dice.chance(self.plan.flip);
        flips.then(|| self.dice.below(u64::from(request.blocks) * block_bits))
    }
}
