//! What a read may return: the judge of a device that many users write at once.
//!
//! Every block is a register. A write takes effect at some moment between its begin and its end; if
//! it fails, perhaps never. A read may return whatever could be there at some moment between its
//! own begin and end, and nothing else. Once a write is acknowledged, values of writes that had
//! ended before it began are gone for good.

/// What all blocks hold in the beginning, and what zeroes write.
pub const ZERO: u64 = 0;

/// One range being written.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    lba: u64,
    blocks: u64,
    value: u64,
    begun: u64,
}

impl Write {
    /// What it writes to every block.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value
    }
}

/// One range being read: a name for what the oracle keeps about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read(u64);

#[derive(Clone, Copy, Debug)]
struct Settled {
    value: u64,
    ended: u64,
}

#[derive(Clone, Debug)]
struct Block {
    settled: Vec<Settled>,
    writing: Vec<u64>,
}

#[derive(Debug)]
struct Reading {
    name: Read,
    lba: u64,
    /// For each block, what was or came to be possible.
    allowed: Vec<Vec<u64>>,
}

/// Knows what each block may hold.
#[derive(Debug)]
pub struct Oracle {
    blocks: Vec<Block>,
    reading: Vec<Reading>,
    clock: u64,
}

impl Oracle {
    /// Of a device of `blocks` zeroed blocks.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        let zeroed =
            Block { settled: vec![Settled { value: ZERO, ended: 0 }], writing: Vec::new() };
        Self { blocks: vec![zeroed; blocks], reading: Vec::new(), clock: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A value that no write had before.
    pub fn value(&mut self) -> u64 {
        (self.tick() << 8) | 1
    }

    /// `value` is being written to a range from now on.
    pub fn begin_write(&mut self, lba: u64, blocks: u64, value: u64) -> Write {
        let begun = self.tick();
        for at in lba..lba + blocks {
            self.blocks[at as usize].writing.push(value);
            for reading in &mut self.reading {
                let allowed = at.checked_sub(reading.lba);
                if let Some(allowed) = allowed.and_then(|i| reading.allowed.get_mut(i as usize)) {
                    allowed.push(value);
                }
            }
        }
        Write { lba, blocks, value, begun }
    }

    /// The write has ended. If it failed, it may have taken effect, in part even, or not.
    pub fn end_write(&mut self, write: &Write, ok: bool) {
        let ended = self.tick();
        for at in write.lba..write.lba + write.blocks {
            let block = &mut self.blocks[at as usize];
            if let Some(i) = block.writing.iter().position(|v| *v == write.value) {
                block.writing.swap_remove(i);
            }
            if ok {
                block.settled.retain(|s| s.ended > write.begun);
            }
            block.settled.push(Settled { value: write.value, ended });
        }
    }

    /// A range is being read from now on.
    pub fn begin_read(&mut self, lba: u64, blocks: u64) -> Read {
        let name = Read(self.tick());
        let possible = |at: u64| {
            let block = &self.blocks[at as usize];
            let settled = block.settled.iter().map(|s| s.value);
            settled.chain(block.writing.iter().copied()).collect()
        };
        let allowed = (lba..lba + blocks).map(possible).collect();
        self.reading.push(Reading { name, lba, allowed });
        name
    }

    /// The read has ended; `found` is what its blocks held, if it was told.
    ///
    /// # Errors
    /// In words, a block that held what it cannot have held.
    pub fn end_read(&mut self, read: Read, found: Option<&[u64]>) -> Result<(), String> {
        let Some(i) = self.reading.iter().position(|r| r.name == read) else {
            return Err(format!("{read:?} ended twice"));
        };
        let reading = self.reading.swap_remove(i);
        for (i, (value, allowed)) in found.unwrap_or(&[]).iter().zip(&reading.allowed).enumerate() {
            if !allowed.contains(value) {
                let lba = reading.lba + i as u64;
                return Err(format!("block {lba} read {value:#x}, expected one of {allowed:x?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_read(oracle: &mut Oracle, value: u64) -> bool {
        let read = oracle.begin_read(0, 1);
        oracle.end_read(read, Some(&[value])).is_ok()
    }

    #[test]
    fn an_acknowledged_write_hides_what_had_ended_before_it_began() {
        let mut oracle = Oracle::new(1);
        let first = oracle.begin_write(0, 1, 1);
        assert!(may_read(&mut oracle, ZERO) && may_read(&mut oracle, 1));
        let second = oracle.begin_write(0, 1, 2);
        oracle.end_write(&first, true);
        assert!(!may_read(&mut oracle, ZERO) && may_read(&mut oracle, 1));
        oracle.end_write(&second, true);
        assert!(may_read(&mut oracle, 1) && may_read(&mut oracle, 2), "they overlapped in time");
        let third = oracle.begin_write(0, 1, 3);
        oracle.end_write(&third, false);
        assert!(may_read(&mut oracle, 1) && may_read(&mut oracle, 3), "it failed");
        let fourth = oracle.begin_write(0, 1, 4);
        let read = oracle.begin_read(0, 1);
        oracle.end_write(&fourth, true);
        assert!(!may_read(&mut oracle, 3));
        assert!(oracle.end_read(read, Some(&[3])).is_ok(), "the read had begun before");
    }
}
