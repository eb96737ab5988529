//! `load` and `dump`: every format from files and pipes, expiry kept, and inputs that are damaged.

use crate::common::{Place, failure, stdout};

/// Far in the future, so that nothing expires while the tests run: 2100-01-01.
const EXPIRY_MS: u64 = 4_102_444_800_000;

fn filled() -> Place {
    let place = Place::new();
    let rows = format!(
        "{{\"key\":\"plain\",\"value\":\"text\"}}\n{{\"key\":\"a,b\\\"c\",\"value\":\"x\\ny\",\"expiry_ms\":{EXPIRY_MS}}}\n\
         {{\"key_hex\":\"00ff\",\"value_base64\":\"/w==\"}}\n{{\"key\":\"empty\",\"value\":\"\"}}\n"
    );
    place.on("s", "load").args(["--format", "jsonl", "-"]).write_stdin(rows).assert().success();
    place
}

#[test]
fn what_was_dumped_is_loaded_back_with_its_expiry_in_every_format() {
    let place = filled();
    let expected = stdout(place.on("s", "scan").arg("--json"));
    assert!(expected.contains(&EXPIRY_MS.to_string()));
    for name in ["all.dump", "all.csv", "all.jsonl"] {
        let (file, store) = (place.path(name), format!("copy of {name}"));
        place.on("s", "dump").arg(&file).assert().success();
        place.on(&store, "load").arg(&file).assert().success();
        assert_eq!(stdout(place.on(&store, "scan").arg("--json")), expected, "{name}");
    }
}

#[test]
fn records_in_order_are_loaded_at_once_or_not_at_all() {
    let place = filled();
    let expected = stdout(place.on("s", "scan").arg("--json"));
    place.on("s", "dump").arg(place.path("all.dump")).assert().success();
    let report = stdout(place.on("t", "load").args(["--bulk", "--json"]).arg(place.path("all.dump")));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["records"], 4);
    assert_eq!(stdout(place.on("t", "scan").arg("--json")), expected);
    let (code, error) = failure(place.on("t", "load").arg("--bulk").arg(place.path("all.dump")));
    assert!(code == 2 && error.contains("holds something"), "{code} {error}");
    assert_eq!(stdout(place.on("t", "scan").arg("--json")), expected);
    for (rows, words) in [("b,1\na,2\n", "greater than b"), ("a,1\nb\n", "line 2")] {
        let (code, error) = failure(place.on("u", "load").args(["--bulk", "-"]).write_stdin(rows));
        assert!(code == 2 && error.contains(words), "{code} {error}");
        assert!(error.contains("no record was loaded"), "{error}");
        assert_eq!(stdout(place.on("u", "scan").arg("--count")), "0\n");
    }
    let (code, _) = failure(place.on("u", "load").args(["--bulk", "--batch", "1MiB", "-"]).write_stdin(""));
    assert_eq!(code, 2);
}

#[test]
fn a_dump_goes_through_a_pipe() {
    let place = filled();
    let dump = place.on("s", "dump").assert().success().get_output().stdout.clone();
    let report = stdout(place.on("t", "load").args(["-", "--json"]).write_stdin(dump));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["records"], 4);
    assert_eq!(stdout(place.on("t", "scan").arg("--json")), stdout(place.on("s", "scan").arg("--json")));
}

#[test]
fn csv_is_written_in_the_encoding_asked_for() {
    let place = filled();
    let csv =
        stdout(place.on("s", "dump").args(["--format", "csv", "--encoding", "hex", "--prefix", "0x706c"]));
    assert_eq!(csv, "key_hex,value_hex,expiry_ms\n706c61696e,74657874,\n");
    let (code, error) = failure(place.on("s", "dump").args(["--format", "csv", "--encoding", "text"]));
    assert_eq!(code, 2);
    assert!(error.contains("\\x00\\xff is not UTF-8"), "{error}");
}

#[test]
fn a_dump_does_not_replace_a_file_unasked() {
    let place = filled();
    let file = place.file("all.dump", b"precious");
    let (code, error) = failure(place.on("s", "dump").arg(&file));
    assert_eq!((code, error.contains("--force")), (2, true), "{error}");
    assert_eq!(place.read("all.dump"), b"precious");
    place.on("s", "dump").arg(&file).arg("--force").assert().success();
    assert_ne!(place.read("all.dump"), b"precious");
    assert!(!place.path("all.dump.part").exists());
}

