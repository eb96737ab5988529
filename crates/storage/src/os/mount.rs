//! What the system says of the file system that a directory lies in. Tests stand below.

use std::fs;
use std::path::{Path, PathBuf};

/// True if the file system of `dir` gives the blocks of removed files back to its disk at once (mount option `discard`): on many disks
/// everything waits for that for some milliseconds. False where the system does not say.
#[must_use]
pub fn discards(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    fs::canonicalize(dir).is_ok_and(|dir| discards_in(&mounts, &dir))
}

/// The same, where `mounts` is what the system says of all of them.
fn discards_in(mounts: &str, dir: &Path) -> bool {
    let above = mounts.lines().filter_map(point_and_options).filter(|(point, _)| dir.starts_with(point));
    // Of two mounted at one place the later one is seen.
    let nearest = above.max_by_key(|(point, _)| point.components().count());
    nearest.is_some_and(|(_, options)| options.split(',').any(|option| option == "discard"))
}

/// Where a line's file system is mounted, and with which options of its own.
fn point_and_options(line: &str) -> Option<(PathBuf, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    Some((unescaped(mount.split(' ').nth(4)?)?, file_system.split(' ').nth(2)?))
}

/// A path in which blanks and the like stand as their octal numbers.
fn unescaped(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('\\');
    let mut path = parts.next()?.to_string();
    for part in parts {
        let (number, rest) = part.split_at_checked(3)?;
        path.push(char::from(u8::from_str_radix(number, 8).ok()?));
        path.push_str(rest);
    }
    Some(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard,resv_strict
23 22 0:21 / /proc rw - proc proc rw
24 22 254:1 / /data rw,relatime - xfs /dev/vdb rw,attr2,noquota
25 24 254:2 / /data/with\\040blank rw master:1 - ext4 /dev/vdc rw,discard
26 22 254:3 / /tree rw - btrfs /dev/vdd rw,discard=async,subvol=/
27 22 254:4 / /twice rw - ext4 /dev/vde rw,discard
28 27 254:5 / /twice rw - ext4 /dev/vdf rw
a line that is none
";

    #[test]
    fn the_nearest_mount_above_a_directory_counts() {
        let all = [
            ("/", true),
            ("/database", true),
            ("/data", false),
            ("/data/store/fast", false),
            ("/data/with blank/fast", true),
            ("/tree/fast", false),
            ("/twice/fast", false),
        ];
        for (dir, expected) in all {
            assert_eq!(discards_in(MOUNTS, Path::new(dir)), expected, "{dir}");
        }
        assert!(!discards_in("", Path::new("/")) && !discards(Path::new("/no such directory")));
    }
}
