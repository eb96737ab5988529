//! Trailers of blocks, compression, and the footer. See docs/formats/table.md.

use std::path::Path;

use kelvin_base::coding::{get_u32, get_u64};
use kelvin_base::hash::{hash64_seeded, place_seed};
use kelvin_base::{Error, ErrorKind, Result, seeded_bug};

/// Ends every table: "KELVTBL" and a line end that text-mode copies would break.
pub const MAGIC: u64 = u64::from_le_bytes(*b"KELVTBL\n");
/// The format this version writes, and the newest it reads.
pub const VERSION: u32 = 1;
/// Bytes behind a block's payload: compression, checksum.
pub const TRAILER_BYTES: usize = 9;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;
/// No block, decompressed, is larger.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// How blocks are compressed. The numbers are on disk: do not change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4: fast.
    Lz4 = 1,
    /// Zstandard, level 3: small.
    Zstd = 2,
}

impl Compression {
    /// The compression of a byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Puts `payload`, compressed, behind its length into `out`; false, and `out` empty, if that saves less than an
    /// eighth.
    pub fn compress(self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let Ok(length) = u32::try_from(payload.len()) else { return false };
        out.extend_from_slice(&length.to_le_bytes());
        let packed = match self {
            Self::None => false,
            Self::Lz4 => {
                out.resize(4 + lz4_flex::block::get_maximum_output_size(payload.len()), 0);
                let len = lz4_flex::block::compress_into(payload, &mut out[4..]);
                len.is_ok_and(|len| {
                    out.truncate(4 + len);
                    true
                })
            }
            Self::Zstd => zstandard::compress(payload, out),
        };
        if !packed || out.len() > payload.len() - payload.len() / 8 {
            out.clear();
            return false;
        }
        true
    }

    /// Length of what [`Self::compress`] packed, unpacked, and the packed bytes. Bounded: no input names a length that
    /// this compression could not have packed into it.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn unpacked_len(self, mut packed: &[u8]) -> Result<(usize, &[u8]), &'static str> {
        if self == Self::None {
            return Ok((packed.len(), packed));
        }
        let length = get_u32(&mut packed).ok_or("a compressed block is shorter than its length")? as usize;
        // LZ4 says at most 255 bytes with a byte; Zstandard repeats a byte for a block of 128 KiB in four bytes.
        let most = if self == Self::Lz4 { packed.len() * 255 } else { packed.len().saturating_mul(0x8000) };
        if length > BLOCK_BYTES_MAX.min(most) {
            return Err("a compressed block's length cannot be true");
        }
        Ok((length, packed))
    }

    /// Unpacks into `out`, whose length [`Self::unpacked_len`] gave with `packed`.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn unpack(self, packed: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
        let len = match self {
            Self::None => {
                let room = out.get_mut(..packed.len()).ok_or("a block is longer than its length")?;
                room.copy_from_slice(packed);
                packed.len()
            }
            Self::Lz4 => {
                lz4_flex::block::decompress_into(packed, out).map_err(|_| "LZ4 cannot unpack a block")?
            }
            Self::Zstd => zstandard::unpack(packed, out)?,
        };
        if len == out.len() { Ok(()) } else { Err("a compressed block's length is not that of its content") }
    }
}

#[cfg(feature = "zstd")]
mod zstandard {
    //! One context a thread: making one costs more than packing a block.

    use std::cell::RefCell;

    use zstd::bulk::{Compressor, Decompressor};

    const LEVEL: i32 = 3;

    thread_local! {
        static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
        static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }

    /// Appends `payload`, packed, to `out`.
    pub(super) fn compress(payload: &[u8], out: &mut Vec<u8>) -> bool {
        PACKER.with_borrow_mut(|packer| {
            if packer.is_none() {
                *packer = Compressor::new(LEVEL).ok();
            }
            let Some(packer) = packer else { return false };
            let start = out.len();
            out.resize(start + zstd::zstd_safe::compress_bound(payload.len()), 0);
            packer.compress_to_buffer(payload, &mut out[start..]).is_ok_and(|len| {
                out.truncate(start + len);
                true
            })
        })
    }

    pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Result<usize, &'static str> {
        UNPACKER.with_borrow_mut(|unpacker| {
            if unpacker.is_none() {
                *unpacker = Decompressor::new().ok();
            }
            let Some(unpacker) = unpacker else { return Err("Zstandard cannot begin") };
            unpacker.decompress_to_buffer(packed, out).map_err(|_| "Zstandard cannot unpack a block")
        })
    }
}

#[cfg(not(feature = "zstd"))]
mod zstandard {
    //! A build without Zstandard writes such blocks unpacked and refuses to read packed ones.

    pub(super) fn compress(_payload: &[u8], _out: &mut Vec<u8>) -> bool {
        false
    }

    pub(super) fn unpack(_packed: &[u8], _out: &mut [u8]) -> Result<usize, &'static str> {
        Err("a block is packed with Zstandard, which this build was made without")
    }
}

/// Where a block lies: its bytes without the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes, the trailer not counted.
    pub len: usize,
}

impl Handle {
    /// Bytes with the trailer.
    #[must_use]
    pub const fn len_with_trailer(self) -> usize {
        self.len + TRAILER_BYTES
    }
}

fn checksum(file_number: u64, offset: u64, compression: u8, payload: &[u8]) -> u64 {
    let offset = if seeded_bug!("block-checksum-without-its-place") { 0 } else { offset };
    hash64_seeded(place_seed(file_number, offset) ^ u64::from(compression), payload)
}

/// Appends its trailer to the block `bytes`, which begins at `offset`.
pub fn append_trailer(bytes: &mut Vec<u8>, file_number: u64, offset: u64, compression: Compression) {
    let sum = checksum(file_number, offset, compression as u8, bytes);
    bytes.push(compression as u8);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// The payload of the block `bytes` (trailer included) read at `offset`, checked.
///
/// # Errors
/// `Corruption`, naming file and offset, expected and found.
pub fn checked_payload<'a>(
    path: &Path,
    file_number: u64,
    offset: u64,
    bytes: &'a [u8],
) -> Result<(Compression, &'a [u8])> {
    let (payload, trailer) = bytes
        .split_last_chunk::<TRAILER_BYTES>()
        .ok_or_else(|| Error::corruption(path, offset, "a block is shorter than its trailer"))?;
    let [byte, sum @ ..] = trailer;
    let expected = u64::from_le_bytes(*sum);
    let found = checksum(file_number, offset, *byte, payload);
    if expected != found {
        return Err(Error::corruption(path, offset, "a block's checksum does not match")
            .expected(format_args!("{expected:#018x}"), format_args!("{found:#018x}"))
            .advice("run `kelvin check` to see what is lost"));
    }
    let compression = Compression::from_byte(*byte).ok_or_else(|| {
        Error::corruption(path, offset, "a block is packed in a way this version does not know")
            .expected("0, 1 or 2", byte)
    })?;
    Ok((compression, payload))
}

/// The last bytes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// The table's number: a file under another's name is found out.
    pub file_number: u64,
    /// Where the filter begins; index, tombstones and properties follow it.
    pub meta_offset: u64,
    /// Lengths of filter, index, tombstones and properties, trailers not counted.
    pub lens: [u32; 4],
}

impl Footer {
    /// Where filter, index, tombstones and properties lie.
    #[must_use]
    pub fn handles(&self) -> [Handle; 4] {
        let mut offset = self.meta_offset;
        self.lens.map(|len| {
            let handle = Handle { offset, len: len as usize };
            offset += handle.len_with_trailer() as u64;
            handle
        })
    }

