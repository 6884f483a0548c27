//! Waking a sleeping poller, without a system call if it is awake.
//!
//! The sleeper announces, looks once more for work, and sleeps; the waker shows its work and then
//! looks whether the other has announced. With a full fence between the two steps on both sides,
//! at least one of them sees the other: no wake-up is lost.

use std::io;
use std::os::fd::RawFd;

use crate::sync::{Arc, AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

/// Wakes one poller; clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    word: AtomicU32,
    /// Rings that were not heard yet; the sleeper's alone. A waker claims the sleeper first and
    /// rings then, so the ring may come after the sleeper has looked for it.
    unheard: AtomicU32,
    bell: Bell,
}

impl Waker {
    /// A waker for a poller that is awake.
    ///
    /// # Errors
    /// The kernel gives no eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared {
                word: AtomicU32::new(AWAKE),
                unheard: AtomicU32::new(0),
                bell: Bell::new()?,
            }),
        })
    }

    /// Wakes the poller if it sleeps or is about to. Call after the work is visible to it.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.shared.word.load(Ordering::Relaxed) == SLEEPING {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        // Of several wakers one rings.
        if self.shared.word.swap(AWAKE, Ordering::AcqRel) == SLEEPING {
            self.shared.bell.ring();
        }
    }

    /// The poller is about to sleep. It must look for work once more after this, and before it
    /// sleeps.
    pub fn announce_sleep(&self) {
        self.shared.word.store(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The poller is awake again, or found work and does not sleep. A system call only if someone
    /// rang.
    pub fn awake(&self) {
        let shared = &self.shared;
        let mut unheard = shared.unheard.load(Ordering::Relaxed);
        unheard += u32::from(shared.word.swap(AWAKE, Ordering::AcqRel) == AWAKE);
        if unheard > 0 && shared.bell.silence() {
            unheard = 0;
        }
        shared.unheard.store(unheard.min(1), Ordering::Relaxed);
    }

    /// True between [`announce_sleep`](Self::announce_sleep) and the next wake-up: what a simulator
    /// asks to step only who is awake.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.shared.word.load(Ordering::Acquire) == SLEEPING
    }

    /// What becomes readable when someone wakes the poller.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.shared.bell.fd()
    }
}

#[cfg(not(loom))]
use bell::Bell;

#[cfg(not(loom))]
mod bell {
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};

    use nix::sys::eventfd::{EfdFlags, EventFd};

    /// An eventfd.
    #[derive(Debug)]
    pub(super) struct Bell(EventFd);

    impl Bell {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
        }

        pub(super) fn ring(&self) {
            // Fails only if 2^64 - 2 rings were not heard; then it rings already.
            let _ = self.0.write(1);
        }

        /// True if it had rung.
        pub(super) fn silence(&self) -> bool {
            self.0.read().is_ok()
        }

        pub(super) fn fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

/// Under loom the bell is a counter that the test watches.
#[cfg(loom)]
#[derive(Debug)]
struct Bell(AtomicU32);

#[cfg(loom)]
impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Self(AtomicU32::new(0)))
    }

    fn ring(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn silence(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) > 0
    }

    fn fd(&self) -> RawFd {
        -1
    }

    fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let waker = Waker::new().unwrap();
            let work = Arc::new(AtomicU32::new(0));
            let (w, shown) = (waker.clone(), Arc::clone(&work));
            let other = loom::thread::spawn(move || {
                shown.store(1, Ordering::Relaxed);
                w.wake();
            });
            waker.announce_sleep();
            let seen = work.load(Ordering::Relaxed) == 1;
            other.join().unwrap();
            // Either the sleeper saw the work and stays awake, or the bell rings.
            assert!(seen || waker.shared.bell.rings() == 1);
        });
    }

    #[test]
    fn a_bell_rung_while_waking_up_is_heard_or_the_work_is_seen() {
        loom::model(|| {
            let waker = Waker::new().unwrap();
            let work = Arc::new(AtomicU32::new(0));
            waker.announce_sleep();
            let (w, shown) = (waker.clone(), Arc::clone(&work));
            let other = loom::thread::spawn(move || {
                shown.store(1, Ordering::Relaxed);
                w.wake();
            });
            waker.awake();
            waker.announce_sleep();
            let seen = work.load(Ordering::Relaxed) == 1;
            other.join().unwrap();
            assert!(seen || waker.shared.bell.rings() >= 1);
        });
    }
}
