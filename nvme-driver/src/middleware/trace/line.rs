//! One I/O, as a line for people or for programs. Pure.

use std::io::{self, Write};
use std::str::FromStr;

use serde::Serialize;

use crate::block::{Flags, Op, Status};
use crate::time::Instant;

/// How a trace is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceFormat {
    /// biosnoop's columns: time in seconds, device, operation, LBA in 512-byte sectors, bytes,
    /// latency in milliseconds; and the status, if it is not ok.
    ///
    /// ```text
    /// 1.410377 nvme0 W        16 4096 0.020
    /// ```
    #[default]
    Text,
    /// The same as an object a line, with the request's flags, if it has any.
    Json,
}

impl FromStr for TraceFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }
}

/// One completed request: what a channel records of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The first poll after its submit.
    pub(super) started: Instant,
    /// The poll that saw its completion.
    pub(super) at: Instant,
    pub(super) op: Op,
    pub(super) flags: Flags,
    /// First sector of 512 bytes, whatever the logical block is.
    pub(super) sector: u64,
    pub(super) bytes: u64,
    pub(super) status: Status,
}

/// The letter that biosnoop would show.
fn letter(op: Op) -> char {
    match op {
        Op::Read => 'R',
        Op::Write => 'W',
        Op::Flush => 'F',
        Op::WriteZeroes { .. } => 'Z',
        Op::Deallocate => 'D',
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time_s: f64,
    device: &'a str,
    op: char,
    sector: u64,
    bytes: u64,
    latency_ms: f64,
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    flags: String,
}

impl Record {
    /// Writes it as a line.
    pub(super) fn write(
        &self,
        format: TraceFormat,
        device: &str,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let time_s = self.at.as_secs_f64();
        let latency_ms = self.at.nanos_since(self.started) as f64 / 1e6;
        let Self { op, flags, sector, bytes, status, .. } = *self;
        let op = letter(op);
        match format {
            TraceFormat::Text => {
                write!(out, "{time_s:.6} {device} {op} {sector:>9} {bytes} {latency_ms:.3}")?;
                if !status.is_ok() {
                    write!(out, " {status}")?;
                }
            }
            TraceFormat::Json => {
                let line = JsonLine {
                    time_s,
                    device,
                    op,
                    sector,
                    bytes,
                    latency_ms,
                    status: status.to_string(),
                    flags: flags_in_words(flags),
                };
                serde_json::to_writer(&mut *out, &line)?;
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

/// `fua,fail_fast`, for example.
fn flags_in_words(flags: Flags) -> String {
    let names: Vec<String> =
        flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Lba;

    fn line(format: TraceFormat, device: &str, record: Record) -> String {
        let mut out = Vec::new();
        record.write(format, device, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Lines of the trace that the project started from.
    fn last_bitmap_page() -> Record {
        Record {
            started: Instant::from_nanos(1_410_485_000),
            at: Instant::from_nanos(1_410_915_000),
            op: Op::Write,
            flags: Flags::empty(),
            sector: 24,
            bytes: 3584,
            status: Status::Ok,
        }
    }

    #[test]
    fn text_looks_like_the_trace_that_the_project_started_from() {
        let text = |record| line(TraceFormat::Text, "nvme2", record);
        let page = last_bitmap_page();
        assert_eq!(text(page), "1.410915 nvme2 W        24 3584 0.430\n");
        let data = Record { sector: 2_019_022_184, bytes: 4096, ..page };
        assert_eq!(text(data), "1.410915 nvme2 W 2019022184 4096 0.430\n");
        let bad = Record { op: Op::Read, status: Status::Medium { first_bad: Lba(26) }, ..page };
        assert_eq!(
            text(bad),
            "1.410915 nvme2 R        24 3584 0.430 medium error, first bad block 26\n"
        );
    }

    #[test]
    fn json_has_the_same_fields_and_flags_where_there_are_some() {
        let json = |record| line(TraceFormat::Json, "nvme2", record);
        let page = last_bitmap_page();
        assert_eq!(
            json(page),
            "{\"time_s\":1.410915,\"device\":\"nvme2\",\"op\":\"W\",\"sector\":24,\
             \"bytes\":3584,\"latency_ms\":0.43,\"status\":\"ok\"}\n"
        );
        let durable = Record {
            flags: Flags::FUA | Flags::FAIL_FAST,
            op: Op::Flush,
            status: Status::TimedOut,
            ..page
        };
        assert!(json(durable).ends_with(
            "\"latency_ms\":0.43,\"status\":\"deadline passed\",\"flags\":\"fua,fail_fast\"}\n"
        ));
        let odd = line(TraceFormat::Json, "a\"\\\n", page);
        assert!(odd.contains("\"device\":\"a\\\"\\\\\\n\""), "{odd}");
    }

    #[test]
    fn every_operation_has_its_letter() {
        let ops = [
            Op::Read,
            Op::Write,
            Op::Flush,
            Op::WriteZeroes { may_deallocate: true },
            Op::Deallocate,
        ];
        assert_eq!(ops.map(letter), ['R', 'W', 'F', 'Z', 'D']);
    }
}
