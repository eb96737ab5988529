//! Tests of what a power loss may and may not leave.

use std::collections::BTreeSet;

use super::*;
use crate::AlignedBuf;

const MODELS: [FileSystem; 3] = [FileSystem::Ordered, FileSystem::Writeback, FileSystem::ReorderAll];

fn create(storage: &CrashStorage, name: &str, reuse: bool) -> Box<dyn WriteFile> {
    storage.create(Path::new(name), Create { reuse, ..Create::new(IoMode::Direct) }).unwrap()
}

fn write(storage: &CrashStorage, name: &str, bytes: &[u8]) {
    let mut file = create(storage, name, false);
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn read(storage: &CrashStorage, name: &str) -> Option<Vec<u8>> {
    let path = Path::new(name);
    let len = usize::try_from(storage.file_len(path).ok()?).unwrap();
    let mut buf = AlignedBuf::new();
    let range = storage.open(path, IoMode::Direct).unwrap().read_at(0, len, &mut buf).unwrap();
    Some(buf.as_slice()[range].to_vec())
}

/// Every different content of `name` over many seeds.
fn outcomes(storage: &CrashStorage, name: &str, file_system: FileSystem) -> BTreeSet<Option<Vec<u8>>> {
    (0..400).map(|seed| read(&storage.crash_image(seed, CrashModel::chosen(file_system)), name)).collect()
}

#[test]
fn synced_data_under_a_synced_name_is_in_every_image_of_every_later_point() {
    let storage = CrashStorage::new();
    storage.create_dir_all(Path::new("db/x")).unwrap();
    write(&storage, "db/x/a", b"abc");
    storage.sync_dir(Path::new("db/x")).unwrap();
    let acknowledged = storage.points();
    let mut more = create(&storage, "db/x/b", false);
    for round in 0..300_u32 {
        more.append(&round.to_le_bytes()).unwrap();
        more.flush().unwrap();
    }
    for point in (acknowledged..=storage.points()).step_by(7) {
        for file_system in MODELS {
            for unsynced in [Unsynced::Lost, Unsynced::Kept, Unsynced::Chosen] {
                let image = storage.log().image(point, 9, CrashModel { file_system, unsynced });
                assert_eq!(read(&image, "db/x/a").unwrap(), b"abc");
            }
        }
    }
}

#[test]
fn a_name_that_is_not_synced_may_vanish_with_its_synced_data_and_may_stay() {
    for file_system in MODELS {
        let storage = CrashStorage::new();
        write(&storage, "a", b"abc");
        assert!(!storage.is_entry_synced(Path::new("a")));
        let expected = BTreeSet::from([None, Some(b"abc".to_vec())]);
        assert_eq!(outcomes(&storage, "a", file_system), expected);
        storage.sync_dir(Path::new("")).unwrap();
        assert!(storage.is_entry_synced(Path::new("a")));
        assert_eq!(outcomes(&storage, "a", file_system), BTreeSet::from([Some(b"abc".to_vec())]));
    }
}

#[test]
fn a_rename_that_is_not_synced_leaves_the_old_or_the_new_file_never_none() {
    for file_system in MODELS {
        let storage = CrashStorage::new();
        write(&storage, "current", b"old");
        storage.sync_dir(Path::new("")).unwrap();
        write(&storage, "temporary", b"new");
        storage.rename(Path::new("temporary"), Path::new("current")).unwrap();
        assert!(!storage.is_entry_synced(Path::new("current")));
        let expected = BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]);
        assert_eq!(outcomes(&storage, "current", file_system), expected);
    }
}

#[test]
fn a_removal_that_is_not_synced_may_come_back() {
    let storage = CrashStorage::new();
    write(&storage, "a", b"abc");
    storage.sync_dir(Path::new("")).unwrap();
    storage.remove(Path::new("a")).unwrap();
    for file_system in MODELS {
        assert_eq!(outcomes(&storage, "a", file_system).len(), 2);
    }
    storage.sync_dir(Path::new("")).unwrap();
    assert_eq!(outcomes(&storage, "a", FileSystem::ReorderAll), BTreeSet::from([None]));
}

#[test]
fn an_ordered_file_system_leaves_a_prefix_of_appends_and_tears_at_sectors() {
    let storage = CrashStorage::new();
    let mut file = create(&storage, "a", false);
    file.append(&[1; 700]).unwrap();
    file.sync().unwrap();
    storage.sync_dir(Path::new("")).unwrap();
    for byte in 2..6 {
        file.append(&[byte; 700]).unwrap();
        file.flush().unwrap();
    }
    let all = read(&storage, "a").unwrap();
    let seen = outcomes(&storage, "a", FileSystem::Ordered);
    let lengths: BTreeSet<usize> = seen.iter().flatten().map(Vec::len).collect();
    for image in seen.into_iter().flatten() {
        assert!(image.len() >= 700 && all.starts_with(&image));
    }
    assert!(
        lengths.contains(&700)
            && lengths.contains(&3500)
            && lengths.contains(&1400)
            && lengths.contains(&1024)
    );
}

