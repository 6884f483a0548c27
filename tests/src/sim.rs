//! The simulator: pollers without threads, stepped in an order and at times that a seed determines.
//!
//! It interleaves polls, not instructions; what two cores touch at once has loom tests of its own.
//! A poller that finds nothing to do may fall asleep, and is then stepped only when someone wakes
//! it or its time has come, so a wake-up that a layer forgets shows as a run that never ends. When
//! all sleep, time jumps to the earliest moment that one of them armed.

use std::io;

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use strake_nvme_driver::block::{Progress, WakeSet};
use strake_nvme_driver::poller::{Epoch, Leader, Poller, PollerId, TaskInbox, Waker};
use strake_nvme_driver::time::Instant;

/// How far time moves with a step, at most, in nanoseconds: about what a busy poll costs.
const STEP_NANOS: u64 = 400;

/// Draws from a seed.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in `0..end`; 0 if `end` is.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Why a run did not end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// Everyone sleeps, and no time was armed: a wake-up was lost.
    #[error("every poller sleeps at {now:?} and nothing will wake one: a wake-up was lost")]
    Asleep {
        /// When.
        now: Instant,
    },
    /// It goes on and on.
    #[error("still running after {steps} steps, at {now:?}")]
    Endless {
        /// How many steps there were.
        steps: u64,
        /// The time reached.
        now: Instant,
    },
}

struct Station {
    poller: Poller,
    inbox: TaskInbox,
    asleep: bool,
    wake: WakeSet,
}

impl Station {
    fn is_due(&self, now: Instant) -> bool {
        !self.asleep
            || !self.poller.waker().is_asleep()
            || self.wake.until().is_some_and(|until| until <= now)
    }
}

/// Pollers, their leader, and a virtual clock.
pub struct Simulation {
    stations: Vec<Station>,
    leader: Leader,
    wakers: Vec<Waker>,
    random: Random,
    now: Instant,
}

impl Simulation {
    /// `pollers` pollers, all awake, at time 0.
    ///
    /// # Errors
    /// The kernel gives no eventfd.
    pub fn new(pollers: u16, seed: u64) -> io::Result<Self> {
        let wakers = (0..pollers).map(|_| Waker::new()).collect::<io::Result<Vec<Waker>>>()?;
        let (leader, followers) = Leader::new(wakers.clone());
        let ids = (0..pollers).map(PollerId);
        let station = |((id, waker), follower)| {
            let (poller, inbox) = Poller::new(id, waker, follower);
            Station { poller, inbox, asleep: false, wake: WakeSet::new() }
        };
        let stations = ids.zip(wakers.clone()).zip(followers).map(station).collect();
        Ok(Self { stations, leader, wakers, random: Random::new(seed), now: Instant::ZERO })
    }

    /// What wakes the pollers, in their order.
    #[must_use]
    pub fn wakers(&self) -> &[Waker] {
        &self.wakers
    }

    /// Where to put tasks for poller `at`.
    #[must_use]
    pub fn inbox(&self, at: usize) -> &TaskInbox {
        &self.stations[at].inbox
    }

    /// The newest epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.leader.epoch()
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs until no poller has a task, every epoch has settled and `control` says that it is
    /// done too; `control` is the control thread, called before every step.
    ///
    /// # Errors
    /// Nothing moves any more, or there were `steps_max` steps.
    pub fn run(
        &mut self,
        steps_max: u64,
        mut control: impl FnMut(&mut Leader) -> bool,
    ) -> Result<u64, Stuck> {
        for steps in 0..steps_max {
            let done = control(&mut self.leader);
            let idle = self.stations.iter().all(|s| s.poller.is_empty());
            if steps > 0 && done && idle && self.leader.is_settled() {
                return Ok(steps);
            }
            self.step()?;
        }
        Err(Stuck::Endless { steps: steps_max, now: self.now })
    }

    fn step(&mut self) -> Result<(), Stuck> {
        let now = self.now;
        let due = self.stations.iter().filter(|s| s.is_due(now)).count() as u64;
        if due == 0 {
            let earliest = self.stations.iter().filter_map(|s| s.wake.until()).min();
            self.now = earliest.ok_or(Stuck::Asleep { now })?;
            return Ok(());
        }
        let drawn = self.random.below(due) as usize;
        let mut awake = self.stations.iter_mut().filter(|s| s.is_due(now));
        let Some(station) = awake.nth(drawn) else { return Ok(()) };
        if station.asleep {
            station.asleep = false;
            station.poller.disarm();
        }
        let progress = station.poller.step(now);
        if progress != Progress::Worked && self.random.one_in(2) {
            station.poller.waker().announce_sleep();
            station.poller.arm(&mut station.wake);
            // A descriptor can be readable at any time: real I/O does not sleep in virtual time.
            station.asleep = !station.wake.is_ready() && station.wake.fds().is_empty();
            if !station.asleep {
                station.poller.disarm();
            }
        }
        self.now = now.plus_nanos(self.random.below(STEP_NANOS));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use strake_nvme_driver::poller::{Task, TaskState};

    use super::*;

    /// Waits for a time, and tells the poller which or forgets to.
    struct Waits {
        until: Instant,
        tells: bool,
    }

    impl Task for Waits {
        fn poll(&mut self, now: Instant) -> TaskState {
            if now >= self.until {
                TaskState::Finished
            } else {
                TaskState::Running(Progress::Waiting)
            }
        }

        fn turn(&mut self, _to: Epoch) {}

        fn oldest(&self) -> Option<Epoch> {
            None
        }

        fn arm(&mut self, wake: &mut WakeSet) {
            if self.tells {
                wake.at(self.until);
            }
        }

        fn disarm(&mut self) {}
    }

    fn run(tells: bool) -> Result<Instant, Stuck> {
        let mut sim = Simulation::new(2, 1).unwrap();
        let until = Instant::from_nanos(1_000_000_000);
        sim.inbox(0).add(Box::new(Waits { until, tells })).unwrap();
        let mut published = false;
        sim.run(1000, |leader| {
            if !published {
                leader.publish().unwrap();
            }
            published = true;
            leader.is_settled()
        })?;
        Ok(sim.now())
    }

    #[test]
    fn time_jumps_to_what_was_armed() {
        assert!(run(true).unwrap() >= Instant::from_nanos(1_000_000_000));
    }

    #[test]
    fn a_task_that_forgets_to_arm_is_found_out() {
        assert!(matches!(run(false), Err(Stuck::Asleep { .. })));
    }
}
