//! Buffers of one size, cut from one region, owned by one poller.

use std::sync::Arc;

use super::region::Region;
use super::table::{Memory, MemoryError};
use crate::block::Segment;

/// A fixed number of buffers of one size.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    buffer_bytes: u32,
    /// From one buffer's start to the next one's.
    stride: u64,
    free: Vec<u32>,
}

/// One buffer of a pool. Give it back with [`Pool::put`] when its request has completed.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    index: u32,
    segment: Segment,
}

impl Buffer {
    /// The whole buffer.
    #[inline]
    #[must_use]
    pub fn segment(&self) -> Segment {
        self.segment
    }

    /// Which of the pool's buffers it is, from 0.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        self.index as usize
    }
}

impl Pool {
    /// `count` buffers of `buffer_bytes`, each starting at a multiple of 4 KiB if that large, else
    /// of its own size rounded up to a power of two.
    ///
    /// # Errors
    /// As [`Memory::add_anonymous`].
    pub fn new(memory: &Memory, count: u32, buffer_bytes: u32) -> Result<Self, MemoryError> {
        let alignment = u64::from(buffer_bytes).next_power_of_two().min(4096);
        let stride = u64::from(buffer_bytes.max(1)).next_multiple_of(alignment);
        let len = usize::try_from(stride * u64::from(count)).map_err(std::io::Error::other)?;
        let region = memory.add_anonymous(len)?;
        Ok(Self { region, buffer_bytes, stride, free: (0..count).rev().collect() })
    }

    /// A free buffer.
    pub fn take(&mut self) -> Option<Buffer> {
        let index = self.free.pop()?;
        let segment = self.region.segment(u64::from(index) * self.stride, self.buffer_bytes);
        Some(Buffer { index, segment })
    }

    /// Takes a buffer back.
    pub fn put(&mut self, buffer: Buffer) {
        debug_assert_eq!(buffer.segment.region, self.region.id(), "a buffer of another pool");
        self.free.push(buffer.index);
    }

    /// How many are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// The region they are cut from.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}
