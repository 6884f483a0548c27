//! A file for the summary or the plot: opened before the run, written after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Until it is written it holds what it held, and if it was not there it is not there again when
/// the run comes to nothing.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// Where to remove it, while it is new and empty.
    fresh: Option<PathBuf>,
}

impl OutputFile {
    /// Opens it for writing.
    ///
    /// # Errors
    /// No such folder, no permission.
    pub fn open(path: &Path) -> io::Result<Self> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => Ok(Self { file, fresh: Some(path.to_owned()) }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Self { file: OpenOptions::new().write(true).open(path)?, fresh: None })
            }
            Err(e) => Err(e),
        }
    }

    /// Replaces what it holds.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fresh = None;
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(bytes)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(path) = &self.fresh {
            // If it cannot be removed, an empty file is left, and the run has said why.
            let _ = fs::remove_file(path);
        }
    }
}
