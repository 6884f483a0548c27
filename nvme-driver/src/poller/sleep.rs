//! How a poller's thread sleeps: in its one ring, or in ppoll(2).
#![expect(unsafe_code, reason = "waits on descriptors that tasks lend by number")]

use std::os::fd::RawFd;

use crate::block::WakeSet;
use crate::time::Instant;

/// Where a thread sleeps; keeps its list of descriptors.
#[derive(Debug, Default)]
pub(super) struct Bed {
    fds: Vec<libc::pollfd>,
}

/// `struct io_uring_getevents_arg` (include/uapi/linux/io_uring.h).
#[repr(C)]
struct GetEvents {
    signals: u64,
    signals_bytes: u32,
    wait_least_micros: u32,
    timeout: u64,
}

const IORING_ENTER_GETEVENTS: libc::c_uint = 1;
const IORING_ENTER_EXT_ARG: libc::c_uint = 1 << 3;

impl Bed {
    /// Sleeps until something of `wake` happens. Returning early is harmless: the poller polls and
    /// sleeps again.
    pub(super) fn sleep(&mut self, wake: &WakeSet, now: Instant) {
        let timeout = wake.until().map(|until| timespec(until, now));
        match (wake.rings(), wake.fds()) {
            ([only], []) => sleep_in_ring(only.ring, timeout.as_ref()),
            _ => self.sleep_in_ppoll(wake, timeout.as_ref()),
        }
    }

    fn sleep_in_ppoll(&mut self, wake: &WakeSet, timeout: Option<&libc::timespec>) {
        let pollfd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.fds.clear();
        self.fds.extend(wake.rings().iter().map(|ring| pollfd(ring.eventfd)));
        self.fds.extend(wake.fds().iter().copied().chain(wake.bell()).map(pollfd));
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the timeout live through the call. A descriptor that was closed in
        // breach of `WakeSet::readable` makes the call return at once, and nothing worse.
        unsafe {
            libc::ppoll(
                self.fds.as_mut_ptr(),
                self.fds.len() as libc::nfds_t,
                timeout,
                std::ptr::null(),
            );
        }
        // The bells of rings are not read by anyone else.
        for pollfd in &self.fds[..wake.rings().len()] {
            if pollfd.revents != 0 {
                silence(pollfd.fd);
            }
        }
    }
}

/// Waits for one completion and runs it. The ring belongs to this thread.
fn sleep_in_ring(ring: RawFd, timeout: Option<&libc::timespec>) {
    let arg = GetEvents {
        signals: 0,
        signals_bytes: 0,
        wait_least_micros: 0,
        timeout: timeout.map_or(0, |t| std::ptr::from_ref(t) as u64),
    };
    // SAFETY: the argument and the timeout live through the call, which reads them and touches no
    // other memory of ours than the ring's own.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            0,
            1,
            IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
            std::ptr::from_ref(&arg),
            size_of::<GetEvents>(),
        );
    }
}

/// Reads an eventfd's counter back to zero.
fn silence(eventfd: RawFd) {
    let mut counter = 0u64;
    // SAFETY: eight bytes into a live u64, from a descriptor that does not block.
    unsafe { libc::read(eventfd, (&raw mut counter).cast(), size_of::<u64>()) };
}

fn timespec(until: Instant, now: Instant) -> libc::timespec {
    let nanos = until.nanos_since(now);
    // A year is as good as for ever, and fits every field.
    let nanos = nanos.min(365 * 86_400 * 1_000_000_000) as i64;
    libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 }
}
