//! The files of the project: a plain walk, so that it works outside a Git checkout too.

use std::io;
use std::path::{Path, PathBuf};

/// What holds nothing written by hand (`.git` is a file in a linked worktree).
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "corpus", "artifacts"];

/// One file of the project.
pub(crate) struct SourceFile {
    /// Path from the root, with `/`.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Every text file under `root`, sorted by name. Files that are not UTF-8 are left out.
#[expect(clippy::disallowed_methods, reason = "a chore reads the project's own files, not a store's")]
pub(crate) fn all(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                continue;
            }
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(std::fs::read(&path)?)
            {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                found.push(SourceFile { name, text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
