//! `--events`: what a command's store did, as lines of JSON.

use serde_json::Value;

use crate::common::{Place, failure, stdout};

fn events(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn records() -> Vec<u8> {
    use std::fmt::Write;
    let mut text = String::from("key,value\n");
    for number in 0..8_000 {
        writeln!(text, "key{:05},{}", number * 7919 % 8_000, "v".repeat(300)).unwrap();
    }
    text.into_bytes()
}

#[test]
fn a_load_tells_of_its_flushes_and_compactions_as_lines_of_json() {
    let place = Place::new();
    let input = place.file("records.csv", &records());
    let log = place.path("events.jsonl");
    let load = |events: &str| {
        let mut load = place.on("s", "load");
        load.args(["--memory", "2MiB", "--compression", "none", "--quiet", "--events", events]).arg(&input);
        load
    };
    stdout(&mut load(&log.to_string_lossy()));
    let told = events(&place.read("events.jsonl"));
    let of = |name: &str| told.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let (flushed, compacted) = (of("flushed"), of("compacted"));
    assert!(flushed.len() > 3 && !compacted.is_empty(), "{told:?}");
    assert!(flushed.iter().all(|one| one["bytes"].as_u64() > Some(0) && one["keyspace"] == "default"));
    for one in compacted.iter().filter(|one| one["is_move"] == false) {
        assert!(one["written_bytes"]["fast"].as_u64() > Some(0) && one["reason"].is_string(), "{one}");
    }
    assert!(told.iter().all(|one| one["unix_ms"].as_u64() > Some(1_700_000_000_000)));
    // A second command's events stand behind the first one's; those of a third go to stderr.
    stdout(&mut load(&log.to_string_lossy()));
    let both = events(&place.read("events.jsonl"));
    assert!(both.len() > told.len() && both.starts_with(&told));
    let output = load("-").assert().success().get_output().clone();
    assert!(events(&output.stderr).iter().any(|one| one["event"] == "flushed"));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("loaded 8,000"));
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_done() {
    let place = Place::new();
    let (code, error) = failure(place.on("s", "put").args(["a", "b", "--events", "/no/such/dir/e.jsonl"]));
    assert!(code == 7 && error.contains("/no/such/dir/e.jsonl"), "{code}: {error}");
    assert!(!place.path("s").exists());
}
