//! What `strake` understands.

use clap::{Args, Parser, Subcommand};

use crate::bench::options::{BenchOptions, OutputOptions};
use crate::trace::TraceCommand;

/// Polled storage from user space: bench drives, files and models.
#[derive(Debug, Parser)]
#[command(name = "strake", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure devices, in fio's words.
    #[command(after_long_help = BENCH_EXAMPLES, after_help = "Examples: see --help")]
    Bench(Bench),
    /// Run a workload and show each I/O: time, device, op, sector, bytes, latency.
    #[command(after_long_help = TRACE_EXAMPLES, after_help = "Examples: see --help")]
    Trace(TraceCommand),
}

#[derive(Debug, Args)]
pub struct Bench {
    #[command(flatten)]
    pub bench: BenchOptions,
    #[command(flatten)]
    pub output: OutputOptions,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  strake bench
      4 KiB random reads from a temporary file, for ten seconds
  strake bench /dev/nvme1n1 --rw=randread --bs=4k --iodepth=128 --numjobs=2 --runtime=30
      a block node, from two cores
  strake bench file:/srv/test?size=1G --rw=randwrite --size=1G --verify
      write blocks that name themselves into a new file, and read them back
  strake bench model:p5520 --rw=randwrite --bs=3584 --iodepth=1 --virtual-time
      what a drive does with writes that are no whole 4 KiB
  strake bench null:1T --iodepth=128 --output-format=json --plot=null.svg
      the cost of the stack itself, for fio's readers, with a picture

Devices:
  PATH, file:PATH   a file or block node: ?engine=uring|mmap &block= &write_unit= &io_opt=
                    &rotational= &size= (creates it) &direct=0 &ro=1
  mem:SIZE          memory: ?block=
  null:SIZE         nothing: ?block=
  model:PRESET      p5520 or hdd-180, in front of @DEVICE or of nothing; ?channels= &write_us= ...
  fault?...@DEVICE  errors from a seeded plan: ?seed= &error= &medium= &delay= &delay_us= ...
  trace:FILE@DEVICE a line an I/O into FILE: ?format=text|json

Exit codes: 0 done; 1 an I/O, a device or a verification failed; 2 the options make no sense;
130 ended by Ctrl-C or a signal, after the summary so far.";

const TRACE_EXAMPLES: &str = "\
Examples:
  strake trace model:p5520 --rw=randwrite --bs=3584 --iodepth=1 --number_ios=5 --virtual-time
      five writes that are no whole write unit of the drive
  strake trace /srv/test --rw=randread --number_ios=1000 --json -o trace.jsonl
      one JSON object a line, into a file

Columns: time in seconds at the completion, device, op (R read, W write, F flush, Z write zeroes,
D deallocate), address in sectors of 512 bytes, bytes, latency in milliseconds, and the status if
it is not ok. To trace a bench of your own, wrap its device: strake bench trace:FILE@DEVICE";
