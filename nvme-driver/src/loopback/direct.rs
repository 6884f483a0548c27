//! What O_DIRECT needs, from statx(2).
#![expect(unsafe_code, reason = "statx(2) has no safe wrapper among our libraries")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Alignment that direct I/O needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectAlignment {
    /// Of addresses in memory.
    pub(super) memory_bytes: u64,
    /// Of offsets and lengths.
    pub(super) offset_bytes: u64,
}

/// What the file system says; `None` if it does not say, or cannot do direct I/O.
pub(super) fn direct_alignment(file: &File) -> Option<DirectAlignment> {
    // SAFETY: a zeroed statx is a valid value of that plain C struct.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is the empty string that AT_EMPTY_PATH asks for,
    // and the struct is live.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut stat,
        )
    };
    let told = result == 0
        && stat.stx_mask & libc::STATX_DIOALIGN != 0
        && stat.stx_dio_offset_align.is_power_of_two()
        && stat.stx_dio_mem_align.is_power_of_two();
    told.then(|| DirectAlignment {
        memory_bytes: stat.stx_dio_mem_align.into(),
        offset_bytes: stat.stx_dio_offset_align.into(),
    })
}
