//! What a device already holds: file systems, partition tables, RAID members, disk images.
//!
//! Asked before anything is written to a device that somebody may still need. All of it is a
//! [table](SIGNATURES): where a structure lies, the magic in it, and what else must be true before
//! two or four bytes are believed. Pure: the caller reads the few [`ranges`] and this looks at them.
//!
//! It finds a signature at the places where its format keeps it, and nothing that lies deeper (in
//! a partition, for example). A device on which nothing is found is not known to be empty.

mod checks;
mod table;

pub use table::SIGNATURES;

/// Where a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bytes from the start.
    Start(u64),
    /// `((capacity - before) rounded down to align) - after`, in bytes; `align` is a power of two.
    /// Formats differ in whether they round before or after they step back.
    End {
        /// Stepped back before rounding.
        before: u64,
        /// Rounded down to a multiple of this.
        align: u64,
        /// Stepped back after rounding.
        after: u64,
    },
}

impl Place {
    /// The structure's first byte on a device of this size; `None` on one too small for it.
    #[must_use]
    pub fn offset(self, capacity_bytes: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End { before, align, after } => {
                let rounded = capacity_bytes.checked_sub(before)? & !(align - 1);
                rounded.checked_sub(after)
            }
        }
    }
}

/// A structure as it was read, for checks that go beyond the magic.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The first bytes of the structure; as many as [`Signature::structure_bytes`].
    pub bytes: &'a [u8],
    /// Where it lies, in bytes.
    pub offset: u64,
    /// Size of the device, in bytes.
    pub capacity_bytes: u64,
}

/// One way to recognise one format.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The format, in the words of the tools that make it.
    pub name: &'static str,
    /// Where its structure may lie.
    pub places: &'static [Place],
    /// Where the magic is in the structure, in bytes.
    pub magic_offset: usize,
    /// The magic.
    pub magic: &'static [u8],
    /// How much of the structure must be read, in bytes.
    pub structure_bytes: usize,
    /// What else must be true. Magics of two bytes turn up by chance, and formats share them.
    pub check: fn(Candidate<'_>) -> bool,
}

impl Signature {
    fn matches(&self, candidate: Candidate<'_>) -> bool {
        candidate.bytes.get(self.magic_offset..).is_some_and(|at| at.starts_with(self.magic))
            && (self.check)(candidate)
    }

    /// The byte ranges where it may lie on a device of this size.
    fn ranges(&self, capacity_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let len = self.structure_bytes as u64;
        let fits = move |&(offset, len): &(u64, u64)| {
            offset.checked_add(len).is_some_and(|end| end <= capacity_bytes)
        };
        let places = self.places.iter();
        places.filter_map(move |p| Some((p.offset(capacity_bytes)?, len))).filter(fits)
    }
}

/// A signature that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Where its magic is, in bytes from the start: what `wipefs` prints.
    pub offset: u64,
    /// The format.
    pub name: &'static str,
}

/// Ranges closer than this are read as one.
const GAP_BYTES: u64 = 4096;

/// What must be read of a device of this size: (offset, length) in bytes, ascending and apart.
/// They are not aligned to anything, and small: some 40 of them, 64 KiB in all.
#[must_use]
pub fn ranges(capacity_bytes: u64) -> Vec<(u64, u64)> {
    let mut wanted: Vec<(u64, u64)> =
        SIGNATURES.iter().flat_map(|s| s.ranges(capacity_bytes)).collect();
    wanted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in wanted {
        match merged.last_mut() {
            Some((start, length)) if offset <= *start + *length + GAP_BYTES => {
                *length = (*length).max(offset + len - *start);
            }
            _ => merged.push((offset, len)),
        }
    }
    merged
}

/// Looks for every known signature, in the order of their offsets. `read` fills the buffer from
/// a byte offset, or says `None`; what it cannot read is passed over, and it is for the caller to
/// remember that.
pub fn detect(
    capacity_bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Option<()>,
) -> Vec<Found> {
    let pieces: Vec<(u64, Vec<u8>)> = ranges(capacity_bytes)
        .into_iter()
        .filter_map(|(offset, len)| {
            let mut bytes = vec![0; usize::try_from(len).ok()?];
            read(offset, &mut bytes)?;
            Some((offset, bytes))
        })
        .collect();
    let mut found = Vec::new();
    for signature in SIGNATURES {
        for (offset, len) in signature.ranges(capacity_bytes) {
            let Some(bytes) = slice(&pieces, offset, len) else { continue };
            if signature.matches(Candidate { bytes, offset, capacity_bytes }) {
                let offset = offset + signature.magic_offset as u64;
                found.push(Found { offset, name: signature.name });
            }
        }
    }
    // A GPT is always accompanied by a protective MBR, which says nothing more.
    if found.iter().any(|f| f.name == table::GPT) {
        found.retain(|f| f.name != table::PROTECTIVE_MBR);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The part of what was read that holds these bytes.
fn slice(pieces: &[(u64, Vec<u8>)], offset: u64, len: u64) -> Option<&[u8]> {
    let index = pieces.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
    let (start, bytes) = &pieces[index];
    let from = usize::try_from(offset - start).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(len).ok()?)?)
}

#[cfg(test)]
mod tests;
