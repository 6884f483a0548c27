//! Who may use a device: claims, within this process and (through a lock that the device adds)
//! against others.
//!
//! | held \ asked | read | write | exclusive |
//! | --- | --- | --- | --- |
//! | read | yes | yes | no |
//! | write | yes | no | no |
//! | exclusive | no | no | no |

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What a claim allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// Reads; beside other readers and one writer.
    Read,
    /// Reads and writes; beside readers.
    Write,
    /// Reads and writes; alone.
    Exclusive,
}

impl ClaimMode {
    /// True if requests through it may change the device.
    #[must_use]
    pub fn allows_writes(self) -> bool {
        self != Self::Read
    }

    /// True if both can be held at once.
    #[must_use]
    pub fn coexists(self, other: Self) -> bool {
        matches!((self, other), (Self::Read, Self::Read | Self::Write) | (Self::Write, Self::Read))
    }
}

impl fmt::Display for ClaimMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Exclusive => "exclusive use",
        })
    }
}

/// Why a device could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Held in this process.
    #[error("{device} is already claimed for {held} here, so it cannot be claimed for {asked}")]
    Held {
        /// The device asked.
        device: String,
        /// The claim in the way.
        held: ClaimMode,
        /// The claim asked for.
        asked: ClaimMode,
    },
    /// Held outside this process.
    #[error("{device} cannot be claimed for {asked}: {why}")]
    Elsewhere {
        /// The device asked.
        device: String,
        /// The claim asked for.
        asked: ClaimMode,
        /// What is in the way, and what to do.
        why: String,
    },
}

/// A held claim; dropping it releases.
pub struct Claim {
    device: String,
    mode: ClaimMode,
    book: Arc<Mutex<Vec<(u64, ClaimMode)>>>,
    number: u64,
    /// What the device holds along with it: a file lock, the claims on its members.
    held: Box<dyn Any + Send + Sync>,
}

impl Claim {
    /// What it allows.
    #[must_use]
    pub fn mode(&self) -> ClaimMode {
        self.mode
    }

    /// The stable id of the device it is for.
    #[must_use]
    pub fn device_id(&self) -> &str {
        &self.device
    }

    /// What the device that made it holds along with it.
    #[must_use]
    pub fn held<T: 'static>(&self) -> Option<&T> {
        self.held.downcast_ref()
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({} for {})", self.device, self.mode)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(number, _)| *number != self.number);
    }
}

/// A device's record of the claims held on it.
#[derive(Debug, Default)]
pub struct ClaimBook {
    held: Arc<Mutex<Vec<(u64, ClaimMode)>>>,
}

impl ClaimBook {
    /// Claims `device` for `mode`; `lock` takes what else must be held, after the check here.
    ///
    /// # Errors
    /// A claim in the way, here or as `lock` says.
    pub fn claim<T: Any + Send + Sync>(
        &self,
        device: &str,
        mode: ClaimMode,
        lock: impl FnOnce() -> Result<T, ClaimError>,
    ) -> Result<Claim, ClaimError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, other)) = held.iter().find(|(_, h)| !h.coexists(mode)) {
            return Err(ClaimError::Held { device: device.to_owned(), held: other, asked: mode });
        }
        let locked = lock()?;
        let number = held.last().map_or(0, |(n, _)| n + 1);
        held.push((number, mode));
        Ok(Claim {
            device: device.to_owned(),
            mode,
            book: Arc::clone(&self.held),
            number,
            held: Box::new(locked),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(book: &ClaimBook, mode: ClaimMode) -> Result<Claim, ClaimError> {
        book.claim("d", mode, || Ok(()))
    }

    #[test]
    fn one_writer_stands_beside_readers_and_nobody_beside_an_exclusive_claim() {
        let book = ClaimBook::default();
        let reader = claim(&book, ClaimMode::Read).unwrap();
        let writer = claim(&book, ClaimMode::Write).unwrap();
        let _reader_2 = claim(&book, ClaimMode::Read).unwrap();
        assert!(claim(&book, ClaimMode::Write).is_err());
        assert!(claim(&book, ClaimMode::Exclusive).is_err());
        drop(writer);
        let _writer = claim(&book, ClaimMode::Write).unwrap();
        drop(reader);
        assert!(claim(&book, ClaimMode::Exclusive).is_err());
    }

    #[test]
    fn a_lock_that_is_refused_leaves_nothing_claimed() {
        let book = ClaimBook::default();
        let refused = book.claim("d", ClaimMode::Exclusive, || {
            Err::<(), _>(ClaimError::Elsewhere {
                device: "d".into(),
                asked: ClaimMode::Exclusive,
                why: "another process".into(),
            })
        });
        assert!(refused.is_err());
        claim(&book, ClaimMode::Exclusive).unwrap();
    }
}
