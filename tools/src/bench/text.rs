//! The summary of a [`Report`] that a person reads: all jobs as one, then a line for each.
//!
//! At most 100 columns wide, as long as names and options are shorter than that.

use std::io::{self, Write};

use strake_nvme_driver::block::{Identity, Kind, Limits, Op};

use super::report::{DeviceReport, Direction, DirectionReport, JobReport, Report};
use super::sum::{DeviceIo, PERCENTILES, ratio};
use super::units::{binary_bytes, count, duration, grouped};

/// Kinds of error that are listed one by one.
const ERRORS_LISTED: usize = 10;
/// Percentiles in one line.
const COLUMNS: usize = 5;
const WIDTH: usize = 100;

/// Writes the summary.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &Report, mut out: impl Write) -> io::Result<()> {
    let out = &mut out;
    let group = report.group();
    heading(report, &group, out)?;
    for direction in Direction::ALL {
        let numbers = group.direction(direction);
        if numbers.requests > 0 {
            writeln!(out)?;
            performance(&group, direction, numbers, out)?;
        }
    }
    writeln!(out)?;
    cpu(report, &group, out)?;
    device_io(report, out)?;
    if report.jobs.len() > 1 {
        writeln!(out)?;
        jobs(report, out)?;
    }
    outcome(report, &group, out)
}

/// A label and what belongs to it; what is too long is wrapped between words.
fn field(
    out: &mut impl Write,
    label: &str,
    words: impl IntoIterator<Item = String>,
) -> io::Result<()> {
    let mut line = format!("  {label:<10}");
    let mut empty = true;
    for word in words {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(12);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&word);
        empty = false;
    }
    writeln!(out, "{}", line.trim_end())
}

fn heading(report: &Report, group: &JobReport, out: &mut impl Write) -> io::Result<()> {
    let mut marks = String::new();
    if report.virtual_time {
        marks.push_str("  [MODELLED: virtual time]");
    } else if report.modelled {
        marks.push_str("  [MODELLED: a device is a model]");
    }
    if report.interrupted {
        marks.push_str("  [INTERRUPTED]");
    }
    let plural = if report.jobs.len() == 1 { "" } else { "s" };
    let runtime = duration(group.runtime_nanos as f64);
    let jobs = report.jobs.len();
    writeln!(out, "{}: {jobs} job{plural}, {runtime}{marks}", report.job_name)?;
    for device in &report.devices {
        field(out, "device", [device_line(&device.identity, &device.limits)])?;
        field(out, "", limits_words(&device.limits))?;
    }
    field(out, "options", report.options.iter().map(|(key, value)| format!("{key}={value}")))
}

fn device_line(identity: &Identity, limits: &Limits) -> String {
    let kind = match identity.kind {
        Kind::File => "file",
        Kind::Node => "block node",
        Kind::Mem => "memory",
        Kind::Null => "null device",
        Kind::Middleware => "middleware",
        Kind::Array => "array",
        Kind::Namespace => "NVMe namespace",
    };
    let capacity = binary_bytes(limits.capacity_bytes() as f64);
    format!("{}  ({kind} {}, {capacity})", identity.uri, identity.name)
}

/// What matters for speed, each a word or two. What is as usual is left out.
fn limits_words(limits: &Limits) -> Vec<String> {
    let size = |bytes: u32| binary_bytes(f64::from(bytes));
    let mut words = vec![
        format!("block {}", size(limits.block_bytes)),
        format!("write unit {}", size(limits.write_granularity_bytes)),
    ];
    if limits.write_alignment_bytes != limits.write_granularity_bytes {
        words.push(format!("aligned {}", size(limits.write_alignment_bytes)));
    }
    if limits.optimal_write_bytes != limits.write_granularity_bytes {
        words.push(format!("best write {}", size(limits.optimal_write_bytes)));
    }
    words.push(format!("max transfer {}", size(limits.max_transfer_bytes)));
    let named = [
        ("boundary", limits.boundary_bytes),
        ("reads cut at", limits.read_split_bytes),
        ("writes cut at", limits.write_split_bytes),
    ];
    for (name, bytes) in named {
        words.extend(bytes.map(|bytes| format!("{name} {}", size(bytes.get()))));
    }
    let marks = [
        (limits.volatile_cache, "volatile cache"),
        (limits.deallocate.is_some(), "deallocates"),
        (limits.rotational, "rotational"),
        (limits.read_only, "read-only"),
    ];
    words.extend(marks.into_iter().filter(|mark| mark.0).map(|mark| mark.1.to_owned()));
    let last = words.len() - 1;
    words.iter_mut().take(last).for_each(|word| word.push(','));
    words
}

