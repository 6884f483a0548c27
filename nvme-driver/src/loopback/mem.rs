//! `mem:SIZE`: memory of this process. Zeroed at the start, gone at the end.

use std::sync::Arc;

use super::LoopbackError;
use super::copy::CopyChannel;
use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, ClaimedLimits, CounterSnapshot, Device, DeviceCore,
    Events, Identity, Kind, Limits, OpenError, OpenOptions, Uri, UriError, parse_size,
};
use crate::memory::Mapping;

/// A device in memory.
#[derive(Debug)]
pub struct Mem {
    core: Arc<DeviceCore>,
    store: Arc<Mapping>,
}

/// `kind:SIZE?block=512`, for devices that are good at everything.
pub(super) fn simple_limits(uri: &Uri) -> Result<Limits, LoopbackError> {
    let malformed = |why: String| UriError::Malformed { text: uri.to_string(), why };
    let bytes = parse_size(uri.body())
        .map_err(|why| malformed(format!("{why}, after `{}:`", uri.scheme())))?;
    let block = uri.size("block")?.unwrap_or(512);
    let claimed = claimed(block, bytes / block.max(1));
    Ok(Limits::believe(&claimed).map_err(|e| malformed(e.to_string()))?.0)
}

/// What memory can do: everything.
fn claimed(block_bytes: u64, blocks: u64) -> ClaimedLimits {
    ClaimedLimits {
        block_bytes,
        blocks,
        max_transfer_bytes: 1 << 30,
        max_segments: 64,
        can_deallocate: true,
        deallocate_reads_zero: true,
        write_zeroes: true,
        ..ClaimedLimits::default()
    }
}

impl Mem {
    /// `blocks` zeroed blocks of `block_bytes`, under this name.
    ///
    /// # Errors
    /// No memory, or no block size.
    pub fn new(name: &str, block_bytes: u32, blocks: u64) -> Result<Self, LoopbackError> {
        let believed = Limits::believe(&claimed(block_bytes.into(), blocks));
        let limits = |source| LoopbackError::Limits { device: name.to_owned(), source };
        let identity = Identity {
            id: format!("mem-{name}"),
            uri: format!("mem:{}", u64::from(block_bytes).saturating_mul(blocks)),
            name: name.to_owned(),
            kind: Kind::Mem,
        };
        Self::with_limits(identity, believed.map_err(limits)?.0)
    }

    /// Opens `mem:SIZE?block=512`.
    ///
    /// # Errors
    /// No size, no memory, or nonsense options.
    pub fn open_uri(uri: &Uri) -> Result<Self, LoopbackError> {
        let limits = simple_limits(uri)?;
        uri.finish()?;
        let identity = Identity {
            id: uri.to_string(),
            uri: uri.to_string(),
            name: "mem".to_owned(),
            kind: Kind::Mem,
        };
        Self::with_limits(identity, limits)
    }

    /// Memory with other limits than its own, as a stand-in for a device that has them.
    ///
    /// # Errors
    /// No memory.
    pub fn with_limits(identity: Identity, limits: Limits) -> Result<Self, LoopbackError> {
        let refused = |source| LoopbackError::Io {
            device: identity.uri.clone(),
            what: format!("cannot take {} bytes of memory", limits.capacity_bytes()),
            source,
        };
        let available = available_bytes();
        if available.is_some_and(|bytes| bytes < limits.capacity_bytes()) {
            let have = available.unwrap_or(0);
            return Err(refused(std::io::Error::other(format!("only {have} bytes are available"))));
        }
        let len = usize::try_from(limits.capacity_bytes())
            .map_err(|e| refused(std::io::Error::other(e)))?;
        let store = Arc::new(Mapping::populated(len).map_err(refused)?);
        Ok(Self { core: Arc::new(DeviceCore::new(identity, limits)), store })
    }
}

/// Memory that can be had without swapping (proc_meminfo(5), `MemAvailable`).
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl Device for Mem {
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
        let counters = self.core.counters().open();
        let (core, store) = (&self.core, &self.store);
        Ok(Box::new(CopyChannel::new(core, store, None, claim.mode(), options, counters)))
    }

    fn events(&self) -> Events {
        self.core.events().watch()
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}
