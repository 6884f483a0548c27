//! The SIGBUS guard: one handler for every shared mapping.
//!
//! A file that shrinks, a full tmpfs or a guest that punches its memory turns an ordinary copy
//! into SIGBUS. The handler puts an anonymous zeroed page over the fault, marks the mapping bad
//! and returns, so the copy goes on; whoever started it asks [`Guard::fault`] afterwards and fails
//! the request. A fault outside every guarded range goes to the handler that was there before.
#![expect(unsafe_code, reason = "installs a signal handler and maps over faulting pages")]

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Mappings that can be guarded at once: guests' regions, files and tables.
const SLOTS: usize = 1024;
const PAGE: usize = 4096;
/// In [`Slot::fault`]: none so far.
const NO_FAULT: u64 = u64::MAX;

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    /// 0 = not guarding.
    end: AtomicUsize,
    fault: AtomicU64,
    /// Every page that failed lies below this offset.
    fault_end: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        fault: AtomicU64::new(NO_FAULT),
        fault_end: AtomicU64::new(0),
    }
}; SLOTS];

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Where a guarded mapping failed: its lowest page that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Offset of the page in the mapping, in bytes.
    pub offset: u64,
}

/// Guards a range of addresses until dropped.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
}

impl Guard {
    /// Guards `len` bytes from `start`, which must be mapped as long as the guard lives.
    ///
    /// # Errors
    /// More than 1,024 mappings, or the handler cannot be installed.
    pub fn new(start: usize, len: usize) -> io::Result<Self> {
        install()?;
        let slot =
            TABLE.iter().position(|s| !s.taken.swap(true, Ordering::AcqRel)).ok_or_else(|| {
                io::Error::other(format!("more than {SLOTS} shared mappings at once"))
            })?;
        let entry = &TABLE[slot];
        entry.fault.store(NO_FAULT, Ordering::Relaxed);
        entry.fault_end.store(0, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry.end.store(start + len, Ordering::Release);
        Ok(Self { slot })
    }

    /// Where the mapping first failed, if it did.
    #[inline]
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match TABLE[self.slot].fault.load(Ordering::Acquire) {
            NO_FAULT => None,
            offset => Some(Fault { offset }),
        }
    }

    /// The offsets that every page of zeros lies in, if there is one.
    pub(super) fn faulted(&self) -> Option<Range<u64>> {
        let fault = self.fault()?;
        Some(fault.offset..TABLE[self.slot].fault_end.load(Ordering::Acquire))
    }

    /// Forgets the faults: what is mapped is the file's again. Nobody may copy meanwhile.
    pub(super) fn forget(&self) {
        let entry = &TABLE[self.slot];
        entry.fault.store(NO_FAULT, Ordering::Release);
        entry.fault_end.store(0, Ordering::Release);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let entry = &TABLE[self.slot];
        entry.end.store(0, Ordering::Release);
        entry.taken.store(false, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            // SAFETY: a zeroed sigaction is a valid value of that plain C struct.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: both pointers are to live structs; the handler is async-signal-safe (atomics,
            // mmap, and sigaction and raise, all on that list in signal-safety(7) or plain calls).
            let previous = unsafe {
                let mut previous: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) != 0 {
                    return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
                }
                previous
            };
            let _ = PREVIOUS.set(previous);
            Ok(())
        })
        .map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for entry in &TABLE {
        let end = entry.end.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        if address < start || address >= end {
            continue;
        }
        let page = address & !(PAGE - 1);
        // SAFETY: the page lies in a range whose owner asked for exactly this and which stays
        // mapped while it is guarded; errno is restored below by not being touched on success.
        let mapped = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            break;
        }
        let offset = (page - start) as u64;
        entry.fault_end.fetch_max(offset + PAGE as u64, Ordering::AcqRel);
        entry.fault.fetch_min(offset, Ordering::AcqRel);
        return;
    }
    not_ours(signal, info, context);
}

/// Hands the signal to the handler that was there before, or restores the default and lets the
/// faulting instruction raise it again.
fn not_ours(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if let Some(previous) = PREVIOUS.get() {
        let handler = previous.sa_sigaction;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with SA_SIGINFO the field holds a function of this type.
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                call(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO the field holds a function of this type.
                let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                call(signal);
            }
            return;
        }
    }
    // SAFETY: plain calls with a valid struct, async-signal-safe.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
    }
}