    /// The footer's bytes, to lie at `offset`.
    #[must_use]
    pub fn encode(&self, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.file_number.to_le_bytes());
        out.extend_from_slice(&self.meta_offset.to_le_bytes());
        for len in self.lens {
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(&[0; 12]);
        let sum = hash64_seeded(place_seed(self.file_number, offset) ^ u64::from(VERSION), &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        let mut bytes = [0; FOOTER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// The footer in `bytes`, which lay at `offset` of table `file_number`.
    ///
    /// # Errors
    /// `InvalidArgument` for a newer format, named; else `Corruption`.
    pub fn decode(path: &Path, file_number: u64, offset: u64, bytes: &[u8; FOOTER_BYTES]) -> Result<Self> {
        let mut end = &bytes[FOOTER_BYTES - 20..];
        let (sum, version, magic) =
            (get_u64(&mut end).unwrap_or(0), get_u32(&mut end).unwrap_or(0), get_u64(&mut end).unwrap_or(0));
        if magic != MAGIC {
            return Err(Error::corruption(path, offset + 56, "the file does not end as a table does")
                .expected(format_args!("{MAGIC:#018x}"), format_args!("{magic:#018x}"))
                .advice("it was cut off, overwritten, or is another kind of file"));
        }
        let sum_as = |version: u32| {
            hash64_seeded(place_seed(file_number, offset) ^ u64::from(version), &bytes[..FOOTER_BYTES - 20])
        };
        // A footer that is right but for its version is of this format, and damaged there.
        if version > VERSION && sum != sum_as(VERSION) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the table is of a newer format")
                .file(path)
                .expected(format_args!("at most format {VERSION}"), format_args!("format {version}"))
                .advice("open the store with the Kelvin that wrote it, or a newer one; nothing is lost"));
        }
        let found = sum_as(version);
        if sum != found {
            return Err(Error::corruption(
                path,
                offset,
                "the footer's checksum does not match, or the file is another table",
            )
            .expected(format_args!("{sum:#018x}"), format_args!("{found:#018x}")));
        }
        let mut input = bytes.as_slice();
        let footer = Self {
            file_number: get_u64(&mut input).unwrap_or(0),
            meta_offset: get_u64(&mut input).unwrap_or(0),
            lens: std::array::from_fn(|_| get_u32(&mut input).unwrap_or(0)),
        };
        let meta_bytes: u64 = footer.lens.iter().map(|&len| u64::from(len) + TRAILER_BYTES as u64).sum();
        if footer.meta_offset.checked_add(meta_bytes) != Some(offset) || footer.file_number != file_number {
            return Err(Error::corruption(path, offset, "the footer's lengths do not add up to the file's"));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_kept_only_if_it_saves_an_eighth() {
        let repeated = vec![7u8; 10_000];
        let mut state = 1u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        })
        .take(10_000)
        .collect();
        let mut out = vec![1, 2, 3];
        for compression in [Compression::Lz4, Compression::Zstd] {
            assert!(!compression.compress(&random, &mut out), "{}", compression.name());
            assert!(out.is_empty());
            assert!(!compression.compress(&[], &mut out));
            if compression.compress(&repeated, &mut out) {
                let (len, packed) = compression.unpacked_len(&out).unwrap();
                let mut back = vec![0; len];
                compression.unpack(packed, &mut back).unwrap();
                assert_eq!(back, repeated);
            }
        }
        assert!(!Compression::None.compress(&repeated, &mut out));
    }

    #[test]
    fn a_length_that_cannot_be_true_is_refused_before_memory_is_taken() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut packed = u32::MAX.to_le_bytes().to_vec();
            packed.extend_from_slice(&[0; 100]);
            assert!(compression.unpacked_len(&packed).is_err());
            assert!(compression.unpacked_len(&packed[..3]).is_err());
            packed[..4].copy_from_slice(&200u32.to_le_bytes());
            let (len, rest) = compression.unpacked_len(&packed).unwrap();
            assert!(compression.unpack(rest, &mut vec![0; len]).is_err());
        }
    }

    #[test]
    fn a_footer_round_trips_and_lengths_that_do_not_add_up_are_refused() {
        let path = Path::new("t.tbl");
        let footer = Footer { file_number: 3, meta_offset: 100, lens: [1, 2, 3, 4] };
        let end = 100 + 10 + 36;
        assert_eq!(Footer::decode(path, 3, end, &footer.encode(end)).unwrap(), footer);
        for bad in [Footer { meta_offset: u64::MAX, ..footer }, Footer { lens: [u32::MAX; 4], ..footer }] {
            let error = Footer::decode(path, 3, end, &bad.encode(end)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
        assert!(Footer::decode(path, 4, end, &footer.encode(end)).is_err(), "another table's footer");
        assert!(Footer::decode(path, 3, end + 1, &footer.encode(end)).is_err(), "a footer elsewhere");
    }
}
