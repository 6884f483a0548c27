//! From names to devices.

use std::io;
use std::sync::Arc;

use strake_nvme_driver::block::{Device, Uri};
use strake_nvme_driver::loopback::{File, Mem, Null};

use crate::bench::run::Failure;

/// Devices, and the traces that hang on them.
pub struct Opened {
    pub devices: Vec<Arc<dyn Device>>,
}

impl Opened {
    /// Opens each device that is named.
    ///
    /// # Errors
    /// One line: what was found, and what to do.
    pub fn open(names: &[String]) -> Result<Self, Failure> {
        let devices =
            names.iter().map(|name| open(name).map_err(Failure::Run)).collect::<Result<_, _>>()?;
        Ok(Self { devices })
    }

    /// Writes out what the traces have gathered.
    ///
    /// # Errors
    /// The trace's file cannot be written.
    pub fn drain(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the device that `text` names.
fn open(text: &str) -> Result<Arc<dyn Device>, String> {
    let uri = Uri::parse(text).map_err(|e| e.to_string())?;
    let opened: Result<Arc<dyn Device>, _> = match uri.scheme() {
        "file" => File::open_uri(&uri).map(|d| Arc::new(d) as _),
        "mem" => Mem::open_uri(&uri).map(|d| Arc::new(d) as _),
        "null" => Null::open_uri(&uri).map(|d| Arc::new(d) as _),
        scheme => return Err(format!("`{text}`: {scheme}: devices are not built yet")),
    };
    opened.map_err(|e| e.to_string())
}

/// The devices at the bottom of `device`'s tree.
#[must_use]
pub fn leaves(device: &Arc<dyn Device>) -> Vec<Arc<dyn Device>> {
    if device.members().is_empty() {
        return vec![Arc::clone(device)];
    }
    device.members().iter().flat_map(leaves).collect()
}
