//! `null:SIZE`: writes vanish, reads leave the buffer as it is. What is left is the cost of the
//! stack itself.

use std::sync::Arc;

use super::LoopbackError;
use super::mem::simple_limits;
use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, Completion, CounterSnapshot, Counters, Device,
    DeviceCore, Events, Full, Identity, Kind, Limits, OpenError, OpenOptions, Progress, Request,
    Segment, Sink, Status, Token, Uri, WakeSet,
};
use crate::memory::EpochMemory;
use crate::poller::Epoch;

/// A device that does nothing, and checks everything.
#[derive(Debug)]
pub struct Null {
    core: Arc<DeviceCore>,
}

impl Null {
    /// A device with these limits.
    #[must_use]
    pub fn new(name: &str, limits: Limits) -> Self {
        let identity = Identity {
            id: format!("null-{name}"),
            uri: format!("null:{}", limits.capacity_bytes()),
            name: name.to_owned(),
            kind: Kind::Null,
        };
        Self { core: Arc::new(DeviceCore::new(identity, limits)) }
    }

    /// Opens `null:SIZE?block=512`.
    ///
    /// # Errors
    /// No size, or nonsense options.
    pub fn open_uri(uri: &Uri) -> Result<Self, LoopbackError> {
        let limits = simple_limits(uri)?;
        uri.finish()?;
        let identity = Identity {
            id: uri.to_string(),
            uri: uri.to_string(),
            name: "null".to_owned(),
            kind: Kind::Null,
        };
        Ok(Self { core: Arc::new(DeviceCore::new(identity, limits)) })
    }
}

impl Device for Null {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn limits(&self) -> Arc<Limits> {
        self.core.limits()
    }

    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError> {
        self.core.claims().claim(&self.core.identity().id, mode, || Ok(()))
    }

    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError> {
        self.core.check_open(claim, options)?;
        Ok(Box::new(NullChannel {
            limits: self.core.limits_for(claim.mode()),
            mode: claim.mode(),
            memory: EpochMemory::new(&options.memory),
            counters: self.core.counters().open(),
            queue: vec![NO_ENTRY; usize::from(options.depth).next_power_of_two()].into(),
            begun: 0,
            ended: 0,
            depth: options.depth.into(),
            core: Arc::clone(&self.core),
        }))
    }

    fn events(&self) -> Events {
        self.core.events().watch()
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}

// On cache lines of its own: its neighbours on the heap are other cores'.
#[repr(align(128))]
struct NullChannel {
    limits: Arc<Limits>,
    memory: EpochMemory,
    counters: Arc<Counters>,
    /// A ring: `begun - ended` entries from `ended` on, both counted on and on.
    queue: Box<[Entry]>,
    begun: usize,
    ended: usize,
    depth: usize,
    mode: ClaimMode,
    core: Arc<DeviceCore>,
}

#[derive(Clone, Copy)]
struct Entry {
    completion: Completion,
    epoch: u8,
}

const NO_ENTRY: Entry =
    Entry { completion: Completion { token: Token(0), status: Status::Ok }, epoch: 0 };

impl NullChannel {
    #[inline]
    fn outstanding(&self) -> usize {
        self.begun.wrapping_sub(self.ended)
    }

    #[inline(always)]
    fn push(&mut self, token: Token, status: Status) {
        let at = self.begun & (self.queue.len() - 1);
        let completion = Completion { token, status };
        self.queue[at] = Entry { completion, epoch: self.memory.begin() };
        self.begun = self.begun.wrapping_add(1);
    }
}

impl Channel for NullChannel {
    fn room(&self) -> usize {
        self.depth - self.outstanding()
    }

    fn submit(&mut self, request: &Request, data: &[Segment]) -> Result<(), Full> {
        if self.outstanding() == self.depth {
            return Err(Full);
        }
        let checked = match self.limits.check(request, data) {
            Ok(()) => self.memory.table().check(data),
            refused => refused,
        };
        match checked {
            Ok(()) => {
                self.counters.request(request.op, self.limits.bytes(request.blocks));
                self.push(request.token, Status::Ok);
            }
            Err(status) => self.push(request.token, status),
        }
        Ok(())
    }

    fn poll(&mut self, _now: crate::time::Instant, out: &mut Sink) -> Progress {
        let n = self.outstanding().min(out.room());
        let mut ended = [0; 2];
        for _ in 0..n {
            let entry = &self.queue[self.ended & (self.queue.len() - 1)];
            self.ended = self.ended.wrapping_add(1);
            ended[usize::from(entry.epoch & 1)] += 1;
            self.counters.completion(entry.completion.status);
            out.push(entry.completion);
        }
        for (tag, n) in [(0, ended[0]), (1, ended[1])].into_iter().filter(|(_, n)| *n > 0) {
            self.memory.end_many(tag, n);
        }
        if n > 0 { Progress::Worked } else { Progress::Resting }
    }

    /// Everything completes at the next poll anyway.
    fn cancel(&mut self, _token: Token) {}

    fn turn(&mut self, to: Epoch) {
        self.memory.turn(to);
        self.limits = self.core.limits_for(self.mode);
    }

    fn oldest(&self) -> Option<Epoch> {
        self.memory.oldest()
    }

    fn arm(&mut self, wake: &mut WakeSet) {
        if self.outstanding() > 0 {
            wake.ready();
        }
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
