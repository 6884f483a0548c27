//! What a poller does when nothing moves: a pure decision, so that it can be tested without time.

use std::time::Duration;

use crate::block::Progress;
use crate::time::Instant;

/// How eagerly a poller looks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Never rest: the lowest latency, a whole core.
    Spin,
    /// Poll at full speed for `spin` after the last work, then with pauses for `pause`, then sleep
    /// until something can wake it. Where the kernel has all outstanding work and wakes us, there
    /// is nothing to gain by polling, and it sleeps at once.
    Adaptive {
        /// How long to poll at full speed.
        spin: Duration,
        /// How long to poll with pauses after that.
        pause: Duration,
    },
}

impl IdlePolicy {
    /// Spins about as long as a sleep and wake-up cost, then as long again for a flash drive.
    pub const ADAPTIVE: Self =
        Self::Adaptive { spin: Duration::from_micros(20), pause: Duration::from_micros(100) };
}

/// What to do before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: poll at once.
    Spin,
    /// Let the core breathe for a moment.
    Pause,
    /// Arm everything and sleep until woken.
    Sleep,
}

/// An idle policy's state.
#[derive(Clone, Debug)]
pub struct Idle {
    policy: IdlePolicy,
    worked_at: Instant,
}

impl Idle {
    /// Starts as if there was work at `now`.
    #[must_use]
    pub fn new(policy: IdlePolicy, now: Instant) -> Self {
        Self { policy, worked_at: now }
    }

    /// What to do after a step at `now` that came to `progress`.
    #[inline]
    pub fn after(&mut self, progress: Progress, now: Instant) -> Rest {
        let IdlePolicy::Adaptive { spin, pause } = self.policy else { return Rest::Spin };
        match progress {
            Progress::Worked => {
                self.worked_at = now;
                Rest::Spin
            }
            Progress::Resting => Rest::Sleep,
            Progress::Waiting => {
                let idle = now - self.worked_at;
                if idle < spin {
                    Rest::Spin
                } else if idle < spin + pause {
                    Rest::Pause
                } else {
                    Rest::Sleep
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_spins_then_pauses_then_sleeps_and_starts_over_with_work() {
        let policy = IdlePolicy::Adaptive {
            spin: Duration::from_nanos(10),
            pause: Duration::from_nanos(20),
        };
        let mut idle = Idle::new(policy, Instant::ZERO);
        let mut after = |progress, nanos| idle.after(progress, Instant::from_nanos(nanos));
        assert_eq!(after(Progress::Waiting, 9), Rest::Spin);
        assert_eq!(after(Progress::Waiting, 10), Rest::Pause);
        assert_eq!(after(Progress::Waiting, 30), Rest::Sleep);
        assert_eq!(after(Progress::Worked, 40), Rest::Spin);
        assert_eq!(after(Progress::Waiting, 49), Rest::Spin);
        assert_eq!(after(Progress::Resting, 49), Rest::Sleep);
        let mut spin = Idle::new(IdlePolicy::Spin, Instant::ZERO);
        assert_eq!(spin.after(Progress::Resting, Instant::MAX), Rest::Spin);
    }
}
