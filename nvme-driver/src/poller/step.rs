//! One poller: its tasks, and one round over them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::epoch::{Epoch, Follower};
use super::task::{PollerId, Task, TaskState};
use super::waker::Waker;
use crate::block::{Progress, WakeSet};
use crate::time::Instant;

/// Gives tasks to a poller that runs.
#[derive(Clone, Debug)]
pub struct TaskInbox {
    queue: mpsc::Sender<Box<dyn Task>>,
    /// Set after a task is put in, so that an empty inbox costs a poll one load.
    full: Arc<AtomicBool>,
    waker: Waker,
}

impl std::fmt::Debug for dyn Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

impl TaskInbox {
    /// Adds a task. It starts at the poller's next step.
    ///
    /// # Errors
    /// The task, if the poller has ended.
    pub fn add(&self, task: Box<dyn Task>) -> Result<(), Box<dyn Task>> {
        self.queue.send(task).map_err(|e| e.0)?;
        self.full.store(true, Ordering::Release);
        self.waker.wake();
        Ok(())
    }

    /// Makes the poller poll again.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// How a poller spent its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollerStats {
    /// Rounds in which something moved.
    pub worked: u64,
    /// Rounds in which nothing moved.
    pub idle: u64,
    /// Time of the rounds in which something moved, in nanoseconds.
    pub busy_nanos: u64,
    /// Time of the others, and asleep.
    pub idle_nanos: u64,
    /// How often it slept.
    pub sleeps: u64,
}

/// One poller: owns tasks and steps them. Knows no thread and no clock.
#[derive(Debug)]
pub struct Poller {
    id: PollerId,
    waker: Waker,
    follower: Follower,
    tasks: Vec<Box<dyn Task>>,
    inbox: mpsc::Receiver<Box<dyn Task>>,
    inbox_full: Arc<AtomicBool>,
    epoch: Epoch,
    /// When the first and the last round began, and whether the last one moved something.
    first: Option<Instant>,
    last: Instant,
    moved: bool,
    rounds: u64,
    worked: u64,
    busy_nanos: u64,
    sleeps: u64,
}

impl Poller {
    /// A poller without tasks, and the inbox that takes them.
    #[must_use]
    pub fn new(id: PollerId, waker: Waker, follower: Follower) -> (Self, TaskInbox) {
        let (queue, inbox) = mpsc::channel();
        let inbox_full = Arc::new(AtomicBool::new(false));
        let tasks = TaskInbox { queue, full: Arc::clone(&inbox_full), waker: waker.clone() };
        let poller = Self {
            id,
            waker,
            follower,
            tasks: Vec::new(),
            inbox,
            inbox_full,
            epoch: Epoch::default(),
            first: None,
            last: Instant::ZERO,
            moved: false,
            rounds: 0,
            worked: 0,
            busy_nanos: 0,
            sleeps: 0,
        };
        (poller, tasks)
    }

    /// Which poller this is.
    #[must_use]
    pub fn id(&self) -> PollerId {
        self.id
    }

    /// What wakes it.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// How it spent its time.
    #[must_use]
    pub fn stats(&self) -> PollerStats {
        let total = self.last.nanos_since(self.first.unwrap_or(self.last));
        PollerStats {
            worked: self.worked,
            idle: self.rounds - self.worked,
            busy_nanos: self.busy_nanos,
            idle_nanos: total.saturating_sub(self.busy_nanos),
            sleeps: self.sleeps,
        }
    }

    pub(super) fn count_sleep(&mut self) {
        self.sleeps += 1;
    }

    /// True if it has no task (any more).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// One round at `now`: takes in new tasks, turns to a new epoch, polls every task once,
    /// acknowledges. The time since the last round is booked as that round's.
    #[inline]
    pub fn step(&mut self, now: Instant) -> Progress {
        if self.moved {
            self.busy_nanos += now.nanos_since(self.last);
        }
        self.last = now;
        let mut progress = self.take_in();
        if let Some(epoch) = self.follower.turn() {
            self.turn(epoch);
            progress = Progress::Worked;
        }
        let mut at = 0;
        while let Some(task) = self.tasks.get_mut(at) {
            match task.poll(now) {
                TaskState::Running(p) => {
                    progress = progress | p;
                    at += 1;
                }
                TaskState::Finished => {
                    drop(self.tasks.swap_remove(at));
                    progress = Progress::Worked;
                }
            }
        }
        if self.follower.owes() {
            let oldest = self.tasks.iter().filter_map(|t| t.oldest()).min();
            self.follower.settle(oldest);
        }
        self.moved = progress == Progress::Worked;
        self.rounds += 1;
        self.worked += u64::from(self.moved);
        progress
    }

    #[inline]
    fn take_in(&mut self) -> Progress {
        if !self.inbox_full.load(Ordering::Relaxed) {
            return Progress::Resting;
        }
        self.inbox_full.swap(false, Ordering::Acquire);
        self.unpack()
    }

    #[cold]
    fn unpack(&mut self) -> Progress {
        self.first.get_or_insert(self.last);
        let mut progress = Progress::Resting;
        while let Ok(mut task) = self.inbox.try_recv() {
            if self.epoch > Epoch::default() {
                task.turn(self.epoch);
            }
            self.tasks.push(task);
            progress = Progress::Worked;
        }
        progress
    }

    #[cold]
    fn turn(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        for task in &mut self.tasks {
            task.turn(epoch);
        }
    }

    /// Collects what would wake it. Call after [`Waker::announce_sleep`]; if the set is then
    /// ready, do not sleep.
    pub fn arm(&mut self, wake: &mut WakeSet) {
        wake.clear();
        wake.set_bell(self.waker.fd());
        if self.take_in() == Progress::Worked {
            wake.ready();
        }
        if let Some(epoch) = self.follower.turn() {
            self.turn(epoch);
            wake.ready();
        }
        for task in &mut self.tasks {
            task.arm(wake);
        }
    }

    /// Awake again.
    pub fn disarm(&mut self) {
        self.waker.awake();
        for task in &mut self.tasks {
            task.disarm();
        }
    }
}
