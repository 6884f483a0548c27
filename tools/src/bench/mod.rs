//! `strake bench`: fio's words, honest numbers.

pub mod guard;
pub mod job;
pub mod options;
pub mod report;
pub mod run;
pub mod series;
pub mod temporary;
pub mod verify;
pub mod workload;
