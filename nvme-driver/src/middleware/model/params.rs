//! What is modelled: the presets, and the options of a URI that change them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::block::{ClaimedLimits, Disbelief, Limits, LimitsError, Uri, UriError};

/// A drive to be modelled. Fields left out of a URI are the preset's.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelParams {
    /// A short name for tables and traces (`name=`).
    pub name: String,
    /// Capacity (`size=`); the model's is at most the inner device's.
    pub capacity_bytes: u64,
    /// Logical block (`block=`): the inner device's or a multiple of it.
    pub block_bytes: u32,
    /// Writes that are not whole, aligned units of this cost a read-modify-write (`write_unit=`);
    /// 0 = none do.
    pub write_unit_bytes: u32,
    /// Longest request (`max_transfer=`); 0 = the inner device's.
    pub max_transfer_bytes: u32,
    /// It seeks (`rotational=`): only what the limits say, not how it behaves.
    pub rotational: bool,
    /// It loses completed writes with the power (`volatile_cache=`): only what the limits say.
    pub volatile_cache: bool,
    /// It deallocates, to zeros, and writes zeros by itself, where the inner device does too
    /// (`deallocate=`).
    pub deallocate: bool,
    /// Where its random times start from (`seed=`).
    pub seed: u64,
    /// How it works inside.
    pub mechanism: Mechanism,
}

/// How a drive works inside.
#[derive(Clone, Debug, PartialEq)]
pub enum Mechanism {
    /// Parallel units behind a link.
    Flash(FlashParams),
    /// One actuator over turning platters.
    Disk(DiskParams),
}

/// A flash drive: `channels` units, each with one request at a time, first come, first served;
/// and a link that carries the bytes of one request after the other in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashParams {
    /// A read, in a unit, in microseconds (`read_us=`).
    pub read_us: f64,
    /// A write of whole write units (`write_us=`).
    pub write_us: f64,
    /// Any other write, at the least (`rmw_us_min=`),
    pub rmw_us_min: f64,
    /// and at the most (`rmw_us_max=`); evenly spread.
    pub rmw_us_max: f64,
    /// A flush (`flush_us=`).
    pub flush_us: f64,
    /// A deallocation or write of zeros, of any length (`deallocate_us=`).
    pub deallocate_us: f64,
    /// Units that work in parallel (`channels=`).
    pub channels: u32,
    /// The link towards the host, in 10^6 bytes a second (`read_mbps=`).
    pub read_mbps: f64,
    /// The link towards the drive (`write_mbps=`).
    pub write_mbps: f64,
}

/// A hard disk: one request at a time, first come, first served, each paid for in movement.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParams {
    /// Speed of the platters, in rotations a minute (`rpm=`).
    pub rpm: f64,
    /// Media rate, in 10^6 bytes a second (`mbps=`).
    pub mbps: f64,
    /// The shortest seek, in milliseconds (`seek_min_ms=`).
    pub seek_min_ms: f64,
    /// The seek across the whole disk (`seek_max_ms=`); in between it grows with the square root
    /// of the distance.
    pub seek_max_ms: f64,
}

/// Longest time that an option can say: ten seconds.
const TIME_US: RangeInclusive<f64> = 0.0..=1e7;
const TIME_MS: RangeInclusive<f64> = 0.0..=1e4;
/// 1 kB/s to 1 TB/s.
const MBPS: RangeInclusive<f64> = 0.001..=1e6;

