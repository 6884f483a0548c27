//! Which device this is.

use serde::Serialize;

/// What sort of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A block node of the kernel.
    Node,
    /// Memory of this process.
    Mem,
    /// Nothing: writes vanish, reads leave the buffer as it is.
    Null,
    /// A device that wraps another.
    Middleware,
    /// A device made of others.
    Array,
    /// An NVMe namespace.
    Namespace,
}

/// Which device this is; the same from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Stable across renames where the kind allows it: device and inode of a file, for example.
    pub id: String,
    /// The URI that opens it again.
    pub uri: String,
    /// A short name for tables and traces.
    pub name: String,
    /// What sort of device it is.
    pub kind: Kind,
}
