//! The command `strake`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use strake_tools::cli::{Cli, Command};
use strake_tools::{bench, exit, trace};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("STRAKE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let handler = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            // Asked twice: whoever asks does not want to wait for the summary.
            std::process::exit(exit::INTERRUPTED.into());
        }
    });
    if let Err(e) = handler {
        tracing::warn!("Ctrl-C will end the run without a summary: {e}");
    }
    match cli.command {
        Command::Bench(args) => bench::command::bench(args.bench, &args.output, &stop),
        Command::Trace(args) => trace::trace(args, &stop),
    }
}
