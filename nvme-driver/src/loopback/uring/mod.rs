//! The io_uring engine: requests go into the ring at `submit`, the kernel hears of them once a
//! poll.

mod channel;
mod errno;
mod ring;

pub(super) use channel::{Target, UringChannel};
