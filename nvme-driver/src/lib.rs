//! The ground floor of Strake: the block API, and everything below it.
//!
//! Strake drives storage by polling. A *poller* ([`poller`]) owns a core and steps *tasks*; a task
//! owns *channels* ([`block::Channel`]), each one user's view of a *device* ([`block::Device`]) on
//! that core. Every layer has the same two verbs: `submit` takes a request or refuses it whole as
//! full, `poll` moves work along and hands back completions. Nothing on that path blocks, locks,
//! allocates or reads a clock: time is an argument ([`time`]), made by the application, so the
//! same code runs on devices in real time and in a simulator in virtual time.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`block`] | `Device`, `Channel`, `Request`, `Completion`, `Limits`; claims, events, counters |
//! | [`poller`] | tasks, the mailbox between cores, epochs, idle policy |
//! | [`memory`] | regions with generations, the region table, pools, the SIGBUS guard |
//! | [`loopback`] | files and block nodes on io_uring and on mmap; `mem:` and `null:` |
//! | [`middleware`] | `trace`, `fault` and `model`: devices that wrap a device |
//! | [`time`] | `Instant` and the `Clock` that the application implements |
#![warn(missing_docs)]

pub mod block;
pub mod loopback;
pub mod memory;
pub mod middleware;
pub mod poller;
mod sync;
pub mod time;
