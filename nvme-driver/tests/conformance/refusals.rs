//! Each wrong request has its status, and none of them touches the device.

use strake_nvme_driver::block::{ClaimMode, Lba, Op, Request, Status, Token};
use strake_nvme_driver::memory::RegionId;
use strake_nvme_driver::poller::Epoch;

use crate::Check;
use crate::backends::Backend;
use crate::rig::{Rig, pattern};

pub const CHECKS: &[Check] = &[
    ("requests beyond the end are out of range", out_of_range),
    ("wrong lengths are invalid", lengths),
    ("misaligned memory is invalid where alignment matters, and works where not", alignment),
    ("memory that is not registered is bad memory", bad_memory),
    ("a read claim changes nothing", read_only),
];

fn out_of_range(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let (end, data) = (rig.limits.blocks, [rig.segment(0, 2)]);
    for lba in [end - 1, end, end + 1, u64::MAX - 1, u64::MAX, u64::MAX / 512] {
        let lba = Lba(lba);
        assert_eq!(rig.run(Request::read(lba, 2, Token(0)), &data), Status::OutOfRange);
        assert_eq!(rig.run(Request::write(lba, 2, Token(0)), &data), Status::OutOfRange);
        assert_eq!(rig.run(Request::write_zeroes(lba, 2, Token(0)), &[]), Status::OutOfRange);
        assert_eq!(rig.run(Request::deallocate(lba, 2, Token(0)), &[]), Status::OutOfRange);
    }
    assert_eq!(rig.run(Request::write_zeroes(Lba(0), u32::MAX, Token(0)), &[]), Status::OutOfRange);
    let counters = rig.channel.counters().snapshot();
    assert_eq!(counters.requests.iter().sum::<u64>(), 0, "none of them was sent");
    assert_eq!(counters.errors, 25);
}

fn lengths(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let (one, two) = (rig.segment(0, 1), rig.segment(8192, 2));
    let short = rig.region.segment(0, rig.block() - 1);
    let empty = rig.region.segment(0, 0);
    let wrong: [(u32, &[_]); 7] = [
        (0, &[]),
        (0, &[one]),
        (1, &[]),
        (1, &[two]),
        (2, &[one]),
        (1, &[short]),
        (1, &[one, empty]),
    ];
    for (blocks, data) in wrong {
        for op in [Op::Read, Op::Write] {
            let request = Request { op, ..Request::read(Lba(1), blocks, Token(0)) };
            assert_eq!(rig.run(request, data), Status::Invalid, "{blocks} blocks in {data:?}");
        }
    }
    let many = vec![one; usize::from(rig.limits.max_segments) + 1];
    let request = Request::read(Lba(0), many.len() as u32, Token(0));
    assert_eq!(rig.run(request, &many), Status::Invalid, "one segment too many");
    assert_eq!(rig.run(Request::write_zeroes(Lba(0), 0, Token(0)), &[]), Status::Invalid);
    assert_eq!(rig.run(Request::write_zeroes(Lba(0), 1, Token(0)), &[one]), Status::Invalid);
    let flush = Request { blocks: 1, ..Request::flush(Token(0)) };
    assert_eq!(rig.run(flush, &[]), Status::Invalid);
    assert_eq!(rig.run(Request::flush(Token(0)), &[one]), Status::Invalid);
}

fn alignment(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let expected = pattern(rig.block() as usize, 9);
    assert_eq!(rig.write(9, &expected), Status::Ok);
    let alignment = u64::from(rig.limits.segment_alignment_bytes);
    let odd = if alignment > 1 { alignment / 2 } else { 3 };
    let data = [rig.segment(4096 + odd, 1)];
    let status = rig.run(Request::read(Lba(9), 1, Token(0)), &data);
    if alignment > 1 {
        assert_eq!(status, Status::Invalid);
        let data = [rig.segment(4096 + alignment, 1)];
        assert_eq!(rig.run(Request::read(Lba(9), 1, Token(0)), &data), Status::Ok);
    } else {
        assert_eq!(status, Status::Ok);
        let mut bytes = vec![0; expected.len()];
        assert!(rig.region.read_at((4096 + odd) as usize, &mut bytes));
        assert!(bytes == expected || !backend.keeps_data);
    }
}

fn bad_memory(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let read = Request::read(Lba(0), 1, Token(0));
    let beyond = rig.segment(rig.region.len() as u64, 1);
    let nowhere =
        strake_nvme_driver::block::Segment { region: RegionId::NONE, ..rig.segment(0, 1) };
    for data in [[beyond], [nowhere]] {
        assert_eq!(rig.run(read, &data), Status::BadMemory);
    }
    // A region that came after the channel is known from the next epoch on, one that went is
    // forgotten then.
    let late = rig.memory.add_anonymous(64 << 10).unwrap();
    let early = rig.region.id();
    let (old, new) = ([rig.segment(0, 1)], [late.segment(0, rig.block())]);
    assert_eq!(rig.run(read, &new), Status::BadMemory);
    drop(rig.memory.retire(early).unwrap());
    assert_eq!(rig.run(read, &old), Status::Ok, "not turned yet");
    rig.channel.turn(Epoch(1));
    assert_eq!(rig.run(read, &new), Status::Ok);
    assert_eq!(rig.run(read, &old), Status::BadMemory, "a stale name");
}

fn read_only(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Read, 4);
    let data = [rig.segment(0, 1)];
    assert_eq!(rig.run(Request::read(Lba(0), 1, Token(0)), &data), Status::Ok);
    assert_eq!(rig.run(Request::write(Lba(0), 1, Token(0)), &data), Status::ReadOnly);
    assert_eq!(rig.run(Request::write_zeroes(Lba(0), 1, Token(0)), &[]), Status::ReadOnly);
    assert_eq!(rig.run(Request::deallocate(Lba(0), 1, Token(0)), &[]), Status::ReadOnly);
    assert_eq!(rig.run(Request::flush(Token(0)), &[]), Status::Ok, "nothing to make durable");
    assert!(!backend.device.limits().read_only, "the device itself takes writes");
}