#[test]
fn other_file_systems_leave_holes_torn_writes_and_lengths_without_data() {
    for file_system in [FileSystem::Writeback, FileSystem::ReorderAll] {
        let storage = CrashStorage::new();
        let mut file = create(&storage, "a", false);
        file.append(&[1; 512]).unwrap();
        file.sync().unwrap();
        storage.sync_dir(Path::new("")).unwrap();
        for byte in [2, 3] {
            file.append(&[byte; 1024]).unwrap();
            file.flush().unwrap();
        }
        let seen = outcomes(&storage, "a", file_system);
        let images: Vec<Vec<u8>> = seen.into_iter().flatten().collect();
        assert!(images.iter().all(|image| image.starts_with(&[1; 512])));
        let full = |image: &&Vec<u8>| image.len() == 2560;
        assert!(images.iter().filter(full).any(|image| image[512] == 0 && image[2559] == 3), "hole");
        assert!(images.iter().filter(full).any(|image| image[512] == 2 && image[1535] == 0), "torn");
        assert!(
            images.iter().filter(full).any(|image| image[512..].iter().all(|&byte| byte == 0)),
            "no data"
        );
        assert!(images.iter().any(|image| image.len() == 512), "nothing");
    }
}

#[test]
fn overwritten_sectors_of_a_recycled_file_are_old_or_new_each_for_itself() {
    let storage = CrashStorage::new();
    write(&storage, "a", &[1; 2048]);
    storage.sync_dir(Path::new("")).unwrap();
    let mut file = create(&storage, "a", true);
    file.append(&[2; 1100]).unwrap();
    file.flush().unwrap();
    let seen = outcomes(&storage, "a", FileSystem::Ordered);
    for image in seen.iter().flatten() {
        assert_eq!(image.len(), 2048);
        assert!(image[1100..].iter().all(|&byte| byte == 1));
        for sector in image[..1024].chunks(512) {
            assert!(sector.iter().all(|&byte| byte == sector[0]));
        }
    }
    assert!(seen.len() > 4);
}

#[test]
fn appends_that_were_not_flushed_are_in_no_image() {
    let storage = CrashStorage::new();
    let mut file = create(&storage, "a", false);
    file.append(b"abc").unwrap();
    assert_eq!(read(&storage.crash_image(0, CrashModel::KEPT), "a").unwrap(), b"");
    file.flush().unwrap();
    assert_eq!(read(&storage.crash_image(0, CrashModel::KEPT), "a").unwrap(), b"abc");
    assert_eq!(read(&storage.crash_image(0, CrashModel::LOST), "a"), None);
}

#[test]
fn the_same_seed_gives_the_same_image_and_an_image_can_crash_again() {
    let storage = CrashStorage::new();
    for name in ["a", "b", "c"] {
        write(&storage, name, name.as_bytes());
    }
    let image = |seed| storage.crash_image(seed, CrashModel::chosen(FileSystem::ReorderAll));
    let root = Path::new("");
    for seed in 0..50 {
        let first = image(seed);
        let names = first.list(root).unwrap();
        assert_eq!(names, image(seed).list(root).unwrap());
        write(&first, "later", b"x");
        assert_eq!(first.crash_image(seed, CrashModel::LOST).list(root).unwrap(), names);
    }
}

#[test]
fn images_of_every_point_equal_those_taken_when_it_was_the_last() {
    let storage = CrashStorage::new();
    let mut then = Vec::new();
    let model = CrashModel::chosen(FileSystem::Writeback);
    for index in 0..200_u64 {
        write(&storage, &format!("f{}", index % 50), &index.to_le_bytes());
        if index % 3 == 0 {
            storage.sync_dir(Path::new("")).unwrap();
        }
        if index % 50 < 49 {
            then.push((
                storage.points(),
                storage.crash_image(index, model).list(Path::new("")).unwrap(),
                index,
            ));
        } else {
            for old in 0..50 {
                storage.remove(Path::new(&format!("f{old}"))).unwrap();
            }
        }
    }
    for (point, names, seed) in then {
        assert_eq!(storage.log().image(point, seed, model).list(Path::new("")).unwrap(), names);
    }
}

#[test]
fn a_synced_move_between_directories_leaves_one_name() {
    let storage = CrashStorage::new();
    for dir in ["x", "y"] {
        storage.create_dir_all(Path::new(dir)).unwrap();
    }
    write(&storage, "x/a", b"abc");
    storage.rename(Path::new("x/a"), Path::new("y/a")).unwrap();
    storage.sync_dir(Path::new("y")).unwrap();
    let image = storage.crash_image(3, CrashModel::KEPT);
    assert_eq!((read(&image, "x/a"), read(&image, "y/a")), (None, Some(b"abc".to_vec())));
    assert_eq!(read(&storage.crash_image(3, CrashModel::LOST), "y/a"), Some(b"abc".to_vec()));
}
