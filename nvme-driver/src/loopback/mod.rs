//! Devices without hardware: files and block nodes, memory, and nothing at all.
//!
//! | device | backed by | use |
//! | --- | --- | --- |
//! | [`File`]: `file:` | a file or block node, by io_uring or by mmap | CI, virtual disks, tmpfs, DAX |
//! | [`Mem`]: `mem:` | memory of this process | tests; the cost of one copy |
//! | [`Null`]: `null:` | nothing: writes vanish, reads leave the buffer as it is | the cost of the stack |

mod ahead;
mod copy;
mod direct;
mod file;
mod lock;
mod mem;
mod mmap;
mod node;
mod null;
mod uring;

pub use file::{Engine, File};
pub use mem::Mem;
pub use null::Null;

use crate::block::{LimitsError, UriError};

/// Why a loopback device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// Its name is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// It cannot have these limits.
    #[error("`{device}`: {source}")]
    Limits {
        /// The device.
        device: String,
        /// What is wrong.
        source: LimitsError,
    },
    /// The kernel says no.
    #[error("`{device}`: {what}: {source}")]
    Io {
        /// The device.
        device: String,
        /// What was tried.
        what: String,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// It is not something that can be a block device, or cannot be used as asked.
    #[error("`{device}`: {why}")]
    Unusable {
        /// The device.
        device: String,
        /// What was found and what to do.
        why: String,
    },
}
