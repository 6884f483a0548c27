//! Room, order, cancels, deadlines, epochs, sleeping, counters, and the end of a channel.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant as Moment;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use strake_nvme_driver::block::{
    Channel, ClaimMode, Flags, Full, Lba, Op, OpenOptions, Progress, Request, Sink, Status, Token,
    WakeSet,
};
use strake_nvme_driver::poller::{Epoch, PollerId};
use strake_nvme_driver::time::Instant;

use crate::Check;
use crate::backends::Backend;
use crate::rig::{Rig, pattern, wait_until_free};

pub const CHECKS: &[Check] = &[
    ("a queue holds its depth and not one more", full),
    ("a sink with little room takes little", small_sink),
    ("every request completes once, whatever is cancelled or late", mix),
    ("an epoch is outstanding until its last request is done", epochs),
    ("an epoch is outstanding until its last FUA write is durable", epochs_of_fua),
    ("a sleeper is woken, and an idle channel wakes nobody", sleep),
    ("counters add up", counters),
    ("a channel ends with requests outstanding", drop_outstanding),
    ("a channel ends on another thread with requests outstanding", drop_elsewhere),
    ("two channels on two threads", two_threads),
];

const DEPTH: u16 = 8;

fn full(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let data = [rig.segment(0, 1)];
    for round in 0..3 {
        for n in 0..DEPTH {
            assert_eq!(rig.channel.room(), usize::from(DEPTH - n), "round {round}");
            // Refused requests, flushes and data take one place each.
            let token = rig.token();
            match n % 4 {
                0 => rig.submit(&Request::read(Lba(u64::MAX), 1, token), &data),
                1 => rig.submit(&Request::flush(token), &[]),
                2 => rig.submit(&Request::write(Lba(n.into()), 1, token), &data),
                _ => rig.submit(&Request::write_zeroes(Lba(n.into()), 1, token), &[]),
            }
        }
        assert_eq!(rig.channel.room(), 0);
        let more = Request::read(Lba(0), 1, Token(0));
        assert_eq!(rig.channel.submit(&more, &data), Err(Full));
        let late = Request::read(Lba(u64::MAX), 1, Token(0));
        assert_eq!(rig.channel.submit(&late, &data), Err(Full), "full comes before wrong");
        let done = rig.wait(DEPTH.into());
        let tokens: HashSet<u64> = done.iter().map(|c| c.token.0).collect();
        assert_eq!(tokens.len(), usize::from(DEPTH), "each once, and not the refused ones");
        assert_eq!(rig.channel.room(), usize::from(DEPTH));
    }
}

fn small_sink(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let data = [rig.segment(0, 1)];
    for n in 0..DEPTH {
        let token = rig.token();
        let lba = if n % 3 == 0 { u64::MAX } else { n.into() };
        let flags = if n % 3 == 1 { Flags::FUA } else { Flags::empty() };
        rig.submit(&Request { flags, ..Request::write(Lba(lba), 1, token) }, &data);
    }
    let (mut none, mut one) = (Sink::new(0), Sink::new(1));
    let mut done = HashSet::new();
    while done.len() < usize::from(DEPTH) {
        rig.poll(&mut none);
        let room = rig.channel.room();
        one.clear();
        rig.poll(&mut one);
        assert_eq!(rig.channel.room(), room + one.len(), "room is what completed");
        for completion in one.as_slice() {
            assert!(done.insert(completion.token));
        }
    }
}

/// A small generator, so that a failure replays.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

