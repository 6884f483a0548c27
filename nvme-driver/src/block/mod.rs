//! The block API: what every layer above a drive speaks, and every layer below answers.
//!
//! On one screen:
//!
//! ```text
//! Device   shared, immutable handle: identity, limits, members, claims, events, counters.
//!   | open(claim, poller, depth, memory)
//!   v
//! Channel  one user's view on one core:  room -> submit(Request, [Segment]) -> poll(now, Sink)
//!          cancel(token)   one completion still comes
//!          turn(epoch)     later submits belong to it     oldest() -> oldest epoch outstanding
//!          arm(WakeSet)    what wakes a sleeping poller   disarm()
//!
//! Request    op, flags, class, lba, blocks, deadline, token
//! Segment    region (slot + generation), offset, length: memory lent until the completion
//! Completion token, status: what went wrong and where
//! Limits     a checked snapshot of what the device does well, and what it cannot do
//! ```
//!
//! # Who checks what
//!
//! A leaf channel checks every request with [`Limits::check`] and every segment against the
//! region table of its epoch, so a caller's mistake is a status and not a stray transfer. Wrappers
//! pass requests on and leave the checks to the leaf, except where they change the addresses.
//! [`Channel::submit`] refuses only for want of room, and then takes nothing.
//!
//! # Why a segment is not a pointer
//!
//! A segment names a registered region and an offset in it. One index into the region table gives
//! the address, virtual or I/O-virtual; a stale generation is [`Status::BadMemory`] and not a DMA
//! fault; and because nothing unsafe can be said with it, everything above the leaves is safe Rust.

mod channel;
mod claim;
mod counters;
mod device;
mod event;
mod identity;
mod limits;
mod request;
mod status;
mod uri;

pub use channel::{Channel, Full, Progress, RingWake, Sink, WakeSet};
pub use claim::{Claim, ClaimBook, ClaimError, ClaimMode};
pub use counters::{CounterSnapshot, Counters, CountersBook};
pub use device::{Device, DeviceCore, OpenError, OpenOptions, leaf_counters};
pub use event::{Event, Events, EventsBook, Health};
pub use identity::{Identity, Kind};
pub use limits::{
    Atomicity, ClaimedLimits, Deallocation, Disbelief, Limits, LimitsError, UNIT_BYTES_MAX,
};
pub use request::{Class, Flags, Lba, Op, Request, Segment, Token};
pub use status::{Completion, Status};
pub use uri::{Uri, UriError, parse_size};
