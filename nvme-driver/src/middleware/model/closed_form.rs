//! What the model comes to on average, without running it: the numbers that every run of the
//! model is held against.

use super::params::{DiskParams, FlashParams, Mechanism, ModelParams};

/// A kind of access to random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any read.
    Read,
    /// A write of whole, aligned write units.
    AlignedWrite,
    /// Any other write.
    UnalignedWrite,
}

impl FlashParams {
    /// How long a unit works on one request, on average, in microseconds. A read-modify-write is
    /// spread evenly, so its mean is the middle.
    #[must_use]
    pub fn unit_us(&self, access: Access) -> f64 {
        match access {
            Access::Read => self.read_us,
            Access::AlignedWrite => self.write_us,
            Access::UnalignedWrite => f64::midpoint(self.rmw_us_min, self.rmw_us_max),
        }
    }

    /// How long the link carries `bytes`, in microseconds.
    #[must_use]
    pub fn wire_us(&self, access: Access, bytes: u64) -> f64 {
        let mbps = if access == Access::Read { self.read_mbps } else { self.write_mbps };
        bytes as f64 / mbps
    }

    /// Requests of `bytes` a second with `queue_depth` outstanding: as many as the units or the
    /// link let through. A unit works while the link carries, so one request takes the longer.
    #[must_use]
    pub fn iops(&self, access: Access, bytes: u64, queue_depth: u32) -> f64 {
        let wire_us = self.wire_us(access, bytes);
        let at_once = f64::from(queue_depth.min(self.channels));
        let units = at_once / self.unit_us(access).max(wire_us);
        1e6 * units.min(1.0 / wire_us)
    }
}

impl DiskParams {
    /// One rotation, in milliseconds.
    #[must_use]
    pub fn rotation_ms(&self) -> f64 {
        60_000.0 / self.rpm
    }

    /// The average seek between random places, in milliseconds: for x and y spread evenly over 0
    /// to 1 the mean of the square root of |x - y| is 8/15.
    #[must_use]
    pub fn seek_ms(&self) -> f64 {
        self.seek_min_ms + (self.seek_max_ms - self.seek_min_ms) * 8.0 / 15.0
    }

    /// One request of `bytes` at a random place, on average, in milliseconds: seek, half a
    /// rotation, transfer, and one rotation more if it is a write of part of a sector.
    #[must_use]
    pub fn random_ms(&self, access: Access, bytes: u64) -> f64 {
        let again = if access == Access::UnalignedWrite { self.rotation_ms() } else { 0.0 };
        let transfer_ms = bytes as f64 / self.mbps / 1000.0;
        self.seek_ms() + self.rotation_ms() / 2.0 + transfer_ms + again
    }

    /// Random requests of `bytes` a second, at any queue depth: there is one actuator.
    #[must_use]
    pub fn random_iops(&self, access: Access, bytes: u64) -> f64 {
        1000.0 / self.random_ms(access, bytes)
    }

    /// Bytes a second of one sequential stream of aligned requests, of any size.
    #[must_use]
    pub fn sequential_bytes_per_s(&self) -> f64 {
        self.mbps * 1e6
    }
}

impl ModelParams {
    /// Requests of `bytes` a second at random places, with `queue_depth` outstanding.
    #[must_use]
    pub fn random_iops(&self, access: Access, bytes: u64, queue_depth: u32) -> f64 {
        match &self.mechanism {
            Mechanism::Flash(flash) => flash.iops(access, bytes, queue_depth),
            Mechanism::Disk(disk) => disk.random_iops(access, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the presets' documentation states.
    #[test]
    fn the_presets_come_to_what_their_pages_say() {
        let p = ModelParams::p5520();
        let iops = |access, bytes, depth| p.random_iops(access, bytes, depth).round();
        assert_eq!(iops(Access::AlignedWrite, 4096, 1), 66_667.0);
        assert_eq!(iops(Access::UnalignedWrite, 3584, 1), 1_835.0);
        assert_eq!(iops(Access::AlignedWrite, 4096, 128), 1_025_391.0);
        assert_eq!(iops(Access::UnalignedWrite, 3584, 128), 117_431.0);
        assert_eq!(iops(Access::Read, 4096, 1), 13_333.0);
        assert_eq!(iops(Access::Read, 4096, 256), 853_333.0);
        let Mechanism::Disk(d) = ModelParams::hdd_180().mechanism else { unreachable!() };
        assert!((d.seek_ms() - 8.5).abs() < 1e-9);
        assert!((d.random_iops(Access::Read, 4096) - 78.8).abs() < 0.05);
        assert!((d.random_iops(Access::UnalignedWrite, 3584) - 47.6).abs() < 0.05);
    }
}
