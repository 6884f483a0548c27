//! Ctrl-C, closed pipes, outputs, the same seed twice.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::strake::{Place, end, has_thread, signal, until};

#[test]
fn ctrl_c_ends_a_run_with_the_summary_so_far() {
    for name in ["INT", "TERM"] {
        let place = Place::new();
        let run = place.start("bench trace:log@mem:1M --runtime=60");
        let log = place.path().join("log");
        until("I/O is under way", || fs::metadata(&log).is_ok_and(|m| m.len() > 0));
        signal(&run, name);
        let ended = end(run);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(ended.out.contains("IOPS"), "{ended:?}");
        ended.says(&[]);
    }
}

/// A poller that sleeps for a rate of one request in a while is woken, too.
#[test]
fn ctrl_c_ends_a_run_that_sleeps_and_leaves_no_temporary_file() {
    let place = Place::new();
    let run = place.start("bench --size=4M --rate_iops=1 --runtime=60 --time_based");
    until("the poller runs", || has_thread(&run, "poller-"));
    signal(&run, "INT");
    let ended = end(run);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.out.contains("read"), "{ended:?}");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn ctrl_c_while_the_temporary_file_is_laid_out_is_an_interruption_and_no_failure() {
    let place = Place::new();
    let run = place.start("bench --size=8G --runtime=60");
    until("signals are handled", || has_thread(&run, "ctrl-c"));
    signal(&run, "INT");
    let ended = end(run);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!ended.err.contains("cannot"), "{ended:?}");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let place = Place::new();
    for args in [
        &["bench", "mem:1M", "--number_ios=100"][..],
        &["bench", "mem:1M", "--number_ios=100", "--json"],
        &["bench", "--help"],
        &["--help"],
    ] {
        let mut run = place.command(args).spawn().unwrap();
        // `| head -0`: nobody reads at all.
        drop(run.stdout.take());
        let ended = end(run);
        assert!(matches!(ended.code, Some(0 | 2)), "{args:?}: {ended:?}");
        assert!(!ended.err.contains("panicked"), "{ended:?}");
    }
    let mut run =
        place.command(&["bench", "mem:1M", "--number_ios=100", "--json"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = end(run);
    assert_eq!((first.as_str(), ended.code), ("{\n", Some(0)), "{ended:?}");
}

/// `eprintln` panics where standard error is closed, and a panic aborts.
#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let place = Place::new();
    let mut command = place.command(&["bench", "missing"]);
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stderr.take());
    assert_eq!(end(run).code, Some(1));
}

#[test]
fn json_has_fios_fields() {
    let place = Place::new();
    let ended = place.strake("bench mem:1M --rw=randrw --number_ios=1000 --output-format=json");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    let jobs = json["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1);
    let mut ios = 0;
    for direction in ["read", "write"] {
        let numbers = &jobs[0][direction];
        ios += numbers["total_ios"].as_u64().unwrap();
        let latency = &numbers["clat_ns"];
        let percentiles = latency["percentile"].as_object().unwrap();
        assert!(percentiles.contains_key("99.000000"), "{percentiles:?}");
        let (median, worst) = (&percentiles["50.000000"], &latency["max"]);
        assert!(median.as_u64() <= worst.as_u64(), "{latency}");
        assert!(numbers["iops"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(ios, 1000);
}

#[test]
fn the_same_seed_in_virtual_time_is_the_same_output_byte_for_byte() {
    let place = Place::new();
    let device = "trace:log?format=text@fault:?seed=9&delay=0.1@model:p5520@mem:64M";
    let rest = "--rw=randrw --bs=512-16k --runtime=20ms --virtual-time --numjobs=2 --iodepth=16";
    for format in ["normal", "json", "json+"] {
        let run = |seed| {
            let ended = place
                .strake(&format!("bench {device} {rest} --seed={seed} --output-format={format}"));
            assert_eq!(ended.code, Some(0), "{ended:?}");
            (ended.out, fs::read_to_string(place.path().join("log")).unwrap())
        };
        let (first, second, other) = (run(5), run(5), run(6));
        assert!(first.0 == second.0, "{format}: {}\n{}", first.0, second.0);
        assert!(first.1 == second.1 && !first.1.is_empty(), "{format}: the traces differ");
        assert!(first != other, "{format}: another seed is another run");
    }
}

#[test]
fn outputs_go_where_they_are_asked_to_go() {
    let place = Place::new();
    let ended = place.strake("bench mem:1M --number_ios=500 --json -o out.json --plot=out.svg");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    let json = fs::read_to_string(place.path().join("out.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    assert!(fs::read_to_string(place.path().join("out.svg")).unwrap().contains("</svg>"));
    // A longer file of an earlier run leaves no tail.
    place.file("out.json", &[b'x'; 1 << 20]);
    let again = place.strake("bench mem:1M --number_ios=500 --json -o out.json");
    assert_eq!(again.code, Some(0), "{again:?}");
    let json = fs::read_to_string(place.path().join("out.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&json).is_ok());
}
