//! Where records go: a bounded ring a channel, and one reader that merges and writes them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::line::{Record, TraceFormat};
use crate::poller::{Receiver, Sender, ring};

/// Collects the records of any number of traced channels, until the control thread takes them out
/// with [`TraceLog::drain`].
///
/// Each channel owns a ring for its records and takes no request without a place in it, so nothing
/// is ever lost, and a reader that does not keep up slows the I/O down. Drain several times a
/// second, or as often as it takes for `records` to last.
#[derive(Debug)]
pub struct TraceLog {
    format: TraceFormat,
    records: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sources: Vec<Source>,
    /// Channels that were ever opened.
    opened: u64,
    /// Taken out of the rings and not yet written, in order.
    pending: VecDeque<Line>,
}

/// One channel's ring.
#[derive(Debug)]
struct Source {
    device: Arc<str>,
    channel: u64,
    from: Receiver<Entry>,
    capacity: usize,
}

#[derive(Debug)]
struct Line {
    record: Record,
    channel: u64,
    device: Arc<str>,
}

/// What a channel sends.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Io(Record),
    /// The channel is gone, and this is its last word.
    Closed,
}

impl TraceLog {
    /// An empty log, in which each channel has places for at least `records` records, and for as
    /// many as it may have requests outstanding.
    #[must_use]
    pub fn new(format: TraceFormat, records: usize) -> Arc<Self> {
        Arc::new(Self { format, records, state: Mutex::default() })
    }

    /// Connects a channel of `device` that may have `depth` requests outstanding.
    pub(super) fn connect(&self, device: &str, depth: usize) -> Recorder {
        // One place more, for the last word.
        let capacity = (self.records.max(depth) + 1).next_power_of_two();
        let (to, from) = ring(capacity);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = state.opened;
        state.opened += 1;
        state.sources.push(Source { device: device.into(), channel, from, capacity });
        Recorder { to }
    }

    /// Writes what was recorded since the last call, by time and, where that is equal, by channel;
    /// says how many lines. May block, as `out` does: never called by a poller.
    ///
    /// # Errors
    /// What `out` says. Lines that were not written stay, and come first the next time.
    pub fn drain(&self, out: &mut dyn io::Write) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // While `out` fails the records stay in the rings, so what is kept here is bounded too.
        if state.pending.is_empty() {
            state.collect();
        }
        let (mut written, mut text) = (0, Vec::with_capacity(256));
        while let Some(line) = state.pending.front() {
            text.clear();
            line.record.write(self.format, &line.device, &mut text)?;
            out.write_all(&text)?;
            state.pending.pop_front();
            written += 1;
        }
        Ok(written)
    }
}

impl State {
    /// Empties the rings, each at most once over, however fast it is filled meanwhile.
    fn collect(&mut self) {
        let Self { sources, pending, .. } = self;
        sources.retain_mut(|source| {
            for _ in 0..source.capacity {
                match source.from.pop() {
                    None => break,
                    Some(Entry::Closed) => return false,
                    Some(Entry::Io(record)) => {
                        let device = Arc::clone(&source.device);
                        pending.push_back(Line { record, channel: source.channel, device });
                    }
                }
            }
            true
        });
        let lines = pending.make_contiguous();
        lines.sort_by_key(|line| (line.record.at, line.channel));
    }
}

/// A channel's end of its ring.
#[derive(Debug)]
pub(super) struct Recorder {
    to: Sender<Entry>,
}

impl Recorder {
    /// How many records fit now.
    pub(super) fn room(&mut self) -> usize {
        self.to.room().saturating_sub(1)
    }

    /// Puts one in. The reader sees it after [`publish`](Self::publish).
    pub(super) fn push(&mut self, record: Record) {
        let pushed = self.to.push(Entry::Io(record));
        debug_assert!(pushed.is_ok(), "a place was reserved when the request was taken");
    }

    /// Shows the reader everything put in so far.
    pub(super) fn publish(&mut self) {
        self.to.publish();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The last place is kept for this, and dropping the sender publishes it.
        let _ = self.to.push(Entry::Closed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::{Flags, Op, Status};
    use crate::time::Instant;

    fn record(at: u64) -> Record {
        let at = Instant::from_nanos(at);
        let (op, flags, status) = (Op::Read, Flags::empty(), Status::Ok);
        Record { started: at, at, op, flags, sector: 0, bytes: 512, status }
    }

    fn devices(text: &[u8]) -> Vec<String> {
        let text = String::from_utf8(text.to_vec()).unwrap();
        text.lines().map(|l| l.split(' ').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn channels_are_merged_by_time_and_a_closed_one_is_forgotten_after_its_last_record() {
        let log = TraceLog::new(TraceFormat::Text, 4);
        let mut a = log.connect("a", 1);
        let mut b = log.connect("b", 1);
        for (recorder, times) in [(&mut b, [1, 5]), (&mut a, [5, 7])] {
            times.into_iter().for_each(|at| recorder.push(record(at)));
            recorder.publish();
        }
        a.push(record(9));
        drop(a);
        let mut text = Vec::new();
        assert_eq!(log.drain(&mut text).unwrap(), 5);
        assert_eq!(devices(&text), ["b", "a", "b", "a", "a"]);
        assert_eq!(log.state.lock().unwrap().sources.len(), 1);
        assert_eq!(log.drain(&mut text).unwrap(), 0);
    }

    /// Takes a number of lines and then fails.
    struct FullDisk(usize, Vec<u8>);

    impl io::Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_could_not_be_written_come_first_the_next_time() {
        let log = TraceLog::new(TraceFormat::Text, 4);
        let mut recorder = log.connect("a", 1);
        (0..4).for_each(|at| recorder.push(record(at * 1000)));
        recorder.publish();
        let mut disk = FullDisk(2, Vec::new());
        assert!(log.drain(&mut disk).is_err());
        disk.0 = usize::MAX;
        assert_eq!(log.drain(&mut disk).unwrap(), 2);
        let text = String::from_utf8(disk.1).unwrap();
        let times: Vec<&str> = text.lines().map(|l| &l[..8]).collect();
        assert_eq!(times, ["0.000000", "0.000001", "0.000002", "0.000003"]);
    }
}
