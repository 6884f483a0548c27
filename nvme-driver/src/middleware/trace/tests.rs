//! A traced device as its users see it, in virtual time.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::block::{Completion, Full, Lba, Limits, Request, Sink, Status, Token, WakeSet};
use crate::loopback::Null;
use crate::memory::{IovaAllocator, Memory, Region};
use crate::middleware::{Model, ModelParams};
use crate::poller::{Epoch, PollerId};
use crate::time::Instant;

struct Bench {
    log: Arc<TraceLog>,
    trace: Trace,
    channel: Box<dyn Channel>,
    region: Arc<Region>,
}

impl Bench {
    fn new(inner: Arc<dyn Device>, log: &Arc<TraceLog>, depth: u16) -> Self {
        let trace = Trace::new(inner, log);
        let memory = Memory::new(IovaAllocator::for_39_bits());
        let region = memory.add_anonymous(64 << 10).unwrap();
        let claim = trace.claim(ClaimMode::Write).unwrap();
        let channel =
            trace.open(&claim, &OpenOptions { poller: PollerId(0), depth, memory }).unwrap();
        Self { log: Arc::clone(log), trace, channel, region }
    }

    fn submit(&mut self, request: Request) -> Result<(), Full> {
        let bytes = request.blocks * self.trace.limits().block_bytes;
        let data = [self.region.segment(0, bytes)];
        self.channel.submit(&request, if request.op.has_data() { &data } else { &[] })
    }

    fn poll_at(&mut self, micros: u64) -> Vec<Completion> {
        let mut out = Sink::new(64);
        self.channel.poll(Instant::from_nanos(micros * 1000), &mut out);
        out.as_slice().to_vec()
    }

    fn drain(&self) -> String {
        let mut text = Vec::new();
        let lines = self.log.drain(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), lines);
        text
    }
}

fn null(name: &str, block_bytes: u32) -> Arc<dyn Device> {
    Arc::new(Null::new(name, Limits::simple(block_bytes, 1 << 20).unwrap()))
}

#[test]
fn a_modelled_drives_short_write_shows_in_its_trace() {
    let params = ModelParams { name: "nvme2".to_owned(), ..ModelParams::p5520() };
    let inner = Arc::new(Null::new("inner", params.inner_limits().unwrap()));
    let model = Arc::new(Model::new(&params, inner, "model:p5520?name=nvme2").unwrap());
    let mut bench = Bench::new(model, &TraceLog::new(TraceFormat::Text, 16), 4);
    bench.submit(Request::write(Lba(16), 8, Token(0))).unwrap();
    bench.poll_at(1_000_000);
    assert_eq!(bench.poll_at(1_000_015).len(), 1);
    bench.submit(Request::write(Lba(24), 7, Token(1))).unwrap();
    bench.poll_at(1_000_100);
    assert!(bench.poll_at(1_000_529).is_empty());
    assert_eq!(bench.poll_at(1_000_760).len(), 1);
    assert_eq!(
        bench.drain(),
        "1.000015 nvme2 W        16 4096 0.015\n1.000760 nvme2 W        24 3584 0.660\n"
    );
}

#[test]
fn sectors_are_of_512_bytes_whatever_the_block_is() {
    let log = TraceLog::new(TraceFormat::Json, 16);
    let mut bench = Bench::new(null("n", 4096), &log, 4);
    bench.submit(Request::read(Lba(3), 2, Token(0))).unwrap();
    bench.submit(Request::read(Lba(u64::MAX), 1, Token(1))).unwrap();
    assert_eq!(bench.poll_at(2).len(), 2);
    let text = bench.drain();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "{\"time_s\":2e-6,\"device\":\"n\",\"op\":\"R\",\"sector\":24,\"bytes\":8192,\
         \"latency_ms\":0.0,\"status\":\"ok\"}"
    );
    assert!(lines.next().unwrap().contains("beyond the end"));
}

#[test]
fn a_reader_that_does_not_read_is_back_pressure_and_no_loss() {
    let mut bench = Bench::new(null("n", 512), &TraceLog::new(TraceFormat::Text, 7), 2);
    let mut done = 0;
    for round in 0.. {
        let room = bench.channel.room();
        assert_eq!(bench.submit(Request::read(Lba(round), 1, Token(round))).is_ok(), room > 0);
        if room == 0 {
            break;
        }
        done += bench.poll_at(round).len();
    }
    assert_eq!(done, 7, "7 records and the last word");
    let mut wake = WakeSet::new();
    bench.channel.arm(&mut wake);
    assert!(wake.until().is_some(), "a sleeping poller looks again");
    assert_eq!(bench.drain().lines().count(), 7);
    assert_eq!(bench.channel.room(), 0, "seen at the next poll");
    bench.poll_at(10_000);
    assert_eq!(bench.channel.room(), 2);
    let mut wake = WakeSet::new();
    bench.channel.arm(&mut wake);
    assert_eq!((wake.until(), wake.is_ready()), (None, false));
}

#[test]
fn limits_counters_epochs_and_cancels_go_through() {
    let inner = null("n", 512);
    let mut bench = Bench::new(Arc::clone(&inner), &TraceLog::new(TraceFormat::Text, 8), 4);
    assert_eq!(bench.trace.limits(), inner.limits());
    assert_eq!(bench.trace.identity().name, "n");
    bench.submit(Request::read(Lba(0), 1, Token(9))).unwrap();
    bench.channel.turn(Epoch(1));
    bench.channel.cancel(Token(9));
    assert_eq!(bench.channel.oldest(), Some(Epoch(0)));
    assert_eq!(bench.poll_at(0), [Completion { token: Token(9), status: Status::Ok }]);
    assert_eq!(bench.channel.counters().snapshot(), inner.counters());
    assert_eq!(bench.trace.counters().requests[0], 1);
    assert!(inner.claim(ClaimMode::Exclusive).is_ok(), "its claim is gone with the trace's");
    let _held = bench.trace.claim(ClaimMode::Write).unwrap();
    assert!(inner.claim(ClaimMode::Write).is_err(), "the inner device is claimed along");
}

proptest! {
    #[test]
    fn every_request_completes_once_and_is_recorded_once(
        steps in prop::collection::vec(0u8..5, 0..200),
    ) {
        let mut bench = Bench::new(null("n", 512), &TraceLog::new(TraceFormat::Text, 5), 3);
        let (mut submitted, mut now) = (0, 0);
        let (mut completed, mut recorded) = (BTreeSet::new(), BTreeSet::new());
        for step in steps.into_iter().chain([3, 4]) {
            now += 1;
            match step {
                0..3 => {
                    let room = bench.channel.room();
                    let taken = bench.submit(Request::read(Lba(submitted), 1, Token(submitted)));
                    prop_assert_eq!(taken.is_ok(), room > 0);
                    submitted += u64::from(room > 0);
                }
                3 => {
                    for completion in bench.poll_at(now) {
                        prop_assert!(completed.insert(completion.token.0));
                    }
                }
                _ => {
                    for line in bench.drain().lines() {
                        let sector = line.split_whitespace().nth(3).unwrap().parse().unwrap();
                        prop_assert!(recorded.insert(sector));
                    }
                }
            }
        }
        prop_assert_eq!(completed.len() as u64, submitted);
        prop_assert_eq!(recorded, completed);
    }
}
