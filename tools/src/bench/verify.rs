//! Blocks that name themselves, and what it means if they do not.
//!
//! ```text
//! byte 0   magic "STRAKEv1"
//!      8   run: which run wrote it
//!     16   lba: where it belongs
//!     24   generation: how often this run had written that place, from 1
//!     28   crc32c of the block with these four bytes zero
//!     32   a pattern made from the three numbers, to the end of the block
//! ```

use std::fmt;

/// Smallest logical block that a header fits.
const MAGIC: [u8; 8] = *b"STRAKEv1";
const RUN: usize = 8;
const LBA: usize = 16;
const GENERATION: usize = 24;
const CRC: usize = 28;
const PATTERN: usize = 32;

/// What a block should say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub run: u64,
    pub lba: u64,
    pub generation: u32,
}

/// How a block is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is one of ours, and damaged.
    Damaged { crc_stored: u32, crc_computed: u32 },
    /// It belongs elsewhere: a misplaced write.
    Misplaced { belongs_at: u64 },
    /// It was written here before the write that should have replaced it: a lost write.
    Stale { generation: u32, expected: u32 },
    /// It was never written by this run: a lost write.
    NotWritten { zeros: bool },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { crc_stored, crc_computed } => write!(
                f,
                "data is damaged (crc32c {crc_computed:#010x}, and {crc_stored:#010x} was stored): a flipped bit or a torn write"
            ),
            Self::Misplaced { belongs_at } => {
                write!(f, "holds the data of block {belongs_at}: a misplaced write")
            }
            Self::Stale { generation, expected } => {
                write!(f, "holds write {generation} of {expected}: a lost write")
            }
            Self::NotWritten { zeros: true } => f.write_str("holds zeros: a lost write"),
            Self::NotWritten { zeros: false } => {
                f.write_str("holds data from before this run: a lost write")
            }
        }
    }
}

fn word(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn half(block: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn crc(block: &[u8]) -> u32 {
    let head = crc32c::crc32c(&block[..CRC]);
    let zeroed = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(zeroed, &block[PATTERN..])
}

/// Fills `block` (one logical block, 512 bytes at least) so that it names itself.
pub fn fill(block: &mut [u8], stamp: Stamp) {
    block[..RUN].copy_from_slice(&MAGIC);
    block[RUN..LBA].copy_from_slice(&stamp.run.to_le_bytes());
    block[LBA..GENERATION].copy_from_slice(&stamp.lba.to_le_bytes());
    block[GENERATION..CRC].copy_from_slice(&stamp.generation.to_le_bytes());
    // splitmix64: any pattern does that differs from block to block and does not compress.
    let mut state = stamp.run ^ stamp.lba.rotate_left(20) ^ u64::from(stamp.generation);
    for chunk in block[PATTERN..].chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    let crc = crc(block);
    block[CRC..PATTERN].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a block against what it should say.
///
/// # Errors
/// How it is wrong.
pub fn check(block: &[u8], stamp: Stamp) -> Result<(), Wrong> {
    let ours = block[..RUN] == MAGIC && word(block, RUN) == stamp.run;
    let (stored, computed) = (half(block, CRC), crc(block));
    let (lba, generation) = (word(block, LBA), half(block, GENERATION));
    if stored != computed {
        // A block of an earlier run or of nobody is a lost write, not damage.
        let zeros = block.iter().all(|b| *b == 0);
        let near =
            ours || (block[..RUN] == MAGIC && lba == stamp.lba) || word(block, RUN) == stamp.run;
        return Err(if near && !zeros {
            Wrong::Damaged { crc_stored: stored, crc_computed: computed }
        } else {
            Wrong::NotWritten { zeros }
        });
    }
    if !ours {
        return Err(Wrong::NotWritten { zeros: false });
    }
    if lba != stamp.lba {
        return Err(Wrong::Misplaced { belongs_at: lba });
    }
    if generation != stamp.generation {
        return Err(Wrong::Stale { generation, expected: stamp.generation });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { run: 77, lba: 1234, generation: 3 };

    fn block() -> [u8; 512] {
        let mut block = [0; 512];
        fill(&mut block, STAMP);
        block
    }

    #[test]
    fn every_flipped_bit_is_seen_as_damage() {
        for bit in 0..512 * 8 {
            let mut block = block();
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(check(&block, STAMP), Err(Wrong::Damaged { .. })), "bit {bit}");
        }
        assert_eq!(check(&block(), STAMP), Ok(()));
    }

    #[test]
    fn lost_and_misplaced_writes_are_told_apart() {
        assert_eq!(check(&[0; 512], STAMP), Err(Wrong::NotWritten { zeros: true }));
        assert_eq!(check(&[7; 512], STAMP), Err(Wrong::NotWritten { zeros: false }));
        let with = |stamp| {
            let mut block = [0; 512];
            fill(&mut block, stamp);
            check(&block, STAMP)
        };
        let stale = Wrong::Stale { generation: 2, expected: 3 };
        assert_eq!(with(Stamp { generation: 2, ..STAMP }), Err(stale));
        assert_eq!(with(Stamp { lba: 99, ..STAMP }), Err(Wrong::Misplaced { belongs_at: 99 }));
        assert_eq!(with(Stamp { run: 1, ..STAMP }), Err(Wrong::NotWritten { zeros: false }));
    }
}
