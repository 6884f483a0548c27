//! What a channel has done, counted by its owner and readable by anyone.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::request::Op;
use super::status::Status;

/// One channel's counters. One thread writes, so an increment is a plain load and store.
#[derive(Debug, Default)]
pub struct Counters {
    inner: CachePadded<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    requests: [AtomicU64; Op::KINDS],
    bytes: [AtomicU64; Op::KINDS],
    errors: AtomicU64,
    unsized_writes: AtomicU64,
}

#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Counters {
    /// Counts one request sent to the device: `bytes` of `op`.
    #[inline]
    pub fn request(&self, op: Op, bytes: u64) {
        add(&self.inner.requests[op.index()], 1);
        add(&self.inner.bytes[op.index()], bytes);
    }

    /// Counts a completion that is not `Ok`.
    #[inline]
    pub fn completion(&self, status: Status) {
        if !status.is_ok() {
            add(&self.inner.errors, 1);
        }
    }

    /// Counts a write that is not whole, aligned write units, so that the device has to read
    /// before it writes.
    #[inline]
    pub fn unsized_write(&self) {
        add(&self.inner.unsized_writes, 1);
    }

    /// The values now. Each is exact; together they may be a few requests apart.
    #[must_use]
    pub fn snapshot(&self) -> CounterSnapshot {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        CounterSnapshot {
            requests: self.inner.requests.each_ref().map(read),
            bytes: self.inner.bytes.each_ref().map(read),
            errors: read(&self.inner.errors),
            unsized_writes: read(&self.inner.unsized_writes),
        }
    }
}

/// Counter values at one moment. Arrays are indexed by [`Op::index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Requests sent to the device, by kind.
    pub requests: [u64; Op::KINDS],
    /// Bytes of those requests, by kind.
    pub bytes: [u64; Op::KINDS],
    /// Completions that were not `Ok`.
    pub errors: u64,
    /// Writes that were not whole, aligned write units.
    pub unsized_writes: u64,
}

impl CounterSnapshot {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let each =
            |a: [u64; Op::KINDS], b: [u64; Op::KINDS]| std::array::from_fn(|i| f(a[i], b[i]));
        Self {
            requests: each(self.requests, other.requests),
            bytes: each(self.bytes, other.bytes),
            errors: f(self.errors, other.errors),
            unsized_writes: f(self.unsized_writes, other.unsized_writes),
        }
    }
}

impl Add for CounterSnapshot {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for CounterSnapshot {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_sub)
    }
}

/// A device's record of its channels' counters, open and closed.
#[derive(Debug, Default)]
pub struct CountersBook {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    open: Vec<Arc<Counters>>,
    closed: CounterSnapshot,
}

impl Pages {
    /// Adds up those whose channel is gone, so that the book does not grow with every open.
    fn settle(&mut self) {
        let Self { open, closed } = self;
        open.retain(|counters| {
            let in_use = Arc::strong_count(counters) > 1;
            if !in_use {
                *closed = *closed + counters.snapshot();
            }
            in_use
        });
    }
}

impl CountersBook {
    /// Counters for a new channel.
    pub fn open(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.settle();
        pages.open.push(Arc::clone(&counters));
        counters
    }

    /// The sum over all channels that were ever opened.
    #[must_use]
    pub fn total(&self) -> CounterSnapshot {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let open = pages.open.iter().map(|c| c.snapshot());
        open.fold(pages.closed, Add::add)
    }
}
