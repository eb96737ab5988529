//! The directories of the store under test: emptied before a load, measured while it runs, copied; and results.
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

/// Removes `dir`, with all that is in it, if a benchmark made it. One that is not there is no error.
///
/// # Errors
/// The operating system's.
pub fn remove_marked(dir: &Path) -> Result<()> {
    if !is_marked(dir) {
        return Ok(());
    }
    std::fs::remove_dir_all(dir).map_err(|e| Error::io("remove directory", dir, e))
}

/// Removes `dir` if nothing is in it.
pub fn remove_if_empty(dir: &Path) {
    // What is not empty is left, as meant; a directory that cannot be removed costs nothing.
    let _left = std::fs::remove_dir(dir);
}

/// Makes `dir` and the directories above it, where they are missing.
///
/// # Errors
/// The operating system's.
#[expect(clippy::disallowed_methods, reason = "the results' directory, not a store's")]
pub fn make_all(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create directory", dir, e))
}

/// Makes `to` anew with everything that is in `from`, which a benchmark made.
///
/// # Errors
/// As [`make_fresh`]; the operating system's.
pub fn copy_fresh(from: &Path, to: &Path) -> Result<()> {
    make_fresh(to)?;
    copy_into(from, to)
}

#[expect(clippy::disallowed_methods, reason = "files of a store that is closed are copied as they are")]
fn copy_into(from: &Path, to: &Path) -> Result<()> {
    let entries = std::fs::read_dir(from).map_err(|e| Error::io("list", from, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("list", from, e))?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            make_all(&copy)?;
            copy_into(&path, &copy)?;
        } else {
            std::fs::copy(&path, &copy).map_err(|e| Error::io("copy", &path, e))?;
        }
    }
    Ok(())
}

/// Bytes that can still be written below `dir`.
///
/// # Errors
/// The operating system's.
pub fn free_bytes(dir: &Path) -> Result<u64> {
    let about = rustix::fs::statvfs(dir).map_err(|e| Error::io("ask the free space of", dir, e.into()))?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// The device that `dir` lies on.
///
/// # Errors
/// The operating system's.
pub fn device(dir: &Path) -> Result<u64> {
    let about = std::fs::metadata(dir).map_err(|e| Error::io("look at", dir, e))?;
    Ok(about.dev())
}

/// Writes `text` to `path`, which never holds a part of it.
///
/// # Errors
/// The operating system's.
#[expect(clippy::disallowed_methods, reason = "a result, not a store's file")]
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = std::path::PathBuf::from(part);
    std::fs::write(&part, text).map_err(|e| Error::io("write", &part, e))?;
    rename(&part, path)
}

/// Gives the file `from` the name `to`.
///
/// # Errors
/// The operating system's.
#[expect(clippy::disallowed_methods, reason = "a result, not a store's file")]
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename", to, e))
}

/// The JSON that `path` holds; `None` if it is not there or no JSON.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a result, not a store's file")]
pub fn read_json(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Removes a file; one that is not there is no error.
///
/// # Errors
/// The operating system's.
#[expect(clippy::disallowed_methods, reason = "a result, not a store's file")]
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
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

        std::fs::write(dir.join("table"), "old").unwrap();
        make_all(&dir.join("deep/er")).unwrap();
        std::fs::write(dir.join("deep/er/run"), "x").unwrap();
        let copy = temporary.path().join("copy");
        copy_fresh(&dir, &copy).unwrap();
        std::fs::write(dir.join("table"), "new").unwrap();
        copy_fresh(&dir, &copy).unwrap();
        assert_eq!(std::fs::read(copy.join("table")).unwrap(), b"new");
        assert_eq!(std::fs::read(copy.join("deep/er/run")).unwrap(), b"x");
        remove_marked(&copy).unwrap();
        assert!(!copy.exists());

        std::fs::write(temporary.path().join("precious"), "data").unwrap();
        remove_marked(temporary.path()).unwrap();
        assert!(make_fresh(temporary.path()).unwrap_err().to_string().contains("no benchmark made"));
        assert!(temporary.path().join("precious").exists());
    }

    #[test]
    fn results_are_written_whole_and_space_is_known() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("result.json");
        assert_eq!(read_json(&path), None);
        write_whole(&path, "{\"a\": 1}").unwrap();
        assert_eq!(read_json(&path).unwrap()["a"], 1);
        write_whole(&path, "{\"a\": ").unwrap();
        assert_eq!(read_json(&path), None, "half a result is none");
        remove_file(&path).unwrap();
        remove_file(&path).unwrap();
        assert!(free_bytes(temporary.path()).unwrap() > 0);
        assert_eq!(device(temporary.path()).unwrap(), device(temporary.path()).unwrap());
        assert!(free_bytes(&temporary.path().join("nowhere")).is_err());
    }
}
