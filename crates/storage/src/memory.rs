//! Files in memory: for tests, and for stores that need not last.
//!
//! Behaves like a file system: a parent directory must exist, a removed file stays readable through open handles,
//! appended bytes are seen by others once flushed (or once [`WRITE_BUFFER_BYTES`] have gathered).
//! Invariant: `used` is the sum of the lengths of all files that have a name or an open handle.
//! Tests: below and `tests/conformance.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::content::Content;
use crate::{AlignedBuf, Create, FileLock, IoMode, ReadFile, Storage, WriteFile};

/// Appended bytes gathered before they are written without a flush.
pub const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// A file system in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tree: RwLock<Tree>,
    space: Arc<Space>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    dirs: BTreeSet<PathBuf>,
    locks: Arc<RwLock<BTreeSet<PathBuf>>>,
}

#[derive(Debug)]
struct Space {
    used: AtomicU64,
    capacity: AtomicU64,
}

impl Default for Space {
    fn default() -> Self {
        Self { used: AtomicU64::new(0), capacity: AtomicU64::new(u64::MAX) }
    }
}

/// A file's bytes; lives as long as a name or a handle does.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    pub(crate) id: u64,
    data: RwLock<Content>,
    space: Arc<Space>,
}

impl MemoryFile {
    /// Writes `data` at `offset`.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut content = self.data.write();
        let growth = (offset + data.len()).saturating_sub(content.len());
        self.space.take(u64::try_from(growth).unwrap_or(u64::MAX))?;
        content.write(offset, data);
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        u64::try_from(self.data.read().len()).unwrap_or(u64::MAX)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.len_bytes(), Ordering::Relaxed);
    }
}