fn mix(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 32);
    let mut state = 11;
    let mut outstanding = HashSet::new();
    let mut sink = Sink::new(7);
    let (mut sent, mut completed) = (0, 0);
    let start = Moment::now();
    while completed < 3000 {
        assert!(start.elapsed().as_secs() < 60, "{completed} of {sent} after a minute");
        while sent < 3000 && rig.channel.room() > 0 && draw(&mut state, 8) > 0 {
            let token = rig.token();
            let blocks = 1 + draw(&mut state, 4) as u32;
            let lba = Lba(draw(&mut state, rig.limits.blocks + 2));
            let mut request = match draw(&mut state, 10) {
                0 => Request::flush(token),
                1 => Request::write_zeroes(lba, blocks, token),
                2 => Request::deallocate(lba, blocks, token),
                3..6 => Request::read(lba, blocks, token),
                _ => Request::write(lba, blocks, token),
            };
            if draw(&mut state, 4) == 0 {
                request.flags = Flags::FUA;
            }
            if draw(&mut state, 3) == 0 {
                request.deadline = Some(Instant::from_nanos(draw(&mut state, 1 << 20)));
            }
            let data = [rig.segment(u64::from(blocks) * 8192, blocks)];
            let data = if request.op.has_data() { &data[..] } else { &[] };
            rig.submit(&request, data);
            assert!(outstanding.insert(token));
            sent += 1;
        }
        if draw(&mut state, 2) == 0 {
            // Sometimes one that is outstanding, sometimes one that is not (any more).
            rig.channel.cancel(Token(draw(&mut state, sent + 10)));
        }
        sink.clear();
        rig.poll(&mut sink);
        for completion in sink.as_slice() {
            assert!(outstanding.remove(&completion.token), "{completion:?} was not outstanding");
            let known = matches!(
                completion.status,
                Status::Ok
                    | Status::OutOfRange
                    | Status::Cancelled
                    | Status::TimedOut
                    | Status::Unsupported
            );
            assert!(known, "{completion:?}");
            completed += 1;
        }
    }
    assert_eq!(rig.channel.room(), 32);
    assert_eq!(rig.channel.oldest(), None);
}

fn epochs(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let data = [rig.segment(0, 1)];
    assert_eq!(rig.channel.oldest(), None);
    rig.submit(&Request::read(Lba(0), 1, Token(1)), &data);
    rig.submit(&Request::read(Lba(u64::MAX), 1, Token(2)), &data);
    assert_eq!(rig.channel.oldest(), Some(Epoch(0)));
    rig.channel.turn(Epoch(1));
    rig.submit(&Request::flush(Token(3)), &[]);
    let mut done = HashSet::new();
    let mut sink = Sink::new(1);
    while done.len() < 3 {
        let expected = if done.contains(&1) && done.contains(&2) { 1 } else { 0 };
        assert_eq!(rig.channel.oldest(), Some(Epoch(expected)), "after {done:?}");
        sink.clear();
        rig.poll(&mut sink);
        done.extend(sink.as_slice().iter().map(|c| c.token.0));
    }
    assert_eq!(rig.channel.oldest(), None);
    rig.channel.turn(Epoch(2));
    rig.submit(&Request::read(Lba(0), 1, Token(4)), &data);
    assert_eq!(rig.channel.oldest(), Some(Epoch(2)));
    rig.wait(1);
}

/// The mapped file made a flush of the FUA write after its copy, and booked it under the epoch of
/// that moment: the older epoch was acknowledged with its write not durable yet.
fn epochs_of_fua(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let data = [rig.segment(0, 1)];
    let write = Request { flags: Flags::FUA, ..Request::write(Lba(7), 1, Token(1)) };
    rig.submit(&write, &data);
    rig.channel.turn(Epoch(1));
    let mut sink = Sink::new(1);
    while sink.is_empty() {
        assert_eq!(rig.channel.oldest(), Some(Epoch(0)));
        rig.poll(&mut sink);
    }
    assert_eq!(sink.as_slice()[0].status, Status::Ok);
    assert_eq!(rig.channel.oldest(), None);
    let sent = rig.channel.counters().snapshot().requests;
    assert_eq!(sent[Op::Write.index()], 1);
    assert_eq!(sent[Op::Flush.index()], 0, "nobody asked for a flush");
}

