//! One list of checks, run on every loopback device: whatever is behind a channel, it keeps the
//! contract of the block API.
//!
//! ```text
//! backends   what is checked: null, memory, files by every engine, a loop device
//! rig        one channel and its memory, driven by hand
//! data       what was written is read, and zeros are zeros
//! refusals   each wrong request has its status
//! queue      room, order, cancels, deadlines, epochs, sleeping, counters
//! vanishing  a file that shrinks, a file system that is full
//! claims     who may use a device beside whom
//! ```

mod backends;
mod claims;
mod data;
mod queue;
mod refusals;
mod rig;
mod vanishing;

use std::panic::{AssertUnwindSafe, catch_unwind};

use backends::Backend;

/// A check of the contract. Each gets a device of its own.
type Check = (&'static str, fn(&Backend));

/// Runs every check and names all that fail, not just the first.
fn run(open: fn() -> Option<Backend>) {
    let checks = [data::CHECKS, refusals::CHECKS, queue::CHECKS];
    let mut failed = Vec::new();
    for (name, check) in checks.into_iter().flatten() {
        let Some(backend) = open() else { return };
        if catch_unwind(AssertUnwindSafe(|| check(&backend))).is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "these checks failed: {failed:#?}");
}

macro_rules! conform {
    ($($test:ident = $open:path;)*) => {
        $(#[test]
        fn $test() {
            run($open);
        })*
    };
}

conform! {
    null_conforms = backends::null;
    memory_conforms = backends::mem;
    memory_of_large_blocks_conforms = backends::mem_4k;
    a_file_on_disk_past_the_page_cache_conforms = backends::file_direct;
    a_file_on_disk_through_the_page_cache_conforms = backends::file_buffered;
    a_file_on_disk_mapped_conforms = backends::file_mapped;
    a_file_on_tmpfs_mapped_conforms = backends::tmpfs_mapped;
    a_file_on_tmpfs_by_io_uring_conforms = backends::tmpfs_uring;
    a_block_node_conforms = backends::node;
}