impl Space {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&after| bytes == 0 || after <= capacity)
        });
        taken.map(|_| ()).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl ReadFile for MemoryFile {
    fn read_at(&self, offset: u64, len: usize, buf: &mut AlignedBuf) -> io::Result<Range<usize>> {
        let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let offset = usize::try_from(offset).map_err(|_| eof())?;
        let content = self.data.read();
        // Bounded before the buffer grows: `len` may come from a corrupted file.
        if offset.checked_add(len).is_none_or(|end| end > content.len()) {
            return Err(eof());
        }
        buf.grow(len);
        if content.read(offset, &mut buf.as_mut_slice()[..len]) { Ok(0..len) } else { Err(eof()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len_bytes())
    }
}

#[derive(Debug)]
struct MemoryWriter {
    file: Arc<MemoryFile>,
    buffer: Vec<u8>,
    written: u64,
}

impl MemoryWriter {
    fn write_out(&mut self) -> io::Result<()> {
        self.file.write(self.written, &self.buffer)?;
        self.written += u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        self.buffer.clear();
        Ok(())
    }
}

impl WriteFile for MemoryWriter {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= WRITE_BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.write_out()
    }

    fn len(&self) -> u64 {
        self.written + u64::try_from(self.buffer.len()).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
struct MemoryLock {
    path: PathBuf,
    locks: Arc<RwLock<BTreeSet<PathBuf>>>,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.locks.write().remove(&self.path);
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Tree {
    fn has_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none() || dir.as_os_str().is_empty() || self.dirs.contains(dir)
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        if path.parent().is_some_and(|parent| self.has_dir(parent)) { Ok(()) } else { Err(not_found()) }
    }

    fn file(&self, path: &Path) -> io::Result<&Arc<MemoryFile>> {
        match self.files.get(path) {
            Some(file) => Ok(file),
            None if self.has_dir(path) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }
}

impl MemoryStorage {
    /// An empty file system bounded only by memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty file system that takes `capacity_bytes` of file data, then answers `StorageFull`.
    #[must_use]
    pub fn with_capacity(capacity_bytes: u64) -> Self {
        let storage = Self::new();
        storage.set_capacity(capacity_bytes);
        storage
    }

    /// Changes the capacity, bytes; less than what is used refuses growth but keeps every file.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.shared.space.capacity.store(capacity_bytes, Ordering::Relaxed);
    }

    /// Another file system with the same files, which what is done to this one does not change. Nothing is locked there.
    #[must_use]
    pub fn fork(&self) -> Self {
        let fork = Self::with_capacity(self.shared.space.capacity.load(Ordering::Relaxed));
        let tree = self.shared.tree.read();
        let mut files: BTreeMap<u64, (Vec<PathBuf>, Content)> = BTreeMap::new();
        for (path, file) in &tree.files {
            let of_file = || (Vec::new(), file.data.read().clone());
            files.entry(file.id).or_insert_with(of_file).0.push(path.clone());
        }
        fork.populate(tree.dirs.clone(), files.into_values().collect());
        fork
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shared.space.used.load(Ordering::Relaxed)
    }

    /// Makes the file, or finds it where `reuse` allows; true if it was made.
    pub(crate) fn create_file(&self, path: &Path, reuse: bool) -> io::Result<(Arc<MemoryFile>, bool)> {
        let mut tree = self.shared.tree.write();
        tree.check_parent(path)?;
        if tree.has_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        match tree.files.get(path) {
            Some(file) if reuse => return Ok((Arc::clone(file), false)),
            Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            None => {}
        }
        let file = self.new_file(Content::default());
        tree.files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok((file, true))
    }

    fn new_file(&self, content: Content) -> Arc<MemoryFile> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(MemoryFile { id, data: RwLock::new(content), space: Arc::clone(&self.shared.space) })
    }

    /// Puts files and directories in place; paths of one group are names of one file. Ids of the files, in order.
    pub(crate) fn populate(&self, dirs: BTreeSet<PathBuf>, files: Vec<(Vec<PathBuf>, Content)>) -> Vec<u64> {
        let mut tree = self.shared.tree.write();
        tree.dirs.extend(dirs);
        let mut ids = Vec::with_capacity(files.len());
        for (names, content) in files {
            let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
            self.shared.space.used.fetch_add(bytes, Ordering::Relaxed);
            let file = self.new_file(content);
            ids.push(file.id);
            tree.files.extend(names.into_iter().map(|name| (name, Arc::clone(&file))));
        }
        ids
    }

    /// The file's id, if there is one of this name.
    pub(crate) fn id_of(&self, path: &Path) -> Option<u64> {
        self.shared.tree.read().files.get(path).map(|file| file.id)
    }

    /// Directories that `create_dir_all` would make, parents first.
    pub(crate) fn missing_dirs(&self, dir: &Path) -> Vec<PathBuf> {
        let tree = self.shared.tree.read();
        let missing = dir.ancestors().take_while(|dir| !tree.has_dir(dir));
        let mut missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        missing.reverse();
        missing
    }
}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path, how: Create) -> io::Result<Box<dyn WriteFile>> {
        let (file, _made) = self.create_file(path, how.reuse)?;
        Ok(Box::new(MemoryWriter { file, buffer: Vec::new(), written: 0 }))
    }

    fn open(&self, path: &Path, _mode: IoMode) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::clone(self.shared.tree.read().file(path)?) as Arc<dyn ReadFile>)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.shared.tree.read().has_dir(dir) { Ok(()) } else { Err(not_found()) }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut tree = self.shared.tree.write();
        if dir.ancestors().any(|dir| tree.files.contains_key(dir)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        tree.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.shared.tree.write();
        tree.check_parent(to)?;
        if tree.has_dir(to) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = Arc::clone(tree.file(from)?);
        tree.files.remove(from);
        tree.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.shared.tree.write();
        tree.check_parent(to)?;
        let file = Arc::clone(tree.file(from)?);
        if tree.has_dir(to) || tree.files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        tree.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut tree = self.shared.tree.write();
        tree.file(path)?;
        tree.files.remove(path);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let tree = self.shared.tree.read();
        if !tree.has_dir(dir) {
            return Err(not_found());
        }
        let files = tree.files.range(dir.to_path_buf()..).map(|(path, _)| path);
        let dirs = tree.dirs.range(dir.to_path_buf()..);
        let mut names = Vec::new();
        for path in files
            .take_while(|path| path.starts_with(dir))
            .chain(dirs.take_while(|path| path.starts_with(dir)))
        {
            if path.parent() == Some(dir) {
                names.extend(path.file_name().map(PathBuf::from));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.shared.tree.read().file(path).map(|file| file.len_bytes())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let tree = self.shared.tree.read();
        Ok(tree.files.contains_key(path) || tree.has_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.create_file(path, true)?;
        let locks = Arc::clone(&self.shared.tree.read().locks);
        if !locks.write().insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { path: path.to_path_buf(), locks }))
    }

    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.shared.space.capacity.load(Ordering::Relaxed).saturating_sub(self.used_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_storage_refuses_growth_and_takes_it_again_after_a_removal() {
        let storage = MemoryStorage::with_capacity(10);
        let mut file = storage.create(Path::new("a"), Create::new(IoMode::Buffered)).unwrap();
        file.append(b"12345678").unwrap();
        file.flush().unwrap();
        assert_eq!(storage.free_space(Path::new("")).unwrap(), 2);
        let mut other = storage.create(Path::new("b"), Create::new(IoMode::Buffered)).unwrap();
        other.append(b"123").unwrap();
        assert_eq!(other.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        storage.remove(Path::new("a")).unwrap();
        assert_eq!(storage.used_bytes(), 8, "an open handle keeps the bytes");
        drop(file);
        other.flush().unwrap();
        assert_eq!(storage.used_bytes(), 3);
    }

    #[test]
    fn a_fork_has_the_files_of_its_time_and_its_own_space() {
        let storage = MemoryStorage::with_capacity(100);
        let make = |storage: &MemoryStorage, name: &str, bytes: &[u8]| {
            let mut file = storage.create(Path::new(name), Create::new(IoMode::Buffered)).unwrap();
            file.append(bytes).unwrap();
            file.flush().unwrap();
        };
        storage.create_dir_all(Path::new("dir")).unwrap();
        make(&storage, "dir/a", b"old");
        storage.hard_link(Path::new("dir/a"), Path::new("dir/b")).unwrap();
        let fork = storage.fork();
        assert_eq!((fork.used_bytes(), fork.id_of(Path::new("dir/a"))), (3, fork.id_of(Path::new("dir/b"))));
        make(&fork, "dir/c", &[1; 90]);
        storage.remove(Path::new("dir/a")).unwrap();
        make(&storage, "dir/a", b"newer");
        let mut buf = AlignedBuf::new();
        let range = fork.open(Path::new("dir/a"), IoMode::Buffered).unwrap().read_at(0, 3, &mut buf).unwrap();
        assert_eq!(&buf.as_slice()[range], b"old");
        assert_eq!((storage.used_bytes(), fork.used_bytes()), (8, 93));
        assert!(storage.open(Path::new("dir/c"), IoMode::Buffered).is_err());
    }

    #[test]
    fn many_threads_read_what_one_appends() {
        let storage = MemoryStorage::new();
        let mut file = storage.create(Path::new("a"), Create::new(IoMode::Buffered)).unwrap();
        file.append(&[7; 100_000]).unwrap();
        file.flush().unwrap();
        let reader = storage.open(Path::new("a"), IoMode::Direct).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut buf = AlignedBuf::new();
                    for offset in (0..90_000).step_by(977) {
                        let range = reader.read_at(offset, 10_000, &mut buf).unwrap();
                        assert!(buf.as_slice()[range].iter().all(|&byte| byte == 7));
                    }
                });
            }
            for _ in 0..100 {
                file.append(&[8; 5000]).unwrap();
                file.flush().unwrap();
            }
        });
        assert_eq!(storage.file_len(Path::new("a")).unwrap(), 600_000);
    }
}