fn sleep(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let data = [rig.segment(0, 1)];
    let mut wake = WakeSet::new();
    rig.channel.arm(&mut wake);
    let nothing = wake.fds().is_empty() && wake.rings().is_empty() && wake.until().is_none();
    assert!(!wake.is_ready() && nothing, "{wake:?}");
    rig.channel.disarm();
    for round in 0..50 {
        let token = rig.token();
        match round % 4 {
            0 => rig.submit(&Request::flush(token), &[]),
            1 => rig.submit(&Request::read(Lba(round), 1, token), &data),
            2 => rig.submit(&Request::write_zeroes(Lba(round), 1, token), &[]),
            _ => {
                let write = Request::write(Lba(round), 1, token);
                rig.submit(&Request { flags: Flags::FUA, ..write }, &data);
            }
        }
        let mut sink = Sink::new(DEPTH.into());
        loop {
            rig.poll(&mut sink);
            if !sink.is_empty() {
                break;
            }
            wake.clear();
            rig.channel.arm(&mut wake);
            if !wake.is_ready() {
                let waker = !wake.fds().is_empty() || !wake.rings().is_empty();
                assert!(waker, "outstanding, and nothing would wake the poller");
                wait_readable(&wake);
            }
            rig.channel.disarm();
        }
        assert_eq!(sink.as_slice()[0].status, Status::Ok, "round {round}");
    }
}

/// Sleeps as a poller does; fails if nothing comes.
#[expect(unsafe_code, reason = "a poller sleeps on descriptors that a channel lends it")]
fn wait_readable(wake: &WakeSet) {
    let bells = wake.rings().iter().map(|ring| ring.eventfd);
    let fds = wake.fds().iter().copied().chain(bells.clone()).map(|fd| {
        // SAFETY: the channel keeps it open until `disarm`.
        PollFd::new(unsafe { BorrowedFd::borrow_raw(fd) }, PollFlags::POLLIN)
    });
    let mut fds: Vec<PollFd> = fds.collect();
    let ready = poll(&mut fds, PollTimeout::try_from(20_000).expect("20 s")).expect("poll");
    assert!(ready > 0, "the sleeper was never woken");
    for bell in bells {
        // SAFETY: as above. The sleeper silences it, as nobody else does.
        let bell = unsafe { BorrowedFd::borrow_raw(bell) };
        let _ = nix::unistd::read(bell, &mut [0; 8]);
    }
}

fn counters(backend: &Backend) {
    let before = backend.device.counters();
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, DEPTH);
    let block = u64::from(rig.block());
    let data = [rig.segment(0, 3)];
    for _ in 0..5 {
        assert_eq!(rig.run(Request::write(Lba(1), 3, Token(0)), &data), Status::Ok);
    }
    assert_eq!(rig.run(Request::read(Lba(1), 3, Token(0)), &data), Status::Ok);
    assert_eq!(rig.run(Request::flush(Token(0)), &[]), Status::Ok);
    assert_eq!(rig.run(Request::write_zeroes(Lba(0), 9, Token(0)), &[]), Status::Ok);
    assert_eq!(rig.run(Request::read(Lba(0), 1, Token(0)), &data), Status::Invalid);
    let counted = rig.channel.counters().snapshot();
    assert_eq!(counted.requests, [1, 5, 1, 1, 0]);
    assert_eq!(counted.bytes, [3 * block, 15 * block, 0, 9 * block, 0]);
    assert_eq!(counted.errors, 1);
    assert_eq!(backend.device.counters() - before, counted, "the device adds its channels up");
    drop(rig);
    assert_eq!(backend.device.counters() - before, counted, "and forgets none that is gone");
}

/// Fills the queue with reads and writes of all the memory there is.
fn load(rig: &mut Rig) {
    let blocks = (64 << 10) / rig.block();
    while rig.channel.room() > 0 {
        let token = rig.token();
        let data = [rig.segment(token.0 % 8 * (64 << 10), blocks)];
        let lba = Lba(token.0 * u64::from(blocks) % (rig.limits.blocks - u64::from(blocks)));
        if token.0.is_multiple_of(2) {
            rig.submit(&Request::write(lba, blocks, token), &data);
        } else {
            rig.submit(&Request::read(lba, blocks, token), &data);
        }
    }
}

