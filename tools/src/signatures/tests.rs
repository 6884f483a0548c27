use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A device of zeros with some bytes in it.
struct Image {
    capacity_bytes: u64,
    bytes: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, bytes: BTreeMap::new() }
    }

    fn with(mut self, offset: u64, bytes: &[u8]) -> Self {
        self.bytes.insert(offset, bytes.to_vec());
        self
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        for (&start, bytes) in &self.bytes {
            for (i, &byte) in bytes.iter().enumerate() {
                let place = (start + i as u64).checked_sub(offset).map(|at| at as usize);
                if let Some(slot) = place.and_then(|at| buffer.get_mut(at)) {
                    *slot = byte;
                }
            }
        }
    }

    fn detect(&self) -> Vec<(&'static str, u64)> {
        let found = detect(self.capacity_bytes, |offset, buffer| {
            assert!(offset + buffer.len() as u64 <= self.capacity_bytes, "reads beyond the end");
            self.read(offset, buffer);
            Some(())
        });
        found.into_iter().map(|f| (f.name, f.offset)).collect()
    }
}

fn md_1_superblock(offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[..4].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
    bytes[4] = 1;
    bytes[144..152].copy_from_slice(&(offset / 512).to_le_bytes());
    bytes
}

fn ext_superblock(compat: u32, incompat: u32, ro_compat: u32) -> Vec<u8> {
    let mut bytes = vec![0; 104];
    let words =
        [(0, 4096), (4, 16384), (24, 2), (32, 32768), (76, 1), (92, compat), (96, incompat)];
    for (at, word) in words.into_iter().chain([(100, ro_compat)]) {
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    bytes[56..58].copy_from_slice(&[0x53, 0xef]);
    bytes
}

fn fat_boot_sector(at: usize, name: &[u8; 8]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
    bytes[11..16].copy_from_slice(&[0, 2, 4, 4, 0]);
    bytes[at..at + 8].copy_from_slice(name);
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// (flag, type, first sector, sectors)
fn mbr(entries: &[(u8, u8, u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    for (i, &(flag, kind, start, count)) in entries.iter().enumerate() {
        let at = 446 + 16 * i;
        bytes[at] = flag;
        bytes[at + 4] = kind;
        bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

const GPT_HEADER: &[u8] = b"EFI PART\0\0\x01\0\x5c\0\0\0";

fn zfs_nvlist() -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x24, 0, 0, 0, 0x20];
    bytes.extend_from_slice(b"\0\0\0\x07version\0");
    bytes
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn each_format_is_found_where_its_tools_put_it() {
    let size = 512 * MIB;
    let lvm = joined(&[b"LABELONE", &[0; 16], b"LVM2 001"]);
    let ddf = joined(&[&[0xde, 0x11, 0xde, 0x11], &[0; 28], b"01.02.00"]);
    let drbd = joined(&[&[0; 60], &[0x83, 0x74, 0x02, 0x6d]]);
    let squashfs = joined(&[b"hsqs", &[0; 24], &[4, 0, 0, 0]]);
    let bcache = hex("c68573f64e1a45ca8265f57f48ba6d81");
    let bcachefs = hex("c68573f666ce90a9d96a60cf803df7ef");
    // What is written where, and what must be found.
    let rows: Vec<(u64, Vec<u8>, &str, u64)> = vec![
        (1024, ext_superblock(0x38, 0x2, 0x3), "ext2", 1080),
        (1024, ext_superblock(0x3c, 0x2, 0x3), "ext3", 1080),
        (1024, ext_superblock(0x3c, 0x2c2, 0x46b), "ext4", 1080),
        (0, b"XFSB\0\0\x10\0".to_vec(), "XFS", 0),
        (0x1_0040, b"_BHRfS_M".to_vec(), "btrfs", 0x1_0040),
        (0x400_0040, b"_BHRfS_M".to_vec(), "btrfs", 0x400_0040),
        (1024, hex("1020f5f2"), "f2fs", 1024),
        (5120, hex("1020f5f2"), "f2fs", 5120),
        (0, fat_boot_sector(54, b"FAT12   "), "FAT12", 54),
        (0, fat_boot_sector(54, b"FAT16   "), "FAT16", 54),
        (0, fat_boot_sector(82, b"FAT32   "), "FAT32", 82),
        (0, fat_boot_sector(3, b"EXFAT   "), "exFAT", 3),
        (0, fat_boot_sector(3, b"NTFS    "), "NTFS", 3),
        (4086, b"SWAPSPACE2".to_vec(), "swap", 4086),
        (65526, b"SWAPSPACE2".to_vec(), "swap", 65526),
        (32769, b"CD001".to_vec(), "ISO 9660", 32769),
        (0, squashfs, "squashfs", 0),
        (1024, hex("e2e1f5e0"), "EROFS", 1024),
        (4120, bcache, "bcache", 4120),
        (4120, bcachefs, "bcachefs", 4120),
        (16 << 10, zfs_nvlist(), "ZFS", (16 << 10) + 20),
        (size - (240 << 10), zfs_nvlist(), "ZFS", size - (240 << 10) + 20),
        (512, lvm, "LVM2 PV", 512),
        (0, b"LUKS\xba\xbe\0\x01".to_vec(), "LUKS1", 0),
        (0, b"LUKS\xba\xbe\0\x02".to_vec(), "LUKS2", 0),
        (0x4000, b"SKUL\xba\xbe\0\x02".to_vec(), "LUKS2", 0x4000),
        (size - 65536, hex("fc4e2ba9000000005a000000"), "md 0.90", size - 65536),
        (size - 65536, hex("a92b4efc000000000000005a"), "md 0.90", size - 65536),
        (0, md_1_superblock(0), "md 1.1", 0),
        (4096, md_1_superblock(4096), "md 1.2", 4096),
        (size - 8192, md_1_superblock(size - 8192), "md 1.0", size - 8192),
        (size - 4096, drbd, "DRBD 9", size - 4096 + 60),
        (size - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00".to_vec(), "IMSM", size - 1024),
        (size - 512, ddf, "DDF", size - 512),
        (512, GPT_HEADER.to_vec(), "GPT", 512),
        (4096, GPT_HEADER.to_vec(), "GPT", 4096),
        (size - 512, GPT_HEADER.to_vec(), "GPT", size - 512),
        (size - 4096, GPT_HEADER.to_vec(), "GPT", size - 4096),
        (0, mbr(&[(0x80, 0x83, 2048, 1024), (0, 0x82, 4096, 1024)]), "MBR", 510),
        (0, b"QFI\xfb\0\0\0\x03".to_vec(), "qcow2", 0),
        (0, b"KDMV\x01\0\0\0".to_vec(), "VMDK", 0),
        (0, b"vhdxfile".to_vec(), "VHDX", 0),
        (64, hex("7f10dabe"), "VDI", 64),
        (0, b"bluestore block device\n".to_vec(), "Ceph BlueStore", 0),
    ];
    for (offset, bytes, name, found_at) in rows {
        let image = Image::new(size).with(offset, &bytes);
        assert_eq!(image.detect(), [(name, found_at)], "{name} at {offset}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    let nibble = |b: u8| char::from(b).to_digit(16).expect("hex digits") as u8;
    text.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect()
}

#[test]
fn md_superblocks_at_the_end_follow_the_kernels_rounding() {
    // 10 MiB and 5 sectors: 1.0 lies 8 KiB before the end, rounded down to 4 KiB; 0.90 rounds the
    // size down to 64 KiB first.
    let size = 10 * MIB + 5 * 512;
    let v1 = (size / 512 - 16) & !7;
    let image = Image::new(size)
        .with(v1 * 512, &md_1_superblock(v1 * 512))
        .with(10 * MIB - 65536, &hex("fc4e2ba9000000005a000000"));
    assert_eq!(image.detect(), [("md 0.90", 10 * MIB - 65536), ("md 1.0", v1 * 512)]);
}

#[test]
fn an_md_superblock_that_says_it_lies_elsewhere_is_not_this_devices() {
    let image = Image::new(16 * MIB).with(4096, &md_1_superblock(8192));
    assert_eq!(image.detect(), []);
}

#[test]
fn a_gpt_is_named_without_its_protective_mbr() {
    let size = 16 * MIB;
    let table = mbr(&[(0, 0xee, 1, u32::MAX)]);
    let image = Image::new(size).with(0, &table).with(512, GPT_HEADER);
    assert_eq!(image.with(size - 512, GPT_HEADER).detect(), [("GPT", 512), ("GPT", size - 512)]);
    // Alone it is worth a word: the GPT has been wiped or damaged.
    assert_eq!(Image::new(size).with(0, &table).detect(), [("protective MBR", 510)]);
}

#[test]
fn a_boot_sector_without_sane_partitions_is_no_mbr() {
    let size = 16 * MIB;
    let bad: [&[(u8, u8, u32, u32)]; 7] = [
        &[],
        &[(0x12, 0x83, 2048, 1024)],
        &[(0, 0x83, 2048, 1 << 30)],
        &[(0, 0x83, 0, 1024)],
        &[(0, 0, 2048, 1024)],
        &[(0x80, 0x83, 2048, 1024), (0x80, 0x83, 4096, 1024)],
        &[(0, 0x83, 2048, 1024), (0, 0x83, 2560, 1024)],
    ];
    for entries in bad {
        assert_eq!(Image::new(size).with(0, &mbr(entries)).detect(), [], "{entries:?}");
    }
}

#[test]
fn everything_on_one_device_is_named_in_the_order_of_offsets() {
    let size = 64 * MIB;
    let image = Image::new(size)
        .with(4086, b"SWAPSPACE2")
        .with(0x1_0040, b"_BHRfS_M")
        .with(1024, &ext_superblock(0x38, 0, 0))
        .with(size - 1024, b"Intel Raid ISM Cfg Sig. ");
    let expected = [("ext2", 1080), ("swap", 4086), ("btrfs", 0x1_0040), ("IMSM", size - 1024)];
    assert_eq!(image.detect(), expected);
}

#[test]
fn what_cannot_be_read_is_passed_over_and_the_rest_is_found() {
    let size = 64 * MIB;
    let image = Image::new(size).with(0, b"XFSB\0\0\x10\0").with(0x1_0040, b"_BHRfS_M");
    let found = detect(size, |offset, buffer| {
        image.read(offset, buffer);
        (offset != 0).then_some(())
    });
    assert_eq!(found, [Found { offset: 0x1_0040, name: "btrfs" }]);
}

#[test]
fn only_a_little_of_a_large_device_is_read() {
    let ranges = ranges(16 << 40);
    assert!(ranges.len() <= 40, "{} ranges", ranges.len());
    let bytes: u64 = ranges.iter().map(|(_, len)| len).sum();
    assert!(bytes <= 128 << 10, "{bytes} bytes");
}

proptest! {
    #[test]
    fn ranges_are_ascending_apart_and_inside(capacity in 0..1_u64 << 48) {
        let mut end = None;
        for (offset, len) in ranges(capacity) {
            prop_assert!(len > 0 && offset + len <= capacity);
            prop_assert!(end.is_none_or(|end| end < offset));
            end = Some(offset + len);
        }
    }

    #[test]
    fn random_data_holds_nothing(seed: u64, capacity in 0..1_u64 << 34, tail in 0..4096_u64) {
        use rand_core::{RngCore, SeedableRng};
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let found = detect(capacity + tail, |_, buffer| {
            random.fill_bytes(buffer);
            Some(())
        });
        prop_assert_eq!(found, []);
    }

    #[test]
    fn random_data_after_every_magic_never_panics(seed: u64, which in 0..SIGNATURES.len()) {
        use rand_core::{RngCore, SeedableRng};
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let signature = SIGNATURES[which];
        let capacity = 1 << 39;
        let mut structure = vec![0; signature.structure_bytes];
        random.fill_bytes(&mut structure);
        structure[signature.magic_offset..][..signature.magic.len()]
            .copy_from_slice(signature.magic);
        for place in signature.places {
            let image =
                Image::new(capacity).with(place.offset(capacity).expect("it fits"), &structure);
            image.detect();
        }
    }
}

#[test]
fn zeros_and_ones_hold_nothing_at_any_size() {
    for capacity in
        [0, 1, 511, 512, 4096, 65536, 65537, MIB, 10 * MIB + 512, 1 << 40, i64::MAX as u64]
    {
        for byte in [0, 0xff] {
            let found = detect(capacity, |_, buffer| {
                buffer.fill(byte);
                Some(())
            });
            assert_eq!(found, [], "{byte:#x} at {capacity}");
        }
    }
}
