//! Whether a request keeps the limits.

use super::Limits;
use crate::block::{Op, Request, Segment, Status};

impl Limits {
    /// Checks a request and its segments, as every leaf channel does on `submit`. Which regions
    /// the segments name is for the region table to check.
    ///
    /// # Errors
    /// The status that the request completes with.
    #[inline(always)]
    pub fn check(&self, request: &Request, data: &[Segment]) -> Result<(), Status> {
        if !request.op.has_data() {
            return self.check_without_data(request, data);
        }
        let end = request.lba.0.checked_add(request.blocks.into());
        if end.is_none_or(|end| end > self.blocks) {
            return Err(Status::OutOfRange);
        }
        if self.read_only && request.op == Op::Write {
            return Err(Status::ReadOnly);
        }
        let bytes = self.bytes(request.blocks);
        let (sum, bits, empty) = match data {
            // By far the most requests.
            [only] => (u64::from(only.len), only.offset | u64::from(only.len), false),
            _ => self.sum(data),
        };
        let misaligned = bits & (u64::from(self.segment_alignment_bytes) - 1) != 0;
        let too_long = bytes > self.max_transfer_bytes.into();
        if bytes == 0 || sum != bytes || too_long || misaligned || empty {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    /// Length of all segments, all their offsets' and lengths' bits, and whether there is an empty
    /// segment or one too many.
    fn sum(&self, data: &[Segment]) -> (u64, u64, bool) {
        let mut sum = 0u64;
        let mut bits = 0u64;
        let mut empty = data.len() > usize::from(self.max_segments);
        for segment in data {
            sum += u64::from(segment.len);
            bits |= segment.offset | u64::from(segment.len);
            empty |= segment.len == 0;
        }
        (sum, bits, empty)
    }

    #[cold]
    fn check_without_data(&self, request: &Request, data: &[Segment]) -> Result<(), Status> {
        if !data.is_empty() {
            return Err(Status::Invalid);
        }
        let (allowed, max_bytes) = match request.op {
            Op::Flush => {
                let plain = request.blocks == 0 && request.lba.0 == 0;
                return if plain { Ok(()) } else { Err(Status::Invalid) };
            }
            Op::WriteZeroes { .. } => (self.write_zeroes, u64::MAX),
            _ => (self.deallocate.is_some(), self.deallocate.map_or(0, |d| d.max_bytes)),
        };
        let end = request.lba.0.checked_add(request.blocks.into());
        if end.is_none_or(|end| end > self.blocks) {
            Err(Status::OutOfRange)
        } else if self.read_only {
            Err(Status::ReadOnly)
        } else if !allowed {
            Err(Status::Unsupported)
        } else if request.blocks == 0 || self.bytes(request.blocks) > max_bytes {
            Err(Status::Invalid)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Lba, Token};
    use crate::memory::RegionId;

    fn limits() -> Limits {
        let mut limits = Limits::simple(512, 1000).unwrap();
        limits.max_transfer_bytes = 8192;
        limits.max_segments = 2;
        limits.segment_alignment_bytes = 512;
        limits
    }

    fn segment(offset: u64, len: u32) -> Segment {
        Segment { region: RegionId::NONE, len, offset }
    }

    #[test]
    fn each_broken_limit_has_its_status() {
        let l = limits();
        let read = |lba, blocks| Request::read(Lba(lba), blocks, Token(0));
        let ok = [segment(0, 1024)];
        assert_eq!(l.check(&read(998, 2), &ok), Ok(()));
        assert_eq!(l.check(&read(999, 2), &ok), Err(Status::OutOfRange));
        assert_eq!(l.check(&read(u64::MAX, 2), &ok), Err(Status::OutOfRange));
        assert_eq!(l.check(&read(0, 0), &[]), Err(Status::Invalid));
        assert_eq!(l.check(&read(0, 1), &ok), Err(Status::Invalid), "lengths differ");
        assert_eq!(l.check(&read(0, 17), &[segment(0, 8704)]), Err(Status::Invalid), "too long");
        assert_eq!(l.check(&read(0, 2), &[segment(4, 1024)]), Err(Status::Invalid), "misaligned");
        let three = [segment(0, 512), segment(512, 512), segment(1024, 512)];
        assert_eq!(l.check(&read(0, 3), &three), Err(Status::Invalid), "too many segments");
        let hole = [segment(0, 1024), segment(0, 0)];
        assert_eq!(l.check(&read(0, 2), &hole), Err(Status::Invalid), "empty segment");
    }

    #[test]
    fn what_the_device_cannot_do_is_said() {
        let mut l = limits();
        assert_eq!(l.check(&Request::flush(Token(0)), &[]), Ok(()));
        assert_eq!(
            l.check(&Request::deallocate(Lba(0), 1, Token(0)), &[]),
            Err(Status::Unsupported)
        );
        assert_eq!(
            l.check(&Request::write_zeroes(Lba(0), 1, Token(0)), &[]),
            Err(Status::Unsupported)
        );
        l.read_only = true;
        assert_eq!(
            l.check(&Request::write(Lba(0), 1, Token(0)), &[segment(0, 512)]),
            Err(Status::ReadOnly)
        );
    }
}
