//! `get`, `put`, `delete` and `scan` on a real store, one process after another.

use crate::common::{Place, kelvin, stdout};

#[test]
fn a_value_put_by_one_process_is_got_by_another() {
    let place = Place::new();
    place.put("s", "greeting", "hello");
    assert_eq!(stdout(place.on("s", "get").arg("greeting")), "hello", "exact bytes, no line feed in a pipe");
    place.on("s", "get").arg("nothing").assert().code(1).stdout("").stderr("");
}

#[test]
fn the_directory_comes_from_the_environment_too() {
    let place = Place::new();
    place.put("s", "k", "v");
    let mut command = kelvin();
    command.env("KELVIN_DIR", place.path("s")).args(["get", "k"]);
    assert_eq!(stdout(&mut command), "v");
}

#[test]
fn a_value_from_stdin_is_kept_byte_for_byte() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    place.on("s", "put").args(["image", "-"]).write_stdin(bytes.clone()).assert().success();
    let output = place.on("s", "get").arg("image").assert().success().get_output().stdout.clone();
    assert_eq!(output, bytes);
}

#[test]
fn keys_and_values_are_written_in_any_encoding() {
    let place = Place::new();
    place.on("s", "put").args(["--hex", "0x00ff", "6869"]).assert().success();
    assert_eq!(stdout(place.on("s", "get").args(["--escape", "\\x00\\xff"])), "hi\n");
    assert_eq!(stdout(place.on("s", "get").args(["--base64", "AP8="])), "aGk=\n");
    let json = stdout(place.on("s", "get").args(["--hex", "00ff", "--json"]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["value_hex"], "6869");
    let missing = place.on("s", "get").args(["x", "--json"]).assert().code(1).get_output().stdout.clone();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&missing).unwrap()["found"], false);
}

#[test]
fn a_record_with_a_short_life_is_gone_after_it() {
    let place = Place::new();
    place.on("s", "put").args(["k", "v", "--ttl", "0s"]).assert().success();
    place.on("s", "get").arg("k").assert().code(1);
    place.on("s", "put").args(["k", "v", "--ttl", "1h"]).assert().success();
    assert_eq!(stdout(place.on("s", "get").arg("k")), "v");
}

#[test]
fn keys_and_ranges_are_deleted() {
    let place = Place::new();
    for key in ["a", "b1", "b2", "c", "d"] {
        place.put("s", key, "v");
    }
    place.on("s", "delete").args(["a", "never-there"]).assert().success();
    place.on("s", "delete").args(["--prefix", "b"]).assert().success();
    assert_eq!(stdout(place.on("s", "scan").arg("--keys-only")), "c\nd\n");
    place.on("s", "delete").args(["--from", "c", "--to", "d"]).assert().success();
    assert_eq!(stdout(place.on("s", "scan").arg("--keys-only")), "d\n");
}

#[test]
fn a_scan_honours_bounds_direction_and_limit() {
    let place = Place::new();
    for key in ["a", "b1", "b2", "c"] {
        place.put("s", key, &format!("value of {key}"));
    }
    let scan = |args: &[&str]| stdout(place.on("s", "scan").args(args));
    assert_eq!(scan(&["--from", "b", "--to", "c"]), "b1\tvalue of b1\nb2\tvalue of b2\n");
    assert_eq!(scan(&["--prefix", "b", "--keys-only", "--reverse"]), "b2\nb1\n");
    assert_eq!(scan(&["--limit", "1", "--keys-only"]), "a\n");
    assert_eq!(scan(&["--count"]), "4\n");
    assert_eq!(scan(&["--limit", "0"]), "");
    assert_eq!(scan(&["--prefix", "c", "--json"]), "{\"key\":\"c\",\"value\":\"value of c\"}\n");
    assert_eq!(scan(&["--prefix", "zzz"]), "");
}

#[test]
fn keyspaces_are_apart_and_a_mistyped_one_is_not_made() {
    let place = Place::new();
    place.put("s", "k", "in default");
    place.on("s", "put").args(["k", "in users", "--keyspace", "users"]).assert().success();
    assert_eq!(stdout(place.on("s", "get").args(["k", "--keyspace", "users"])), "in users");
    assert_eq!(stdout(place.on("s", "get").arg("k")), "in default");
    let (code, error) = crate::common::failure(place.on("s", "get").args(["k", "--keyspace", "usres"]));
    assert_eq!(code, 2);
    assert!(error.contains("default, users"), "{error}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let rows: String = (0..20_000).map(|n| format!("{n:05},some value to fill the pipe with\n")).collect();
    place.on("s", "load").args(["-", "--quiet"]).write_stdin(rows).assert().success();
    let mut shell = assert_cmd::Command::new("bash");
    let script = format!(
        "set -o pipefail; {} scan --fast {} | head -1",
        env!("CARGO_BIN_EXE_kelvin"),
        place.path("s").display()
    );
    shell.args(["-c", &script]).assert().success().stderr("");
}
