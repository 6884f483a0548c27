//! Claims against other processes: open-file-description locks on two bytes far beyond any data.
//!
//! | claim | byte 0 | byte 1 |
//! | --- | --- | --- |
//! | read | shared | |
//! | write | shared | exclusive |
//! | exclusive | exclusive | exclusive |
//!
//! Such locks belong to the open file and not to the process, so they go with the last copy of
//! the descriptor (fcntl(2), "Open file description locks").

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::block::ClaimMode;

/// Beyond any file's data, and below what `i64` arithmetic in the kernel minds.
const BYTE_0: i64 = 1 << 62;

/// Locks `file` for `mode`. False if another open file holds a lock in the way.
pub(super) fn lock(file: &File, mode: ClaimMode) -> io::Result<bool> {
    let bytes: &[(i64, libc::c_int)] = match mode {
        ClaimMode::Read => &[(0, libc::F_RDLCK)],
        ClaimMode::Write => &[(0, libc::F_RDLCK), (1, libc::F_WRLCK)],
        ClaimMode::Exclusive => &[(0, libc::F_WRLCK), (1, libc::F_WRLCK)],
    };
    for (byte, kind) in bytes {
        let range = libc::flock {
            // Both constants are 0 to 2.
            l_type: *kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: BYTE_0 + byte,
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}
