//! fio's words, and what they mean together.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strake_nvme_driver::block::parse_size;
use strake_nvme_driver::poller::IdlePolicy;

use super::report::JobOptions;

/// What to do with the devices.
#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// Devices: file:PATH, a bare path, mem:SIZE, null:SIZE, model:PRESET, or a wrapper such as
    /// fault?error=0.01@mem:1G. Without any, a temporary file is laid out and benched.
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,

    /// Kind of I/O.
    #[arg(long, alias = "readwrite", value_enum, default_value = "randread")]
    pub rw: Rw,

    /// Bytes a request, or a range such as 4k-64k from which each request's size is drawn.
    #[arg(long, alias = "blocksize", default_value = "4k", value_name = "SIZE[-SIZE]")]
    pub bs: BlockSizes,

    /// Requests outstanding in each job on each device.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=8192))]
    pub iodepth: u16,

    /// Jobs: each is a poller on a core of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub numjobs: u16,

    /// Bytes of each device to use [default: all of it; 256m for a temporary file]. If given
    /// without --time_based, a job ends when it has transferred this much.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub size: Option<u64>,

    /// Where on each device to start.
    #[arg(long, value_parser = size, default_value = "0", value_name = "SIZE")]
    pub offset: u64,

    /// Seconds, or with a unit: 500ms, 2m [default: 10 s unless --size or --number_ios ends it].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub runtime: Option<Duration>,

    /// Go on for the whole --runtime, over --size again and again.
    #[arg(long = "time_based", alias = "time-based")]
    pub time_based: bool,

    /// Requests a job sends to each device, at most.
    #[arg(
        long = "number_ios",
        alias = "number-ios",
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub number_ios: Option<u64>,

    /// Percentage of reads in rw and randrw.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,

    /// Requests a second that each job may start, flushes included; its devices take turns.
    #[arg(long = "rate_iops", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate_iops: Option<u64>,

    /// Flush after every N writes; 0 = never.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub fsync: u64,

    /// Write blocks that name themselves (crc32c), read everything back at the end, and name the
    /// first wrong one.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "crc32c", value_enum, value_name = "METHOD")]
    pub verify: Option<VerifyMethod>,

    /// Seed of everything that is drawn by chance.
    #[arg(long, alias = "randseed", default_value_t = 1)]
    pub seed: u64,

    /// Cores for the pollers, such as 0,2-3 [default: all, in order].
    #[arg(long = "cpus_allowed", value_name = "LIST")]
    pub cpus_allowed: Option<CpuList>,

    /// What a poller does when nothing moves: poll on, or spin, pause, then sleep.
    #[arg(long, value_enum, default_value = "adaptive")]
    pub idle: IdleChoice,

    /// Model devices only: no waiting, the clock jumps to the next event, and the same seed gives
    /// the same output byte for byte.
    #[arg(long = "virtual-time", alias = "virtual_time")]
    pub virtual_time: bool,

    /// Count errors and go on, instead of ending at the first.
    #[arg(long = "continue_on_error")]
    pub continue_on_error: bool,

    /// Write even to a device that holds a file system, a partition table or a RAID member.
    #[arg(long)]
    pub force: bool,

    /// The job's name in the output.
    #[arg(long, default_value = "bench", value_parser = name)]
    pub name: String,
}

/// fio's --rw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Sequential reads and writes.
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes.
    Randrw,
    /// Sequential deallocation.
    Trim,
    /// Random deallocation.
    Randtrim,
}

impl Rw {
    /// True if addresses are drawn by chance.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw | Self::Randtrim)
    }

    /// True if the device's contents change.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }

    /// True if it deallocates.
    #[must_use]
    pub fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::Randtrim)
    }

    /// True if it reads and writes.
    #[must_use]
    pub fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::Randrw)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("?", |v| v.get_name()))
    }
}

/// How to check what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyMethod {
    /// Each block carries its address, its generation and a crc32c.
    Crc32c,
}

/// What a poller does when nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleChoice {
    /// Poll on: a whole core.
    Spin,
    /// Spin, pause, then sleep until something can wake it.
    Adaptive,
}

impl IdleChoice {
    #[must_use]
    pub fn policy(self) -> IdlePolicy {
        match self {
            Self::Spin => IdlePolicy::Spin,
            Self::Adaptive => IdlePolicy::ADAPTIVE,
        }
    }
}

/// Sizes from `min` to `max` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    pub min: u32,
    pub max: u32,
}

impl FromStr for BlockSizes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let bytes = |text| {
            let bytes = parse_size(text)?;
            u32::try_from(bytes)
                .ok()
                .filter(|b| (1..=1 << 30).contains(b))
                .ok_or_else(|| format!("`{text}` is out of bounds: expected 1 byte to 1G"))
        };
        let sizes = Self { min: bytes(min)?, max: bytes(max)? };
        if sizes.min > sizes.max {
            return Err(format!("`{text}` is no range: it starts above its end"));
        }
        Ok(sizes)
    }
}

