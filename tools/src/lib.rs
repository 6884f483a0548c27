//! The command `strake`: everything that a person runs.

pub mod bench;
pub mod cli;
pub mod clock;
pub mod devices;
pub mod exit;
pub mod outputs;
pub mod signatures;
pub mod trace;
