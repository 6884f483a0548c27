//! The command `strake`: everything that a person runs.

pub mod bench;
pub mod signatures;
