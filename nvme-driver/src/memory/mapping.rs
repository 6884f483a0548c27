//! A piece of address space, and what keeps it mapped.
#![expect(unsafe_code, reason = "maps memory and copies to and from it by raw pointer")]

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions};
use vm_memory::{GuestMemoryRegion, GuestRegionMmap};

use super::sigbus::{Fault, Guard};

/// A huge page of the common size: 2 MiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;

/// A mapped range. Other cores, devices and guests may change its bytes at any time, so access is
/// by copy only.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    guard: Option<Guard>,
    writable: bool,
    /// Declared after `guard`, so that the range is unmapped after it is no longer guarded.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the range stays mapped as long as the value lives (`_owner`), and every access through
// it is a copy by raw pointer, for which racing changes mean unspecified bytes and nothing more.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process: huge pages if any are reserved, else ordinary pages for
    /// which transparent huge pages are asked. Length is rounded up to whole pages.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let huge_len = len.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        if len >= HUGE_PAGE_BYTES / 2
            && let Ok(map) = MmapOptions::new().len(huge_len).huge(Some(21)).populate().map_anon()
        {
            return Ok(Self::owned(map));
        }
        let map = MmapOptions::new().len(len.max(1).next_multiple_of(PAGE_BYTES)).map_anon()?;
        if len >= HUGE_PAGE_BYTES {
            // Advice only: kernels without transparent huge pages refuse it, and that is fine.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Self::owned(map))
    }

    /// As [`Mapping::anonymous`], with every page there from the start: reads of memory that was
    /// never written would all see one page of zeros, and measure a cache.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn populated(len: usize) -> io::Result<Self> {
        let mapping = Self::anonymous(len)?;
        for offset in (0..mapping.len).step_by(PAGE_BYTES) {
            let written = mapping.write_at(offset, &[0]);
            debug_assert!(written, "the offset lies in the mapping");
        }
        Ok(mapping)
    }

    fn owned(mut map: memmap2::MmapMut) -> Self {
        let base = NonNull::new(map.as_mut_ptr()).expect("a mapping is never at address 0");
        Self { base, len: map.len(), guard: None, writable: true, _owner: Box::new(map) }
    }

    /// The first `len` bytes of `file`, shared with everyone who has it open, under the SIGBUS
    /// guard.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn file(file: &File, len: usize, writable: bool) -> io::Result<Self> {
        // Addresses are reserved first and the file is mapped over them, so that it starts at a
        // multiple of a huge page: only then can the kernel use huge pages for it (tmpfs, DAX).
        let reserved =
            MmapOptions::new().len(len.max(1) + HUGE_PAGE_BYTES).no_reserve_swap().map_anon()?;
        let start = reserved.as_ptr() as usize;
        let base = reserved.as_ptr().wrapping_add(start.next_multiple_of(HUGE_PAGE_BYTES) - start);
        let base = NonNull::new(base.cast_mut()).expect("a mapping is never at address 0");
        map_over(base, len, file, 0, writable)?;
        let guard = Guard::new(base.as_ptr() as usize, len)?;
        Ok(Self { base, len, guard: Some(guard), writable, _owner: Box::new(reserved) })
    }

    /// Asks for huge pages under a mapped file that is in memory as a whole, as tmpfs files are:
    /// random copies then find their page in the processor's table and not by walking the kernel's.
    /// Advice: whatever the kernel says, the mapping works as before.
    pub(crate) fn collapse(&self) {
        // SAFETY: the range is this mapping's. The call moves pages and changes no byte.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_COLLAPSE) };
    }

    /// A region of a guest's memory, under the SIGBUS guard.
    ///
    /// # Errors
    /// The guard has no slot left.
    pub fn guest(region: GuestRegionMmap) -> io::Result<Self> {
        let base = NonNull::new(region.as_ptr())
            .ok_or_else(|| io::Error::other("guest region mapped at address 0"))?;
        let len = usize::try_from(region.len()).map_err(io::Error::other)?;
        let guard = Guard::new(base.as_ptr() as usize, len)?;
        Ok(Self { base, len, guard: Some(guard), writable: true, _owner: Box::new(region) })
    }

    /// First address.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What went wrong with it, if the guard had to step in.
    #[inline]
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.guard.as_ref().and_then(Guard::fault)
    }

    /// Puts `file`, which this maps from its start, back where the guard put pages of zeros, and
    /// forgets the faults. For a mapping with one user, who has told whom it concerns.
    ///
    /// # Errors
    /// What the kernel says; the faults then stand.
    pub(crate) fn mend(&self, file: &File) -> io::Result<()> {
        let Some((guard, pages)) = self.guard.as_ref().and_then(|g| Some((g, g.faulted()?))) else {
            return Ok(());
        };
        // Both within the mapping, so they fit.
        let (start, end) = (pages.start as usize, (pages.end as usize).min(self.len));
        let at = NonNull::new(self.base.as_ptr().wrapping_add(start)).unwrap_or(self.base);
        map_over(at, end - start, file, pages.start, self.writable)?;
        guard.forget();
        Ok(())
    }

    /// Copies out `to.len()` bytes from `offset`. False, and nothing copied, if they do not lie in
    /// the mapping.
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        let fits = offset.checked_add(to.len()).is_some_and(|end| end <= self.len);
        if fits {
            // SAFETY: source range checked, target is a slice of that length, and they cannot
            // overlap since no Rust slice is ever made over a mapping.
            unsafe {
                self.base.as_ptr().add(offset).copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
            }
        }
        fits
    }

    /// Copies `from` in at `offset`. False, and nothing copied, if it does not fit.
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        let fits = offset.checked_add(from.len()).is_some_and(|end| end <= self.len);
        if fits {
            // SAFETY: as in `read_at`.
            unsafe {
                self.base.as_ptr().add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len());
            }
        }
        fits
    }
}

