//! The control plane: a shared handle.

use std::sync::{Arc, PoisonError, RwLock};

use super::channel::Channel;
use super::claim::{Claim, ClaimBook, ClaimError, ClaimMode};
use super::counters::{CounterSnapshot, CountersBook};
use super::event::{Event, Events, EventsBook};
use super::identity::Identity;
use super::limits::Limits;
use crate::memory::Memory;
use crate::poller::PollerId;

/// For whom a channel is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The poller that will own the channel.
    pub poller: PollerId,
    /// How many requests it may have outstanding.
    pub depth: u16,
    /// Where its segments are registered.
    pub memory: Arc<Memory>,
}

/// Why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The claim is another device's.
    #[error("the claim belongs to {held}, not to {device}")]
    ForeignClaim {
        /// The device asked.
        device: String,
        /// The device that the claim is for.
        held: String,
    },
    /// A channel that could hold no request.
    #[error("depth must be at least 1")]
    NoDepth,
    /// The device cannot give another channel.
    #[error("{device}: cannot open a channel: {why}")]
    Refused {
        /// The device asked.
        device: String,
        /// What it said.
        why: String,
    },
}

/// A block device: a shared, immutable handle. These calls may block; pollers never make them.
pub trait Device: Send + Sync {
    /// Which device this is.
    fn identity(&self) -> &Identity;

    /// The devices it is made of, for the tree and for counting what reaches the leaves.
    fn members(&self) -> &[Arc<dyn Device>] {
        &[]
    }

    /// What it does well and what it cannot do, as of now. Changes come as events.
    fn limits(&self) -> Arc<Limits>;

    /// Claims it, against other users in this process and, where the kind can, in others.
    ///
    /// # Errors
    /// Who or what stands in the way.
    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError>;

    /// Opens a channel for one user on one poller. Through a read claim no request changes the
    /// device: those complete as [`Status::ReadOnly`](super::Status::ReadOnly).
    ///
    /// # Errors
    /// A claim for another device, or no resources.
    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError>;

    /// Changes from now on.
    fn events(&self) -> Events;

    /// The counters of all its channels, added up.
    fn counters(&self) -> CounterSnapshot;
}

/// What every device's handle holds.
#[derive(Debug)]
pub struct DeviceCore {
    identity: Identity,
    limits: RwLock<Arc<Limits>>,
    claims: ClaimBook,
    events: EventsBook,
    counters: CountersBook,
}

impl DeviceCore {
    /// For a device of this identity, with these limits to begin with.
    #[must_use]
    pub fn new(identity: Identity, limits: Limits) -> Self {
        Self {
            identity,
            limits: RwLock::new(Arc::new(limits)),
            claims: ClaimBook::default(),
            events: EventsBook::default(),
            counters: CountersBook::default(),
        }
    }

    /// Which device this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The limits as of now.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// New limits hold from the next epoch on; tells those who watch.
    pub fn set_limits(&self, limits: Limits) {
        let limits = Arc::new(limits);
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&limits);
        self.events.tell(&Event::LimitsChanged(limits));
    }

    /// The claims held on it.
    #[must_use]
    pub fn claims(&self) -> &ClaimBook {
        &self.claims
    }

    /// Those who watch it.
    #[must_use]
    pub fn events(&self) -> &EventsBook {
        &self.events
    }

    /// Its channels' counters.
    #[must_use]
    pub fn counters(&self) -> &CountersBook {
        &self.counters
    }

    /// What every `open` checks first.
    ///
    /// # Errors
    /// The claim is another device's, or the depth is 0.
    pub fn check_open(&self, claim: &Claim, options: &OpenOptions) -> Result<(), OpenError> {
        if claim.device_id() != self.identity.id {
            return Err(OpenError::ForeignClaim {
                device: self.identity.name.clone(),
                held: claim.device_id().to_owned(),
            });
        }
        if options.depth == 0 {
            return Err(OpenError::NoDepth);
        }
        Ok(())
    }

    /// The limits that a channel through `claim` goes by: a read claim takes no writes.
    #[must_use]
    pub fn limits_for(&self, mode: ClaimMode) -> Arc<Limits> {
        let limits = self.limits();
        if mode.allows_writes() || limits.read_only {
            return limits;
        }
        Arc::new(Limits { read_only: true, ..(*limits).clone() })
    }
}

/// The counters of a device's leaves: what reached devices that are not made of others.
#[must_use]
pub fn leaf_counters(device: &dyn Device) -> CounterSnapshot {
    if device.members().is_empty() {
        return device.counters();
    }
    let members = device.members().iter();
    members.fold(CounterSnapshot::default(), |sum, m| sum + leaf_counters(m.as_ref()))
}
