//! `strake trace`: a line an I/O, while a workload runs.

use std::fs::File;
use std::io::{BufWriter, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use strake_nvme_driver::block::CounterSnapshot;
use strake_nvme_driver::middleware::TraceFormat;

use crate::bench::options::BenchOptions;
use crate::bench::run::{self, Watch};
use crate::bench::{command, text};
use crate::devices::Opened;
use crate::exit::{self, Failure};
use crate::outputs;

/// What to trace, and how.
#[derive(Debug, Args)]
pub struct TraceCommand {
    #[command(flatten)]
    pub bench: BenchOptions,

    /// text: columns for people. json: one object a line.
    #[arg(long = "output-format", value_enum, default_value = "text", value_name = "FORMAT")]
    pub format: TraceOutput,

    /// Short for --output-format=json.
    #[arg(long)]
    pub json: bool,

    /// Where the lines go [default: standard output].
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Show the bench's summary at the end, on standard error.
    #[arg(long)]
    pub summary: bool,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceOutput {
    Text,
    Json,
}

/// Writes the lines out while the run lasts. A reader that went away ends the run.
struct Draining<'a> {
    opened: &'a mut Opened,
    stop: &'a AtomicBool,
    error: Option<std::io::Error>,
}

impl Draining<'_> {
    fn drain(&mut self) {
        if self.error.is_some() {
            return;
        }
        if let Err(e) = self.opened.drain() {
            self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            self.error = Some(e);
        }
    }
}

impl Watch for Draining<'_> {
    fn tick(&mut self, _done: CounterSnapshot) {
        self.drain();
    }
}

/// `strake trace`.
#[must_use]
pub fn trace(options: TraceCommand, stop: &Arc<AtomicBool>) -> ExitCode {
    match try_trace(options, stop) {
        Ok(code) => code,
        Err(failure) => exit::fail(&failure),
    }
}

fn try_trace(mut options: TraceCommand, stop: &Arc<AtomicBool>) -> Result<ExitCode, Failure> {
    let bench = &mut options.bench;
    bench.check().map_err(Failure::Usage)?;
    let named: Vec<_> =
        options.output.as_deref().map(|path| ("--output", path)).into_iter().collect();
    outputs::check(&bench.devices, &named).map_err(Failure::Usage)?;
    let out: Box<dyn Write> = match &options.output {
        Some(path) => Box::new(BufWriter::new(
            File::create(path)
                .map_err(|e| Failure::Usage(format!("cannot write {}: {e}", path.display())))?,
        )),
        None => Box::new(BufWriter::new(stdout())),
    };
    let format = match options.format {
        TraceOutput::Text if !options.json => TraceFormat::Text,
        _ => TraceFormat::Json,
    };
    let temporary = command::temporary(bench, stop)?;
    let mut opened = Opened::open(&bench.devices)?;
    opened.trace(format, out);
    let devices = opened.devices.clone();
    let mut watch = Draining { opened: &mut opened, stop, error: None };
    let report = run::run(bench, devices, stop, &mut watch);
    watch.drain();
    let error = watch.error.take();
    drop(temporary);
    match error {
        Some(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Some(e) => return Err(Failure::Run(format!("cannot write the trace: {e}"))),
        None => {}
    }
    let report = report?;
    if options.summary {
        text::write(&report, stderr())
            .map_err(|e| Failure::Run(format!("cannot write the summary: {e}")))?;
    }
    Ok(command::conclude(&report))
}