fn drop_outstanding(backend: &Backend) {
    for polls in 0..3 {
        let mut rig = Rig::new(&backend.device, ClaimMode::Write, 16);
        load(&mut rig);
        let mut none = Sink::new(0);
        for _ in 0..polls {
            rig.poll(&mut none);
        }
        let region = Arc::downgrade(&rig.region);
        let Rig { channel, claim, memory, region: held, .. } = rig;
        drop(channel);
        // Now nobody below touches it: what is left is ours, and the device is free again.
        assert!(held.write_at(0, &[0x5a; 4096]));
        drop((held, memory));
        assert!(region.upgrade().is_none(), "the memory is given back");
        drop(claim);
        wait_until_free(backend.device.as_ref());
    }
}

/// Only the thread that entered a ring can wait for it. A channel that is dropped elsewhere unmapped
/// its memory with the kernel still writing to it; it must keep it instead.
fn drop_elsewhere(backend: &Backend) {
    for polls in 0..2 {
        let mut rig = Rig::new(&backend.device, ClaimMode::Write, 16);
        load(&mut rig);
        let mut none = Sink::new(0);
        for _ in 0..polls {
            rig.poll(&mut none);
        }
        let region = Arc::downgrade(&rig.region);
        let Rig { channel, claim, memory, region: held, .. } = rig;
        std::thread::spawn(move || drop(channel)).join().expect("no panic, no hang");
        drop((held, memory, claim));
        // Either everything was waited for, or the region stays mapped for good.
        if let Some(region) = region.upgrade() {
            assert!(region.write_at(0, &[1; 4096]));
        }
        // The kernel may hold the file until the ring is taken apart, and no longer.
        wait_until_free(backend.device.as_ref());
    }
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 16);
    let bytes = pattern(rig.block() as usize, 77);
    assert_eq!(rig.write(0, &bytes), Status::Ok, "the device goes on");
}

fn two_threads(backend: &Backend) {
    let rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let open = |poller| {
        let options =
            OpenOptions { poller: PollerId(poller), depth: 16, memory: Arc::clone(&rig.memory) };
        backend.device.open(&rig.claim, &options).expect("a channel each")
    };
    let (limits, region) = (&rig.limits, &rig.region);
    let work = |mut channel: Box<dyn Channel>, half: u64| {
        let block = limits.block_bytes;
        let mut sink = Sink::new(16);
        let place = |n: u64| Lba(n * 2 + half);
        let offset = |n: u64| (n % 16 + half * 16) * u64::from(block.max(4096));
        for op in [Op::Write, Op::Read] {
            let (mut sent, mut done) = (0, 0);
            while done < 512 {
                // One batch at a time: a buffer is not used again before it is given back.
                while sent < 512 && (sent % 16 > 0 || done == sent) {
                    let bytes = pattern(block as usize, place(sent).0 + 1);
                    if op == Op::Write {
                        assert!(region.write_at(offset(sent) as usize, &bytes));
                    }
                    let request = Request { op, ..Request::read(place(sent), 1, Token(sent)) };
                    let data = [region.segment(offset(sent), block)];
                    channel.submit(&request, &data).expect("16 fit");
                    sent += 1;
                }
                sink.clear();
                let progress = channel.poll(Instant::ZERO, &mut sink);
                assert!(sink.is_empty() || progress == Progress::Worked);
                for completion in sink.as_slice() {
                    assert_eq!(completion.status, Status::Ok);
                    let n = completion.token.0;
                    let mut bytes = vec![0; block as usize];
                    assert!(region.read_at(offset(n) as usize, &mut bytes));
                    let same = bytes == pattern(block as usize, place(n).0 + 1);
                    assert!(same || op == Op::Write || !backend.keeps_data, "{:?}", place(n));
                    done += 1;
                }
                if sink.is_empty() {
                    std::thread::yield_now();
                }
            }
        }
    };
    let (left, right) = (open(1), open(2));
    std::thread::scope(|scope| {
        scope.spawn(|| work(left, 0));
        scope.spawn(|| work(right, 1));
    });
    let counted = backend.device.counters();
    assert_eq!(counted.requests[..2], [1024, 1024], "two threads lose no count");
}
