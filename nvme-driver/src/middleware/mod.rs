//! Devices that wrap a device, and are one too.

mod fault;

pub use fault::{Fault, FaultCounts, FaultKind, FaultPlan};
