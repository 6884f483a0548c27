//! The command itself: devices in, summary out, exit code.

use std::io::{self, IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::fio_json::FioJson;
use super::options::{BenchOptions, OutputFormat, OutputOptions};
use super::output::OutputFile;
use super::progress::Progress;
use super::report::Report;
use super::run::{self, Watch};
use super::temporary::TemporaryFile;
use super::{guard, plot, text};
use crate::devices::Opened;
use crate::exit::{self, Failure};
use crate::outputs;

/// Bytes of the temporary file, unless --size says otherwise.
const TEMPORARY_BYTES: u64 = 256 << 20;

/// `strake bench`.
#[must_use]
pub fn bench(options: BenchOptions, output: &OutputOptions, stop: &Arc<AtomicBool>) -> ExitCode {
    match try_bench(options, output, stop) {
        Ok(report) => conclude(&report),
        Err(failure) => exit::fail(&failure),
    }
}

fn try_bench(
    mut options: BenchOptions,
    output: &OutputOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Report, Failure> {
    options.check().map_err(Failure::Usage)?;
    let named = [("--output", output.output.as_deref()), ("--plot", output.plot.as_deref())];
    let named: Vec<_> = named.into_iter().filter_map(|(o, path)| Some((o, path?))).collect();
    outputs::check(&options.devices, &named).map_err(Failure::Usage)?;
    let mut sinks = Sinks::open(output)?;
    let temporary = temporary(&mut options, stop)?;
    let mut opened = Opened::open(&options.devices)?;
    if let Some(temporary) = &temporary {
        options.devices = vec![format!("a temporary file in {}", temporary.folder().display())];
    }
    run::plan(&options, &opened.devices).inspect_err(|_| opened.undo())?;
    if !options.rw.changes() {
        opened.devices.iter().filter_map(guard::holes).for_each(|line| warn!("{line}"));
    }
    let mut progress = Progress::new(options.time_limit(), options.virtual_time);
    let devices = opened.devices.clone();
    let mut watch = Both { progress: &mut progress, opened: &mut opened, stop, error: None };
    let report = run::run(&options, devices, stop, &mut watch);
    let traced = watch.error.take().map_or(Ok(()), Err);
    progress.finish();
    traced
        .and_then(|()| opened.drain())
        .map_err(|e| Failure::Run(format!("cannot write the trace: {e}")))?;
    let report = report.inspect_err(|_| opened.undo())?;
    sinks.write(&report, output)?;
    Ok(report)
}

/// Shows progress and writes traces out while the run lasts.
pub struct Both<'a> {
    pub progress: &'a mut Progress,
    pub opened: &'a mut Opened,
    /// Ends the run if a trace cannot be written.
    pub stop: &'a AtomicBool,
    /// What went wrong with a trace.
    pub error: Option<io::Error>,
}

impl Watch for Both<'_> {
    fn tick(&mut self, done: strake_nvme_driver::block::CounterSnapshot) {
        self.progress.tick(done);
        if let Err(e) = self.opened.drain() {
            self.stop.store(true, Ordering::Relaxed);
            self.error.get_or_insert(e);
        }
    }
}

/// Without a device: a temporary file, laid out.
///
/// # Errors
/// There is no room for it, or virtual time cannot use it.
pub fn temporary(
    options: &mut BenchOptions,
    stop: &AtomicBool,
) -> Result<Option<TemporaryFile>, Failure> {
    if !options.devices.is_empty() {
        return Ok(None);
    }
    if options.virtual_time {
        return Err(Failure::Usage(
            "--virtual-time needs a model device, such as model:p5520".to_owned(),
        ));
    }
    let bytes = options.size.unwrap_or(TEMPORARY_BYTES).saturating_add(options.offset);
    let bar = Progress::laying_out(bytes);
    let file = TemporaryFile::lay_out(bytes, options.seed, stop, |done| bar.set_position(done));
    bar.finish_and_clear();
    let folder = std::env::temp_dir();
    let file = file.map_err(|e| {
        if e.kind() == io::ErrorKind::Interrupted {
            return Failure::Interrupted;
        }
        Failure::Run(format!(
            "cannot lay out a temporary file of {bytes} bytes in {}: {e}; set TMPDIR or give --size or a device",
            folder.display()
        ))
    })?;
    options.devices = vec![format!("file:{}?name=temporary", file.path())];
    Ok(Some(file))
}

/// Where the summary and the plot go: opened before the run, so that a typing mistake costs no
/// hour.
struct Sinks {
    output: Option<OutputFile>,
    plot: Option<OutputFile>,
}

impl Sinks {
    fn open(options: &OutputOptions) -> Result<Self, Failure> {
        let open = |path: &PathBuf| {
            OutputFile::open(path)
                .map_err(|e| Failure::Usage(format!("cannot write {}: {e}", path.display())))
        };
        Ok(Self {
            output: options.output.as_ref().map(open).transpose()?,
            plot: options.plot.as_ref().map(open).transpose()?,
        })
    }

    fn write(&mut self, report: &Report, options: &OutputOptions) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::Run(format!("cannot write the summary: {e}"));
        let mut bytes = Vec::new();
        match options.format() {
            OutputFormat::Normal => text::write(report, &mut bytes),
            OutputFormat::Json => FioJson { bins: false, grouped: false }.write(report, &mut bytes),
            OutputFormat::JsonPlus => {
                FioJson { bins: true, grouped: false }.write(report, &mut bytes)
            }
        }
        .map_err(failed)?;
        match &mut self.output {
            Some(file) => file.write(&bytes).map_err(failed)?,
            None => match stdout().write_all(&bytes) {
                // `strake bench | head` is no error.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
                written => written.map_err(failed)?,
            },
        }
        if let Some(file) = &mut self.plot {
            let svg = plot::svg(report).map_err(|e| Failure::Run(format!("cannot draw: {e}")))?;
            file.write(svg.as_bytes())
                .map_err(|e| Failure::Run(format!("cannot write the plot: {e}")))?;
        }
        Ok(())
    }
}

/// The exit code, and a line about what went wrong.
#[must_use]
pub fn conclude(report: &Report) -> ExitCode {
    let errors: Vec<(&String, &u64)> = report.jobs.iter().flat_map(|j| &j.errors).collect();
    // What was counted without a place is the last to name.
    let placed = errors.iter().find(|(text, _)| !text.ends_with(": others"));
    if let Some((text, _)) = placed.or(errors.first()) {
        let total: u64 = errors.iter().map(|(_, n)| **n).sum();
        let more = if total > 1 { format!(" (and {} more)", total - 1) } else { String::new() };
        return exit::fail(&Failure::Run(format!("I/O failed: {text}{more}")));
    }
    if let Some(verify) = report.verify.as_ref().filter(|v| v.blocks_wrong > 0) {
        let text = verify.first_wrong.as_ref().map_or("", |(_, text)| text);
        let (wrong, checked) = (verify.blocks_wrong, verify.blocks_checked);
        let line = format!(
            "verification failed: {wrong} of {checked} blocks are wrong; the first: {text}"
        );
        return exit::fail(&Failure::Run(line));
    }
    if report.interrupted {
        if io::stderr().is_terminal() {
            let _ = writeln!(io::stderr(), "strake: interrupted");
        }
        return ExitCode::from(exit::INTERRUPTED);
    }
    ExitCode::SUCCESS
}
