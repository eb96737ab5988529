//! Trailers of blocks, compression, and the footer. See docs/formats/table.md.

use std::path::Path;

use kelvin_base::coding::{get_u32, get_u64};
use kelvin_base::hash::{hash64_seeded, place_seed};
use kelvin_base::{Error, ErrorKind, Result};

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

    /// `payload` compressed behind its length, if that saves an eighth.
    #[must_use]
    pub fn compress(self, payload: &[u8]) -> Option<Vec<u8>> {
        let packed = match self {
            Self::None => return None,
            Self::Lz4 => lz4_flex::block::compress(payload),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::bulk::compress(payload, 3).ok()?,
            #[cfg(not(feature = "zstd"))]
            Self::Zstd => return None,
        };
        let length = u32::try_from(payload.len()).ok()?;
        if packed.len() + 4 > payload.len() - payload.len() / 8 {
            return None;
        }
        let mut out = Vec::with_capacity(packed.len() + 4);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&packed);
        Some(out)
    }

    /// What [`Self::compress`] packed.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decompress(self, mut packed: &[u8]) -> Result<Vec<u8>, &'static str> {
        if self == Self::None {
            return Ok(packed.to_vec());
        }
        let length = get_u32(&mut packed).ok_or("a compressed block is shorter than its length")? as usize;
        // LZ4 and Zstandard at their best do not reach these ratios: a larger length is no length.
        if length > BLOCK_BYTES_MAX || length / 0x2_0000 > packed.len() {
            return Err("a compressed block's length cannot be true");
        }
        let out = match self {
            Self::None => Vec::new(),
            Self::Lz4 => {
                lz4_flex::block::decompress(packed, length).map_err(|_| "LZ4 cannot unpack a block")?
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                zstd::bulk::decompress(packed, length).map_err(|_| "Zstandard cannot unpack a block")?
            }
            #[cfg(not(feature = "zstd"))]
            Self::Zstd => return Err("a block is packed with Zstandard, which this build was made without"),
        };
        if out.len() == length {
            Ok(out)
        } else {
            Err("a compressed block's length is not that of its content")
        }
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
    hash64_seeded(place_seed(file_number, offset) ^ u64::from(compression), payload)
}

/// Appends the trailer of the block `payload` at `offset` to `out`.
pub fn append_trailer(
    out: &mut Vec<u8>,
    file_number: u64,
    offset: u64,
    compression: Compression,
    payload: &[u8],
) {
    out.push(compression as u8);
    out.extend_from_slice(&checksum(file_number, offset, compression as u8, payload).to_le_bytes());
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
        if version > VERSION {
            return Err(Error::new(ErrorKind::InvalidArgument, "the table is of a newer format")
                .file(path)
                .expected(format_args!("at most format {VERSION}"), format_args!("format {version}"))
                .advice("open the store with the Kelvin that wrote it, or a newer one; nothing is lost"));
        }
        let seed = place_seed(file_number, offset) ^ u64::from(version);
        let found = hash64_seeded(seed, &bytes[..FOOTER_BYTES - 20]);
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
        let meta_bytes: u64 = footer.handles().iter().map(|handle| handle.len_with_trailer() as u64).sum();
        if footer.meta_offset.checked_add(meta_bytes) != Some(offset) || footer.file_number != file_number {
            return Err(Error::corruption(path, offset, "the footer's lengths do not add up to the file's"));
        }
        Ok(footer)
    }
}
