//! The user's own files: what `load` reads, `dump` and reports write. The store's files are the library's.
//!
//! Outputs are written beside their place and renamed when complete, so a file never holds half a dump.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use kelvin::Error;

use crate::exit::Failure;

/// Bytes read and written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// True for the name that stands for stdin and stdout.
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// An input and its length, if that is known.
pub struct Input {
    /// What to call it in errors.
    pub name: PathBuf,
    /// Its bytes.
    pub reader: Box<dyn BufRead>,
    /// How many there are.
    pub len: Option<u64>,
}

/// Opens a file, or stdin for `-`.
///
/// # Errors
/// The operating system's error, naming the file.
pub fn open(path: &Path) -> Result<Input, Failure> {
    if is_dash(path) {
        let reader = Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()));
        return Ok(Input { name: PathBuf::from("stdin"), reader, len: None });
    }
    let refuse = |error| Failure::from(Error::io("opening the input", path, error).advice("check the name"));
    #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
    let file = File::open(path).map_err(refuse)?;
    let facts = file.metadata().map_err(refuse)?;
    if facts.is_dir() {
        return Err(Error::invalid("the input is a directory").file(path).advice("name a file").into());
    }
    let len = facts.is_file().then_some(facts.len());
    Ok(Input {
        name: path.to_path_buf(),
        reader: Box::new(BufReader::with_capacity(BUFFER_BYTES, file)),
        len,
    })
}

/// All of stdin, up to `limit` bytes.
///
/// # Errors
/// `InvalidArgument` if there is more; the operating system's error.
pub fn stdin_bytes(limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io("reading the value", Path::new("stdin"), error))?;
    if bytes.len() > limit {
        return Err(Error::invalid("the value on stdin is too long")
            .expected(format!("at most {limit} bytes"), "more")
            .into());
    }
    Ok(bytes)
}

/// An output that appears under its name when it is complete.
pub struct Output {
    writer: Box<dyn Write>,
    /// (written so far, name when complete), for files.
    rename: Option<(PathBuf, PathBuf)>,
}

impl Output {
    /// Stdout for `-` or no name, else a file. An existing file is refused unless `force`.
    ///
    /// # Errors
    /// `InvalidArgument` if the file exists; the operating system's error.
    pub fn create(path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| !is_dash(path)) else {
            return Ok(Self { writer: Box::new(io::stdout().lock()), rename: None });
        };
        let is_special = fs::metadata(path).is_ok_and(|facts| !facts.is_file());
        if !is_special && path.exists() && !force {
            return Err(Error::invalid("the output exists already")
                .file(path)
                .advice("choose another name, or --force to replace it")
                .into());
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let (target, rename) = match is_special {
            true => (path.to_path_buf(), None),
            false => (PathBuf::from(&part), Some((PathBuf::from(&part), path.to_path_buf()))),
        };
        #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
        let file = File::create(&target).map_err(|error| Error::io("making the output", &target, error))?;
        Ok(Self { writer: Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)), rename })
    }

    /// Flushes, and gives a file its name.
    ///
    /// # Errors
    /// The operating system's error.
    #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
    pub fn complete(mut self) -> Result<(), Failure> {
        self.writer.flush()?;
        if let Some((part, path)) = self.rename.take() {
            fs::rename(&part, &path).map_err(|error| Error::io("naming the output", &path, error))?;
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.writer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for Output {
    #[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
    fn drop(&mut self) {
        if let Some((part, _)) = self.rename.take() {
            // An incomplete output is of no use; one that cannot be removed keeps its telling name.
            let _left = fs::remove_file(part);
        }
    }
}