impl ModelParams {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 2] = ["p5520", "hdd-180"];

    /// Solidigm (Intel) D7-P5520, 3.84 TB, formatted with 512-byte blocks: power-loss protected,
    /// atomic and optimal unit 4 KiB.
    ///
    /// Write times are from the trace that motivated the project: 0.01 to 0.02 ms for 4,096 bytes,
    /// 0.43 to 0.66 ms for the 3,584 bytes of a bitmap's last page. Read latency and bandwidth are
    /// the data sheet's. Not modelled: garbage collection, so that random writes are never slower
    /// than the link.
    ///
    /// | closed form | | |
    /// | --- | --- | --- |
    /// | write 4,096, depth 1 | 1 / 15 us | 66,667 IOPS |
    /// | write 3,584, depth 1 | 1 / 545 us | 1,835 IOPS, 36.3 times fewer |
    /// | write 4,096, depth 128 | 4,200 MB/s / 4,096: the link | 1,025,391 IOPS |
    /// | write 3,584, depth 128 | 64 / 545 us: the units | 117,431 IOPS |
    /// | read 4,096, depth 1 | 1 / 75 us | 13,333 IOPS |
    /// | read 4,096, depth 256 | 64 / 75 us: the units | 853,333 IOPS |
    #[must_use]
    pub fn p5520() -> Self {
        Self {
            name: "p5520".to_owned(),
            capacity_bytes: 3_840_755_982_336,
            block_bytes: 512,
            write_unit_bytes: 4096,
            max_transfer_bytes: 0,
            rotational: false,
            volatile_cache: false,
            deallocate: true,
            seed: 1,
            mechanism: Mechanism::Flash(FlashParams {
                read_us: 75.0,
                write_us: 15.0,
                rmw_us_min: 430.0,
                rmw_us_max: 660.0,
                flush_us: 5.0,
                deallocate_us: 20.0,
                channels: 64,
                read_mbps: 7100.0,
                write_mbps: 4200.0,
            }),
        }
    }

    /// A hard disk of 4 TB: 7,200 rotations a minute, 180 MB/s, 512-byte blocks over 4 KiB
    /// sectors, average seek 8.5 ms.
    ///
    /// The average distance of two random places, under the square root, is 8/15 of the way, so an
    /// average of 0.5 ms + 8/15 x 15 ms gives the seek across the disk, 15.5 ms. Not modelled: the
    /// write cache's reordering, zones of different speed, and read-ahead other than that a
    /// request which starts where the last one ended pays for its transfer only.
    ///
    /// | closed form | | |
    /// | --- | --- | --- |
    /// | sequential | | 180 MB/s |
    /// | random 4,096 | 1 / (8.5 + 4.167 + 0.023 ms) | 78.8 IOPS |
    /// | random write 3,584 | 1 / (8.5 + 4.167 + 8.333 + 0.020 ms) | 47.6 IOPS |
    #[must_use]
    pub fn hdd_180() -> Self {
        Self {
            name: "hdd-180".to_owned(),
            capacity_bytes: 4_000_787_030_016,
            block_bytes: 512,
            write_unit_bytes: 4096,
            max_transfer_bytes: 0,
            rotational: true,
            volatile_cache: true,
            deallocate: false,
            seed: 1,
            mechanism: Mechanism::Disk(DiskParams {
                rpm: 7200.0,
                mbps: 180.0,
                seek_min_ms: 0.5,
                seek_max_ms: 15.5,
            }),
        }
    }

    /// The preset of this name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "p5520" => Some(Self::p5520()),
            "hdd-180" => Some(Self::hdd_180()),
            _ => None,
        }
    }

    /// Reads `model:PRESET?option=value`; what it wraps (`@inner`) is for the caller to open.
    ///
    /// # Errors
    /// An unknown preset or option, or a value out of bounds.
    pub fn from_uri(uri: &Uri) -> Result<Self, UriError> {
        let mut params = Self::preset(uri.body()).ok_or_else(|| UriError::Malformed {
            text: uri.to_string(),
            why: format!(
                "`{}` is no drive that can be modelled; known are {}",
                uri.body(),
                Self::PRESETS.join(", ")
            ),
        })?;
        params.read_shape(uri)?;
        match &mut params.mechanism {
            Mechanism::Flash(flash) => flash.read(uri)?,
            Mechanism::Disk(disk) => disk.read(uri)?,
        }
        uri.finish()?;
        Ok(params)
    }

    /// The options that every mechanism has.
    fn read_shape(&mut self, uri: &Uri) -> Result<(), UriError> {
        let narrow = |key: &str, bytes: u64| {
            u32::try_from(bytes).map_err(|_| uri.bad(key, "expected less than 4 GiB"))
        };
        if let Some(name) = uri.option::<String>("name")? {
            self.name = name;
        }
        if let Some(bytes) = uri.size("block")? {
            self.block_bytes = narrow("block", bytes)?;
        }
        if let Some(bytes) = uri.size("size")? {
            self.capacity_bytes = bytes;
        }
        if let Some(bytes) = uri.size("write_unit")? {
            self.write_unit_bytes = narrow("write_unit", bytes)?;
        }
        if let Some(bytes) = uri.size("max_transfer")? {
            self.max_transfer_bytes = narrow("max_transfer", bytes)?;
        }
        self.rotational = uri.flag("rotational")?.unwrap_or(self.rotational);
        self.volatile_cache = uri.flag("volatile_cache")?.unwrap_or(self.volatile_cache);
        self.deallocate = uri.flag("deallocate")?.unwrap_or(self.deallocate);
        self.seed = uri.option("seed")?.unwrap_or(self.seed);
        match Limits::believe(&self.claimed()) {
            Err(why @ LimitsError::Block(_)) => Err(uri.bad("block", &why.to_string())),
            Err(why) => Err(uri.bad("size", &why.to_string())),
            Ok((_, ignored)) => match ignored.first() {
                None => Ok(()),
                Some(Disbelief { what: "maximum transfer", why, .. }) => {
                    Err(uri.bad("max_transfer", why))
                }
                Some(Disbelief { why, .. }) => Err(uri.bad("write_unit", why)),
            },
        }
    }

    /// How large an inner device the whole model needs.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The limits of a device that can stand inside without narrowing the model: what to give a
    /// [`Null`](crate::loopback::Null) where the URI names no inner device.
    ///
    /// # Errors
    /// A block size or capacity that no device can have; never for parameters from a URI.
    pub fn inner_limits(&self) -> Result<Limits, LimitsError> {
        Ok(Limits::believe(&self.claimed())?.0)
    }

    /// What the drive says of itself.
    fn claimed(&self) -> ClaimedLimits {
        let unit = u64::from(self.write_unit_bytes);
        ClaimedLimits {
            block_bytes: self.block_bytes.into(),
            blocks: self.capacity_bytes / u64::from(self.block_bytes.max(1)),
            write_granularity_bytes: unit,
            write_alignment_bytes: unit,
            optimal_write_bytes: unit,
            atomic_unit_bytes: unit,
            max_transfer_bytes: self.max_transfer_bytes.into(),
            max_segments: u16::MAX.into(),
            can_deallocate: self.deallocate,
            deallocate_granularity_bytes: unit,
            deallocate_alignment_bytes: unit,
            deallocate_reads_zero: self.deallocate,
            write_zeroes: self.deallocate,
            volatile_cache: self.volatile_cache,
            rotational: self.rotational,
            ..ClaimedLimits::default()
        }
    }

    /// The limits of the model over a device with the limits `inner`: what both can do.
    pub(super) fn limits_over(&self, inner: &Limits) -> Result<Limits, LimitsError> {
        let mut claimed = self.claimed();
        let block = u64::from(self.block_bytes.max(1));
        claimed.blocks = self.capacity_bytes.min(inner.capacity_bytes()) / block;
        claimed.max_segments = inner.max_segments.into();
        claimed.segment_alignment_bytes = inner.segment_alignment_bytes.into();
        let inner_transfer = u64::from(inner.max_transfer_bytes);
        claimed.max_transfer_bytes = match claimed.max_transfer_bytes {
            0 => inner_transfer,
            bytes => bytes.min(inner_transfer),
        };
        claimed.can_deallocate &= inner.deallocate.is_some();
        if let Some(inner) = inner.deallocate {
            claimed.deallocate_granularity_bytes =
                claimed.deallocate_granularity_bytes.max(inner.granularity_bytes.into());
            claimed.deallocate_alignment_bytes =
                claimed.deallocate_alignment_bytes.max(inner.alignment_bytes.into());
            claimed.deallocate_max_bytes = inner.max_bytes;
            claimed.deallocate_reads_zero &= inner.reads_zero;
        }
        claimed.write_zeroes &= inner.write_zeroes;
        claimed.volatile_cache |= inner.volatile_cache;
        claimed.read_only = inner.read_only;
        Ok(Limits::believe(&claimed)?.0)
    }
}

