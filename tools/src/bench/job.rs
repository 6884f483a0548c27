//! One job: a poller's task that keeps every device's queue full and measures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use strake_nvme_driver::block::{Progress, WakeSet};
use strake_nvme_driver::poller::{Epoch, Task, TaskState};
use strake_nvme_driver::time::Instant;

use super::lane::{Lane, Phase, Shared};
use super::plan::JobPlan;
use super::report::{DirectionReport, Series, VerifyReport};
use super::tally::Tally;

/// What a job measured.
#[derive(Debug)]
pub struct JobResult {
    /// Which job, from 0.
    pub number: u16,
    pub directions: [DirectionReport; 4],
    pub series: Series,
    pub runtime_nanos: u64,
    pub errors: BTreeMap<String, u64>,
    pub verify: Option<VerifyReport>,
}

/// A poller's task.
// On cache lines of its own: its neighbours on the heap are other cores'.
#[repr(align(128))]
pub struct Job {
    number: u16,
    lanes: Vec<Lane>,
    shared: Shared,
    /// When there is more to do than to poll the lanes: at first at once, to begin.
    due: Instant,
    begun: bool,
    /// When the workload ends at the latest.
    deadline: Instant,
    stop: Arc<AtomicBool>,
    results: mpsc::Sender<JobResult>,
}

impl Job {
    /// A job that ends by itself, when `stop` is set, or at its first error, and then sends its
    /// result.
    #[must_use]
    pub fn new(
        number: u16,
        plan: JobPlan,
        lanes: Vec<Lane>,
        stop: Arc<AtomicBool>,
        results: mpsc::Sender<JobResult>,
    ) -> Self {
        let shared = Shared {
            plan,
            phase: Phase::Work,
            stopping: false,
            interrupted: false,
            started: Instant::ZERO,
            ended: Instant::ZERO,
            started_requests: 0,
            lanes_over: 0,
            tally: Tally::new(),
            errors: BTreeMap::new(),
        };
        Self {
            number,
            lanes,
            shared,
            due: Instant::ZERO,
            begun: false,
            deadline: Instant::MAX,
            stop,
            results,
        }
    }

    #[cold]
    fn begin(&mut self, now: Instant) {
        self.begun = true;
        self.shared.started = now;
        self.shared.ended = now;
        if let Some(nanos) = self.shared.plan.ending.after_nanos {
            self.deadline = now.plus_nanos(nanos);
        }
        self.shared.tally.series.start(now);
    }

    #[cold]
    fn look_at_the_time(&mut self, now: Instant) {
        if !self.begun {
            self.begin(now);
        }
        self.shared.stopping |= now >= self.deadline;
        self.shared.tally.series.advance(now);
        self.due = self.shared.tally.series.due();
        if !self.shared.stopping {
            self.due = self.due.min(self.deadline);
        }
    }

    /// Everything is sent and completed: moves to the next phase, or ends.
    #[cold]
    fn advance(&mut self) -> TaskState {
        let shared = &mut self.shared;
        let interrupted = self.stop.load(Ordering::Relaxed);
        let ended_badly = !shared.errors.is_empty() && !shared.plan.continue_on_error;
        let verify = shared.plan.verify && !ended_badly && !interrupted;
        if shared.phase == Phase::Work && verify {
            shared.phase = Phase::Verify;
            shared.stopping = false;
            shared.lanes_over = 0;
            self.deadline = Instant::MAX;
            self.lanes.iter_mut().for_each(Lane::read_back);
            return TaskState::Running(Progress::Worked);
        }
        self.send_result();
        TaskState::Finished
    }

    fn send_result(&mut self) {
        let (directions, series) = self.shared.tally.finish();
        let verify = self.shared.plan.verify.then(|| {
            let mut sum = VerifyReport::default();
            self.lanes.iter().filter_map(Lane::readback).for_each(|r| sum.add(&r.report()));
            sum
        });
        let result = JobResult {
            number: self.number,
            directions,
            series,
            runtime_nanos: self.shared.ended.nanos_since(self.shared.started),
            errors: std::mem::take(&mut self.shared.errors),
            verify,
        };
        // Nobody listens only if the run was given up.
        let _ = self.results.send(result);
    }
}

impl Task for Job {
    fn poll(&mut self, now: Instant) -> TaskState {
        if now >= self.due {
            self.look_at_the_time(now);
        }
        let shared = &mut self.shared;
        if self.stop.load(Ordering::Relaxed) {
            shared.stopping = true;
            shared.interrupted = true;
        }
        if shared.plan.rate_iops.is_some() {
            // The allowance goes to whoever comes first, so each is first in turn.
            let lanes = self.lanes.as_mut_slice();
            lanes.rotate_left(usize::from(!lanes.is_empty()));
        }
        let mut progress = Progress::Resting;
        for lane in &mut self.lanes {
            progress = progress | lane.poll(now, shared);
        }
        let over = shared.stopping || shared.lanes_over == self.lanes.len();
        if over && self.lanes.iter().all(Lane::is_drained) {
            return self.advance();
        }
        TaskState::Running(progress)
    }

    fn turn(&mut self, to: Epoch) {
        for lane in &mut self.lanes {
            lane.channel.turn(to);
        }
    }

    fn oldest(&self) -> Option<Epoch> {
        self.lanes.iter().filter_map(|lane| lane.channel.oldest()).min()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        let shared = &self.shared;
        if self.deadline < Instant::MAX && !shared.stopping {
            wake.at(self.deadline);
        }
        if let Some(rate) = shared.plan.rate_iops
            && !shared.stopping
            && self.lanes.iter().any(Lane::could_send)
        {
            let due = u128::from(shared.started_requests) * 1_000_000_000 / u128::from(rate);
            // One nanosecond later, so that rounding down in the allowance does not spin.
            let due = u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1);
            wake.at(shared.started.plus_nanos(due));
        }
        for lane in &mut self.lanes {
            if lane.is_held_up() {
                wake.ready();
            }
            lane.channel.arm(wake);
        }
    }

    fn disarm(&mut self) {
        for lane in &mut self.lanes {
            lane.channel.disarm();
        }
    }
}
