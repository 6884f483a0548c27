//! Devices that wrap a device, and are one too: they compose in any order.
//!
//! | device | what it adds |
//! | --- | --- |
//! | [`Model`] | the timing of a drive's published behaviour |
//! | [`Trace`] | a line an I/O |

mod model;
mod trace;

pub use model::{Access, DiskParams, FlashParams, Mechanism, Model, ModelError, ModelParams};
pub use trace::{Trace, TraceFormat, TraceLog};
