//! `fault:?seed=7&error=0.01@inner`: a device that fails the way devices fail, from a seed.
//!
//! Whatever is drawn for a request is drawn when it is submitted, from a stream that only the seed
//! and the channel's number (in order of opening) determine. The same requests in the same order
//! therefore meet the same faults, whenever they are polled. Requests that break a limit or name
//! memory that is not registered are passed down untouched, and draw nothing.
//!
//! The contract of [`Channel`] holds all the same: every request completes once, and
//! not before the device below has given its memory back.

mod channel;
mod count;
mod dice;
mod fate;
mod plan;
#[cfg(test)]
mod tests;

pub use count::{FaultCounts, FaultKind};
pub use plan::FaultPlan;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::channel::FaultChannel;
use self::count::Fired;
use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, CounterSnapshot, Device, DeviceCore, Events, Identity,
    Kind, Limits, OpenError, OpenOptions,
};

/// A device that fails as planned.
///
/// Its counters count what it was asked; what reached the device below, the device below counts.
pub struct Fault {
    core: Arc<DeviceCore>,
    inner: [Arc<dyn Device>; 1],
    plan: FaultPlan,
    fired: Arc<Fired>,
    opened: AtomicU64,
}

impl Fault {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        let below = inner.identity();
        let identity = Identity {
            id: format!("fault-{}", below.id),
            uri: format!("fault:{plan}@{}", below.uri),
            name: below.name.clone(),
            kind: Kind::Middleware,
        };
        Self {
            // The limits in the core are never asked: they are the inner device's, always.
            core: Arc::new(DeviceCore::new(identity, (*inner.limits()).clone())),
            inner: [inner],
            plan,
            fired: Arc::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// How often each kind of fault fired so far, over all channels.
    #[must_use]
    pub fn fired(&self) -> FaultCounts {
        self.fired.snapshot()
    }
}

impl Device for Fault {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn members(&self) -> &[Arc<dyn Device>] {
        &self.inner
    }

    fn limits(&self) -> Arc<Limits> {
        self.inner[0].limits()
    }

    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError> {
        self.core.claims().claim(&self.core.identity().id, mode, || self.inner[0].claim(mode))
    }

    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError> {
        self.core.check_open(claim, options)?;
        let below = claim.held::<Claim>().ok_or_else(|| OpenError::Refused {
            device: self.core.identity().name.clone(),
            why: "the claim was made by another handle of this name; claim it on this one".into(),
        })?;
        let inner = self.inner[0].open(below, options)?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FaultChannel::new(self, inner, number, claim.mode(), options)))
    }

    fn events(&self) -> Events {
        self.core.events().join(self.inner[0].events())
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}
