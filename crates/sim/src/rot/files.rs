//! Files of a device whole: what they hold, and other bytes in their place. Tests: `tests/rot.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_storage::{MemoryStorage, Storage};

use crate::harm;

/// What a file holds.
pub(super) type Bytes = Arc<[u8]>;

/// The bytes of a file.
pub(super) fn read(device: &MemoryStorage, path: &Path) -> Result<Bytes, String> {
    let told = |error| format!("reading {}: {error}", path.display());
    harm::read(device, path).map(Into::into).map_err(told)
}

/// Puts `bytes` into a file in place of what it holds; `None` removes it.
pub(super) fn replace(device: &MemoryStorage, path: &Path, bytes: Option<&[u8]>) -> Result<(), String> {
    let told = |error| format!("harming {}: {error}", path.display());
    if device.exists(path).map_err(told)? {
        device.remove(path).map_err(told)?;
    }
    match bytes {
        Some(bytes) => harm::write(device, path, bytes).map_err(told),
        None => Ok(()),
    }
}

/// Every file below `dir`, the lock files excepted.
pub(super) fn list_all(device: &MemoryStorage, dir: &Path) -> Result<Vec<PathBuf>, String> {
    let names = harm::list(device, dir).map_err(|error| format!("listing {}: {error}", dir.display()))?;
    let mut files = Vec::new();
    for path in names.into_iter().map(|name| dir.join(name)) {
        if path.ends_with("LOCK") {
            continue;
        }
        if device.file_len(&path).is_ok() {
            files.push(path);
        } else {
            files.extend(list_all(device, &path)?);
        }
    }
    Ok(files)
}
