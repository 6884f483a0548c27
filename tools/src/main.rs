//! The command `strake`.
use clap::Parser;
use std::sync::Arc;
use strake_tools::bench::{options::BenchOptions, run};
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchOptions,
}
struct Quiet;
impl run::Watch for Quiet {
    fn tick(&mut self, _: strake_nvme_driver::block::CounterSnapshot) {}
}
fn main() {
    let cli = Cli::parse();
    let devices =
        cli.bench.devices.iter().map(|d| strake_tools::devices::open(d).unwrap()).collect();
    let r = run::run(&cli.bench, devices, &Arc::default(), &mut Quiet).unwrap();
    for j in &r.jobs {
        for d in &j.directions {
            if d.requests > 0 {
                let cpu = j.cpu.user_seconds + j.cpu.system_seconds;
                println!(
                    "{:.3} M IOPS p50 {} p99 {} mean {:.0} cpu us/io {:.3} {:?} {:?}",
                    d.requests as f64 / j.runtime_nanos as f64 * 1e3,
                    d.latency.value_at_quantile(0.5),
                    d.latency.value_at_quantile(0.99),
                    d.latency.mean(),
                    cpu * 1e6 / d.requests as f64,
                    j.cpu,
                    j.poller
                );
            }
        }
        println!("{:?}", j.errors);
    }
    println!("{:?}", r.verify);
}
