//! `strake bench`: fio's words, honest numbers.
//!
//! ```text
//! options   fio's words               run      options -> pollers with jobs -> Report
//! guard     look before writing       job      a poller's task: lanes on devices, measured
//! workload  which request comes next  verify   blocks that name themselves
//! report    what a run measured       text, fio_json, plot   what people and tools read
//! ```

pub mod command;
pub mod fio_json;
pub mod guard;
pub mod job;
pub mod options;
pub mod output;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run;
pub mod series;
pub mod sum;
pub mod temporary;
pub mod text;
pub mod units;
pub mod verify;
pub mod workload;

#[cfg(test)]
mod sample;
