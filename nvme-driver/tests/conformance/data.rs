//! What was written is read, and zeros are zeros.

use strake_nvme_driver::block::{ClaimMode, Flags, Lba, Op, Request, Segment, Status, Token};

use crate::Check;
use crate::backends::Backend;
use crate::rig::{Rig, pattern};

pub const CHECKS: &[Check] = &[
    ("what is written is read back, in one, two and many odd segments", segments),
    ("the last block is written and read", last_block),
    ("FUA writes and flushes are done", durable),
    ("a write is seen by another channel", other_channel),
    ("zeroes are zeros, and nothing else is", zeroes),
    ("deallocated blocks read as promised", deallocate),
];

/// Cuts `blocks` blocks of memory into `lens` (in blocks), with gaps between the pieces.
fn cut(rig: &Rig, lens: &[u32]) -> Vec<Segment> {
    let gap = u64::from(rig.limits.segment_alignment_bytes);
    let mut at = gap;
    let mut piece = |blocks: &u32| {
        let segment = rig.segment(at, *blocks);
        at += u64::from(segment.len) + gap;
        segment
    };
    lens.iter().map(&mut piece).collect()
}

fn scatter(rig: &Rig, segments: &[Segment], bytes: &[u8]) {
    let mut at = 0;
    for segment in segments {
        let len = segment.len as usize;
        assert!(rig.region.write_at(segment.offset as usize, &bytes[at..at + len]));
        at += len;
    }
}

fn gather(rig: &Rig, segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        let mut piece = vec![0; segment.len as usize];
        assert!(rig.region.read_at(segment.offset as usize, &mut piece));
        bytes.extend(piece);
    }
    bytes
}

fn segments(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 8);
    let many: Vec<u32> = (0..rig.limits.max_segments.into()).map(|i| 1 + i % 3).collect();
    let shapes: [&[u32]; 5] = [&[1], &[7], &[3, 2], &[1, 1, 4, 1, 2], &many];
    for (seed, write_shape) in shapes.into_iter().enumerate() {
        let blocks: u32 = write_shape.iter().sum();
        let expected = pattern((blocks * rig.block()) as usize, seed as u64 + 1);
        let lba = Lba(13 + seed as u64 * 11);
        let from = cut(&rig, write_shape);
        scatter(&rig, &from, &expected);
        assert_eq!(rig.run(Request::write(lba, blocks, Token(0)), &from), Status::Ok);
        // Read back in other pieces than it was written in.
        let mut turned = write_shape.to_vec();
        turned.reverse();
        for read_shape in [turned, vec![blocks]] {
            let to = cut(&rig, &read_shape);
            scatter(&rig, &to, &vec![0; expected.len()]);
            assert_eq!(rig.run(Request::read(lba, blocks, Token(0)), &to), Status::Ok);
            let same = gather(&rig, &to) == expected;
            assert!(same || !backend.keeps_data, "{write_shape:?} read as {read_shape:?}");
        }
    }
}

fn last_block(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let bytes = pattern(2 * rig.block() as usize, 3);
    let lba = rig.limits.blocks - 2;
    assert_eq!(rig.write(lba, &bytes), Status::Ok);
    let read = rig.read(lba, 2).unwrap();
    assert!(read == bytes || !backend.keeps_data);
    let last = rig.read(lba + 1, 1).unwrap();
    assert!(last == bytes[rig.block() as usize..] || !backend.keeps_data);
}

fn durable(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let bytes = pattern(rig.block() as usize, 4);
    assert!(rig.region.write_at(0, &bytes));
    let data = [rig.segment(0, 1)];
    let write = Request { flags: Flags::FUA, ..Request::write(Lba(5), 1, Token(0)) };
    assert_eq!(rig.run(write, &data), Status::Ok);
    assert_eq!(rig.run(Request::flush(Token(0)), &[]), Status::Ok);
    let zeroes = Request { flags: Flags::FUA, ..Request::write_zeroes(Lba(6), 1, Token(0)) };
    assert_eq!(rig.run(zeroes, &[]), Status::Ok);
    if backend.keeps_data {
        assert_eq!(rig.read(5, 1), Ok(bytes));
        assert_eq!(rig.read(6, 1), Ok(vec![0; rig.block() as usize]));
    }
    let read_only = Request { flags: Flags::FUA, ..Request::read(Lba(5), 1, Token(0)) };
    assert_eq!(rig.run(read_only, &data), Status::Ok, "FUA on a read asks for nothing more");
}

fn other_channel(backend: &Backend) {
    let mut writer = Rig::new(&backend.device, ClaimMode::Write, 4);
    let mut reader = Rig::new(&backend.device, ClaimMode::Read, 4);
    let bytes = pattern(3 * writer.block() as usize, 5);
    assert_eq!(writer.write(21, &bytes), Status::Ok);
    assert!(reader.read(21, 3).unwrap() == bytes || !backend.keeps_data);
}

fn zeroes(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let block = rig.block() as usize;
    assert!(rig.limits.write_zeroes, "every one of these can");
    for (seed, may_deallocate) in [(6, false), (7, true)] {
        let bytes = pattern(40 * block, seed);
        assert_eq!(rig.write(100, &bytes), Status::Ok);
        let op = Op::WriteZeroes { may_deallocate };
        let zeroes = Request { op, ..Request::write_zeroes(Lba(103), 33, Token(0)) };
        assert_eq!(rig.run(zeroes, &[]), Status::Ok, "may_deallocate: {may_deallocate}");
        let read = rig.read(100, 40).unwrap();
        if backend.keeps_data {
            assert!(read[..3 * block] == bytes[..3 * block], "what lies before is untouched");
            assert!(read[3 * block..36 * block].iter().all(|b| *b == 0), "zeros are zeros");
            assert!(read[36 * block..] == bytes[36 * block..], "what lies behind is untouched");
        }
    }
}

fn deallocate(backend: &Backend) {
    let mut rig = Rig::new(&backend.device, ClaimMode::Write, 4);
    let block = rig.block() as usize;
    let bytes = pattern(48 * block, 8);
    assert_eq!(rig.write(64, &bytes), Status::Ok);
    let status = rig.run(Request::deallocate(Lba(72), 32, Token(0)), &[]);
    let Some(how) = rig.limits.deallocate else {
        assert_eq!(status, Status::Unsupported);
        return;
    };
    assert_eq!(status, Status::Ok);
    let read = rig.read(64, 48).unwrap();
    if backend.keeps_data {
        assert!(read[..8 * block] == bytes[..8 * block], "what lies before is untouched");
        assert!(read[40 * block..] == bytes[40 * block..], "what lies behind is untouched");
        let zeros = read[8 * block..40 * block].iter().all(|b| *b == 0);
        assert!(zeros || !how.reads_zero, "it promised zeros");
    }
}
