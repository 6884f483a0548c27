//! Epochs: how shared facts change while every core runs.
//!
//! Membership, limits, memory regions, bitmap clearing and shutdown are immutable snapshots. The
//! leader stores the new snapshot where its users look, then publishes epoch N. Each poller
//! switches at its next step and acknowledges N when everything it began before has completed.
//! Nothing that depends on N may be acknowledged upward before [`Leader::is_settled`].

use crossbeam_utils::CachePadded;

use super::task::PollerId;
use super::waker::Waker;
use crate::sync::{Arc, AtomicU64, Ordering};

/// A version of the shared facts. 0 is the one that everything starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The acknowledgement of a poller that is gone: newer than every epoch.
const GONE: u64 = u64::MAX;

#[derive(Debug)]
struct Shared {
    published: CachePadded<AtomicU64>,
    /// By follower: the epoch it switched to.
    turned: Box<[CachePadded<AtomicU64>]>,
    acknowledged: Box<[CachePadded<AtomicU64>]>,
}

/// An epoch is still on its way; there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {} is not acknowledged by every poller yet", .0.0)]
pub struct Unfinished(pub Epoch);

/// Publishes epochs: one a set of pollers, on the control thread or in the simulator.
#[derive(Debug)]
pub struct Leader {
    shared: Arc<Shared>,
    wakers: Vec<Waker>,
}

/// One poller's side.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    at: usize,
    turned: u64,
    acknowledged: u64,
}

impl Leader {
    /// A leader, and one follower for each waker's poller, in their order.
    #[must_use]
    pub fn new(wakers: Vec<Waker>) -> (Self, Vec<Follower>) {
        let zeros = || wakers.iter().map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let published = CachePadded::new(AtomicU64::new(0));
        let shared = Arc::new(Shared { published, turned: zeros(), acknowledged: zeros() });
        let follower =
            |at| Follower { shared: Arc::clone(&shared), at, turned: 0, acknowledged: 0 };
        let followers = (0..wakers.len()).map(follower).collect();
        (Self { shared, wakers }, followers)
    }

    /// The newest epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.shared.published.load(Ordering::Relaxed))
    }

    /// Publishes the next epoch and wakes every poller.
    ///
    /// # Errors
    /// The one before has not settled yet: at most two are ever outstanding.
    pub fn publish(&mut self) -> Result<Epoch, Unfinished> {
        let last = self.epoch();
        if !self.is_settled() {
            return Err(Unfinished(last));
        }
        let next = last.0 + 1;
        // Release: a poller that sees the number sees the snapshots stored before.
        self.shared.published.store(next, Ordering::Release);
        for waker in &self.wakers {
            waker.wake();
        }
        Ok(Epoch(next))
    }

    /// True when every poller has switched to the newest epoch: nothing that begins from now on
    /// goes by an older one. What a request waits for that is itself outstanding, such as a write
    /// that waits for the change of membership that it caused: it would hold up
    /// [`is_settled`](Self::is_settled) for ever.
    #[must_use]
    pub fn has_turned(&self) -> bool {
        let newest = self.epoch().0;
        self.shared.turned.iter().all(|t| t.load(Ordering::Acquire) >= newest)
    }

    /// True when every poller has acknowledged the newest epoch.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.slowest().is_none()
    }

    /// A poller that has not acknowledged the newest epoch, if there is one.
    #[must_use]
    pub fn slowest(&self) -> Option<PollerId> {
        let newest = self.epoch().0;
        let late = |a: &CachePadded<AtomicU64>| a.load(Ordering::Acquire) < newest;
        let at = self.shared.acknowledged.iter().position(late)?;
        u16::try_from(at).ok().map(PollerId)
    }
}

impl Follower {
    /// The epoch to switch to, if a new one was published. The caller switches everything it owns.
    #[inline]
    pub fn turn(&mut self) -> Option<Epoch> {
        let published = self.shared.published.load(Ordering::Acquire);
        if published == self.turned {
            return None;
        }
        self.turned = published;
        // The caller switches before it begins anything else, so this may be shown at once.
        self.shared.turned[self.at].store(published, Ordering::Release);
        Some(Epoch(published))
    }

    /// True if the newest epoch seen is not acknowledged yet.
    #[inline]
    #[must_use]
    pub fn owes(&self) -> bool {
        self.acknowledged != self.turned
    }

    /// Acknowledges, if nothing older than the epoch switched to is outstanding; `oldest` is the
    /// oldest epoch with work outstanding.
    pub fn settle(&mut self, oldest: Option<Epoch>) {
        if self.owes() && oldest.is_none_or(|oldest| oldest.0 >= self.turned) {
            self.acknowledged = self.turned;
            // Release: whoever sees the acknowledgement sees what the completed work wrote.
            self.shared.acknowledged[self.at].store(self.turned, Ordering::Release);
        }
    }
}

impl Drop for Follower {
    /// A poller that is gone has nothing outstanding and holds nobody up.
    fn drop(&mut self) {
        self.shared.turned[self.at].store(GONE, Ordering::Release);
        self.shared.acknowledged[self.at].store(GONE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_settles_when_the_last_poller_has_finished_what_it_began_before() {
        let (mut leader, mut followers) =
            Leader::new(vec![Waker::new().unwrap(), Waker::new().unwrap()]);
        assert_eq!(leader.publish(), Ok(Epoch(1)));
        assert_eq!(leader.publish(), Err(Unfinished(Epoch(1))));
        assert_eq!(followers[0].turn(), Some(Epoch(1)));
        assert!(!leader.has_turned());
        assert_eq!(followers[0].turn(), None);
        followers[0].settle(Some(Epoch(0)));
        assert_eq!(leader.slowest(), Some(PollerId(0)));
        followers[0].settle(Some(Epoch(1)));
        assert_eq!(leader.slowest(), Some(PollerId(1)));
        assert_eq!(followers[1].turn(), Some(Epoch(1)));
        assert!(leader.has_turned() && !leader.is_settled());
        drop(followers);
        assert!(leader.is_settled(), "a poller that is gone holds nobody up");
        assert_eq!(leader.publish(), Ok(Epoch(2)));
    }
}

#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "touches a cell that loom watches")]
mod loom_tests {
    use super::*;

    /// The point of epochs: once settled, what was shared before may be torn down. Here the
    /// "region" is a cell that a poller reads only while it is in epoch 0.
    #[test]
    fn nothing_of_the_old_epoch_is_touched_after_it_has_settled() {
        loom::model(|| {
            let region = Arc::new(crate::sync::UnsafeCell::new(1u32));
            let (mut leader, mut followers) = Leader::new(vec![Waker::new().unwrap()]);
            let mut follower = followers.pop().unwrap();
            let used = Arc::clone(&region);
            let poller = loom::thread::spawn(move || {
                for _ in 0..2 {
                    let turned = follower.turn().is_some() || follower.turned > 0;
                    if !turned {
                        // SAFETY: epoch 1 is not acknowledged, so the leader does not write.
                        used.with(|r| assert_eq!(unsafe { *r }, 1));
                    }
                    follower.settle(None);
                }
                follower
            });
            leader.publish().unwrap();
            if leader.is_settled() {
                // SAFETY: every poller has acknowledged epoch 1; loom fails the test on a race.
                region.with_mut(|r| unsafe { *r = 2 });
            }
            let mut follower = poller.join().unwrap();
            follower.turn();
            follower.settle(None);
            assert!(leader.is_settled());
        });
    }
}
