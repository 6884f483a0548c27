use serde_json::Value;

use super::super::sample;
use super::*;

/// Every key that fio 3.33 writes for a job, by the type of its value: i for whole numbers, f for
/// numbers with a point, s for strings.
const LAYOUT: &str = "
    fio version:s timestamp:i timestamp_ms:i time:s
    jobs/0/jobname:s jobs/0/groupid:i jobs/0/error:i jobs/0/eta:i jobs/0/elapsed:i
    jobs/0/job options/rw:s jobs/0/job options/bs:s jobs/0/job options/name:s
    jobs/0/job options/iodepth:s jobs/0/job options/numjobs:s
    jobs/0/sync/total_ios:i
    jobs/0/sync/lat_ns/min:i jobs/0/sync/lat_ns/max:i jobs/0/sync/lat_ns/mean:f
    jobs/0/sync/lat_ns/stddev:f jobs/0/sync/lat_ns/N:i
    jobs/0/job_runtime:i jobs/0/usr_cpu:f jobs/0/sys_cpu:f jobs/0/ctx:i jobs/0/majf:i
    jobs/0/minf:i
    jobs/0/latency_depth:i jobs/0/latency_target:i jobs/0/latency_percentile:f
    jobs/0/latency_window:i";
const DIRECTION_LAYOUT: &str = "
    io_bytes:i io_kbytes:i bw_bytes:i bw:i iops:f runtime:i total_ios:i short_ios:i drop_ios:i
    slat_ns/min:i slat_ns/max:i slat_ns/mean:f slat_ns/stddev:f slat_ns/N:i
    clat_ns/min:i clat_ns/max:i clat_ns/mean:f clat_ns/stddev:f clat_ns/N:i
    lat_ns/min:i lat_ns/max:i lat_ns/mean:f lat_ns/stddev:f lat_ns/N:i
    bw_min:i bw_max:i bw_agg:f bw_mean:f bw_dev:f bw_samples:i
    iops_min:i iops_max:i iops_mean:f iops_stddev:f iops_samples:i";
const PERCENTILE_KEYS: &str = "
    1.000000 5.000000 10.000000 20.000000 30.000000 40.000000 50.000000 60.000000 70.000000
    80.000000 90.000000 95.000000 99.000000 99.500000 99.900000 99.950000 99.990000";
const OBJECTS: [(&str, &str); 6] = [
    ("iodepth_level", "1 2 4 8 16 32 >=64"),
    ("iodepth_submit", "0 4 8 16 32 64 >=64"),
    ("iodepth_complete", "0 4 8 16 32 64 >=64"),
    ("latency_ns", "2 4 10 20 50 100 250 500 750 1000"),
    ("latency_us", "2 4 10 20 50 100 250 500 750 1000"),
    ("latency_ms", "2 4 10 20 50 100 250 500 750 1000 2000 >=2000"),
];

fn layout() -> Vec<(String, char)> {
    // "job options", "fio version" and "global options" hold the only blanks.
    let words = |text: &str| -> Vec<String> {
        let joined = text.replace("job options", "job\0options").replace("fio v", "fio\0v");
        joined.split_whitespace().map(|word| word.replace('\0', " ")).collect()
    };
    let typed = |path: &str, word: &str| {
        let (key, kind) = word.rsplit_once(':').expect("a key and its type");
        (format!("{path}{key}"), kind.chars().next().expect("a type"))
    };
    let mut rows: Vec<_> = words(LAYOUT).iter().map(|word| typed("", word)).collect();
    for direction in ["read", "write", "trim"] {
        let path = format!("jobs/0/{direction}/");
        rows.extend(words(DIRECTION_LAYOUT).iter().map(|word| typed(&path, word)));
    }
    for object in ["read/clat_ns", "write/clat_ns", "sync/lat_ns"] {
        let key = |key| (format!("jobs/0/{object}/percentile/{key}"), 'i');
        rows.extend(PERCENTILE_KEYS.split_whitespace().map(key));
    }
    for (object, keys) in OBJECTS {
        rows.extend(keys.split(' ').map(|key| (format!("jobs/0/{object}/{key}"), 'f')));
    }
    rows
}

fn at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    document.pointer(&format!("/{path}"))
}

fn bytes(options: FioJson, report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    options.write(report, &mut out).expect("a vector takes all");
    out
}

fn parsed(options: FioJson, report: &Report) -> Value {
    serde_json::from_slice(&bytes(options, report)).expect("valid JSON")
}

#[test]
fn every_key_that_fio_writes_is_there_with_its_type() {
    for grouped in [false, true] {
        let document = parsed(FioJson { bins: false, grouped }, &sample::mixed());
        for (path, kind) in layout() {
            let value = at(&document, &path).unwrap_or_else(|| panic!("{path} is missing"));
            let right = match kind {
                'i' => value.is_u64(),
                'f' => value.is_f64(),
                _ => value.is_string(),
            };
            assert!(right, "{path} is {value}, expected {kind}");
        }
        assert!(document["disk_util"].is_array() && document["global options"].is_object());
    }
}

#[test]
fn a_job_has_no_keys_that_fio_does_not_write() {
    let document = parsed(FioJson::default(), &sample::mixed());
    let known = layout();
    let mut stack = vec![("jobs/0".to_owned(), &document["jobs"][0])];
    while let Some((path, value)) = stack.pop() {
        match value {
            Value::Object(map) => {
                stack.extend(map.iter().map(|(key, value)| (format!("{path}/{key}"), value)));
            }
            // What newer versions of fio write.
            _ if path == "jobs/0/job_start" => {}
            _ => assert!(known.iter().any(|(k, _)| *k == path), "{path} is not fio's"),
        }
    }
}

