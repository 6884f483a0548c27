//! A poller on a thread of its own, in real time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use core_affinity::CoreId;

use super::idle::{Idle, IdlePolicy, Rest};
use super::sleep::Bed;
use super::step::{Poller, PollerStats, TaskInbox};
use super::task::PollerId;
use crate::block::WakeSet;
use crate::time::Clock;

/// How many times a pause repeats the processor's own.
const PAUSES: u32 = 32;

/// A running poller. Ends when told to, after its tasks have finished.
#[derive(Debug)]
pub struct PollerHandle<R> {
    inbox: TaskInbox,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(PollerReport, R)>,
}

/// How a poller's life was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollerReport {
    /// Which poller.
    pub id: PollerId,
    /// How it spent its time.
    pub stats: PollerStats,
    /// False if the core that was asked for could not be had.
    pub pinned: bool,
}

impl<R> PollerHandle<R> {
    /// Where to put tasks.
    #[must_use]
    pub fn inbox(&self) -> &TaskInbox {
        &self.inbox
    }

    /// True if its thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Lets it end when its tasks have finished, waits for that, and hands back its report and
    /// what `at_end` gave.
    ///
    /// # Errors
    /// Its thread panicked.
    pub fn join(self) -> Result<(PollerReport, R), io::Error> {
        self.stop.store(true, Ordering::Release);
        self.inbox.wake();
        self.thread.join().map_err(|_| io::Error::other("a poller's thread panicked"))
    }
}

/// Starts `poller` on a thread pinned to `core`, in the time of `clock`. `at_end` runs on the
/// thread when the last task has finished (for the thread's own resource usage).
///
/// # Errors
/// The thread cannot be started.
pub fn spawn<C: Clock + 'static, R: Send + 'static>(
    mut poller: Poller,
    inbox: TaskInbox,
    core: Option<CoreId>,
    clock: Arc<C>,
    policy: IdlePolicy,
    at_end: impl FnOnce() -> R + Send + 'static,
) -> io::Result<PollerHandle<R>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let name = format!("poller-{}", poller.id());
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let pinned = core.is_none_or(core_affinity::set_for_current);
        run(&mut poller, clock.as_ref(), policy, &stopping);
        let report = PollerReport { id: poller.id(), stats: poller.stats(), pinned };
        (report, at_end())
    })?;
    Ok(PollerHandle { inbox, stop, thread })
}

fn run<C: Clock>(poller: &mut Poller, clock: &C, policy: IdlePolicy, stop: &AtomicBool) {
    let mut idle = Idle::new(policy, clock.now());
    let mut wake = WakeSet::new();
    let mut bed = Bed::default();
    loop {
        let now = clock.now();
        let progress = poller.step(now);
        if poller.is_empty() && stop.load(Ordering::Acquire) {
            // Tasks added before the stop are not lost.
            poller.step(clock.now());
            if poller.is_empty() {
                return;
            }
        }
        match idle.after(progress, now) {
            Rest::Spin => {}
            Rest::Pause => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
            Rest::Sleep => {
                poller.waker().announce_sleep();
                poller.arm(&mut wake);
                let ending = poller.is_empty() && stop.load(Ordering::Acquire);
                if !wake.is_ready() && !ending {
                    poller.count_sleep();
                    bed.sleep(&wake, clock.now());
                }
                poller.disarm();
            }
        }
    }
}
