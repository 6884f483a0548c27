//! `file:PATH` and bare paths: a regular file or a block node as a device.

use std::fs::{self, File as StdFile, OpenOptions as StdOpen};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use nix::sys::statfs;
use tracing::warn;

use super::LoopbackError;
use super::direct::{DirectAlignment, direct_alignment};
use super::lock;
use super::mmap::MmapChannel;
use super::node::NodeId;
use super::uring::{Target, UringChannel};
use crate::block::{
    Channel, Claim, ClaimError, ClaimMode, ClaimedLimits, CounterSnapshot, Device, DeviceCore,
    Events, Identity, Kind, Limits, OpenError, OpenOptions, Uri,
};
use crate::memory::Mapping;

/// How requests reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// io_uring: for anything that a disk is behind.
    Uring,
    /// A shared mapping and copies: for tmpfs and DAX, where io_uring is slower than a plain read.
    Mmap,
}

impl FromStr for Engine {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uring" => Ok(Self::Uring),
            "mmap" => Ok(Self::Mmap),
            _ => Err("expected uring or mmap".to_owned()),
        }
    }
}

/// A file or block node.
#[derive(Debug)]
pub struct File {
    core: Arc<DeviceCore>,
    path: PathBuf,
    node: Option<NodeId>,
    engine: Engine,
    direct: bool,
}

/// What the URI says, before the file is looked at.
#[derive(Debug)]
struct Wishes {
    engine: Option<Engine>,
    direct: Option<bool>,
    block: Option<u64>,
    write_unit: Option<u64>,
    io_opt: Option<u64>,
    rotational: Option<bool>,
    read_only: bool,
    size: Option<u64>,
    name: Option<String>,
}

impl Wishes {
    fn read(uri: &Uri) -> Result<Self, LoopbackError> {
        let wishes = Self {
            engine: uri.option("engine")?,
            direct: uri.flag("direct")?,
            block: uri.size("block")?,
            write_unit: uri.size("write_unit")?,
            io_opt: uri.size("io_opt")?,
            rotational: uri.flag("rotational")?,
            read_only: uri.flag("ro")?.unwrap_or(false),
            size: uri.size("size")?,
            name: uri.option("name")?,
        };
        uri.finish()?;
        if wishes.block.is_some_and(|b| !b.is_power_of_two() || !(512..=65_536).contains(&b)) {
            return Err(uri.bad("block", "expected a power of two from 512 to 65536").into());
        }
        let block = wishes.block.unwrap_or(512);
        for (key, value) in [("write_unit", wishes.write_unit), ("io_opt", wishes.io_opt)] {
            if value.is_some_and(|v| v == 0 || !v.is_multiple_of(block)) {
                return Err(uri
                    .bad(key, &format!("expected a multiple of the block, {block}"))
                    .into());
            }
        }
        if wishes.size.is_some_and(|size| size < block) {
            return Err(uri.bad("size", &format!("expected at least one block, {block}")).into());
        }
        Ok(wishes)
    }
}

