//! What must be true beside the magic.

use super::Candidate;

impl Candidate<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or([0; N])
    }

    fn u8(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }
}

/// Revision 1.0 and a header of at least the defined length. The checksum is left to those who
/// want to use the table: a damaged one is still something that the device holds.
pub(super) fn gpt(c: Candidate<'_>) -> bool {
    c.le32(8) == 0x0001_0000 && (92..=4096).contains(&c.le32(12))
}

/// Sector 0 ends in 55 AA on far more than partitioned disks, so the four entries must look like
/// partitions: a boot flag of 00 or 80, empty entries all zero, the others inside the device and
/// apart from each other.
pub(super) fn mbr(c: Candidate<'_>) -> bool {
    partitions(c).is_some_and(|list| list.len() > 1 || !list.iter().any(|p| p.protective))
}

/// One entry, of type EE.
pub(super) fn protective_mbr(c: Candidate<'_>) -> bool {
    partitions(c).is_some_and(|list| list.len() == 1 && list[0].protective)
}

#[derive(Clone, Copy)]
struct Partition {
    start: u64,
    end: u64,
    protective: bool,
}

/// The partitions of a sane table with at least one.
fn partitions(c: Candidate<'_>) -> Option<Vec<Partition>> {
    const PROTECTIVE: u8 = 0xee;
    // In sectors of 512 bytes; entries of disks with larger ones count fewer.
    let sectors = c.capacity_bytes / 512;
    let mut list = Vec::with_capacity(4);
    for index in 0..4 {
        let entry: [u8; 16] = c.array(446 + 16 * index);
        if entry == [0; 16] {
            continue;
        }
        let at = 446 + 16 * index;
        let (flag, kind) = (c.u8(at), c.u8(at + 4));
        let (start, count) = (u64::from(c.le32(at + 8)), u64::from(c.le32(at + 12)));
        let protective = kind == PROTECTIVE;
        // A protective entry may claim all that 32 bits can say.
        let inside = protective || start + count <= sectors;
        if !matches!(flag, 0 | 0x80) || kind == 0 || start == 0 || count == 0 || !inside {
            return None;
        }
        list.push(Partition { start, end: start + count, protective });
    }
    let bootable = (0..4).filter(|i| c.u8(446 + 16 * i) == 0x80).count();
    list.sort_unstable_by_key(|p| p.start);
    let apart = list.windows(2).all(|pair| pair[0].end <= pair[1].start);
    (!list.is_empty() && bootable <= 1 && apart).then_some(list)
}

/// Major version 1, and the superblock says itself that it lies here: what lies elsewhere belongs
/// to another device (a partition of this one, or a device that has since grown).
pub(super) fn md_1(c: Candidate<'_>) -> bool {
    c.le32(4) == 1 && c.le64(144).checked_mul(512) == Some(c.offset)
}

pub(super) fn md_0_90_little(c: Candidate<'_>) -> bool {
    c.le32(4) == 0 && c.le32(8) >= 90 && c.le32(8) < 100
}

pub(super) fn md_0_90_big(c: Candidate<'_>) -> bool {
    c.be32(4) == 0 && c.be32(8) >= 90 && c.be32(8) < 100
}

/// The revision in words, such as "01.02.00".
pub(super) fn ddf(c: Candidate<'_>) -> bool {
    let [a, b, dot, ..] = c.array::<8>(32);
    a.is_ascii_digit() && b.is_ascii_digit() && dot == b'.'
}

pub(super) fn lvm2(c: Candidate<'_>) -> bool {
    c.array(24) == *b"LVM2 001"
}

/// `EXT4_FEATURE_COMPAT_HAS_JOURNAL`.
const EXT_JOURNAL: u32 = 0x4;
/// `EXT4_FEATURE_INCOMPAT_JOURNAL_DEV`: an external journal, which only ext4's tools still make.
const EXT_JOURNAL_DEVICE: u32 = 0x8;
/// What ext3 does not know: everything beyond filetype, recovery, journal device and `meta_bg`.
const EXT4_INCOMPAT: u32 = !(0x2 | 0x4 | EXT_JOURNAL_DEVICE | 0x10);
/// What ext3 does not know: everything beyond sparse superblocks, large files and btree directories.
const EXT4_RO_COMPAT: u32 = !(0x1 | 0x2 | 0x4);

/// Counts that are not zero, a block of 1 to 64 KiB, a known revision: what every ext has.
fn ext(c: Candidate<'_>) -> bool {
    let (inodes, blocks, block_shift) = (c.le32(0), c.le32(4), c.le32(24));
    let per_group = c.le32(32);
    let (creator, revision) = (c.le32(72), c.le32(76));
    let counts = inodes > 0 && (blocks > 0 || ext_is_4(c)) && per_group > 0;
    counts && block_shift <= 6 && creator <= 4 && revision <= 1
}

fn ext_is_4(c: Candidate<'_>) -> bool {
    c.le32(96) & (EXT4_INCOMPAT | EXT_JOURNAL_DEVICE) != 0 || c.le32(100) & EXT4_RO_COMPAT != 0
}

pub(super) fn ext2(c: Candidate<'_>) -> bool {
    ext(c) && !ext_is_4(c) && c.le32(92) & EXT_JOURNAL == 0
}

pub(super) fn ext3(c: Candidate<'_>) -> bool {
    ext(c) && !ext_is_4(c) && c.le32(92) & EXT_JOURNAL != 0
}

pub(super) fn ext4(c: Candidate<'_>) -> bool {
    ext(c) && ext_is_4(c)
}

pub(super) fn xfs(c: Candidate<'_>) -> bool {
    let block = c.be32(4);
    block.is_power_of_two() && (512..=65_536).contains(&block)
}

/// The rest of the BIOS parameter block. Other file systems keep "FAT16" nowhere, but boot code
/// and leftovers do.
pub(super) fn fat(c: Candidate<'_>) -> bool {
    let (sector, per_cluster, reserved) = (c.le16(11), c.u8(13), c.le16(14));
    let jumps = matches!(c.u8(0), 0xeb | 0xe9);
    let ends = c.array(510) == [0x55, 0xaa];
    let sane = sector.is_power_of_two() && (512..=4096).contains(&sector);
    jumps && ends && sane && per_cluster.is_power_of_two() && reserved > 0
}

pub(super) fn squashfs(c: Candidate<'_>) -> bool {
    c.le16(28) == 4
}

pub(super) fn qcow2(c: Candidate<'_>) -> bool {
    matches!(c.be32(4), 2 | 3)
}

pub(super) fn vmdk(c: Candidate<'_>) -> bool {
    matches!(c.le32(4), 1..=3)
}
