//! A copy that fetches what the next copy will need while it runs.
//!
//! Random requests over a store larger than the caches spend most of their time waiting for the
//! first lines of each block: the processor's own prefetcher starts anew at every page. The queue
//! knows the next request, so its lines are asked for one copy early.
#![expect(unsafe_code, reason = "copies by raw pointer")]

/// Copied between two rounds of asking.
const CHUNK: usize = 128;
const LINE: usize = 64;
/// Asked for of the next request: what one copy's time is enough for.
const AHEAD_BYTES: usize = 4096;

/// Copies `len` bytes from `from` to `to`, and asks for the lines at `next` meanwhile.
///
/// # Safety
/// Both ranges are mapped, `to` for writing, and do not overlap. `next` may be any address: a
/// prefetch never faults.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize, next: Option<*const u8>) {
    let Some(next) = next else {
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(from, len) };
        return;
    };
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX; and the caller's promise.
        return unsafe { copy_chunks_avx(to, from, len, next) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_chunks(to, from, len, next) };
}

/// The same, compiled for the wider registers that every server since 2012 has: half the
/// instructions.
///
/// # Safety
/// As [`copy`], and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_chunks_avx(to: *mut u8, from: *const u8, len: usize, next: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { copy_chunks(to, from, len, next) };
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_chunks(to: *mut u8, from: *const u8, len: usize, next: *const u8) {
    let mut done = 0;
    while len - done >= CHUNK {
        if done < AHEAD_BYTES {
            for line in (0..CHUNK).step_by(LINE) {
                prefetch(next.wrapping_add(done + line));
            }
        }
        // SAFETY: `done + CHUNK` is at most `len`, and the caller's promise.
        unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), CHUNK) };
        done += CHUNK;
    }
    // SAFETY: as above, for the rest.
    unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), len - done) };
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it neither reads nor faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_length_is_copied_whole_with_and_without_a_look_ahead() {
        let from: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        for len in [0, 1, 127, 128, 129, 512, 4095, 4096, 4097, 5000] {
            for next in [None, Some(from.as_ptr()), Some(std::ptr::null())] {
                let mut to = vec![0; 5000];
                // SAFETY: both are live and of 5,000 bytes.
                unsafe { super::copy(to.as_mut_ptr(), from.as_ptr(), len, next) };
                assert_eq!(to[..len], from[..len]);
                assert!(to[len..].iter().all(|byte| *byte == 0));
            }
        }
    }
}