impl File {
    /// Opens `file:PATH?engine=&block=&write_unit=&io_opt=&rotational=&size=&direct=&ro=&name=`.
    /// With `size` the file is created, sparse, if it is not there.
    ///
    /// # Errors
    /// Nonsense options, no such file, no permission, or nothing that can be a block device.
    pub fn open_uri(uri: &Uri) -> Result<Self, LoopbackError> {
        let wishes = Wishes::read(uri)?;
        let path = PathBuf::from(uri.body());
        let failed = |what: &str, source| LoopbackError::Io {
            device: uri.body().to_owned(),
            what: what.to_owned(),
            source,
        };
        let unusable = |why: String| LoopbackError::Unusable { device: uri.body().to_owned(), why };
        if path.as_os_str().is_empty() {
            return Err(unusable("no path is given after `file:`".to_owned()));
        }
        create(&path, &wishes).map_err(|e| failed("cannot create it", e))?;
        let metadata = fs::metadata(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                unusable("there is no such file; give ?size= to create one".to_owned())
            }
            _ => failed("cannot look at it", e),
        })?;
        let kind = metadata.file_type();
        let node = kind.is_block_device().then(|| NodeId::from_rdev(metadata.rdev()));
        if node.is_none() && !kind.is_file() {
            let what =
                if kind.is_dir() { "a directory" } else { "neither a file nor a block node" };
            return Err(unusable(format!("is {what}; give a file or a block node")));
        }
        let looked = StdOpen::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let looked = looked.map_err(|e| failed("cannot open it for reading", e))?;
        let capacity = node.map_or(Some(metadata.len()), NodeId::capacity_bytes).unwrap_or(0);
        let capacity = match wishes.size {
            Some(size) if size > capacity => {
                return Err(unusable(format!(
                    "holds {capacity} bytes, less than size={size}; remove it or give a smaller size"
                )));
            }
            Some(size) => size,
            None => capacity,
        };
        let engine = wishes.engine.unwrap_or_else(|| default_engine(&looked, node));
        let alignment = direct_alignment(&looked);
        let (limits, direct) =
            limits(uri.body(), &path, &wishes, node, capacity, engine, alignment).map_err(
                |source| {
                    if capacity < 512 {
                        unusable(format!(
                            "holds {capacity} bytes, less than one block; give ?size= or fill it"
                        ))
                    } else {
                        LoopbackError::Limits { device: uri.body().to_owned(), source }
                    }
                },
            )?;
        let own_name = || path.file_name().map_or(uri.body().into(), |n| n.to_string_lossy());
        let name = wishes.name.clone().unwrap_or_else(|| own_name().into_owned());
        let identity = Identity {
            id: match node {
                Some(node) => format!("node-{}:{}", node.major, node.minor),
                None => format!("file-{}-{}", metadata.dev(), metadata.ino()),
            },
            uri: uri.to_string(),
            name,
            kind: if node.is_some() { Kind::Node } else { Kind::File },
        };
        Ok(Self { core: Arc::new(DeviceCore::new(identity, limits)), path, node, engine, direct })
    }

    /// How requests reach the file.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// True if the page cache is passed by.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn open_file(&self, mode: ClaimMode) -> io::Result<StdFile> {
        let mut flags = 0;
        if self.direct {
            flags |= libc::O_DIRECT;
        }
        if self.node.is_some() && mode.allows_writes() {
            // For a block node: fails if the kernel uses it (mounted, md, LVM, swap).
            flags |= libc::O_EXCL;
        }
        StdOpen::new().read(true).write(mode.allows_writes()).custom_flags(flags).open(&self.path)
    }

    fn lock(&self, mode: ClaimMode) -> Result<Arc<StdFile>, ClaimError> {
        let elsewhere = |why: String| ClaimError::Elsewhere {
            device: self.core.identity().name.clone(),
            asked: mode,
            why,
        };
        if mode.allows_writes() && self.core.limits().read_only {
            return Err(elsewhere("it is read-only".to_owned()));
        }
        let file = self.open_file(mode).map_err(|e| {
            let users = self.node.map(NodeId::users).unwrap_or_default();
            elsewhere(match e.raw_os_error() {
                Some(libc::EBUSY) if users.is_empty() => {
                    "another process has it (another Strake?), or the kernel does (a mounted partition, swap, a device on top); fuser -v PATH and lsblk PATH tell"
                        .to_owned()
                }
                Some(libc::EBUSY) => format!("it is {}", users.join(", ")),
                _ => format!("cannot open it: {e}"),
            })
        })?;
        match lock::lock(&file, mode) {
            Ok(true) => Ok(Arc::new(file)),
            Ok(false) => Err(elsewhere(
                "another Strake process, or another handle here, has claimed it; end that one first (fuser -v PATH names it)"
                    .to_owned(),
            )),
            Err(e) => Err(elsewhere(format!("cannot lock it: {e}"))),
        }
    }
}

