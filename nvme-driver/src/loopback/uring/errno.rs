//! From what the kernel answers to a status.

use crate::block::{Lba, Status};

/// The status for errno `code` of a request from `lba` on, of which `done_bytes` were transferred.
pub(super) fn status(code: i32, lba: Lba, done_bytes: u64, block_bytes: u32) -> Status {
    let first_bad = Lba(lba.0 + done_bytes / u64::from(block_bytes));
    match code {
        libc::EIO | libc::EILSEQ | libc::ENODATA => Status::Medium { first_bad },
        // A direct request that goes on after a short one: a file that shrank, perhaps in the middle
        // of a block.
        libc::EINVAL if done_bytes > 0 => Status::Medium { first_bad },
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Status::NoSpace,
        libc::EROFS | libc::EPERM | libc::EBADF => Status::ReadOnly,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Status::Unsupported,
        libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN => Status::Gone,
        libc::EFAULT => Status::BadMemory,
        libc::ETIMEDOUT | libc::ETIME => Status::TimedOut,
        libc::ECANCELED => Status::Cancelled,
        code => Status::Device {
            code: u16::try_from(code).unwrap_or(u16::MAX),
            retryable: is_passing(code),
        },
    }
}

/// True if the same request may succeed a moment later.
pub(super) fn is_passing(code: i32) -> bool {
    matches!(code, libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EBUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_what_went_wrong_and_where() {
        let at = |code| status(code, Lba(100), 3 * 512 + 100, 512);
        assert_eq!(at(libc::EIO), Status::Medium { first_bad: Lba(103) });
        assert_eq!(at(libc::EINVAL), Status::Medium { first_bad: Lba(103) });
        assert_eq!(at(libc::ENOSPC), Status::NoSpace);
        assert_eq!(at(libc::ENXIO), Status::Gone);
        let busy = Status::Device { code: libc::EBUSY as u16, retryable: true };
        assert_eq!(at(libc::EBUSY), busy);
        assert_eq!(
            status(libc::EINVAL, Lba(0), 0, 512),
            Status::Device { code: libc::EINVAL as u16, retryable: false }
        );
    }
}
