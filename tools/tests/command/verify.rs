//! What --verify finds, and where.

use crate::strake::{Ended, Place};

fn verify(place: &Place, device: &str, rest: &str) -> Ended {
    place.strake(&format!("bench {device} --verify --iodepth=8 {rest}"))
}

const WRITES: [&str; 3] =
    ["--rw=write --size=1M", "--rw=randwrite --size=1M", "--rw=randrw --number_ios=600"];

#[test]
fn what_is_written_right_is_found_right() {
    let place = Place::new();
    place.file("disk", &vec![0; 1 << 20]);
    for device in ["mem:1M", "mem:1M?block=4k", "disk", "disk?engine=mmap", "trace:log@mem:1M"] {
        for rw in WRITES {
            let ended = verify(&place, device, &format!("{rw} --force"));
            assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{device} {rw}: {ended:?}");
            assert!(ended.out.contains("verif"), "{ended:?}");
        }
    }
    let jobs = verify(&place, "mem:1M", "--rw=randwrite --size=1M --numjobs=2 --bs=16k");
    assert_eq!(jobs.code, Some(0), "{jobs:?}");
}

#[test]
fn a_wrong_block_is_named_and_so_is_what_is_wrong_with_it() {
    let place = Place::new();
    for (fault, word) in [
        ("flip_at=77", "block 77 (byte 39424) data is damaged"),
        ("lost_at=77", "(byte 36864) holds zeros: a lost write"),
        ("misplace_at=77", "a misplaced write"),
        ("torn_at=77", "block 77 (byte 39424) holds zeros: a lost write"),
    ] {
        for rw in &WRITES[..2] {
            let ended = verify(&place, &format!("fault:?seed=4&{fault}@mem:1M"), rw);
            assert_eq!(ended.code, Some(1), "{fault} {rw}: {ended:?}");
            ended.says(&["strake: verification failed", "of 2048 blocks", "the first"]);
            assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
            // Where the misplaced write went, later writes may have covered it again; where it
            // belongs, the block says nothing of this run.
            let misplaced = fault.starts_with("misplace") && ended.err.contains("a lost write");
            if !misplaced {
                ended.says(&[word]);
            }
        }
    }
}

#[test]
fn an_error_while_writing_is_said_before_any_verification() {
    let place = Place::new();
    let ended = verify(&place, "fault:?medium_at=100@mem:1M", "--rw=write --size=1M");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["I/O failed", "medium error, first bad block 100"]);
}

#[test]
fn a_write_that_was_held_back_at_the_end_is_no_lost_write() {
    // A full channel held a write back; the run's time was up, it was dropped, and the read-back
    // expected it all the same: a false alarm on a healthy device.
    let place = Place::new();
    for seed in 0..6 {
        let device = format!("fault:?full=1&seed={seed}@mem:1M");
        let rest = format!("--rw=randwrite --rate_iops=200000 --runtime=0.0{}", 10 + seed);
        let ended = verify(&place, &device, &rest);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn errors_that_are_gone_past_do_not_keep_lost_writes_from_being_found() {
    let place = Place::new();
    let device = "fault:?seed=1&lost=0.2&error=0.01@mem:4M";
    let ended = verify(&place, device, "--rw=randwrite --size=4M --continue_on_error");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("a lost write"), "{ended:?}");
    // Without leave to go on, nothing is read back, and nothing is claimed.
    let ended = verify(&place, "fault:?seed=1&error=0.5@mem:1M", "--rw=write --size=1M");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(!ended.out.contains("all as written"), "{ended:?}");
}
