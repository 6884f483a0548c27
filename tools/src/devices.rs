//! From names to devices.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strake_nvme_driver::block::{Device, Uri, UriError};
use strake_nvme_driver::loopback::{File, LoopbackError, Mem, Null};
use strake_nvme_driver::middleware::{
    Fault, FaultPlan, Model, ModelParams, Trace, TraceFormat, TraceLog,
};

use crate::exit::Failure;

/// Records that a trace holds for each channel until they are written out.
const TRACE_RECORDS: usize = 1 << 16;

/// Devices, and the traces that hang on them.
#[derive(Default)]
pub struct Opened {
    pub devices: Vec<Arc<dyn Device>>,
    traces: Vec<(Arc<TraceLog>, Box<dyn Write>)>,
    /// Files that were made because a name gave a size.
    created: Vec<PathBuf>,
}

fn run(e: impl ToString) -> Failure {
    Failure::Run(e.to_string())
}

/// A name that makes no sense whatever is there.
fn usage(e: UriError) -> Failure {
    Failure::Usage(e.to_string())
}

fn loopback(e: LoopbackError) -> Failure {
    match e {
        LoopbackError::Uri(e) => usage(e),
        e => run(e),
    }
}

impl Opened {
    /// Opens each device that is named.
    ///
    /// # Errors
    /// One line: what was found, and what to do.
    pub fn open(names: &[String]) -> Result<Self, Failure> {
        let mut opened = Self::default();
        for name in names {
            let device = opened.open_one(name).inspect_err(|_| opened.undo())?;
            opened.devices.push(device);
        }
        Ok(opened)
    }

    /// The run came to nothing: removes the files that were made for it.
    pub fn undo(&mut self) {
        for path in self.created.drain(..) {
            // Nothing was written to it; if it cannot be removed, an empty file is left.
            let _ = fs::remove_file(path);
        }
    }

    fn file(&mut self, uri: &Uri) -> Result<Arc<dyn Device>, Failure> {
        let path = Path::new(uri.body());
        let was_there = path.symlink_metadata().is_ok();
        let device = File::open_uri(uri).map_err(loopback);
        if !was_there && path.is_file() {
            self.created.push(path.to_owned());
        }
        Ok(Arc::new(device?))
    }

    /// Puts a trace in front of every device, written to `out`.
    pub fn trace(&mut self, format: TraceFormat, out: Box<dyn Write>) {
        let log = TraceLog::new(format, TRACE_RECORDS);
        for device in &mut self.devices {
            *device = Arc::new(Trace::new(Arc::clone(device), &log));
        }
        self.traces.push((log, out));
    }

    /// Writes out what the traces have gathered.
    ///
    /// # Errors
    /// A trace cannot be written.
    pub fn drain(&mut self) -> io::Result<()> {
        for (log, out) in &mut self.traces {
            log.drain(out)?;
            out.flush()?;
        }
        Ok(())
    }

    fn open_one(&mut self, name: &str) -> Result<Arc<dyn Device>, Failure> {
        let uri = Uri::parse(name).map_err(usage)?;
        Ok(match uri.scheme() {
            "file" => self.file(&uri)?,
            "mem" => Arc::new(Mem::open_uri(&uri).map_err(loopback)?),
            "null" => Arc::new(Null::open_uri(&uri).map_err(loopback)?),
            "model" => self.model(&uri)?,
            "fault" => {
                let plan = FaultPlan::from_uri(&uri).map_err(usage)?;
                Arc::new(Fault::new(self.inner(&uri)?, plan))
            }
            "trace" => self.traced(&uri)?,
            scheme => {
                return Err(Failure::Run(format!(
                    "`{name}`: {scheme}: devices are not built yet; use a file, mem:, null: or model:"
                )));
            }
        })
    }

    /// The device that a wrapper wraps.
    fn inner(&mut self, uri: &Uri) -> Result<Arc<dyn Device>, Failure> {
        let inner = uri.inner().ok_or_else(|| {
            Failure::Usage(format!("`{uri}` wraps no device; write {}@DEVICE", uri.scheme()))
        })?;
        self.open_one(inner)
    }

    fn model(&mut self, uri: &Uri) -> Result<Arc<dyn Device>, Failure> {
        let params = ModelParams::from_uri(uri).map_err(usage)?;
        let inner: Arc<dyn Device> = if uri.inner().is_some() {
            self.inner(uri)?
        } else {
            let limits = params.inner_limits().map_err(run)?;
            Arc::new(Null::new("model", limits))
        };
        let model = Model::new(&params, inner, &uri.to_string()).map_err(run)?;
        Ok(Arc::new(model))
    }

    /// `trace:FILE?format=text@DEVICE`; without a file, standard error.
    fn traced(&mut self, uri: &Uri) -> Result<Arc<dyn Device>, Failure> {
        let format = uri.option("format").map_err(usage)?.unwrap_or(TraceFormat::Text);
        uri.finish().map_err(usage)?;
        let inner = self.inner(uri)?;
        let out: Box<dyn Write> = match uri.body() {
            "" => Box::new(io::stderr()),
            path => {
                let file =
                    fs::File::create(path).map_err(|e| run(format!("cannot write {path}: {e}")))?;
                Box::new(BufWriter::new(file))
            }
        };
        let log = TraceLog::new(format, TRACE_RECORDS);
        let trace = Trace::new(inner, &log);
        self.traces.push((log, out));
        Ok(Arc::new(trace))
    }
}

/// The devices at the bottom of `device`'s tree.
#[must_use]
pub fn leaves(device: &Arc<dyn Device>) -> Vec<Arc<dyn Device>> {
    if device.members().is_empty() {
        return vec![Arc::clone(device)];
    }
    device.members().iter().flat_map(leaves).collect()
}