#[test]
fn json_plus_bins_add_up_to_the_requests() {
    let report = sample::mixed();
    let document = parsed(FioJson { bins: true, grouped: false }, &report);
    for (index, job) in report.jobs.iter().enumerate() {
        for (path, direction) in [("read/clat_ns", 0), ("write/clat_ns", 1), ("sync/lat_ns", 3)] {
            let bins = at(&document, &format!("jobs/{index}/{path}/bins")).expect("there are bins");
            let sum: u64 =
                bins.as_object().expect("an object").values().filter_map(Value::as_u64).sum();
            assert_eq!(sum, job.directions[direction].latency.len());
        }
    }
    // fio's reader takes the first bin of whatever has the key.
    assert_eq!(at(&document, "jobs/0/trim/clat_ns/bins"), None);
    assert_eq!(at(&parsed(FioJson::default(), &report), "jobs/0/read/clat_ns/bins"), None);
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let report = sample::mixed();
    let document = parsed(FioJson { bins: false, grouped: true }, &report);
    assert_eq!(document["jobs"].as_array().map(Vec::len), Some(1));
    let read = &document["jobs"][0]["read"];
    assert_eq!(read["total_ios"], 140_000);
    assert_eq!(read["io_kbytes"], 560_000);
    assert_eq!(read["runtime"], 4000);
    let iops = read["iops"].as_f64().expect("a number");
    assert!((iops - 35_000.0).abs() < 1.0, "{iops}");
    assert_eq!(read["iops_samples"], 8);
    assert_eq!(document["jobs"][0]["iodepth_level"]["32"], 100.0);
    let spread: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|key| document["jobs"][0][*key].as_object().expect("an object").values())
        .filter_map(Value::as_f64)
        .sum();
    assert!((spread - 100.0).abs() < 0.001, "{spread}");
    assert_eq!(document["time"], "Thu Oct  9 08:53:24 2025");
    assert_eq!(document["strake"]["devices"][0]["limits"]["optimal_write_bytes"], 131_072);
    assert_eq!(document["strake"]["device_io"]["read"]["requests_per_request"], 1.0);
}

#[test]
fn latencies_fall_into_the_bins_that_fio_puts_them_in() {
    let mut report = sample::mixed();
    report.jobs.truncate(1);
    for direction in &mut report.jobs[0].directions {
        direction.latency.reset();
    }
    // fio: "2" is below 2, "1000" is 750 to 999 of its unit, ">=2000" the rest.
    for nanos in [1, 2, 999, 1_000, 1_999, 800_000, 1_000_000, 1_999_000_000, 3_000_000_000] {
        report.jobs[0].directions[0].latency.record(nanos).expect("it resizes");
    }
    let document = parsed(FioJson::default(), &report);
    let ninths = |key: &str, bin: &str| {
        let percent = document["jobs"][0][key][bin].as_f64().expect("a bin");
        (percent * 9.0 / 100.0).round()
    };
    assert_eq!((ninths("latency_ns", "2"), ninths("latency_ns", "4")), (1.0, 1.0));
    assert_eq!((ninths("latency_ns", "1000"), ninths("latency_us", "2")), (1.0, 2.0));
    assert_eq!((ninths("latency_us", "1000"), ninths("latency_ms", "2")), (1.0, 1.0));
    assert_eq!((ninths("latency_ms", "2000"), ninths("latency_ms", ">=2000")), (1.0, 1.0));
}

#[test]
fn in_virtual_time_there_is_no_date_and_the_bytes_are_the_same_again() {
    let options = FioJson { bins: true, grouped: false };
    let mut report = sample::parity_writes();
    report.started_unix_seconds = 1_760_000_000;
    let document = parsed(options, &report);
    assert_eq!(document["timestamp"], 0);
    assert_eq!(document["timestamp_ms"], 0);
    assert_eq!(document["jobs"][0]["job_start"], 0);
    assert_eq!(document["time"], "Thu Jan  1 00:00:00 1970");
    assert_eq!(document["strake"]["modelled"], true);
    assert_eq!(document["jobs"][0]["error"], 5);
    assert_eq!(bytes(options, &report), bytes(options, &sample::parity_writes()));
}

#[test]
fn a_run_without_jobs_or_requests_is_still_a_document() {
    let mut report = sample::mixed();
    report.jobs[0] = Report { jobs: Vec::new(), ..sample::mixed() }.group();
    parsed(FioJson { bins: true, grouped: false }, &report);
    report.jobs.clear();
    parsed(FioJson { bins: true, grouped: true }, &report);
}

#[test]
fn samples_are_written_for_other_readers() {
    let (directory, _guard) = sample::directory();
    for depth in [1, 2, 4, 8, 16] {
        for jobs in [1, 2, 4] {
            let name = format!("sweep-{depth}-{jobs}.json");
            let file = std::fs::File::create(directory.join(name)).expect("a file");
            FioJson::default().write(&sample::sweep(depth, jobs), file).expect("it is written");
        }
    }
    let file = std::fs::File::create(directory.join("mixed.jsonplus")).expect("a file");
    FioJson { bins: true, grouped: false }.write(&sample::mixed(), file).expect("it is written");
}
