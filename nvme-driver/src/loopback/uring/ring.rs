//! The ring itself: set-up, the registered file and buffers, entries.
#![expect(unsafe_code, reason = "hands buffers to the kernel by address")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{Ordering, fence};

use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::block::RingWake;
use crate::memory::{Region, RegionId, RegionTable};

/// The channel's file, at this index of the ring's file table.
const FILE: types::Fixed = types::Fixed(0);

/// A registered buffer is at most this long (io_uring_register(2)).
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// A ring for one file.
pub(super) struct Ring {
    ring: IoUring,
    /// The region whose buffer each slot of the ring's buffer table holds.
    registered: Vec<RegionId>,
    /// Entries pushed and not shown to the kernel yet.
    pushed: usize,
    enabled: bool,
    /// Rung by the kernel when the first completion waits to be run, if the ring is armed: a ring
    /// with deferred completions does not wake whoever polls its own descriptor.
    bell: EventFd,
    /// The poller's own bell is watched in this ring.
    listening: bool,
}

/// User data of the completions that the poller's bell makes.
const POLLER_BELL: u64 = u64::MAX - 1;

/// One transfer: a piece of memory, or a list of pieces.
#[derive(Clone, Copy)]
pub(super) enum Memory {
    /// `len` bytes at `address`, inside `region`.
    One { region: RegionId, address: *mut u8, len: u32 },
    /// `count` pieces.
    Many { list: *const libc::iovec, count: u32 },
}

impl Ring {
    /// A ring with room for `entries` requests at once, for the file `fd`.
    pub(super) fn new(entries: u32, fd: RawFd) -> io::Result<Self> {
        // The kernel runs completions only when this thread asks for them (no interrupts between
        // polls), and says in shared memory when there are any. Disabled at first: the ring belongs
        // to the thread that enables it, which is the poller and not the one that opens it.
        let mut ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .setup_cqsize(entries * 2)
            .dontfork()
            .build(entries)
            .map_err(|e| explain(&e))?;
        ring.submitter().register_files(&[fd])?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        // Without it every transfer maps its buffer anew; slower and no more.
        let buffers = ring.submitter().register_buffers_sparse(RegionId::SLOTS as u32).is_ok();
        let registered = if buffers { vec![RegionId::NONE; RegionId::SLOTS] } else { Vec::new() };
        ring.completion().disable_eventfd();
        Ok(Self { ring, registered, pushed: 0, enabled: false, bell, listening: false })
    }

    /// Brings the ring's buffer table up to `table`. Makes system calls for what changed only.
    pub(super) fn register(&mut self, table: &RegionTable) {
        for slot in 0..self.registered.len() {
            let region = table.in_slot(slot);
            let id = region.map_or(RegionId::NONE, Region::id);
            if self.registered[slot] == id {
                continue;
            }
            let fits = region.filter(|r| r.len() <= REGISTERED_BYTES_MAX);
            let buffer = fits.map_or(EMPTY, |r| libc::iovec {
                iov_base: r.mapping().base().as_ptr().cast(),
                iov_len: r.len(),
            });
            // SAFETY: the range is mapped while `table` or one of its successors, which the
            // channel holds until the region's last request is done, keeps the region; the
            // kernel pins the pages, so even then no one else's memory is ever written.
            let done = unsafe {
                self.ring.submitter().register_buffers_update(slot as u32, &[buffer], None)
            };
            // Memory that cannot be pinned (a limit, a read-only mapping) is used unregistered.
            self.registered[slot] =
                if done.is_ok() && fits.is_some() { id } else { RegionId::NONE };
        }
    }