/// Creates the file if a size is given and nothing is there.
fn create(path: &Path, wishes: &Wishes) -> io::Result<()> {
    let Some(size) = wishes.size else { return Ok(()) };
    match StdOpen::new().write(true).create_new(true).open(path) {
        Ok(file) => file.set_len(size).inspect_err(|_| {
            // Nothing half done: the file is ours, made a moment ago.
            let _ = fs::remove_file(path);
        }),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Files up to this are given huge pages: the kernel copies them for that, 4 GiB in a second or two.
const COLLAPSE_BYTES_MAX: usize = 4 << 30;

/// True if a file of `len` bytes should be given huge pages: in memory, and without holes, which
/// that would fill.
fn collapses(file: &StdFile, len: usize) -> bool {
    let in_memory =
        statfs::fstatfs(file).is_ok_and(|fs| fs.filesystem_type() == statfs::TMPFS_MAGIC);
    let whole = file.metadata().is_ok_and(|m| m.blocks().saturating_mul(512) >= m.len());
    in_memory && whole && len <= COLLAPSE_BYTES_MAX
}

/// tmpfs and ramfs have no asynchronous path, so io_uring punts their requests to kernel threads.
fn default_engine(file: &StdFile, node: Option<NodeId>) -> Engine {
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    if node.is_some() {
        return Engine::Uring;
    }
    match statfs::fstatfs(file) {
        Ok(fs) if fs.filesystem_type() == statfs::TMPFS_MAGIC => Engine::Mmap,
        Ok(fs) if fs.filesystem_type().0 == RAMFS_MAGIC => Engine::Mmap,
        _ => Engine::Uring,
    }
}

/// The limits, and whether O_DIRECT is used.
fn limits(
    name: &str,
    path: &Path,
    wishes: &Wishes,
    node: Option<NodeId>,
    capacity: u64,
    engine: Engine,
    alignment: Option<DirectAlignment>,
) -> Result<(Limits, bool), crate::block::LimitsError> {
    let mut claimed = node.map_or_else(file_claims, NodeId::claimed);
    let node_block = claimed.block_bytes;
    let smallest = alignment.map_or(512, |a| a.offset_bytes.max(512));
    claimed.block_bytes = match (wishes.block, node) {
        (Some(block), _) => block.max(node_block),
        (None, Some(_)) => node_block,
        (None, None) if engine == Engine::Uring => smallest,
        (None, None) => 512,
    };
    claimed.blocks = capacity.checked_div(claimed.block_bytes).unwrap_or(0);
    claimed.write_granularity_bytes = wishes.write_unit.unwrap_or(claimed.write_granularity_bytes);
    claimed.optimal_write_bytes = wishes.io_opt.unwrap_or(claimed.optimal_write_bytes);
    claimed.rotational = wishes.rotational.unwrap_or(claimed.rotational);
    claimed.read_only |= wishes.read_only;
    claimed.max_transfer_bytes = 1 << 30;
    claimed.max_segments = 64;
    let direct = engine == Engine::Uring
        && wishes.direct.unwrap_or(true)
        && match direct_refusal(path, claimed.block_bytes, alignment) {
            None => true,
            Some(why) => {
                warn!("{name}: buffered I/O through the page cache, as {why}");
                false
            }
        };
    claimed.segment_alignment_bytes =
        if direct { alignment.map_or(claimed.block_bytes, |a| a.memory_bytes) } else { 1 };
    let (limits, ignored) = Limits::believe(&claimed)?;
    for disbelief in ignored {
        warn!("{name}: {disbelief}");
    }
    Ok((limits, direct))
}

/// What a regular file can do.
fn file_claims() -> ClaimedLimits {
    ClaimedLimits {
        can_deallocate: true,
        deallocate_granularity_bytes: 4096,
        deallocate_reads_zero: true,
        write_zeroes: true,
        volatile_cache: true,
        ..ClaimedLimits::default()
    }
}

/// Why O_DIRECT cannot be used; `None` if it can.
fn direct_refusal(path: &Path, block: u64, alignment: Option<DirectAlignment>) -> Option<String> {
    if let Some(alignment) = alignment
        && !block.is_multiple_of(alignment.offset_bytes)
    {
        let needed = alignment.offset_bytes;
        return Some(format!(
            "O_DIRECT needs blocks of {needed} bytes here and block={block} is asked"
        ));
    }
    let opened = StdOpen::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    opened.err().map(|e| format!("the file system refuses O_DIRECT: {e}"))
}

impl Device for File {
    fn identity(&self) -> &Identity {
        self.core.identity()
    }

    fn limits(&self) -> Arc<Limits> {
        self.core.limits()
    }

    fn claim(&self, mode: ClaimMode) -> Result<Claim, ClaimError> {
        self.core.claims().claim(&self.core.identity().id, mode, || self.lock(mode))
    }

    fn open(&self, claim: &Claim, options: &OpenOptions) -> Result<Box<dyn Channel>, OpenError> {
        self.core.check_open(claim, options)?;
        let refused =
            |why: String| OpenError::Refused { device: self.core.identity().name.clone(), why };
        let file: &Arc<StdFile> =
            claim.held().ok_or_else(|| refused("the claim holds no open file".to_owned()))?;
        let counters = self.core.counters().open();
        let target = Target { file: Arc::clone(file), is_node: self.node.is_some() };
        let ring =
            UringChannel::new(&self.core, target, claim.mode(), options, Arc::clone(&counters))
                .map_err(|e| refused(e.to_string()))?;
        if self.engine == Engine::Uring {
            return Ok(Box::new(ring));
        }
        let len = usize::try_from(self.core.limits().capacity_bytes())
            .map_err(|_| refused("it is larger than the address space".to_owned()))?;
        let store = Mapping::file(file, len, claim.mode().allows_writes())
            .map_err(|e| refused(format!("cannot map {len} bytes: {e}")))?;
        if collapses(file, len) {
            store.collapse();
        }
        Ok(Box::new(MmapChannel::new(
            &self.core,
            Arc::new(store),
            Arc::clone(file),
            ring,
            claim.mode(),
            options,
            counters,
        )))
    }

    fn events(&self) -> Events {
        self.core.events().watch()
    }

    fn counters(&self) -> CounterSnapshot {
        self.core.counters().total()
    }
}
