//! Who is in sync: decided once, published under an epoch, taken up by each poller as it turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use strake_nvme_driver::poller::{Leader, Waker};

/// An immutable snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) version: u64,
    pub(super) in_sync: [bool; 2],
}

/// The member is the last one in sync, and stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMember;

/// The record of it.
pub(super) struct Book {
    /// What was decided. Locked only when a member fails.
    decided: Mutex<Membership>,
    /// What is published; channels take it up when they turn.
    published: RwLock<Arc<Membership>>,
    /// The version that each poller goes by; all of them if it has no channel.
    taken_up: Vec<AtomicU64>,
    wakers: Vec<Waker>,
    left_over: AtomicU64,
}

impl Book {
    pub(super) fn new(wakers: &[Waker]) -> Self {
        let whole = Membership { version: 0, in_sync: [true; 2] };
        Self {
            decided: Mutex::new(whole),
            published: RwLock::new(Arc::new(whole)),
            taken_up: wakers.iter().map(|_| AtomicU64::new(u64::MAX)).collect(),
            wakers: wakers.to_vec(),
            left_over: AtomicU64::new(0),
        }
    }

    pub(super) fn pollers(&self) -> usize {
        self.wakers.len()
    }

    pub(super) fn decided(&self) -> [bool; 2] {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).in_sync
    }

    /// Drops a member, if it is not dropped already; the version without it. Decisions are made one
    /// at a time: two owners that each saw another member fail must not drop both.
    pub(super) fn drop_member(&self, member: usize) -> Result<u64, LastMember> {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if !decided.in_sync[1 - member] {
            return Err(LastMember);
        }
        if decided.in_sync[member] {
            decided.in_sync[member] = false;
            decided.version += 1;
        }
        Ok(decided.version)
    }

    pub(super) fn publish(&self, leader: &mut Leader) -> bool {
        let decided = *self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if self.snapshot().version == decided.version {
            return true;
        }
        if leader.is_settled() {
            // The snapshot first: whoever turns to the epoch must find it.
            *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(decided);
            leader.publish().expect("settled a moment ago, and there is one leader");
        }
        false
    }

    pub(super) fn snapshot(&self) -> Arc<Membership> {
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Poller `at` goes by `version` from now on; those who wait for that are woken.
    pub(super) fn take_up(&self, at: usize, version: u64) {
        self.taken_up[at].store(version, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// True if every poller goes by `version` or a newer one.
    pub(super) fn is_taken_up(&self, version: u64) -> bool {
        version == 0 || self.taken_up.iter().all(|t| t.load(Ordering::Acquire) >= version)
    }

    pub(super) fn leave(&self, at: usize, left_over: u64) {
        self.left_over.fetch_add(left_over, Ordering::Relaxed);
        self.take_up(at, u64::MAX);
    }

    pub(super) fn left_over(&self) -> u64 {
        self.left_over.load(Ordering::Relaxed)
    }
}
