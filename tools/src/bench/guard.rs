//! What a bench looks at before it touches a device: data that a write would destroy, holes that
//! a read would not see.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use strake_nvme_driver::block::{
    ClaimMode, Device, Kind, Lba, OpenOptions, Request, Sink, Status, Token, Uri,
};
use strake_nvme_driver::memory::Memory;
use strake_nvme_driver::poller::PollerId;
use strake_nvme_driver::time::Instant;

use crate::devices;
use crate::signatures::{self, Found};

/// Refuses to write to devices that hold something.
///
/// # Errors
/// What was found on which device.
pub fn refuse_if_in_use(devices: &[Arc<dyn Device>], memory: &Arc<Memory>) -> Result<(), String> {
    for leaf in devices.iter().flat_map(devices::leaves) {
        let identity = leaf.identity();
        if matches!(identity.kind, Kind::Mem | Kind::Null) {
            continue;
        }
        let found = look(leaf.as_ref(), memory)?;
        if !found.is_empty() {
            let names: Vec<String> =
                found.iter().map(|f| format!("{} at byte {}", f.name, f.offset)).collect();
            return Err(format!(
                "{} holds {}; the bench would overwrite it: give --force if you mean it",
                identity.uri,
                names.join(", ")
            ));
        }
    }
    Ok(())
}

/// The signatures on a device.
fn look(device: &dyn Device, memory: &Arc<Memory>) -> Result<Vec<Found>, String> {
    let name = &device.identity().uri;
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{name}: {what}: {e}");
    let claim = device.claim(ClaimMode::Read).map_err(|e| e.to_string())?;
    let limits = device.limits();
    let options = OpenOptions { poller: PollerId(0), depth: 1, memory: Arc::clone(memory) };
    let block = u64::from(limits.block_bytes);
    let region = memory.add_anonymous(256 << 10).map_err(|e| failed("no memory", &e))?;
    let mut channel = device.open(&claim, &options).map_err(|e| e.to_string())?;
    let mut sink = Sink::new(1);
    let mut error = None;
    let mut read = |offset: u64, to: &mut [u8]| -> Option<()> {
        let first = offset / block;
        let end = (offset + to.len() as u64).div_ceil(block).min(limits.blocks);
        let blocks = u32::try_from(end.checked_sub(first)?).ok()?;
        let bytes = limits.bytes(blocks);
        let request = Request::read(Lba(first), blocks, Token(0));
        let segment = region.segment(0, u32::try_from(bytes).ok()?);
        channel.submit(&request, &[segment]).ok()?;
        sink.clear();
        while sink.is_empty() {
            channel.poll(Instant::ZERO, &mut sink);
            std::thread::yield_now();
        }
        match sink.as_slice().first().map(|c| c.status) {
            Some(Status::Ok) => {}
            Some(status) => {
                error = Some(status);
                return None;
            }
            None => return None,
        }
        let skip = usize::try_from(offset - first * block).ok()?;
        region.read_at(skip, to).then_some(())
    };
    let found = signatures::detect(limits.capacity_bytes(), &mut read);
    drop(channel);
    // The region's name is of no use to anyone any more.
    let _ = memory.retire(region.id());
    match error {
        Some(status) => Err(failed("cannot look at what it holds", &status)),
        None => Ok(found),
    }
}

/// A line of warning if reads of a file would mostly see holes.
#[must_use]
pub fn holes(device: &Arc<dyn Device>) -> Option<String> {
    let leaf = devices::leaves(device).into_iter().find(|d| d.identity().kind == Kind::File)?;
    let uri = Uri::parse(&leaf.identity().uri).ok()?;
    let metadata = fs::metadata(uri.body()).ok()?;
    let (len, allocated) = (metadata.len(), metadata.blocks() * 512);
    if len == 0 || allocated >= len / 10 * 9 {
        return None;
    }
    let percent = (len - allocated) * 100 / len;
    Some(format!(
        "{}: {percent} % of it are holes, and reads of holes never reach the disk; write it first (--rw=write) for honest numbers",
        uri.body()
    ))
}
