//! `model:PRESET`: a device that answers as fast as a drive's published behaviour says.
//!
//! The inner device moves the data (usually a `null:` or a `mem:`); the model holds each
//! completion back until the modelled drive would be done. Time is what `now` says, so the same
//! model runs in real time and in a simulator. Its numbers are modelled, and to be labelled so.
//!
//! The parts are pure and can be read on their own: the parameters and presets
//! ([`ModelParams`]), flash, disk, and the closed form that every run is held against.
//!
//! # One drive, many channels
//!
//! The drive's state (which unit is free when, where the head is, the random source) is shared by
//! its channels, as a drive's is by its queues. It stands behind a mutex, which a channel takes
//! once in a poll that has new requests, for the arithmetic of their times only. That is an
//! exception to "the data path never locks", and acceptable in a device whose purpose is to be
//! slow. The same seed and the same order of polls give the same times.

mod channel;
mod closed_form;
mod disk;
mod drive;
mod flash;
mod params;
#[cfg(test)]
mod tests;

pub use closed_form::Access;
pub use params::{DiskParams, FlashParams, Mechanism, ModelParams};

use std::sync::{Arc, Mutex};

use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, CounterSnapshot, Device, DeviceCore, Events, Identity,
    Kind, Limits, LimitsError, OpenError, OpenOptions,
};
use channel::ModelChannel;
use drive::Drive;

/// A device with the timing of a modelled drive.
///
/// Its limits are the modelled drive's, where the inner device can keep them: capacity, transfer
/// and memory alignment are at most the inner device's, and it deallocates only if that does. The
/// units it states (write unit, atomic write) are the modelled drive's own claim. They hold as of
/// `new`; later changes of the inner device are not followed, and its events not passed on.
pub struct Model {
    core: Arc<DeviceCore>,
    members: [Arc<dyn Device>; 1],
    drive: Arc<Mutex<Drive>>,
    /// Inner blocks a block.
    scale: u32,
}

/// Why a drive cannot be modelled on an inner device.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Addresses cannot be translated.
    #[error(
        "`{device}`: its block of {block_bytes} bytes is no multiple of the {inner_bytes} bytes of \
         the device inside; give block={inner_bytes}"
    )]
    Block {
        /// The model.
        device: String,
        /// Its logical block.
        block_bytes: u32,
        /// The inner device's.
        inner_bytes: u32,
    },
    /// The two together make no device.
    #[error("`{device}`: {source}")]
    Limits {
        /// The model.
        device: String,
        /// What is wrong.
        source: LimitsError,
    },
}

impl Model {
    /// A drive of `params`, whose data go to `inner`, under the name `uri`.
    ///
    /// # Errors
    /// The block sizes do not fit together, or the inner device is smaller than one block.
    pub fn new(
        params: &ModelParams,
        inner: Arc<dyn Device>,
        uri: &str,
    ) -> Result<Self, ModelError> {
        let inner_limits = inner.limits();
        let (block_bytes, inner_bytes) = (params.block_bytes, inner_limits.block_bytes);
        if block_bytes == 0 || !block_bytes.is_multiple_of(inner_bytes) {
            return Err(ModelError::Block { device: uri.to_owned(), block_bytes, inner_bytes });
        }
        let limits = params
            .limits_over(&inner_limits)
            .map_err(|source| ModelError::Limits { device: uri.to_owned(), source })?;
        let identity = Identity {
            id: uri.to_owned(),
            uri: uri.to_owned(),
            name: params.name.clone(),
            kind: Kind::Middleware,
        };
        Ok(Self {
            drive: Arc::new(Mutex::new(Drive::new(params, limits.capacity_bytes()))),
            core: Arc::new(DeviceCore::new(identity, limits)),
            members: [inner],
            scale: block_bytes / inner_bytes,
        })
    }
}

impl Device for Model {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn limits(&self) -> Arc<Limits> {
        self.core.limits()
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
        let inner = self.members[0].open(inner_claim, options)?;
        let channel =
            ModelChannel::new(&self.core, inner, &self.drive, self.scale, claim.mode(), options);
        Ok(Box::new(channel))
    }

    fn events(&self) -> Events {
        self.core.events().watch()
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}
