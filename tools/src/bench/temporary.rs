//! The file that is benched when no device is given: full of data, and gone with the process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A file without a name: even a kill leaves nothing behind.
#[derive(Debug)]
pub struct TemporaryFile {
    file: File,
    folder: PathBuf,
}

impl TemporaryFile {
    /// Lays out `bytes` bytes of data that does not compress in the folder for temporary files,
    /// telling `progress` how many are done. Reads of a file that was never written would not
    /// reach the disk.
    ///
    /// # Errors
    /// No space, no permission, or `stop` was set.
    pub fn lay_out(
        bytes: u64,
        seed: u64,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> io::Result<Self> {
        let folder = std::env::temp_dir();
        let mut file = tempfile::tempfile_in(&folder)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut chunk = vec![0; CHUNK_BYTES];
        rng.fill_bytes(&mut chunk);
        let mut done = 0;
        while done < bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
            // A counter makes each chunk another one; deduplication would notice equal ones.
            chunk[..8].copy_from_slice(&done.to_le_bytes());
            let len = (bytes - done).min(CHUNK_BYTES as u64);
            file.write_all(&chunk[..len as usize])?;
            done += len;
            progress(done);
        }
        file.sync_data()?;
        Ok(Self { file, folder })
    }

    /// A path that opens it again, as long as this value lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Where it lies, for people.
    #[must_use]
    pub fn folder(&self) -> &PathBuf {
        &self.folder
    }
}
