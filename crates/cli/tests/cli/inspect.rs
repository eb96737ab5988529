//! `stats`, `levels`, `explain`, `check` and `checkpoint`, and a store somebody else has open.

use std::path::{Path, PathBuf};

use kelvin::{Db, Options};
use serde_json::Value;

use crate::common::{Place, failure, kelvin, stdout};

fn json(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&stdout(command)).unwrap()
}

/// A store with 2,000 records in tables.
pub fn with_tables(place: &Place) -> PathBuf {
    let dir = place.path("s");
    let db = Db::open(Options::new(&dir).memory(4 << 20)).unwrap();
    for number in 0..2_000u32 {
        db.put(format!("key{number:05}").as_bytes(), &[b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    dir
}

#[expect(clippy::disallowed_methods, reason = "a test looks for a file of the store")]
pub fn files_of(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

#[expect(clippy::disallowed_methods, reason = "a test damages a file of the store")]
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn figures_and_levels_are_shown_to_people_and_programs() {
    let place = Place::new();
    with_tables(&place);
    assert!(stdout(&mut place.on("s", "stats")).contains("used_bytes.fast"));
    assert!(json(place.on("s", "stats").arg("--json"))["used_bytes"]["fast"].as_u64() > Some(100_000));
    let table = stdout(&mut place.on("s", "levels"));
    assert!(table.starts_with("level") && table.contains("fast") && table.contains("2,000"), "{table}");
    let levels = json(place.on("s", "levels").arg("--json"));
    assert_eq!(levels[0]["entries"], 2_000);
    assert_eq!(levels[0]["tier"], "fast");
}

#[test]
fn every_figure_is_explained_without_a_store() {
    let place = Place::new();
    let rows = json(place.on("none", "explain").args(["--memory", "1GiB", "--json"]));
    let memory = rows.as_array().unwrap().iter().find(|row| row["name"] == "memory").unwrap();
    assert_eq!(memory["value"], "1 GiB");
    assert!(rows.as_array().unwrap().iter().all(|row| row["why"] != ""));
    assert!(!place.path("none").exists());
}

#[test]
fn a_key_is_explained_with_its_place() {
    let place = Place::new();
    with_tables(&place);
    let report = json(place.on("s", "explain").args(["key00007", "--json"]));
    assert_eq!((&report["found"], &report["tier"]), (&true.into(), &"fast".into()), "{report}");
    place.on("s", "explain").arg("nothing").assert().code(1);
    assert!(stdout(place.on("s", "explain").arg("key00007")).contains("fast tier"));
}

#[test]
fn a_store_of_two_tiers_says_what_it_knows_of_hot_records() {
    let place = Place::new();
    let on = |command: &str| {
        let mut command = place.on("s", command);
        command.args(["--fast-capacity", "8MiB", "--slow"]).arg(place.path("slow"));
        command
    };
    on("put").args(["read", "often"]).assert().success();
    on("put").args(["never", "read"]).assert().success();
    // Whoever opens a store has what it finds in the log flushed, sooner or later: here it is done.
    let db = Db::open(Options::new(place.path("s")).slow(place.path("slow")).fast_capacity(8 << 20)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    on("get").arg("read").assert().success();
    for (key, hot) in [("read", true), ("never", false)] {
        assert_eq!(json(on("explain").args([key, "--json"]))["hot"], hot, "{key}");
        let told = stdout(on("explain").arg(key));
        let row = |name: &str| told.lines().find_map(|row| row.strip_prefix(name)).unwrap_or_default().trim();
        assert_eq!(row("hot "), if hot { "yes" } else { "no" }, "{told}");
        assert_eq!(row("how hot").starts_with("score 1."), hot, "{told}");
        assert!(row("how hot").contains("no access of it is known") != hot, "{told}");
        assert_eq!(row("place"), "L0 on the fast tier", "{told}");
        assert!(
            row("why there").starts_with(if hot { "hot: it stays" } else { "on its way down" }),
            "{told}"
        );
        let heat = &json(on("explain").args([key, "--json"]))["heat"];
        assert_eq!((heat["score"].is_f64(), &heat["is_stable"]), (hot, &false.into()), "{heat}");
    }
    on("get").arg("read").assert().success();
    assert_eq!(json(on("explain").args(["read", "--json"]))["heat"]["is_stable"], true);
    let levels = stdout(&mut on("levels"));
    assert!(levels.contains("hot records: 9 B of at most 4.3 MiB (hotness by ralt)"), "{levels}");
    let stats = json(on("stats").arg("--json"));
    assert_eq!(
        (&stats["hotness"], &stats["ralt"]["hot_set_bytes"]),
        (&"ralt".into(), &9.into()),
        "{stats:#}"
    );
    assert!(stats["ralt"]["cpu_s"].is_f64() && stats["ralt"]["last_error"].is_null(), "{stats:#}");
    assert!(stdout(&mut on("stats")).contains("ralt.hot_set_limit_bytes"));
    assert_eq!(stats["hot_level"], serde_json::json!({"runs": 0, "bytes": 0, "records": 0}));
    place.put("single", "a", "b");
    assert_eq!(json(place.on("single", "stats").arg("--json"))["hotness"], "off");
    assert!(json(place.on("single", "explain").args(["a", "--json"]))["hot"].is_null());
}

#[test]
fn a_store_goes_on_with_its_hotness_whatever_command_opens_it() {
    let place = Place::new();
    let on = |command: &str| {
        let mut command = place.on("s", command);
        command.args(["--fast-capacity", "8MiB", "--slow"]).arg(place.path("slow"));
        command
    };
    let hot = || json(on("explain").args(["read", "--json"]))["hot"] == true;
    on("put").args(["read", "often", "--hotness", "lru"]).assert().success();
    on("get").arg("read").assert().success();
    assert!(hot());
    let stats = json(on("stats").arg("--json"));
    assert_eq!((&stats["hotness"], &stats["ralt"]["resets"]), (&"lru".into(), &0.into()), "{stats:#}");
    let stats = json(on("stats").args(["--hotness", "clock", "--json"]));
    let told = stats["ralt"]["last_error"].as_str().unwrap();
    assert!(stats["hotness"] == "clock" && told.contains("were kept with LRU"), "{stats:#}");
    assert!(!hot());
    let (code, error) = failure(place.on("one", "put").args(["a", "b", "--hotness", "ralt"]));
    assert_eq!((code, error.contains("without slow_dir")), (2, true), "{error}");
}

#[test]
fn a_sound_store_is_sound() {
    let place = Place::new();
    with_tables(&place);
    assert!(stdout(&mut place.on("s", "check")).contains("sound:"));
    let report = json(place.on("s", "check").args(["--json"]));
    assert_eq!((&report["sound"], &report["damaged_files"]), (&true.into(), &0.into()));
    let all = stdout(place.on("s", "check").arg("--all"));
    assert!(all.contains("table") && all.contains("manifest") && all.contains("wal"), "{all}");
}

#[test]
fn a_flipped_bit_in_a_table_is_found_and_its_keys_are_named() {
    let place = Place::new();
    let dir = with_tables(&place);
    flip(&files_of(&dir, "tbl")[0], 5_000);
    let output = place.on("s", "check").assert().code(3).get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains("damaged") && text.contains("lost:") && text.contains("key0"), "{text}");
    let output = place.on("s", "check").arg("--json").assert().code(3).get_output().stdout.clone();
    let report: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((&report["sound"], &report["damaged_files"]), (&false.into(), &1.into()));
    let (code, error) = failure(&mut place.on("s", "scan"));
    assert_eq!(code, 3, "a scan does not pass over it: {error}");
    assert!(error.contains(".tbl") && error.contains("byte"), "{error}");
}

#[test]
fn a_store_that_cannot_be_opened_is_checked() {
    let place = Place::new();
    let dir = with_tables(&place);
    for manifest in files_of(&dir, "manifest") {
        flip(&manifest, 40);
    }
    let (code, _) = failure(&mut place.on("s", "stats"));
    assert_eq!(code, 3);
    let output = place.on("s", "check").assert().code(3).get_output().stdout.clone();
    assert!(String::from_utf8(output).unwrap().contains("manifest"));
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let place = Place::new();
    with_tables(&place);
    place.on("s", "checkpoint").arg(place.path("copy")).assert().success();
    place.on("s", "delete").args(["--prefix", "key"]).assert().success();
    assert_eq!(stdout(place.on("copy", "scan").arg("--count")), "2000\n");
    let (code, error) = failure(place.on("s", "checkpoint").arg(place.path("copy")));
    assert_eq!(code, 2, "a directory in use is refused: {error}");
    assert_eq!(stdout(place.on("copy", "scan").arg("--count")), "2000\n");
}

#[test]
fn two_tiers_need_both_directories_and_a_capacity() {
    let place = Place::new();
    let tiered = |command: &str| {
        let mut kelvin = place.on("s", command);
        kelvin.arg("--slow").arg(place.path("slow")).args(["--fast-capacity", "64MiB"]);
        kelvin
    };
    tiered("put").args(["k", "v"]).assert().success();
    assert_eq!(stdout(tiered("get").arg("k")), "v");
    let (code, error) = failure(place.on("s", "get").arg("k").arg("--slow").arg(place.path("slow")));
    assert_eq!((code, error.contains("fast_capacity")), (2, true), "{error}");
    let (code, error) = failure(tiered("checkpoint").arg(place.path("copy")));
    assert_eq!((code, error.contains("--slow-to")), (2, true), "{error}");
    tiered("checkpoint")
        .arg(place.path("copy"))
        .arg("--slow-to")
        .arg(place.path("slow-copy"))
        .assert()
        .success();
    assert!(
        stdout(
            kelvin()
                .args(["check", "--fast"])
                .arg(place.path("copy"))
                .arg("--slow")
                .arg(place.path("slow-copy"))
        )
        .contains("sound:")
    );
}

#[test]
fn a_store_open_elsewhere_is_busy_and_unharmed() {
    let place = Place::new();
    let dir = with_tables(&place);
    let db = Db::open(Options::new(&dir)).unwrap();
    db.put(b"mine", b"1").unwrap();
    let (code, error) = failure(place.on("s", "put").args(["theirs", "2"]));
    assert_eq!(code, 8, "{error}");
    assert!(error.contains("busy"), "{error}");
    db.put(b"mine", b"3").unwrap();
    db.close().unwrap();
    assert_eq!(stdout(place.on("s", "get").arg("mine")), "3");
}