/// Reads option `key` into `value`, if it is given and lies in `range`.
fn number<T>(uri: &Uri, key: &str, value: &mut T, range: RangeInclusive<T>) -> Result<(), UriError>
where
    T: FromStr + PartialOrd + fmt::Display,
    T::Err: fmt::Display,
{
    if let Some(given) = uri.option::<T>(key)? {
        if !range.contains(&given) {
            let why = format!("expected {} to {}", range.start(), range.end());
            return Err(uri.bad(key, &why));
        }
        *value = given;
    }
    Ok(())
}

impl FlashParams {
    fn read(&mut self, uri: &Uri) -> Result<(), UriError> {
        number(uri, "read_us", &mut self.read_us, TIME_US)?;
        number(uri, "write_us", &mut self.write_us, TIME_US)?;
        number(uri, "rmw_us_min", &mut self.rmw_us_min, TIME_US)?;
        number(uri, "rmw_us_max", &mut self.rmw_us_max, TIME_US)?;
        if self.rmw_us_min > self.rmw_us_max {
            let why = format!("expected no more than rmw_us_max={}", self.rmw_us_max);
            return Err(uri.bad("rmw_us_min", &why));
        }
        number(uri, "flush_us", &mut self.flush_us, TIME_US)?;
        number(uri, "deallocate_us", &mut self.deallocate_us, TIME_US)?;
        number(uri, "channels", &mut self.channels, 1..=65_536)?;
        number(uri, "read_mbps", &mut self.read_mbps, MBPS)?;
        number(uri, "write_mbps", &mut self.write_mbps, MBPS)
    }
}

