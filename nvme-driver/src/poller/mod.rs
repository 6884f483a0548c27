//! Pollers: one thread a core, running tasks; how cores talk, agree and sleep.
//!
//! ```text
//! Poller::step(now)       one round: turn to a new epoch, poll every task, acknowledge
//!   driven by thread::spawn in real time, or by the simulator in virtual time
//! Task                    what a poller runs: an export, an array's own work, a bench job
//! mailbox (Mesh)          a pair of bounded single-producer rings between every two cores;
//!                         a request reserves the slot of its answer before it is sent
//! epochs (Leader)         publish N; every poller turns at its next step, and acknowledges when
//!                         all that it began before has completed
//! idle policy, Waker      spin, then pause, then sleep until something can wake it
//! ```
//!
//! What two cores touch at once is here and nowhere else: the ring's indexes, the published and
//! acknowledged epochs, the waker's word. Each has a loom test (`--cfg loom`).

mod epoch;
mod idle;
mod mailbox;
mod ring;
mod sleep;
mod step;
mod task;
mod thread;
mod waker;

pub use epoch::{Epoch, Follower, Leader, Unfinished};
pub use idle::{Idle, IdlePolicy, Rest};
pub use mailbox::{Endpoint, Mail, mesh};
pub use ring::{Receiver, Sender, ring};
pub use step::{Poller, PollerStats, TaskInbox};
pub use task::{PollerId, Task, TaskState};
pub use thread::{PollerHandle, PollerReport, spawn};
pub use waker::Waker;
