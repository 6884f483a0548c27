//! The table of formats. Offsets and magics are those of each format's own definition, as the
//! kernel and libblkid know them.

use super::checks;
use super::{Candidate, Place, Signature};

/// A GUID partition table, first or second copy.
pub(super) const GPT: &str = "GPT";
/// An MBR with nothing but the entry that protects a GPT.
pub(super) const PROTECTIVE_MBR: &str = "protective MBR";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const START: &[Place] = &[Place::Start(0)];
/// ext, f2fs and EROFS leave the first 1 KiB to boot code.
const SUPER_1K: &[Place] = &[Place::Start(KIB)];

/// The last `bytes` of the device.
const fn last(bytes: u64) -> Place {
    Place::End { before: bytes, align: 1, after: 0 }
}

/// The last `after` bytes of a device that is rounded down to `align`.
const fn rounded(align: u64, after: u64) -> Place {
    Place::End { before: 0, align, after }
}

fn always(_: Candidate<'_>) -> bool {
    true
}

const fn magic(
    name: &'static str,
    places: &'static [Place],
    magic_offset: usize,
    magic: &'static [u8],
) -> Signature {
    let structure_bytes = magic_offset + magic.len();
    Signature { name, places, magic_offset, magic, structure_bytes, check: always }
}

impl Signature {
    /// Believed only if `check` says so too, of the first `structure_bytes`.
    const fn if_sane(mut self, structure_bytes: usize, check: fn(Candidate<'_>) -> bool) -> Self {
        self.structure_bytes = structure_bytes;
        self.check = check;
        self
    }
}

/// `drivers/md/md.c`, `super_1_load`: 8 KiB before the end, rounded down to 4 KiB.
const MD_1_0: &[Place] = &[Place::End { before: 8 * KIB, align: 4 * KIB, after: 0 }];
/// `MD_NEW_SIZE_SECTORS`: rounded down to 64 KiB, then 64 KiB back.
const MD_0_90: &[Place] = &[rounded(64 * KIB, 64 * KIB)];
const MD_MAGIC: &[u8] = &0xa92b_4efc_u32.to_le_bytes();
const MD_MAGIC_BE: &[u8] = &0xa92b_4efc_u32.to_be_bytes();

/// Four labels of 256 KiB, two at each end of a device rounded down to that; the nvlist that
/// describes the pool is 16 KiB into each.
const ZFS_LABELS: &[Place] = &[
    Place::Start(16 * KIB),
    Place::Start(272 * KIB),
    Place::End { before: 0, align: 256 * KIB, after: 496 * KIB },
    Place::End { before: 0, align: 256 * KIB, after: 240 * KIB },
];

/// A PV label may be in any of the first four sectors.
const LVM_SECTORS: &[Place] =
    &[Place::Start(0), Place::Start(512), Place::Start(1024), Place::Start(1536)];

/// `disk-io.c`: `btrfs_sb_offset`.
const BTRFS_SUPERS: &[Place] =
    &[Place::Start(64 * KIB), Place::Start(64 * MIB), Place::Start(256 * GIB)];

/// LUKS2's second header, by the size of the first header's area.
const LUKS2_SECOND: &[Place] = &[
    Place::Start(16 * KIB),
    Place::Start(32 * KIB),
    Place::Start(64 * KIB),
    Place::Start(128 * KIB),
    Place::Start(256 * KIB),
    Place::Start(512 * KIB),
    Place::Start(MIB),
    Place::Start(2 * MIB),
    Place::Start(4 * MIB),
];

/// The end of the first page, for each page size that Linux has.
const SWAP_PAGES: &[Place] = &[
    Place::Start(4 * KIB - 10),
    Place::Start(8 * KIB - 10),
    Place::Start(16 * KIB - 10),
    Place::Start(32 * KIB - 10),
    Place::Start(64 * KIB - 10),
];

const SECTOR_1: &[Place] = &[Place::Start(512), Place::Start(4 * KIB)];
const LAST_SECTOR: &[Place] = &[last(512), last(4 * KIB)];
const DRBD_END: &[Place] = &[rounded(4 * KIB, 4 * KIB)];

/// Everything that is recognised.
pub const SIGNATURES: &[Signature] = &[
    // Partition tables.
    magic(GPT, SECTOR_1, 0, b"EFI PART").if_sane(32, checks::gpt),
    magic(GPT, LAST_SECTOR, 0, b"EFI PART").if_sane(32, checks::gpt),
    magic("MBR", START, 510, &[0x55, 0xaa]).if_sane(512, checks::mbr),
    magic(PROTECTIVE_MBR, START, 510, &[0x55, 0xaa]).if_sane(512, checks::protective_mbr),
    // Arrays and volume managers.
    magic("md 0.90", MD_0_90, 0, MD_MAGIC).if_sane(12, checks::md_0_90_little),
    magic("md 0.90", MD_0_90, 0, MD_MAGIC_BE).if_sane(12, checks::md_0_90_big),
    magic("md 1.0", MD_1_0, 0, MD_MAGIC).if_sane(256, checks::md_1),
    magic("md 1.1", START, 0, MD_MAGIC).if_sane(256, checks::md_1),
    magic("md 1.2", &[Place::Start(4 * KIB)], 0, MD_MAGIC).if_sane(256, checks::md_1),
    magic("IMSM", &[last(1024), last(8 * KIB)], 0, b"Intel Raid ISM Cfg Sig. "),
    magic("DDF", LAST_SECTOR, 0, &[0xde, 0x11, 0xde, 0x11]).if_sane(40, checks::ddf),
    magic("LVM2 PV", LVM_SECTORS, 0, b"LABELONE").if_sane(32, checks::lvm2),
    magic("DRBD", DRBD_END, 60, &[0x83, 0x74, 0x02, 0x6b]),
    magic("DRBD", DRBD_END, 60, &[0x83, 0x74, 0x02, 0x6c]),
    magic("DRBD 9", DRBD_END, 60, &[0x83, 0x74, 0x02, 0x6d]),
    magic(
        "bcache",
        &[Place::Start(4 * KIB)],
        24,
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
            0x6d, 0x81,
        ],
    ),
    magic("ZFS", ZFS_LABELS, 20, b"\0\0\0\x07version\0"),
    magic("Ceph BlueStore", START, 0, b"bluestore block device\n"),
    magic("Stratis", &[Place::Start(512), Place::Start(4608)], 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("VDO", START, 0, b"dmvdo001"),
    magic("VMFS", &[Place::Start(MIB)], 0, &[0x0d, 0xd0, 0x01, 0xc0]),
    // Encryption and integrity.
    magic("LUKS1", START, 0, b"LUKS\xba\xbe\0\x01"),
    magic("LUKS2", START, 0, b"LUKS\xba\xbe\0\x02"),
    magic("LUKS2", LUKS2_SECOND, 0, b"SKUL\xba\xbe\0\x02"),
    magic("BitLocker", START, 3, b"-FVE-FS-"),
    magic("dm-integrity", START, 0, b"integrt\0"),
    magic("dm-verity", START, 0, b"verity\0\0"),
    // File systems.
    magic("ext2", SUPER_1K, 56, &[0x53, 0xef]).if_sane(104, checks::ext2),
    magic("ext3", SUPER_1K, 56, &[0x53, 0xef]).if_sane(104, checks::ext3),
    magic("ext4", SUPER_1K, 56, &[0x53, 0xef]).if_sane(104, checks::ext4),
    magic("XFS", START, 0, b"XFSB").if_sane(8, checks::xfs),
    magic("btrfs", BTRFS_SUPERS, 64, b"_BHRfS_M"),
    magic(
        "bcachefs",
        &[Place::Start(4 * KIB)],
        24,
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d,
            0xf7, 0xef,
        ],
    ),
    magic("f2fs", &[Place::Start(KIB), Place::Start(5 * KIB)], 0, &[0x10, 0x20, 0xf5, 0xf2]),
    magic("FAT12", START, 54, b"FAT12   ").if_sane(512, checks::fat),
    magic("FAT16", START, 54, b"FAT16   ").if_sane(512, checks::fat),
    magic("FAT32", START, 82, b"FAT32   ").if_sane(512, checks::fat),
    magic("exFAT", START, 3, b"EXFAT   "),
    magic("NTFS", START, 3, b"NTFS    "),
    magic("swap", SWAP_PAGES, 0, b"SWAPSPACE2"),
    magic("swap", SWAP_PAGES, 0, b"SWAP-SPACE"),
    magic("hibernation image", SWAP_PAGES, 0, b"S1SUSPEND\0"),
    magic("ISO 9660", &[Place::Start(32 * KIB)], 1, b"CD001"),
    magic("UDF", &[Place::Start(32 * KIB)], 1, b"BEA01"),
    magic("squashfs", START, 0, b"hsqs").if_sane(32, checks::squashfs),
    magic("EROFS", SUPER_1K, 0, &[0xe2, 0xe1, 0xf5, 0xe0]),
    magic("JFS", &[Place::Start(32 * KIB)], 0, b"JFS1"),
    magic("ReiserFS", &[Place::Start(64 * KIB)], 52, b"ReIsEr"),
    magic("APFS", START, 32, b"NXSB"),
    // Disk images, which have no business on a device but are found in files.
    magic("qcow2", START, 0, b"QFI\xfb").if_sane(8, checks::qcow2),
    magic("VMDK", START, 0, b"KDMV").if_sane(8, checks::vmdk),
    magic("VMDK", START, 0, b"# Disk DescriptorFile"),
    magic("VHD", START, 0, b"conectix"),
    magic("VHD", &[last(512)], 0, b"conectix"),
    magic("VHDX", START, 0, b"vhdxfile"),
    magic("VDI", START, 64, &[0x7f, 0x10, 0xda, 0xbe]),
];
