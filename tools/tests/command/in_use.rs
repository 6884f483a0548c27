//! Devices that hold something, or that somebody else has.

use std::fs;

use crate::strake::{Place, end, signal, until};

const MIB: usize = 1 << 20;

/// ext4's superblock, as far as anybody looks at it.
fn ext4() -> Vec<u8> {
    let mut image = vec![0; 4 * MIB];
    let words = [(0, 1024), (4, 4096), (24, 2), (32, 32_768), (76, 1), (92, 4), (96, 0x40)];
    for (at, word) in words {
        image[1024 + at..][..4].copy_from_slice(&u32::to_le_bytes(word));
    }
    image[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
    image
}

/// One partition of Linux's type.
fn mbr() -> Vec<u8> {
    let mut image = vec![0; 4 * MIB];
    image[446 + 4] = 0x83;
    image[446 + 8..][..4].copy_from_slice(&u32::to_le_bytes(2048));
    image[446 + 12..][..4].copy_from_slice(&u32::to_le_bytes(4096));
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image
}

/// A member of an array, superblock version 1.2.
fn md() -> Vec<u8> {
    let mut image = vec![0; 4 * MIB];
    image[4096..][..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    image[4096 + 144..][..8].copy_from_slice(&u64::to_le_bytes(8));
    image
}

#[test]
fn what_holds_something_is_not_written_to_without_force() {
    let place = Place::new();
    for (name, image, offset) in
        [("ext4", ext4(), "1080"), ("MBR", mbr(), "510"), ("md", md(), "4096")]
    {
        let path = place.file("disk", &image);
        for device in ["disk", "disk?engine=mmap", "trace:@disk", "fault:?seed=1@disk"] {
            for rw in ["write", "randrw", "trim"] {
                let ended = place.strake(&format!("bench {device} --rw={rw} --number_ios=10"));
                ended.refused(1, &["disk", name, offset, "--force"]);
            }
        }
        assert!(fs::read(&path).unwrap() == image, "{name} is untouched");
        let reads = place.strake("bench disk --number_ios=10");
        assert_eq!(reads.code, Some(0), "reads harm nobody: {reads:?}");
        let forced = place.strake("bench disk --rw=write --number_ios=10 --force");
        assert_eq!(forced.code, Some(0), "{forced:?}");
        assert!(fs::read(&path).unwrap() != image);
    }
    assert_eq!(place.names(), ["disk"]);
}

#[test]
fn a_device_that_another_strake_writes_to_is_refused_and_can_be_read() {
    let place = Place::new();
    place.file("disk", &vec![0; 4 * MIB]);
    let writer = place.start("bench trace:log@disk --rw=randwrite --runtime=60");
    let log = place.path().join("log");
    until("the writer writes", || fs::metadata(&log).is_ok_and(|m| m.len() > 0));
    let second = place.strake("bench disk --rw=write --number_ios=1 --force");
    second.refused(1, &["disk", "claimed", "fuser"]);
    let reader = place.strake("bench disk --number_ios=10");
    assert_eq!(reader.code, Some(0), "{reader:?}");
    signal(&writer, "INT");
    assert_eq!(end(writer).code, Some(130));
    let after = place.strake("bench disk --rw=write --number_ios=1 --force");
    assert_eq!(after.code, Some(0), "nothing is left of the claim: {after:?}");
}

#[test]
fn one_device_named_twice_is_refused() {
    let place = Place::new();
    place.file("disk", &vec![0; 4 * MIB]);
    place.strake("bench disk disk --rw=write --number_ios=1").refused(1, &["disk", "claimed"]);
    let reads = place.strake("bench disk disk --number_ios=10");
    assert_eq!(reads.code, Some(0), "{reads:?}");
}
