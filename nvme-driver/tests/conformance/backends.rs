//! What the checks run on.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use strake_nvme_driver::block::{Device, Uri};
use strake_nvme_driver::loopback::{File, Mem, Null};
use tempfile::{NamedTempFile, TempDir};

/// Of every device: small, and no multiple of large powers of two.
const BYTES: u64 = (4 << 20) + (12 << 10);

/// A device, and what it stands on.
pub struct Backend {
    pub device: Arc<dyn Device>,
    /// False if writes vanish.
    pub keeps_data: bool,
    _below: Box<dyn Any + Send + Sync>,
}

impl Backend {
    fn new(device: impl Device + 'static, below: impl Any + Send + Sync) -> Self {
        Self { device: Arc::new(device), keeps_data: true, _below: Box::new(below) }
    }
}

pub fn uri(text: &str) -> Uri {
    Uri::parse(text).expect("a name of ours")
}

pub fn open(path: &Path, options: &str) -> File {
    File::open_uri(&uri(&format!("file:{}{options}", path.display()))).expect("a file of ours")
}

pub fn null() -> Option<Backend> {
    let device = Null::open_uri(&uri(&format!("null:{BYTES}"))).unwrap();
    Some(Backend { keeps_data: false, ..Backend::new(device, ()) })
}

pub fn mem() -> Option<Backend> {
    Some(Backend::new(Mem::open_uri(&uri(&format!("mem:{BYTES}"))).unwrap(), ()))
}

pub fn mem_4k() -> Option<Backend> {
    Some(Backend::new(Mem::open_uri(&uri(&format!("mem:{BYTES}?block=4k"))).unwrap(), ()))
}

/// A folder on a disk: the build's own.
pub fn disk() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A folder on tmpfs.
pub fn tmpfs() -> PathBuf {
    PathBuf::from("/dev/shm")
}

/// A file of `bytes` bytes, allocated and zero.
pub fn file_of(folder: &Path, bytes: u64) -> NamedTempFile {
    let file = NamedTempFile::new_in(folder).expect("a temporary file");
    let flags = nix::fcntl::FallocateFlags::empty();
    let len = bytes.try_into().expect("a small file");
    nix::fcntl::fallocate(file.as_file(), flags, 0, len).expect("room for a small file");
    file
}

fn file(folder: &Path, options: &str) -> Option<Backend> {
    let file = file_of(folder, BYTES);
    Some(Backend::new(open(file.path(), options), file))
}

pub fn file_direct() -> Option<Backend> {
    file(&disk(), "?engine=uring")
}

pub fn file_buffered() -> Option<Backend> {
    file(&disk(), "?engine=uring&direct=0")
}

pub fn file_mapped() -> Option<Backend> {
    file(&disk(), "?engine=mmap")
}

pub fn tmpfs_mapped() -> Option<Backend> {
    file(&tmpfs(), "?engine=mmap")
}

pub fn tmpfs_uring() -> Option<Backend> {
    file(&tmpfs(), "?engine=uring")
}

pub fn node() -> Option<Backend> {
    let node = LoopNode::new(BYTES)?;
    Some(Backend::new(open(&node.path, ""), node))
}

/// A block node: a loop device on a temporary file. Detached when dropped.
pub struct LoopNode {
    pub path: PathBuf,
    _file: NamedTempFile,
}

impl LoopNode {
    /// `None`, said aloud, where there are no loop devices; never on CI, which promises them.
    pub fn new(bytes: u64) -> Option<Self> {
        let file = file_of(&disk(), bytes);
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        let why = match made {
            Ok(out) if out.status.success() => {
                let path = String::from_utf8(out.stdout).expect("losetup names a node");
                return Some(Self { path: PathBuf::from(path.trim()), _file: file });
            }
            Ok(out) => String::from_utf8_lossy(&out.stderr).into_owned(),
            Err(e) => e.to_string(),
        };
        assert!(std::env::var_os("CI").is_none(), "no loop device: {why}");
        eprintln!("SKIPPED: no loop device here: {why}");
        None
    }
}

impl Drop for LoopNode {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A file system mounted on a temporary folder, until dropped.
pub struct Mount {
    pub folder: TempDir,
}

impl Mount {
    /// As [`LoopNode::new`]: `None` where mounting is not allowed.
    pub fn new(what: &[&str]) -> Option<Self> {
        let folder = TempDir::new_in(disk()).expect("a temporary folder");
        let done = Command::new("mount").args(what).arg(folder.path()).output();
        let why = match done {
            Ok(out) if out.status.success() => return Some(Self { folder }),
            Ok(out) => String::from_utf8_lossy(&out.stderr).into_owned(),
            Err(e) => e.to_string(),
        };
        assert!(std::env::var_os("CI").is_none(), "cannot mount: {why}");
        eprintln!("SKIPPED: cannot mount here: {why}");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}
