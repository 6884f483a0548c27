//! What the kernel says of a block node, and who uses it: from sysfs and the mount table.

use std::fs;
use std::path::{Path, PathBuf};

use crate::block::ClaimedLimits;

/// A block node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId {
    pub(super) major: u64,
    pub(super) minor: u64,
}

impl NodeId {
    pub(super) fn from_rdev(rdev: u64) -> Self {
        Self { major: nix::sys::stat::major(rdev), minor: nix::sys::stat::minor(rdev) }
    }

    fn folder(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    /// Capacity in bytes; sysfs counts sectors of 512 bytes.
    pub(super) fn capacity_bytes(self) -> Option<u64> {
        number(&self.folder().join("size"))?.checked_mul(512)
    }

    /// What the block layer says (Documentation/ABI/stable/sysfs-block). A partition has its
    /// disk's queue.
    pub(super) fn claimed(self) -> ClaimedLimits {
        let folder = self.folder();
        let own = folder.join("queue");
        let queue = if own.is_dir() { own } else { folder.join("../queue") };
        let read = |name: &str| number(&queue.join(name)).unwrap_or(0);
        let cache = fs::read_to_string(queue.join("write_cache")).unwrap_or_default();
        let block_bytes = read("logical_block_size");
        let capacity = self.capacity_bytes().unwrap_or(0);
        ClaimedLimits {
            block_bytes,
            blocks: capacity.checked_div(block_bytes).unwrap_or(0),
            write_granularity_bytes: read("physical_block_size"),
            optimal_write_bytes: read("optimal_io_size"),
            atomic_unit_bytes: read("atomic_write_unit_max_bytes"),
            atomic_boundary_bytes: read("atomic_write_boundary_bytes"),
            boundary_bytes: read("chunk_sectors").saturating_mul(512),
            segment_alignment_bytes: number(&queue.join("dma_alignment"))
                .map_or(512, |mask| mask + 1),
            can_deallocate: read("discard_max_bytes") > 0,
            deallocate_granularity_bytes: read("discard_granularity"),
            deallocate_max_bytes: read("discard_max_bytes"),
            // The kernel promises nothing about what discarded blocks read.
            deallocate_reads_zero: false,
            write_zeroes: true,
            volatile_cache: cache.trim() != "write through",
            rotational: read("rotational") == 1,
            read_only: number(&folder.join("ro")) == Some(1),
            ..ClaimedLimits::default()
        }
    }

    /// Who uses it, in words; empty if nobody that the kernel would tell.
    pub(super) fn users(self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut users = mounted_at(&mounts, self);
        let holders = fs::read_dir(self.folder().join("holders")).into_iter().flatten().flatten();
        users.extend(holders.map(|h| format!("part of {}", h.file_name().display())));
        users
    }
}

/// Mount points of `node` in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)): field 3 is
/// the number, field 5 the mount point.
fn mounted_at(mountinfo: &str, node: NodeId) -> Vec<String> {
    let number = format!("{}:{}", node.major, node.minor);
    let mount = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        (fields.next()? == number).then(|| format!("mounted at {}", fields.nth(1).unwrap_or("?")))
    };
    mountinfo.lines().filter_map(mount).collect()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_node_says_where() {
        let text = "36 35 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    40 36 254:16 / /srv/data rw - xfs /dev/vdb rw\n garbage\n";
        let node = |minor| NodeId { major: 254, minor };
        assert_eq!(mounted_at(text, node(16)), ["mounted at /srv/data"]);
        assert_eq!(mounted_at(text, node(1)), Vec::<String>::new());
    }
}
