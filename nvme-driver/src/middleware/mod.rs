//! Devices that wrap a device, and are one too: they compose in any order.
//!
//! | device | what it adds |
//! | --- | --- |
//! | [`Fault`] | failures from a seeded plan: errors, lost and misplaced writes, delays, disappearance |
//! | [`Model`] | the timing of a drive's published behaviour |
//! | [`Trace`] | a line an I/O |

mod fault;
mod model;
mod trace;

pub use fault::{Fault, FaultCounts, FaultKind, FaultPlan};
pub use model::{Access, DiskParams, FlashParams, Mechanism, Model, ModelError, ModelParams};
pub use trace::{Trace, TraceFormat, TraceLog};
