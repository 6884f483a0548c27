//! What stands below a device goes away under it: an error that says where, and never a death.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use strake_nvme_driver::block::{ClaimMode, Device, Flags, Lba, Op, Request, Status, Token};

use crate::backends::{self, Mount};
use crate::rig::{Rig, pattern};

/// A file device of `blocks` blocks of 4 KiB, filled.
fn filled(path: &Path, options: &str) -> Rig {
    let device: Arc<dyn Device> = Arc::new(backends::open(path, options));
    let mut rig = Rig::new(&device, ClaimMode::Write, 16);
    for lba in (0..rig.limits.blocks).step_by(16) {
        let bytes = pattern(16 * rig.block() as usize, lba + 1);
        assert_eq!(rig.write(lba, &bytes), Status::Ok);
    }
    rig
}

/// Every status says where, within the request; what is left of the file is still read.
fn check_shrunk(engine: &str, cut_bytes: u64, first_bad: u64) {
    let file = backends::file_of(&backends::disk(), 1 << 20);
    let mut rig = filled(file.path(), &format!("{engine}&block=4096"));
    file.as_file().set_len(cut_bytes).unwrap();
    let at = |lba| Err(Status::Medium { first_bad: Lba(lba) });
    assert_eq!(rig.read(first_bad - 4, 8), at(first_bad), "{engine}: across the new end");
    assert_eq!(rig.read(first_bad, 2), at(first_bad), "{engine}: from the new end on");
    assert_eq!(rig.read(200, 2), at(200), "{engine}: far beyond it");
    let whole = pattern(16 * 4096, 1);
    assert!(rig.read(0, 16) == Ok(whole), "{engine}: before it all is well");
    assert_eq!(rig.read(200, 2), at(200), "{engine}: and it stays an error");
}

#[test]
fn a_file_that_shrinks_is_a_medium_error_through_io_uring() {
    check_shrunk("?engine=uring", 100 * 4096, 100);
    check_shrunk("?engine=uring&direct=0", 100 * 4096, 100);
}

/// O_DIRECT reads up to the odd end, and refuses to go on from there with EINVAL.
#[test]
fn a_file_that_shrinks_to_an_odd_size_is_a_medium_error_through_io_uring() {
    check_shrunk("?engine=uring", 100 * 4096 + 100, 100);
    check_shrunk("?engine=uring&direct=0", 100 * 4096 + 100, 100);
}

/// The guard's page of zeros stands for good, and once every later request failed for it, with a
/// first bad block that was not even in the request.
#[test]
fn a_file_that_shrinks_is_a_medium_error_through_a_mapping() {
    check_shrunk("?engine=mmap", 100 * 4096, 100);
}

#[test]
fn writes_to_a_mapped_file_that_shrank_fail_too() {
    let file = backends::file_of(&backends::tmpfs(), 1 << 20);
    let mut rig = filled(file.path(), "?engine=mmap&block=4096");
    file.as_file().set_len(8 * 4096).unwrap();
    let bytes = pattern(4 * 4096, 5);
    let first_bad = Lba(8);
    assert_eq!(rig.write(6, &bytes), Status::Medium { first_bad });
    let fua = Request { flags: Flags::FUA, ..Request::write(Lba(6), 4, Token(0)) };
    let data = [rig.segment(0, 4)];
    assert_eq!(rig.run(fua, &data), Status::Medium { first_bad });
    // It grows again: what is read is the file's, and no page that stood in for it.
    file.as_file().set_len(1 << 20).unwrap();
    assert_eq!(rig.read(8, 1), Ok(vec![0; 4096]));
    assert_eq!(rig.write(8, &bytes), Status::Ok);
    let mut stored = vec![0; bytes.len()];
    file.as_file().read_exact_at(&mut stored, 8 * 4096).unwrap();
    assert!(stored == bytes, "writes reach the file again");
}

/// A sparse file of 8 MiB on a file system of 1 MiB.
fn fill_up(options: &str) {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"]) else { return };
    let path = mount.folder.path().join("sparse");
    let device: Arc<dyn Device> =
        Arc::new(backends::open(&path, &format!("{options}&block=4096&size=8m")));
    let mut rig = Rig::new(&device, ClaimMode::Write, 16);
    let bytes = pattern(16 * 4096, 1);
    let statuses: Vec<Status> = (0..32).map(|n| rig.write(n * 16, &bytes)).collect();
    let full = statuses.iter().position(|s| !s.is_ok()).expect("it fills up");
    assert!((8..=16).contains(&full), "{options}: full after {full} times 64 KiB");
    assert!(statuses[full..].iter().all(|s| *s == Status::NoSpace), "{options}: {statuses:?}");
    // What was written before is there, and can be read and written again.
    assert!(rig.read(0, 16) == Ok(bytes.clone()), "{options}: reads go on");
    assert_eq!(rig.write(16, &bytes), Status::Ok, "{options}: so does writing what is allocated");
    assert_eq!(rig.run(Request::flush(Token(0)), &[]), Status::Ok);
    let op = Op::WriteZeroes { may_deallocate: false };
    let zeroes = Request { op, ..Request::write_zeroes(Lba(1024), 256, Token(0)) };
    assert_eq!(rig.run(zeroes, &[]), Status::NoSpace, "{options}: zeros need room, too");
    drop((rig, device));
}

#[test]
fn a_full_file_system_is_no_space_through_a_mapping() {
    fill_up("?engine=mmap");
}

#[test]
fn a_full_file_system_is_no_space_through_io_uring() {
    fill_up("?engine=uring");
}

#[test]
fn a_full_disk_is_no_space_past_the_page_cache() {
    let image = backends::file_of(&backends::disk(), 4 << 20);
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(image.path()).output();
    if !made.is_ok_and(|out| out.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "mkfs.ext4 is needed");
        eprintln!("SKIPPED: no mkfs.ext4 here");
        return;
    }
    let path = image.path().to_string_lossy().into_owned();
    let Some(mount) = Mount::new(&["-o", "loop", &path]) else { return };
    let sparse = mount.folder.path().join("sparse");
    let device: Arc<dyn Device> =
        Arc::new(backends::open(&sparse, "?engine=uring&block=4096&size=16m"));
    let mut rig = Rig::new(&device, ClaimMode::Write, 16);
    let bytes = pattern(16 * 4096, 1);
    let status = (0..256).map(|n| rig.write(n * 16, &bytes)).find(|s| !s.is_ok());
    assert_eq!(status, Some(Status::NoSpace));
    assert!(rig.read(0, 16) == Ok(bytes));
}
