//! What a run costs in memory.

use std::fs;

use crate::strake::{Place, end, signal, until};

const MIB: usize = 1 << 20;

/// Anonymous memory of a process, in bytes (proc_pid_status(5)).
fn anonymous(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.parse().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
fn a_bench_of_four_files_at_depth_128_stays_below_64_mib() {
    let place = Place::new();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| drop(place.file(name, &vec![7; 64 * MIB])));
    let log = place.path().join("log");
    for engine in ["uring", "mmap"] {
        // An older log would say that this run is under way.
        let _ = fs::remove_file(&log);
        let devices = names.map(|name| format!("{name}?engine={engine}"));
        let devices = format!("{} trace:log@{}", devices[1..].join(" "), devices[0]);
        let rest = "--rw=randrw --iodepth=128 --runtime=60";
        let run = place.start(&format!("bench {devices} {rest}"));
        // A while into the run: everything is open, and all of memory has been used.
        until("much I/O is done", || fs::metadata(&log).is_ok_and(|m| m.len() > 100_000));
        let bytes = anonymous(run.id());
        signal(&run, "INT");
        let ended = end(run);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(bytes > 0 && bytes < 64 * MIB, "{engine}: {} MiB", bytes / MIB);
    }
}
