//! A Bloom filter of 64-byte lines: one cache miss a query (DESIGN section 4; 10 bits a key, about 1 % false positives).
//!
//! The upper half of a key's hash chooses a line, the lower half six bits in it. Format, frozen: number of probes
//! (`u8`), then the lines. Tests: `tests` below.

/// Bits of a line.
const LINE_BITS: u64 = 512;
/// Bytes of a line.
const LINE_BYTES: usize = 64;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A filter in memory.
#[derive(Debug)]
pub struct Filter {
    probes: u8,
    lines: Vec<Line>,
}

/// Probes that give the fewest false positives at `bits_per_key` in a blocked filter.
const fn probes_for(bits_per_key: u32) -> u8 {
    match bits_per_key {
        0..=1 => 1,
        2..=3 => 2,
        4..=5 => 3,
        6..=7 => 4,
        8..=9 => 5,
        10..=12 => 6,
        13..=16 => 8,
        _ => 10,
    }
}

fn line_of(hash: u64, lines: usize) -> usize {
    let scaled = (hash >> 32) * (lines as u64);
    usize::try_from(scaled >> 32).unwrap_or(0)
}

/// The bits of a hash in its line.
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = (usize, u64)> {
    let mut state = hash & 0xffff_ffff;
    (0..probes).map(move |_| {
        state = (state.wrapping_mul(0x9e37_79b9)) & 0xffff_ffff;
        let bit = state >> 23;
        (usize::try_from(bit >> 6).unwrap_or(0) & 7, 1u64 << (bit & 63))
    })
}

impl Filter {
    /// A filter of the keys with these hashes.
    #[must_use]
    pub fn build(hashes: &[u64], bits_per_key: u32) -> Self {
        let probes = probes_for(bits_per_key);
        let lines = (hashes.len() as u64 * u64::from(bits_per_key)).div_ceil(LINE_BITS).max(1);
        let count = usize::try_from(lines).unwrap_or(usize::MAX);
        let mut filter = Self { probes, lines: vec![Line([0; 8]); count] };
        for &hash in hashes {
            let line = &mut filter.lines[line_of(hash, count)];
            for (word, bit) in bits(hash, probes) {
                line.0[word] |= bit;
            }
        }
        filter
    }

    /// False if no key of this hash was added.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        match self.lines.get(line_of(hash, self.lines.len())) {
            Some(line) => bits(hash, self.probes).all(|(word, bit)| line.0[word] & bit != 0),
            None => true,
        }
    }

    /// Its bytes on disk.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.lines.len() * LINE_BYTES);
        out.push(self.probes);
        for word in self.lines.iter().flat_map(|line| line.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The filter that excludes no key.
    #[must_use]
    pub(crate) const fn of_everything() -> Self {
        Self { probes: 0, lines: Vec::new() }
    }

    /// The filter of these bytes; no bytes are the filter that excludes nothing. `None` if they are malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let Some((&probes, lines)) = bytes.split_first() else {
            return Some(Self::of_everything());
        };
        if probes == 0 || probes > 32 || lines.is_empty() || lines.len() % LINE_BYTES != 0 {
            return None;
        }
        let decode = |chunk: &[u8]| {
            let mut line = Line([0; 8]);
            for (word, eight) in line.0.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*eight);
            }
            line
        };
        Some(Self { probes, lines: lines.chunks_exact(LINE_BYTES).map(decode).collect() })
    }

    /// True if it excludes nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Memory it takes, bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_base::hash64;

    #[test]
    fn every_key_is_found_and_about_one_percent_of_others() {
        let hashes: Vec<u64> = (0..20_000u64).map(|n| hash64(&n.to_le_bytes())).collect();
        let filter = Filter::decode(&Filter::build(&hashes, 10).encode()).unwrap();
        assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
        let others = (20_000..220_000u64).filter(|n| filter.may_contain(hash64(&n.to_le_bytes()))).count();
        assert!(others < 200_000 * 13 / 1000, "{others} false positives of 200,000");
        assert!(filter.memory_bytes() <= 20_000 * 10 / 8 + 64);
    }

    #[test]
    fn malformed_filters_are_refused() {
        assert!(Filter::decode(&[6; 64]).is_none());
        assert!(Filter::decode(&[0; 65]).is_none());
        assert!(Filter::decode(&[]).unwrap().may_contain(7));
    }
}
