//! What goes wrong before and during a run.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::strake::{Place, end, until};

/// Runs as root only: says so, and fails where CI promises it.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("SKIPPED: {why}");
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn mount_tmpfs(at: &Path) -> Option<Mounted<'_>> {
    let args = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
    let done = Command::new("mount").args(args).arg(at).output();
    if done.is_ok_and(|out| out.status.success()) {
        return Some(Mounted(at));
    }
    skip("mounting is not allowed here");
    None
}

#[test]
fn a_full_file_system_ends_the_run_with_the_place() {
    let place = Place::new();
    let folder = place.path().join("full");
    fs::create_dir(&folder).unwrap();
    let Some(_mounted) = mount_tmpfs(&folder) else { return };
    for engine in ["mmap", "uring"] {
        let device = format!("full/{engine}?size=4M&engine={engine}");
        let ended = place.strake(&format!("bench {device} --rw=write --size=4M --iodepth=4"));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        ended.says(&["strake: I/O failed", engine, "write of 8 blocks at block", "no space left"]);
        assert!(ended.out.contains("write"), "the summary so far: {ended:?}");
        fs::remove_file(folder.join(engine)).unwrap();
    }
    let mut command = place.command(&["bench", "--size=8M", "--runtime=1"]);
    let ended = end(command.env("TMPDIR", &folder).spawn().unwrap());
    ended.refused(1, &["temporary file", "8388608", "TMPDIR"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn a_file_that_shrinks_ends_the_run_with_the_place() {
    for engine in ["mmap", "uring"] {
        let place = Place::new();
        let path = place.file("disk", &vec![7; 4 << 20]);
        let run = place
            .start(&format!("bench trace:log@disk?engine={engine} --bs=4k --runtime=60 --seed=3"));
        let log = place.path().join("log");
        until("I/O is under way", || fs::metadata(&log).is_ok_and(|m| m.len() > 0));
        File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        let ended = end(run);
        assert_eq!(ended.code, Some(1), "{engine}: {ended:?}");
        ended.says(&[
            "strake: I/O failed",
            "disk",
            "read of 8 blocks at block",
            "medium error, first bad",
        ]);
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn errors_that_are_to_be_counted_are_counted_and_the_run_goes_on() {
    let place = Place::new();
    let ended = place.strake(
        "bench fault:?seed=1&error=0.1@mem:1M --number_ios=1000 --continue_on_error --seed=2",
    );
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["I/O failed", "more)"]);
}

/// As a user who may do nothing.
#[test]
fn a_file_without_permission_is_refused_in_words() {
    let place = Place::new();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = place.file("secret", &[0; 65_536]);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let readable = place.file("readable", &[0; 65_536]);
    fs::set_permissions(&readable, PermissionsExt::from_mode(0o644)).unwrap();
    // The build's folders may be closed to others; a copy of the binary in the open is not.
    let open = tempfile::TempDir::new().unwrap();
    fs::set_permissions(open.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let binary = open.path().join("strake");
    fs::copy(env!("CARGO_BIN_EXE_strake"), &binary).unwrap();
    for name in ["secret", "readable"] {
        fs::copy(place.path().join(name), open.path().join(name)).unwrap();
    }
    let run = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.args(args).current_dir(open.path());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().map(end)
    };
    let ended = match run(&["bench", "secret"]) {
        Ok(ended) if !ended.err.contains("setpriv") => ended,
        _ => return skip("setpriv is needed, and root"),
    };
    ended.refused(1, &["secret", "ermission denied"]);
    run(&["bench", "readable", "--rw=write", "--size=4k"])
        .unwrap()
        .refused(1, &["readable", "cannot be claimed for writing", "ermission denied"]);
    run(&["bench", "new?size=1M"]).unwrap().refused(1, &["new", "ermission denied"]);
    let reads = run(&["bench", "readable", "--number_ios=10"]).unwrap();
    assert_eq!(reads.code, Some(0), "reading is allowed: {reads:?}");
}

#[test]
fn a_trace_that_cannot_be_written_ends_the_run() {
    // It was noted and nothing stopped: the trace's ring filled up and the run waited for ever.
    let ended = Place::new().strake("bench trace:/dev/full@null:1T --number_ios=300000000");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["cannot write the trace", "No space left"]);
}
