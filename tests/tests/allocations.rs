//! Nothing is allocated for an I/O once a channel is open: on no backend, and under no wrapper.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use strake_nvme_driver::block::{
    ClaimMode, Flags, Lba, OpenOptions, Request, Segment, Sink, Token, WakeSet,
};
use strake_nvme_driver::memory::{IovaAllocator, Memory};
use strake_nvme_driver::poller::PollerId;
use strake_nvme_driver::time::Instant;
use strake_tools::devices::Opened;

/// Counts what each thread asks of the system's allocator.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may free and allocate after its counter is gone; nobody reads that one.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: u16 = 64;

/// Keeps a channel full for `requests` requests of every kind, and sleeps now and then, as a poller
/// does. Returns how often this thread asked the allocator meanwhile.
fn asked_per_io(opened: &Opened, warm_up: u64, requests: u64) -> u64 {
    let device = Arc::clone(&opened.devices[0]);
    let claim = device.claim(ClaimMode::Write).expect("ours alone");
    let memory = Memory::new(IovaAllocator::for_39_bits());
    let region = memory.add_anonymous(1 << 20).expect("memory");
    let options = OpenOptions { poller: PollerId(0), depth: DEPTH, memory };
    let mut channel = device.open(&claim, &options).expect("a channel");
    let limits = device.limits();
    let block = limits.block_bytes;
    let mut sink = Sink::new(DEPTH.into());
    let mut wake = WakeSet::new();
    let (mut now, mut sent, mut done) = (Instant::ZERO, 0, 0);
    // So far that only what is a model's own comes before it.
    let deadline = |now: Instant| now.plus_nanos(1 << 40);
    let mut run = |until: u64| {
        let before = ASKED.get();
        while done < until {
            while sent < until && channel.room() > 0 {
                let (lba, token) = (Lba(sent * 7 % (limits.blocks - 8)), Token(sent));
                let at = |n: u64| region.segment((sent % 64 + n) * 8192, block);
                let (one, two): ([Segment; 1], [Segment; 2]) = ([at(0)], [at(1), at(2)]);
                let (request, data): (Request, &[Segment]) = match sent % 32 {
                    0 => (Request::flush(token), &[]),
                    1 => (Request::write_zeroes(lba, 2, token), &[]),
                    2 => (Request::deallocate(lba, 2, token), &[]),
                    3 => (Request { flags: Flags::FUA, ..Request::write(lba, 1, token) }, &one),
                    4 => (Request::read(Lba(u64::MAX), 1, token), &one),
                    5..12 => (Request::read(lba, 2, token), &two),
                    12..20 => (Request::write(lba, 2, token), &two),
                    20..26 => (Request::read(lba, 1, token), &one),
                    _ => (Request::write(lba, 1, token), &one),
                };
                let request = Request { deadline: Some(deadline(now)), ..request };
                channel.submit(&request, data).expect("there is room");
                if sent % 50 == 0 {
                    channel.cancel(token);
                }
                sent += 1;
            }
            sink.clear();
            now = now.plus_nanos(1_000);
            channel.poll(now, &mut sink);
            done += sink.len() as u64;
            if sink.is_empty() {
                wake.clear();
                channel.arm(&mut wake);
                channel.disarm();
                // A model's next event: nobody waits for it here.
                now = now.max(wake.until().filter(|at| *at < deadline(now)).unwrap_or(now));
                std::thread::yield_now();
            }
        }
        ASKED.get() - before
    };
    run(warm_up);
    run(warm_up + requests)
}

fn check(name: &str, requests: u64) {
    let Ok(opened) = Opened::open(&[name.to_owned()]) else { panic!("{name} cannot be opened") };
    let asked = asked_per_io(&opened, requests / 4, requests);
    assert_eq!(asked, 0, "{name}: the allocator was asked during {requests} requests");
}

/// A file, removed when dropped.
fn file(folder: &Path) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(folder).expect("a temporary file");
    fs::write(file.path(), vec![0; 4 << 20]).expect("room for it");
    file
}

fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn the_counter_counts() {
    let before = ASKED.get();
    drop(Box::new(1_u8));
    assert_eq!(ASKED.get() - before, 2);
}

#[test]
fn nothing_is_allocated_for_an_io_on_null_and_memory() {
    check("null:64M", 50_000);
    check("mem:4M", 50_000);
}

#[test]
fn nothing_is_allocated_for_an_io_on_files() {
    for options in ["?engine=uring", "?engine=uring&direct=0", "?engine=mmap"] {
        let on_disk = file(disk());
        check(&format!("file:{}{options}", on_disk.path().display()), 1_000);
        let on_tmpfs = file(Path::new("/dev/shm"));
        check(&format!("file:{}{options}", on_tmpfs.path().display()), 10_000);
    }
}

#[test]
fn nothing_is_allocated_for_an_io_under_wrappers() {
    let log = tempfile::NamedTempFile::new_in(disk()).expect("a temporary file");
    let trace = format!("trace:{}", log.path().display());
    let faults = "fault:?seed=3&error=0.05&medium=0.05&torn=0.05&lost=0.05&misplace=0.05&flip=0.1\
                  &delay=0.2&delay_us=50&full=0.1&reorder=0.1";
    for inner in ["null:64M", "mem:4M"] {
        check(&format!("{trace}@{inner}"), 20_000);
        check(&format!("{faults}@{inner}"), 20_000);
        check(&format!("model:p5520?size=4M@{inner}"), 20_000);
        check(&format!("model:hdd-180?size=4M@{inner}"), 20_000);
        check(&format!("{trace}@{faults}@model:p5520?size=4M@{inner}"), 20_000);
    }
}
