//! The directories of the store under test: emptied before a load, measured while it runs.
//!
//! A peer's files are not Kelvin's, so this goes to the file system directly. Only directories that a benchmark made
//! (they hold a file named [`MARK`]) are ever removed. Tests stand below.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use kelvin_base::{Error, Result};

/// The file that marks a directory as a benchmark's.
pub const MARK: &str = "KELVIN-BENCH";

/// Disk space that the files below `dir` occupy, bytes; files that vanish meanwhile count as nothing.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "files of a peer are not reached through Kelvin's storage")]
pub fn used_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => used_bytes(&entry.path()),
        Ok(about) => about.blocks() * 512,
        Err(_) => 0,
    };
    entries.filter_map(std::result::Result::ok).map(size).sum()
}

/// True if `dir` was made by [`make_fresh`].
#[must_use]
pub fn is_marked(dir: &Path) -> bool {
    dir.join(MARK).is_file()
}

/// Makes `dir` anew: an earlier benchmark's is removed, anybody else's refused.
///
/// # Errors
/// `InvalidArgument` if it holds files and no [`MARK`]; else the operating system's error.
#[expect(clippy::disallowed_methods, reason = "files of a peer are not reached through Kelvin's storage")]
pub fn make_fresh(dir: &Path) -> Result<()> {
    if dir.exists() {
        let is_empty = std::fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))?.next().is_none();
        if !is_empty && !is_marked(dir) {
            return Err(Error::invalid("this directory holds files that no benchmark made")
                .file(dir)
                .advice("name another directory, or remove it yourself"));
        }
        std::fs::remove_dir_all(dir).map_err(|e| Error::io("remove directory", dir, e))?;
    }
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create directory", dir, e))?;
    let mark = dir.join(MARK);
    std::fs::write(&mark, "made by kelvin bench; removed by its next load\n")
        .map_err(|e| Error::io("write", &mark, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "plants a stranger's file")]
    fn a_strangers_directory_is_refused_and_an_own_one_renewed() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("a/b");
        make_fresh(&dir).unwrap();
        std::fs::write(dir.join("table"), vec![1; 10_000]).unwrap();
        assert!(used_bytes(temporary.path()) >= 10_000);
        make_fresh(&dir).unwrap();
        assert!(is_marked(&dir) && !dir.join("table").exists());

        std::fs::write(temporary.path().join("precious"), "data").unwrap();
        assert!(make_fresh(temporary.path()).unwrap_err().to_string().contains("no benchmark made"));
        assert!(temporary.path().join("precious").exists());
    }
}