fn performance(
    group: &JobReport,
    direction: Direction,
    numbers: &DirectionReport,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line =
        format!("  {:<10}IOPS {}", direction.name(), count(group.rate(numbers.requests)));
    if numbers.bytes > 0 {
        line.push_str(&format!("   BW {}", bandwidth(group.rate(numbers.bytes))));
    }
    line.push_str(&format!("   {} requests", grouped(numbers.requests)));
    if numbers.bytes > 0 {
        line.push_str(&format!(", {}", binary_bytes(numbers.bytes as f64)));
    }
    writeln!(out, "{line}")?;
    let latency = &numbers.latency;
    if latency.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "    latency min {}, mean {}, stddev {}, max {}",
        duration(latency.min() as f64),
        duration(latency.mean()),
        duration(latency.stdev()),
        duration(latency.max() as f64),
    )?;
    // Down the columns, as one reads a list.
    let rows = PERCENTILES.len().div_ceil(COLUMNS);
    for row in 0..rows {
        let cells = PERCENTILES.iter().skip(row).step_by(rows).map(|&percent| {
            let value = duration(latency.value_at_percentile(percent) as f64);
            format!("{:>6}% {value:>8}", percent.to_string())
        });
        writeln!(out, "    {}", cells.collect::<Vec<_>>().join("   "))?;
    }
    Ok(())
}

/// As fio writes it: in MiB, and in MB for comparison with data sheets.
fn bandwidth(bytes_a_second: f64) -> String {
    format!("{} ({} MB/s)", mebibytes(bytes_a_second), three_digits(bytes_a_second / 1e6))
}

fn mebibytes(bytes_a_second: f64) -> String {
    format!("{} MiB/s", three_digits(bytes_a_second / 1_048_576.0))
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn cpu(report: &Report, group: &JobReport, out: &mut impl Write) -> io::Result<()> {
    if report.virtual_time {
        writeln!(out, "  cpu       not measured: time is virtual")?;
    } else {
        let cpu = &group.cpu;
        // Each poller has a core, so 100% is all of one.
        let percent = |seconds| 100.0 * ratio(seconds, group.runtime_seconds());
        let total_us = (cpu.user_seconds + cpu.system_seconds) * 1e6;
        writeln!(
            out,
            "  cpu       usr {:.1}%, sys {:.1}%, {:.3} us a request, {} context switches, {} page faults",
            percent(cpu.user_seconds),
            percent(cpu.system_seconds),
            ratio(total_us, group.requests() as f64),
            grouped(cpu.voluntary_switches + cpu.involuntary_switches),
            grouped(cpu.major_faults + cpu.minor_faults),
        )?;
    }
    let (busy, idle, sleeps) = poller(group);
    writeln!(
        out,
        "  poller{}   busy {busy:.1}%, idle {idle:.1}%, slept {sleeps} times",
        plural(report)
    )
}

fn plural(report: &Report) -> &'static str {
    if report.jobs.len() == 1 { " " } else { "s" }
}

/// Busy and idle in percent, and how often it slept.
fn poller(job: &JobReport) -> (f64, f64, String) {
    let (busy, idle) = (job.poller.busy_nanos as f64, job.poller.idle_nanos as f64);
    let percent = |part| 100.0 * ratio(part, busy + idle);
    (percent(busy), percent(idle), grouped(job.poller.sleeps))
}

fn device_io(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for (i, io) in report.device_io().iter().enumerate() {
        let label = if i == 0 { "device I/O" } else { "" };
        let requests = grouped(io.requests);
        let bytes = if io.bytes > 0 { binary_bytes(io.bytes as f64) } else { String::new() };
        writeln!(
            out,
            "  {label:<10}{:>12} {requests:>13} {bytes:>10}   {}",
            io.kind.replace('_', " "),
            per_user(io)
        )?;
    }
    let leaves = report.leaves();
    if leaves.unsized_writes > 0 {
        let share =
            100.0 * ratio(leaves.unsized_writes as f64, leaves.requests[Op::Write.index()] as f64);
        writeln!(
            out,
            "            unsized: {} writes ({share:.1}%) were not whole write units of their device",
            grouped(leaves.unsized_writes),
        )?;
    }
    for DeviceReport { identity, leaves, .. } in &report.devices {
        if leaves.errors > 0 {
            writeln!(out, "            errors: {} from {}", grouped(leaves.errors), identity.name)?;
        }
    }
    Ok(())
}

fn per_user(io: &DeviceIo) -> String {
    let Some(direction) = io.per.map(Direction::name) else { return String::new() };
    let mut text = format!("{:.3} per user {direction}", io.requests_per_request);
    if io.bytes_per_byte > 0.0 {
        text.push_str(&format!(", {:.3} bytes per user byte", io.bytes_per_byte));
    }
    text
}

