//! `trace:@DEVICE`: a line an I/O, as the device sees it.
//!
//! ```text
//! 1.410377 nvme0 W        16 4096 0.020
//! 1.410915 nvme2 W        24 3584 0.430
//! ```
//!
//! Columns as biosnoop's: time of the completion in seconds on the run's clock, device, operation
//! (R read, W write, F flush, Z write zeroes, D deallocate), LBA in 512-byte sectors whatever the
//! logical block is, bytes, latency in milliseconds, and the status if it is not ok. Latency runs
//! from the first poll after the submit to the poll that saw the completion.
//!
//! The data path copies a record into a ring of its own and does nothing else; the control thread
//! takes the records out ([`TraceLog::drain`]) and makes lines of them. No record is lost: a
//! channel takes no request whose record has no place.

mod channel;
mod line;
mod log;
#[cfg(all(test, not(loom)))]
mod tests;

pub use line::TraceFormat;
pub use log::TraceLog;

use std::sync::Arc;

use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, CounterSnapshot, Device, DeviceCore, Events, Identity,
    Kind, Limits, OpenError, OpenOptions,
};
use channel::TraceChannel;

/// A device whose I/O is recorded. Limits, events and counters are the inner device's.
pub struct Trace {
    /// For its identity and claims.
    core: DeviceCore,
    members: [Arc<dyn Device>; 1],
    log: Arc<TraceLog>,
}

impl Trace {
    /// Records `inner`'s I/O in `log`, under the inner device's name.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, log: &Arc<TraceLog>) -> Self {
        let of = inner.identity();
        let identity = Identity {
            id: format!("trace-{}", of.id),
            uri: format!("trace:@{}", of.uri),
            name: of.name.clone(),
            kind: Kind::Middleware,
        };
        let core = DeviceCore::new(identity, (*inner.limits()).clone());
        Self { core, members: [inner], log: Arc::clone(log) }
    }
}

impl Device for Trace {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn limits(&self) -> Arc<Limits> {
        self.members[0].limits()
    }

    /// Claims the inner device as well.
    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError> {
        let id = &self.core.identity().id;
        self.core.claims().claim(id, mode, || self.members[0].claim(mode))
    }

    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError> {
        self.core.check_open(claim, options)?;
        let inner_claim = claim.held::<Claim>().ok_or_else(|| OpenError::Refused {
            device: self.core.identity().name.clone(),
            why: "the claim does not hold the device inside".to_owned(),
        })?;
        let device = &self.members[0];
        let inner = device.open(inner_claim, options)?;
        let recorder = self.log.connect(&self.core.identity().name, options.depth.into());
        Ok(Box::new(TraceChannel::new(inner, device, recorder, options.depth)))
    }

    fn events(&self) -> Events {
        self.members[0].events()
    }

    fn counters(&self) -> CounterSnapshot {
        self.members[0].counters()
    }
}