impl fmt::Display for BlockSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.min)?;
        if self.max != self.min {
            write!(f, "-{}", self.max)?;
        }
        Ok(())
    }
}

/// A list of cores such as 0,2-3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| {
                    text.trim().parse::<usize>().ok().filter(|n| *n < 4096).ok_or_else(|| {
                        format!("`{text}` is no core: expected numbers such as 0,2-3")
                    })
                };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` is no range: it starts above its end"));
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

fn name(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("expected a name without control characters".to_owned());
    }
    Ok(text.to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text)
}

/// Reads a time as fio does: seconds, or with us, ms, s, m, h, d.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("`{text}` is no time: expected seconds, or a unit as in 500ms or 2m");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| expected())?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected()),
    };
    let time = Duration::try_from_secs_f64(number * unit).map_err(|_| expected())?;
    if time.is_zero() || time > Duration::from_secs(366 * 86_400) {
        return Err(format!("`{text}` is out of bounds: expected more than 0, and at most a year"));
    }
    Ok(time)
}

/// How a run is shown.
#[derive(Clone, Debug, Args)]
pub struct OutputOptions {
    /// normal: for people. json: fio's layout. json+: with the whole histogram.
    #[arg(long = "output-format", value_enum, default_value = "normal", value_name = "FORMAT")]
    pub format: OutputFormat,

    /// Short for --output-format=json.
    #[arg(long)]
    pub json: bool,

    /// Where the summary goes [default: standard output].
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Draw latency percentiles and IOPS over time.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// fio's --output-format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Normal,
    Json,
    #[value(name = "json+")]
    JsonPlus,
}

impl OutputOptions {
    #[must_use]
    pub fn format(&self) -> OutputFormat {
        if self.json && self.format == OutputFormat::Normal {
            OutputFormat::Json
        } else {
            self.format
        }
    }
}

impl BenchOptions {
    /// Contradictions that clap does not see.
    ///
    /// # Errors
    /// What contradicts what, and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.time_based && self.runtime.is_none() {
            return Err("--time_based needs --runtime".to_owned());
        }
        if self.verify.is_some() {
            if self.rw.trims() || !self.rw.changes() {
                return Err(format!(
                    "--verify checks what the run wrote, and --rw={} writes nothing; use a write or mixed workload",
                    self.rw
                ));
            }
            if self.bs.min != self.bs.max {
                return Err("--verify needs one block size; give a single --bs".to_owned());
            }
        }
        if self.fsync > 0 && !self.rw.changes() {
            return Err(format!(
                "--fsync flushes after writes, and --rw={} writes nothing",
                self.rw
            ));
        }
        Ok(())
    }

    /// The time that ends the run, if one does.
    #[must_use]
    pub fn time_limit(&self) -> Option<Duration> {
        let ends_by_itself = self.size.is_some() || self.number_ios.is_some();
        self.runtime.or((!ends_by_itself).then_some(Duration::from_secs(10)))
    }

    /// In fio's words, for the outputs.
    #[must_use]
    pub fn words(&self) -> JobOptions {
        let mut words = JobOptions::new();
        let mut add = |key: &str, value: String| {
            words.insert(key.to_owned(), value);
        };
        add("name", self.name.clone());
        add("ioengine", "strake".to_owned());
        add("rw", self.rw.to_string());
        add("bs", self.bs.to_string());
        add("iodepth", self.iodepth.to_string());
        add("numjobs", self.numjobs.to_string());
        add("filename", self.devices.join(":"));
        add("randseed", self.seed.to_string());
        if let Some(size) = self.size {
            add("size", size.to_string());
        }
        if self.offset > 0 {
            add("offset", self.offset.to_string());
        }
        if let Some(time) = self.time_limit() {
            add("runtime", time.as_secs_f64().to_string());
        }
        if self.time_based {
            add("time_based", "1".to_owned());
        }
        if let Some(n) = self.number_ios {
            add("number_ios", n.to_string());
        }
        if self.rw.is_mixed() {
            add("rwmixread", self.rwmixread.to_string());
        }
        if let Some(n) = self.rate_iops {
            add("rate_iops", n.to_string());
        }
        if self.fsync > 0 {
            add("fsync", self.fsync.to_string());
        }
        if self.verify.is_some() {
            add("verify", "crc32c".to_owned());
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_lists_read_as_fio_reads_them() {
        assert_eq!("4k-64k".parse(), Ok(BlockSizes { min: 4096, max: 65_536 }));
        assert_eq!("512".parse(), Ok(BlockSizes { min: 512, max: 512 }));
        assert!("64k-4k".parse::<BlockSizes>().is_err());
        assert!("0".parse::<BlockSizes>().is_err());
        assert!("4G".parse::<BlockSizes>().is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        for nonsense in ["", "s", "-1", "0", "1e9", "99999999d", "nan"] {
            assert!(duration(nonsense).is_err(), "{nonsense}");
        }
        assert_eq!("0,2-3".parse(), Ok(CpuList(vec![0, 2, 3])));
        assert!("3-1".parse::<CpuList>().is_err());
        assert!("0-99999999999".parse::<CpuList>().is_err());
    }
}
