//! Memory that devices may touch: regions, the table that every channel looks them up in, pools,
//! I/O-virtual addresses and the SIGBUS guard.
//!
//! A *region* is a mapping registered with a [`Memory`]; its [`RegionId`] is a slot and a
//! generation. Channels hold an immutable snapshot of the [`RegionTable`] and take up a new one
//! when they turn to a new epoch. A snapshot keeps its regions mapped, so a region is unmapped
//! after the last channel has turned and finished what it began before: no pointer that a device
//! was given can outlive its mapping, whatever the caller does.
//!
//! Bytes of a region are shared with devices and guests, so they are never lent out as Rust
//! slices: [`Region::read_at`] and [`Region::write_at`] copy.

mod epochs;
mod iova;
mod mapping;
mod pool;
mod region;
mod sigbus;
mod table;

pub use epochs::EpochMemory;
pub use iova::{Iova, IovaAllocator, IovaRange};
pub use mapping::Mapping;
pub use pool::{Buffer, Pool};
pub use region::{Region, RegionId};
pub use sigbus::{Fault, Guard};
pub use table::{Memory, MemoryError, RegionTable};