impl DiskParams {
    fn read(&mut self, uri: &Uri) -> Result<(), UriError> {
        number(uri, "rpm", &mut self.rpm, 1.0..=1e6)?;
        number(uri, "mbps", &mut self.mbps, MBPS)?;
        number(uri, "seek_min_ms", &mut self.seek_min_ms, TIME_MS)?;
        number(uri, "seek_max_ms", &mut self.seek_max_ms, TIME_MS)?;
        if self.seek_min_ms > self.seek_max_ms {
            let why = format!("expected no more than seek_max_ms={}", self.seek_max_ms);
            return Err(uri.bad("seek_min_ms", &why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ModelParams, UriError> {
        ModelParams::from_uri(&Uri::parse(text).unwrap())
    }

    #[test]
    fn options_change_the_preset_and_nothing_else() {
        let params = read("model:p5520?channels=8&write_us=20.5&seed=7&size=1G@mem:1G").unwrap();
        let mut expected = ModelParams::p5520();
        expected.seed = 7;
        expected.capacity_bytes = 1 << 30;
        if let Mechanism::Flash(flash) = &mut expected.mechanism {
            flash.channels = 8;
            flash.write_us = 20.5;
        }
        assert_eq!(params, expected);
        assert_eq!(read("model:hdd-180").unwrap(), ModelParams::hdd_180());
    }

    #[test]
    fn the_limits_are_the_drives() {
        let limits = read("model:p5520").unwrap().inner_limits().unwrap();
        assert_eq!(limits.block_bytes, 512);
        assert_eq!(limits.capacity_bytes(), 3_840_755_982_336);
        assert_eq!((limits.write_granularity_bytes, limits.optimal_write_bytes), (4096, 4096));
        assert_eq!((limits.write_alignment_bytes, limits.atomic.unit_bytes), (4096, 4096));
        assert!(limits.deallocate.is_some_and(|d| d.reads_zero) && limits.write_zeroes);
        assert!(!limits.volatile_cache && !limits.rotational);
        let off = read("model:p5520?write_unit=0").unwrap().inner_limits().unwrap();
        assert_eq!(off.write_granularity_bytes, 512);
        let disk = read("model:hdd-180?block=4k").unwrap().inner_limits().unwrap();
        assert!(disk.rotational && disk.volatile_cache && disk.deallocate.is_none());
        assert_eq!(disk.block_bytes, 4096);
    }

    #[test]
    fn each_value_out_of_bounds_names_its_option() {
        for (text, key) in [
            ("model:p5520?channels=0", "channels="),
            ("model:p5520?read_us=-1", "read_us="),
            ("model:p5520?read_us=NaN", "read_us="),
            ("model:p5520?write_mbps=0", "write_mbps="),
            ("model:p5520?rmw_us_min=700", "rmw_us_min="),
            ("model:p5520?block=520", "block="),
            ("model:p5520?size=100", "size="),
            ("model:p5520?size=0", "size="),
            ("model:p5520?write_unit=768", "write_unit="),
            ("model:p5520?write_unit=5000", "write_unit="),
            ("model:p5520?write_unit=16M", "write_unit="),
            ("model:p5520?write_unit=1t", "write_unit="),
            ("model:p5520?max_transfer=100", "max_transfer="),
            ("model:hdd-180?rpm=0", "rpm="),
            ("model:hdd-180?seek_min_ms=20", "seek_min_ms="),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(key), "{text}: {message}");
        }
        assert!(read("model:p5520?rpm=7200").unwrap_err().to_string().contains("rpm"));
        assert!(read("model:p9999").unwrap_err().to_string().contains("hdd-180"));
    }
}
