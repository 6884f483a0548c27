//! What a poller runs.

use std::fmt;

use super::epoch::Epoch;
use crate::block::{Progress, WakeSet};
use crate::time::Instant;

/// Which poller: dense, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PollerId(pub u16);

impl fmt::Display for PollerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Poll it again; how soon it is worth while.
    Running(Progress),
    /// It is over, and nothing of it is outstanding: the poller drops it.
    Finished,
}

/// A poller's unit of work: owns its channels, is polled in turn with the poller's other tasks.
///
/// The rules of [`Channel`](crate::block::Channel) hold: no blocking, no allocation after start-up,
/// no clock but `now`.
pub trait Task: Send {
    /// Moves everything along.
    fn poll(&mut self, now: Instant) -> TaskState;

    /// Later work belongs to epoch `to`; passed on to all channels.
    fn turn(&mut self, to: Epoch);

    /// The oldest epoch with work outstanding in any channel.
    fn oldest(&self) -> Option<Epoch>;

    /// Says what would make another poll worth while, before the poller sleeps.
    fn arm(&mut self, wake: &mut WakeSet);

    /// The poller is awake again.
    fn disarm(&mut self);
}
