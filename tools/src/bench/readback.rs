//! What a lane remembers of its writes, and how it reads them back.

use strake_nvme_driver::memory::Region;

use super::report::VerifyReport;
use super::verify::{self, Stamp};
use super::workload::Extent;

/// A block's last write failed. Beside the generation, so that the next write has a new one.
const UNKNOWN: u32 = 1 << 31;

/// True if a block of this generation was written, and is known to hold that write.
fn is_known(generation: u32) -> bool {
    generation > 0 && generation & UNKNOWN == 0
}

/// A lane's memory of its writes: how often each block was written.
pub struct Readback {
    run: u64,
    first: u64,
    block_bytes: usize,
    generations: Vec<u32>,
    /// Next block to read back, from the extent's start.
    next: u64,
    /// Most blocks that one read takes.
    blocks_max: u64,
    scratch: Vec<u8>,
    report: VerifyReport,
}

impl Readback {
    /// Nothing of `extent` is written yet. `run` stamps the blocks.
    #[must_use]
    pub fn new(run: u64, extent: Extent, block_bytes: u32, buffer_bytes: u32) -> Self {
        Self {
            run,
            first: extent.first,
            block_bytes: block_bytes as usize,
            generations: vec![0; usize::try_from(extent.blocks).unwrap_or(usize::MAX)],
            next: 0,
            blocks_max: u64::from(buffer_bytes / block_bytes),
            scratch: vec![0; buffer_bytes as usize],
            report: VerifyReport::default(),
        }
    }

    /// What was found so far.
    #[must_use]
    pub fn report(&self) -> VerifyReport {
        let known = self.generations.iter().filter(|generation| is_known(**generation));
        VerifyReport { blocks_written: known.count() as u64, ..self.report.clone() }
    }

    /// A write failed: what its blocks hold now, nobody knows, until they are written again.
    pub fn forget(&mut self, lba: u64, blocks: u32) {
        let first = (lba - self.first) as usize;
        for generation in &mut self.generations[first..first + blocks as usize] {
            *generation |= UNKNOWN;
        }
    }

    /// Fills a write's buffer with blocks that name themselves, one write newer than before.
    pub fn stamp(&mut self, region: &Region, offset: u64, lba: u64, blocks: u32) {
        let len = blocks as usize * self.block_bytes;
        for (i, bytes) in self.scratch[..len].chunks_exact_mut(self.block_bytes).enumerate() {
            let lba = lba + i as u64;
            let generation = &mut self.generations[(lba - self.first) as usize];
            *generation = (*generation & !UNKNOWN) + 1;
            verify::fill(bytes, Stamp { run: self.run, lba, generation: *generation });
        }
        let written = region.write_at(offset as usize, &self.scratch[..len]);
        debug_assert!(written, "buffers lie in their region");
    }

    /// The next stretch to read: written blocks side by side, at most a buffer; address and
    /// length.
    pub fn next_stretch(&mut self) -> Option<(u64, u32)> {
        let rest = &self.generations[self.next as usize..];
        let start = self.next + rest.iter().position(|generation| is_known(*generation))? as u64;
        let most = &self.generations[start as usize..];
        let most = &most[..most.len().min(self.blocks_max as usize)];
        let len = most.iter().position(|generation| !is_known(*generation)).unwrap_or(most.len());
        self.next = start + len as u64;
        Some((self.first + start, u32::try_from(len).ok()?))
    }

    /// Looks at a stretch that was read into `region`.
    pub fn check(&mut self, region: &Region, offset: u64, lba: u64, blocks: u32, device: &str) {
        let len = blocks as usize * self.block_bytes;
        let read = region.read_at(offset as usize, &mut self.scratch[..len]);
        debug_assert!(read, "buffers lie in their region");
        for (i, bytes) in self.scratch[..len].chunks_exact(self.block_bytes).enumerate() {
            let lba = lba + i as u64;
            let generation = self.generations[(lba - self.first) as usize];
            self.report.blocks_checked += 1;
            if let Err(wrong) = verify::check(bytes, Stamp { run: self.run, lba, generation }) {
                self.report.blocks_wrong += 1;
                // Reads complete in any order; the first wrong block is the lowest.
                if self.report.first_wrong.as_ref().is_none_or(|(first, _)| lba < *first) {
                    let at = lba * self.block_bytes as u64;
                    let text = format!("{device}: block {lba} (byte {at}) {wrong}");
                    self.report.first_wrong = Some((lba, text));
                }
            }
        }
    }
}