/// IOPS, bandwidth, mean and 99th percentile of each job.
fn jobs(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for (index, job) in report.jobs.iter().enumerate() {
        let core = job.core.map_or(String::new(), |core| format!("core {core}"));
        let mut line = format!("  job {:<5} {core:<8}", index + 1);
        let used = Direction::ALL.into_iter().filter(|&d| job.direction(d).requests > 0);
        for (i, direction) in used.enumerate() {
            let numbers = job.direction(direction);
            if i > 0 {
                writeln!(out, "{}", line.trim_end())?;
                line = " ".repeat(20);
            }
            let rate =
                if numbers.bytes > 0 { mebibytes(job.rate(numbers.bytes)) } else { String::new() };
            line.push_str(&format!(
                "{:<5} {:>6} IOPS  {rate:>12}  mean {:>8}, 99% {:>8}",
                direction.name(),
                count(job.rate(numbers.requests)),
                duration(numbers.latency.mean()),
                duration(numbers.latency.value_at_percentile(99.0) as f64),
            ));
            if i == 0 {
                line.push_str(&format!("  busy {:.0}%", poller(job).0));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Errors, most frequent first, and what was verified.
fn outcome(report: &Report, group: &JobReport, out: &mut impl Write) -> io::Result<()> {
    if !group.errors.is_empty() {
        writeln!(out, "\n  ERRORS    {} requests failed:", grouped(group.failed()))?;
        let mut kinds: Vec<(&String, &u64)> = group.errors.iter().collect();
        kinds.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (text, times) in kinds.iter().take(ERRORS_LISTED) {
            writeln!(out, "  {:>12}  {text}", grouped(**times))?;
        }
        let rest = &kinds[kinds.len().min(ERRORS_LISTED)..];
        if !rest.is_empty() {
            let times: u64 = rest.iter().map(|kind| kind.1).sum();
            writeln!(
                out,
                "  {:>12}  of {} other kinds",
                grouped(times),
                grouped(rest.len() as u64)
            )?;
        }
    }
    let Some(verify) = &report.verify else { return Ok(()) };
    let (checked, written) = (grouped(verify.blocks_checked), grouped(verify.blocks_written));
    let cut_short = verify.blocks_checked < verify.blocks_written;
    if verify.blocks_written == 0 {
        return writeln!(out, "\n  verify    no block was written, so none was checked");
    }
    if verify.blocks_checked == 0 {
        let line = "the run ended before anything was read back";
        return writeln!(out, "\n  VERIFY    none of {written} blocks checked: {line}");
    }
    if verify.blocks_wrong == 0 && cut_short {
        let line = "the run ended early; those are as written";
        return writeln!(out, "\n  VERIFY    only {checked} of {written} blocks checked: {line}");
    }
    if verify.blocks_wrong == 0 {
        return writeln!(out, "\n  verify    {checked} blocks checked, all as written");
    }
    let wrong = grouped(verify.blocks_wrong);
    writeln!(out, "\n  VERIFY    {wrong} of {checked} blocks are WRONG")?;
    match &verify.first_wrong {
        Some((_, first)) => writeln!(out, "            first: {first}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).expect("a vector takes all");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_summary_fits_a_hundred_columns_and_ends_no_line_in_blanks() {
        for (name, report) in [("mixed", sample::mixed()), ("parity", sample::parity_writes())] {
            let text = text(&report);
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
                assert_eq!(line, line.trim_end());
            }
            let (directory, _guard) = sample::directory();
            std::fs::write(directory.join(format!("{name}.txt")), text).expect("it is written");
        }
    }

    #[test]
    fn a_mixed_run_states_rates_latencies_cpu_and_each_job() {
        let text = text(&sample::mixed());
        for part in [
            "mixed: 2 jobs, 4.00 s\n",
            "pcie:0000:01:00.0/1  (NVMe namespace 0000:01:00.0/1, 3.49 TiB)",
            "block 512 B, write unit 16 KiB, best write 128 KiB, max transfer 512 KiB",
            "bs=4k iodepth=32 numjobs=2 rw=randrw",
            "read      IOPS 35.0k   BW 137 MiB/s (143 MB/s)   140,000 requests, 547 MiB",
            "sync      IOPS 20.0   80 requests\n",
            "usr 160.0%, sys 15.0%, 34.986 us a request",
            "busy 82.5%, idle 17.5%, slept 34 times",
            "read       140,000    547 MiB   1.000 per user read, 1.000 bytes per user byte",
            "unsized: 60,000 writes (100.0%)",
            "  job 2     core 2",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("MODELLED") && !text.contains("trim") && !text.contains("ERRORS"));
    }

    #[test]
    fn what_is_modelled_or_went_wrong_is_said() {
        let text = text(&sample::parity_writes());
        for part in [
            "parity: 1 job, 4.00 s  [MODELLED: virtual time]  [INTERRUPTED]\n",
            "cpu       not measured: time is virtual",
            "40,000    156 MiB   2.000 per user write, 2.000 bytes per user byte",
            "errors: 4 from md0",
            "ERRORS    4 requests failed:",
            "3  medium error, first bad block 8",
            "VERIFY    1 of 80,000 blocks are WRONG",
            "first: block 4711 holds",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn many_kinds_of_error_are_cut_after_the_most_frequent() {
        let mut report = sample::parity_writes();
        for block in 0..100 {
            let text = format!("medium error, first bad block {}", 1000 + block);
            report.jobs[0].errors.insert(text, 2);
        }
        let text = text(&report);
        assert!(text.contains("3  medium error, first bad block 8\n"), "{text}");
        // 102 kinds: 3 + 9 x 2 are listed.
        assert!(text.contains("183  of 92 other kinds"), "{text}");
    }

    #[test]
    fn a_run_without_jobs_is_summed_up_too() {
        let mut report = sample::mixed();
        report.jobs.clear();
        report.devices.clear();
        assert!(text(&report).starts_with("mixed: 0 jobs, 0 ns\n"));
    }
}