/// Maps `len` bytes of `file` from `offset` at `at`, over what is mapped there: a range of ours that
/// nobody copies to or from, and that no Rust reference points into.
fn map_over(
    at: NonNull<u8>,
    len: usize,
    file: &File,
    offset: u64,
    writable: bool,
) -> io::Result<()> {
    let write = if writable { libc::PROT_WRITE } else { 0 };
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: the caller's range lies in a mapping that it owns; what was there is replaced whole.
    let mapped = unsafe {
        libc::mmap(
            at.as_ptr().cast(),
            len,
            libc::PROT_READ | write,
            libc::MAP_SHARED | libc::MAP_FIXED,
            file.as_raw_fd(),
            offset,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({:p}, {} bytes)", self.base, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded() {
        let map = Mapping::anonymous(5000).unwrap();
        assert_eq!(map.len(), 8192);
        assert!(map.write_at(8190, &[1, 2]));
        assert!(!map.write_at(8191, &[1, 2]));
        assert!(!map.write_at(usize::MAX, &[1, 2]));
        let mut two = [0; 2];
        assert!(map.read_at(8190, &mut two));
        assert_eq!(two, [1, 2]);
        assert!(!map.read_at(8191, &mut two));
    }

    #[test]
    fn a_file_that_shrinks_is_a_fault_and_not_a_death() {
        // mmap(2): access beyond the end of the mapped file raises SIGBUS, which kills.
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 10).unwrap();
        let map = Mapping::file(&file, 64 << 10, true).unwrap();
        assert!(map.write_at(40_000, b"here"));
        file.set_len(4096).unwrap();
        assert_eq!(map.fault(), None);
        let mut four = [1; 4];
        assert!(map.read_at(40_000, &mut four), "the copy itself goes on, over zeros");
        assert_eq!(four, [0; 4]);
        assert_eq!(map.fault(), Some(Fault { offset: 40_000 & !4095 }));
        // The rest of the mapping still works.
        assert!(map.write_at(0, b"still"));
    }
}