#[test]
fn records_without_end_get_the_one_asked_for() {
    let place = Place::new();
    place.on("s", "load").args(["-", "--ttl", "1h"]).write_stdin("a,1\n").assert().success();
    assert!(stdout(place.on("s", "scan").arg("--json")).contains("expiry_ms"));
}

#[test]
fn a_bad_line_is_named_and_what_came_before_stays() {
    let place = Place::new();
    let rows = place.file("rows.csv", b"a,1\nb,2\nc\n");
    let (code, error) = failure(place.on("s", "load").arg(&rows));
    assert_eq!(code, 2);
    assert!(error.contains("line 3") && error.contains("rows.csv"), "{error}");
    assert!(error.contains("2 records before it were loaded"), "{error}");
    assert_eq!(stdout(place.on("s", "scan").arg("--count")), "2\n");
}

#[test]
fn a_store_that_is_full_holds_as_many_records_as_it_says() {
    let place = Place::new();
    let mut state = 1_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{state:016x}")
    };
    let rows: String = (0..20_000)
        .map(|row| format!("{row:05},{}\n", (0..24).map(|_| word()).collect::<String>()))
        .collect();
    let full = ["--fast-capacity", "2MiB", "--batch", "16KiB", "-"];
    let (code, error) = failure(place.on("s", "load").args(full).write_stdin(rows));
    assert_eq!(code, 5, "{error}");
    let there = stdout(place.on("s", "scan").arg("--count"));
    let told: String = error.split(" records before it were loaded").next().unwrap().to_owned();
    let told: String = told.chars().rev().take_while(|char| char.is_ascii_digit() || *char == ',').collect();
    let told: String = told.chars().rev().filter(char::is_ascii_digit).collect();
    assert_eq!(told, there.trim(), "{error}");
}

#[test]
fn a_cut_dump_is_corruption_at_a_byte() {
    let place = filled();
    place.on("s", "dump").arg(place.path("all.dump")).assert().success();
    let dump = place.read("all.dump");
    for cut in [0, 5, 12, 20, dump.len() - 9, dump.len() - 1] {
        let file = place.file("cut.dump", &dump[..cut]);
        let (code, error) = failure(place.on("t", "load").arg(&file).arg("--json"));
        let error: serde_json::Value = serde_json::from_str(&error).unwrap();
        assert_eq!((code, &error["error"]["kind"]), (3, &"corruption".into()), "cut at {cut}: {error}");
        assert!(error["error"]["offset"].is_u64(), "cut at {cut}: {error}");
    }
}

#[test]
fn a_flipped_byte_in_a_dump_is_corruption() {
    let place = filled();
    place.on("s", "dump").arg(place.path("all.dump")).assert().success();
    let mut dump = place.read("all.dump");
    let middle = dump.len() / 2;
    dump[middle] ^= 1;
    let file = place.file("flipped.dump", &dump);
    let (code, error) = failure(place.on("t", "load").arg(&file));
    assert_eq!(code, 3);
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn formats_nobody_knows_are_refused_with_those_there_are() {
    let place = filled();
    let file = place.file("rows.parquet", b"PAR1");
    for command in [
        place.on("s", "load").args(["--format", "parquet"]).arg(&file),
        place.on("s", "dump").arg(place.path("x.parquet")),
    ] {
        let (code, error) = failure(command);
        assert_eq!(code, 2);
        assert!(error.contains("csv") && error.contains("jsonl"), "{error}");
    }
}

#[test]
fn keys_no_store_takes_are_refused_at_their_line() {
    let place = Place::new();
    let long = "k".repeat(64 * 1024 + 1);
    for (row, length) in [(",v\n".to_string(), "0 bytes"), (format!("{long},v\n"), "65537 bytes")] {
        let (code, error) = failure(place.on("s", "load").arg("-").write_stdin(format!("ok,1\n{row}")));
        assert_eq!(code, 2);
        assert!(error.contains("line 2") && error.contains(length), "{error}");
    }
}
