//! The data plane: one user's view of a device on one core.

use std::ops::BitOr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::counters::Counters;
use super::request::{Request, Segment, Token};
use super::status::{Completion, Status};
use crate::poller::Epoch;
use crate::time::Instant;

/// There was no room; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// One user's view of a device on one core. Never blocks, allocates or panics after `open`.
///
/// A request that was taken completes exactly once, at a later call of [`poll`](Self::poll), and
/// not before every device below has stopped touching its memory.
pub trait Channel: Send {
    /// How many requests, of whatever shape, `submit` would take now. A mirror asks all its
    /// members before it submits to any.
    fn room(&self) -> usize;

    /// Takes the request, or refuses it whole for want of room. Invalid requests are taken, and
    /// complete with a status that says why. The device starts at the next `poll`.
    ///
    /// # Errors
    /// [`Full`] if there is no room: poll, and try again.
    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full>;

    /// Moves work along (rings doorbells, enters the ring) and hands back completions, at most as
    /// many as `out` has room for.
    fn poll(&mut self, now: Instant, out: &mut Sink) -> Progress;

    /// Asks for an early end. The one completion still comes, `Cancelled` or as if not asked.
    /// Unknown tokens are ignored.
    fn cancel(&mut self, token: Token);

    /// Later submits belong to epoch `to`; the channel takes up the limits and the region table
    /// of now. Called only when [`oldest`](Self::oldest) is no older than the current epoch.
    fn turn(&mut self, to: Epoch);

    /// The oldest epoch with work outstanding, if any is.
    fn oldest(&self) -> Option<Epoch>;

    /// Says what would make another poll worth while, before the poller sleeps. Everything that
    /// becomes ready after this call must wake.
    fn arm(&mut self, wake: &mut WakeSet);

    /// The poller is awake again.
    fn disarm(&mut self);

    /// This channel's counters, readable from any thread.
    fn counters(&self) -> &Arc<Counters>;
}

/// What came of a poll; `a | b` is the more urgent of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing moved, and polling again is no faster than being woken (nothing is outstanding, or
    /// the kernel has it).
    #[default]
    Resting,
    /// Nothing moved, but something will soon that only polling sees quickly.
    Waiting,
    /// Something moved: poll again at once.
    Worked,
}

impl BitOr for Progress {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        if (self as u8) < other as u8 { other } else { self }
    }
}

/// Where a poll puts completions: bounded, allocated once.
#[derive(Debug)]
pub struct Sink {
    done: Box<[Completion]>,
    len: usize,
}

impl Sink {
    /// A sink for up to `capacity` completions a poll.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let empty = Completion { token: Token(0), status: Status::Ok };
        Self { done: vec![empty; capacity].into(), len: 0 }
    }

    /// How many more it takes.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.done.len() - self.len
    }

    /// Adds one. False, and nothing added, if there is no room.
    #[inline]
    pub fn push(&mut self, completion: Completion) -> bool {
        let place = self.done.get_mut(self.len);
        let fits = place.is_some();
        if let Some(place) = place {
            *place = completion;
            self.len += 1;
        }
        fits
    }

    /// The completions so far.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Completion] {
        &self.done[..self.len]
    }

    /// The completions so far, for a wrapper that translates them on the way up.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Completion] {
        &mut self.done[..self.len]
    }

    /// Keeps only those that `keep` says yes to; a wrapper takes its own out this way.
    pub fn retain_from(&mut self, start: usize, mut keep: impl FnMut(&mut Completion) -> bool) {
        let mut kept = start;
        for i in start..self.len {
            let mut completion = self.done[i];
            if keep(&mut completion) {
                self.done[kept] = completion;
                kept += 1;
            }
        }
        self.len = kept.min(self.len);
    }

    /// Number of completions so far.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties it, keeping the allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// An io_uring whose completions wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingWake {
    /// The ring itself. It also completes something when the poller's bell rings, so a poller with
    /// nothing else to wait for sleeps in it: one system call that waits and runs the completions.
    pub ring: RawFd,
    /// An eventfd that the ring rings, for a poller that waits for other things too.
    pub eventfd: RawFd,
}

/// What would wake a sleeping poller: file descriptors that become readable, a time, or nothing
/// (there is work now, do not sleep).
#[derive(Debug, Default)]
pub struct WakeSet {
    fds: Vec<RawFd>,
    rings: Vec<RingWake>,
    bell: Option<RawFd>,
    until: Option<Instant>,
    ready: bool,
}

impl WakeSet {
    /// An empty set, with room for the descriptors of as many channels as a poller mostly has.
    #[must_use]
    pub fn new() -> Self {
        let (fds, rings) = (Vec::with_capacity(64), Vec::with_capacity(64));
        Self { fds, rings, ..Self::default() }
    }

    /// Forgets everything, keeping the allocation.
    pub fn clear(&mut self) {
        self.fds.clear();
        self.rings.clear();
        self.until = None;
        self.ready = false;
    }

    /// There is work already: do not sleep.
    pub fn ready(&mut self) {
        self.ready = true;
    }

    /// Wake when `fd` becomes readable. It must stay open until `disarm`.
    pub fn readable(&mut self, fd: RawFd) {
        self.fds.push(fd);
    }

    /// Wake when a ring has completions.
    pub fn ring(&mut self, ring: RingWake) {
        self.rings.push(ring);
    }

    /// The rings so far.
    #[must_use]
    pub fn rings(&self) -> &[RingWake] {
        &self.rings
    }

    /// What other cores wake this poller with, if it sleeps at all (the simulator's do not).
    pub fn set_bell(&mut self, bell: RawFd) {
        self.bell = Some(bell);
    }

    /// What other cores wake this poller with.
    #[must_use]
    pub fn bell(&self) -> Option<RawFd> {
        self.bell
    }

    /// Wake at `at` or before.
    pub fn at(&mut self, at: Instant) {
        self.until = Some(self.until.map_or(at, |u| u.min(at)));
    }

    /// The descriptors so far.
    #[must_use]
    pub fn fds(&self) -> &[RawFd] {
        &self.fds
    }

    /// The earliest of the times.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// True if there is work already.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }
}