    /// Says what wakes a sleeper for completions from now on; nothing if there is work already.
    /// `poller_bell` completes something in this ring when other cores wake the poller.
    pub(super) fn arm(&mut self, poller_bell: Option<RawFd>) -> Option<RingWake> {
        if let Some(bell) = poller_bell.filter(|_| !self.listening) {
            let entry = opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).multi(true);
            self.listening = self.push(&entry.build().user_data(POLLER_BELL));
            self.enter();
            if !self.listening {
                // No place for the entry: whoever slept in the ring now would not hear the bell.
                return None;
            }
        }
        self.ring.completion().enable_eventfd();
        // The kernel flags the work and then looks whether the bell is wanted; here the other way
        // round. With a full fence on both sides one of the two sees the other.
        fence(Ordering::SeqCst);
        let wake = RingWake { ring: self.ring.as_raw_fd(), eventfd: self.bell.as_raw_fd() };
        (!self.has_work()).then_some(wake)
    }

    /// No bell needed: the poller looks by itself.
    pub(super) fn disarm(&mut self) {
        self.ring.completion().disable_eventfd();
    }

    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the memory that the entry names was checked against the region table and stays
        // mapped until its completion (`EpochMemory`); the list of pieces lies in the channel's
        // boxed slots, which it keeps until then.
        let pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.pushed += usize::from(pushed);
        pushed
    }

    pub(super) fn read(&mut self, memory: Memory, offset: u64, user: u64) -> bool {
        let entry = match memory {
            Memory::One { region, address, len } if self.is_registered(region) => {
                opcode::ReadFixed::new(FILE, address, len, region.slot() as u16)
                    .offset(offset)
                    .build()
            }
            Memory::One { address, len, .. } => {
                opcode::Read::new(FILE, address, len).offset(offset).build()
            }
            Memory::Many { list, count } => {
                opcode::Readv::new(FILE, list, count).offset(offset).build()
            }
        };
        self.push(&entry.user_data(user))
    }

    pub(super) fn write(&mut self, memory: Memory, offset: u64, fua: bool, user: u64) -> bool {
        let flags = if fua { libc::RWF_DSYNC } else { 0 };
        let entry = match memory {
            Memory::One { region, address, len } if self.is_registered(region) => {
                opcode::WriteFixed::new(FILE, address, len, region.slot() as u16)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Memory::One { address, len, .. } => {
                opcode::Write::new(FILE, address, len).offset(offset).rw_flags(flags).build()
            }
            Memory::Many { list, count } => {
                opcode::Writev::new(FILE, list, count).offset(offset).rw_flags(flags).build()
            }
        };
        self.push(&entry.user_data(user))
    }

    fn is_registered(&self, region: RegionId) -> bool {
        self.registered.get(region.slot()) == Some(&region)
    }

    pub(super) fn fdatasync(&mut self, user: u64) -> bool {
        let entry = opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build();
        self.push(&entry.user_data(user))
    }

    /// fallocate(2) with `mode`.
    pub(super) fn fallocate(&mut self, mode: i32, offset: u64, len: u64, user: u64) -> bool {
        let entry = opcode::Fallocate::new(FILE, len).offset(offset).mode(mode).build();
        self.push(&entry.user_data(user))
    }

    /// Discards blocks of a block node (block/ioctl.c: `blkdev_uring_cmd`, Linux 6.12 or newer).
    pub(super) fn discard(&mut self, offset: u64, len: u64, user: u64) -> bool {
        // include/uapi/linux/blkdev.h: BLOCK_URING_CMD_DISCARD = _IO(0x12, 0); the offset goes
        // into the entry's `addr`, the length into its `addr3`, where a command's bytes start.
        const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;
        let mut command = [0; 16];
        command[..8].copy_from_slice(&len.to_ne_bytes());
        let entry = opcode::UringCmd16::new(FILE, BLOCK_URING_CMD_DISCARD)
            .cmd(command)
            .addr(Some(offset))
            .build();
        self.push(&entry.user_data(user))
    }

    /// Asks for an early end of the request `target`.
    pub(super) fn cancel(&mut self, target: u64, user: u64) -> bool {
        self.push(&opcode::AsyncCancel::new(target).build().user_data(user))
    }

    /// Shows the kernel what was pushed, up to a limit, and lets it run completions: in one system
    /// call if there is anything to do and none if not. True if something is left to show.
    pub(super) fn enter(&mut self) -> bool {
        let (taskrun, overflow) = {
            let queue = self.ring.submission();
            (queue.taskrun(), queue.cq_overflow())
        };
        if self.pushed == 0 && !taskrun && !overflow {
            return false;
        }
        if !self.enabled {
            self.enabled = self.ring.submitter().register_enable_rings().is_ok();
        }
        let flags = if taskrun || overflow { EnterFlags::GETEVENTS } else { EnterFlags::empty() };
        let n = self.pushed.min(ENTRIES_MAX);
        // SAFETY: no argument goes with the call; the entries' memory is `push`'s matter.
        let taken = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(n as u32, 0, flags.bits(), None)
        };
        // EINTR, EAGAIN and EBUSY leave the entries where they are: the next poll tries again.
        self.pushed -= taken.unwrap_or(0).min(self.pushed);
        self.pushed > 0
    }

    /// Waits for at least one completion.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Ok(taken) => self.pushed -= taken.min(self.pushed),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The next completion of a request: user data and result.
    pub(super) fn next(&mut self) -> Option<(u64, i32)> {
        loop {
            let entry: cqueue::Entry = self.ring.completion().next()?;
            if entry.user_data() != POLLER_BELL {
                return Some((entry.user_data(), entry.result()));
            }
            self.listening = cqueue::more(entry.flags());
        }
    }

    /// True if entries wait for the next `enter`, or completions to be taken.
    fn has_work(&mut self) -> bool {
        self.pushed > 0 || self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }
}

impl Drop for Ring {
    /// The kernel takes a closed ring apart in its own time, and would hold the file with its lock
    /// until then: whoever claims it next would be refused.
    fn drop(&mut self) {
        // Fails on another thread than the poller's, where the claim is released a little later.
        let _ = self.ring.submitter().unregister_files();
    }
}

/// Entries shown to the kernel at a time. It hands them to the device when it has prepared them
/// all, so with fewer the device starts on the first while the next are prepared: on a virtual disk
/// at depth 32 that is worth 10 % and more (docs/performance.md).
const ENTRIES_MAX: usize = 8;

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn explain(error: &io::Error) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => "; is kernel.io_uring_disabled set?",
        Some(libc::EINVAL) => "; Linux 6.1 or newer is needed",
        Some(libc::ENOMEM) => "; raise the locked-memory limit (ulimit -l)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("io_uring: {error}{hint}"))
}
