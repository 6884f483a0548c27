//! `strake bench`: fio's words, honest numbers.
//!
//! ```text
//! options   fio's words               run      options -> pollers with jobs -> Report
//! guard     look before writing       job      a poller's task; its lanes are its queues on devices
//! workload  which request comes next  tally    what is counted of each completion
//! readback  what was written, again   verify   blocks that name themselves
//! report    what a run measured       text, fio_json, plot   what people and tools read
//! ```

pub mod command;
pub mod fio_json;
pub mod guard;
pub mod job;
pub mod lane;
pub mod options;
pub mod output;
pub mod plan;
pub mod plot;
pub mod progress;
pub mod readback;
pub mod report;
pub mod run;
pub mod series;
pub mod sum;
pub mod tally;
pub mod temporary;
pub mod text;
pub mod units;
pub mod verify;
pub mod workload;

#[cfg(test)]
mod sample;
