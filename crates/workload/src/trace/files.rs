//! Writes a synthetic trace to a file: plain, or zstd if its name ends so.
//!
//! The file has its name only when it is whole. Tests: `tests/synthetic.rs`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kelvin_base::{Error, Result};

use super::classify::Classes;
use super::synthesize::{Synthetic, synthesize};
use crate::dirs;

/// Bytes written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

enum Out {
    Plain(BufWriter<File>),
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<File>>>),
}

impl Out {
    fn create(path: &Path, is_zstd: bool) -> io::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        Ok(match is_zstd {
            true => Self::Zstd(Box::new(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?)),
            false => Self::Plain(file),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Zstd(out) => out.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => out.flush(),
            Self::Zstd(out) => out.finish()?.flush(),
        }
    }
}

/// Writes the trace that `order` asks for to `path`; what its operations are.
///
/// # Errors
/// As [`synthesize`]; `InvalidArgument` if the file is there already and may not be replaced; the operating system's.
pub fn write_synthetic(path: &Path, order: &Synthetic, may_replace: bool) -> Result<Classes> {
    if path.exists() && !may_replace {
        return Err(Error::invalid("the trace exists already")
            .file(path)
            .advice("choose another name, or --force to replace it"));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let failed = |error| Error::io("writing the trace", &part, error);
    let is_zstd = path.extension().is_some_and(|extension| extension == "zst");
    let mut out = Out::create(&part, is_zstd).map_err(failed)?;
    let made = synthesize(order, &mut |line| out.write_all(line).map_err(failed));
    let done = made.and_then(|classes| out.finish().map_err(failed).map(|()| classes));
    match done {
        Ok(classes) => {
            dirs::rename(&part, path)?;
            Ok(classes)
        }
        Err(error) => {
            dirs::remove_file(&part)?;
            Err(error)
        }
    }
}
