//! The command `strake`: everything that a person runs.

pub mod bench;
pub mod clock;
pub mod devices;
pub mod signatures;
