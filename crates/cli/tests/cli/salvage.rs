//! `salvage`: real damage of real files, for people and for programs.

use std::path::{Path, PathBuf};

use kelvin::{Db, Options};
use serde_json::Value;

use crate::common::{Place, failure, stdout};
use crate::inspect::{files_of, flip, with_tables};

/// What `salvage` of the store `s` into `new` prints, and its exit code.
fn salvage(place: &Place, args: &[&str]) -> (i32, String) {
    let output = place.on("s", "salvage").arg(place.path("new")).args(args).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn salvage_json(place: &Place, args: &[&str]) -> (i32, Value) {
    let (code, text) = salvage(place, &[args, &["--json"]].concat());
    (code, serde_json::from_str(&text).unwrap())
}

fn count(place: &Place, store: &str, keyspace: &str) -> usize {
    stdout(place.on(store, "scan").args(["--count", "--keyspace", keyspace])).trim().parse().unwrap()
}

/// Every file of a directory with its bytes.
#[expect(clippy::disallowed_methods, reason = "a test looks at files of the store")]
fn image(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_sound_store_comes_out_whole() {
    let place = Place::new();
    let dir = with_tables(&place);
    let before = image(&dir);
    let (code, text) = salvage(&place, &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("whole:") && text.contains("2,000") && text.contains("not changed"), "{text}");
    assert_eq!(image(&dir), before);
    assert_eq!(count(&place, "new", "default"), 2_000);
    assert!(stdout(&mut place.on("new", "check")).contains("sound:"));
}

#[test]
fn a_flipped_bit_costs_a_block_and_is_told_with_its_keys() {
    let place = Place::new();
    let dir = with_tables(&place);
    let file = files_of(&dir, "tbl").remove(0);
    flip(&file, 5_000);
    let (code, report) = salvage_json(&place, &[]);
    assert_eq!((code, &report["whole"], &report["doubtful"]), (3, &false.into(), &0.into()), "{report:#}");
    let lost = &report["lost"][0];
    assert_eq!(
        (&lost["part"], &lost["kind"], &lost["keyspace"]),
        (&"block".into(), &"table".into(), &"default".into())
    );
    assert_eq!(lost["file"], file.display().to_string());
    assert!(
        lost["from"].as_str().unwrap().starts_with("key") && lost["to"].as_str().unwrap().starts_with("key")
    );
    assert!(lost["offset"].as_u64() <= Some(5_000) && lost["bytes"].as_u64() > Some(100), "{report:#}");
    assert_eq!(lost["error"]["kind"], "corruption");
    let there = count(&place, "new", "default");
    assert_eq!(report["rescued"], there);
    assert!(there > 1_000 && there < 2_000, "{there}");
}

#[test]
fn what_may_have_been_overwritten_is_kept_apart() {
    let place = Place::new();
    let dir = with_tables(&place);
    let old = files_of(&dir, "tbl");
    let db = Db::open(Options::new(&dir).memory(4 << 20)).unwrap();
    for number in 100..200u32 {
        db.put(format!("key{number:05}").as_bytes(), b"newer").unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let new = files_of(&dir, "tbl").into_iter().find(|path| !old.contains(path)).unwrap();
    flip(&new, 20);
    let (code, text) = salvage(&place, &[]);
    assert_eq!(code, 3, "{text}");
    for part in ["default.doubtful", "\"key00100\" to \"key00199\"", "1 piece", "lost:", "checksum"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((count(&place, "new", "default"), count(&place, "new", "default.doubtful")), (1_900, 100));
}

#[test]
fn a_store_without_a_manifest_is_refused_with_the_option_that_does_without() {
    let place = Place::new();
    let dir = with_tables(&place);
    for manifest in files_of(&dir, "manifest") {
        flip(&manifest, 50);
    }
    let (code, error) = failure(place.on("s", "salvage").arg(place.path("new")));
    assert_eq!(
        (code, error.contains("--without-manifest"), place.path("new").exists()),
        (3, true, false),
        "{error}"
    );
    let (code, report) = salvage_json(&place, &["--without-manifest"]);
    assert_eq!((code, &report["rescued"], &report["doubtful"]), (3, &0.into(), &2_000.into()), "{report:#}");
}

#[test]
fn two_tiers_come_out_on_as_many_as_are_asked_for() {
    let place = Place::new();
    let (slow, capacity) = (place.path("slow"), "8MiB");
    let tiered = |command: &str| {
        let mut command = place.on("s", command);
        command.arg("--slow").arg(&slow);
        command
    };
    tiered("put").args(["k", "v", "--fast-capacity", capacity]).assert().success();
    let told = stdout(
        tiered("salvage")
            .arg(place.path("two"))
            .arg("--slow-to")
            .arg(place.path("two-slow"))
            .args(["--fast-capacity", capacity]),
    );
    assert!(told.contains("whole:"), "{told}");
    assert!(stdout(tiered("salvage").arg(place.path("one"))).contains("whole:"));
    assert_eq!(stdout(place.on("one", "get").arg("k")), "v");
    let mut two = place.on("two", "get");
    two.arg("k").arg("--slow").arg(place.path("two-slow")).args(["--fast-capacity", capacity]);
    assert_eq!(stdout(&mut two), "v");
    let (code, error) = failure(tiered("salvage").arg(place.path("one")));
    assert_eq!((code, error.contains("not empty")), (2, true), "{error}");
}

#[test]
fn an_open_store_is_busy() {
    let place = Place::new();
    let dir = with_tables(&place);
    let db = Db::open(Options::new(&dir)).unwrap();
    let (code, error) = failure(place.on("s", "salvage").arg(place.path("new")));
    assert_eq!(code, 8, "{error}");
    db.close().unwrap();
}
