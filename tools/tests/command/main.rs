//! The command as a person meets it: what it says, how it ends, and what it leaves behind.
//!
//! ```text
//! strake       runs the built binary
//! mistakes     options and devices that make no sense
//! trouble      what goes wrong before and during a run
//! in_use       devices that hold something, or that somebody else has
//! memory       what a run costs
//! endings      Ctrl-C, closed pipes, outputs, the same seed twice
//! verify       what --verify finds, and where
//! ```

mod endings;
mod in_use;
mod memory;
mod mistakes;
mod strake;
mod trouble;
mod verify;
