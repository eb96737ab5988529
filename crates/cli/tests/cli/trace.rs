//! `kelvin bench trace` and `make-trace`, very small: what they print, write and refuse.

use serde_json::Value;

use crate::common::{Place, failure, kelvin, stdout};

fn made(place: &Place, name: &str) -> std::path::PathBuf {
    let path = place.path(name);
    let mut command = kelvin();
    command
        .args(["bench", "make-trace", "--data", "2MB", "--ops", "6k", "--sunk", "80", "--hot", "60"])
        .arg(&path);
    let told = stdout(&mut command);
    assert!(told.contains("then 6,000 operations") && told.contains("read-heavy: 90"), "{told}");
    path
}

fn trace(place: &Place, name: &str) -> assert_cmd::Command {
    let mut command = kelvin();
    command.args(["bench", "trace", "--memory", "8MiB", "--work"]).arg(place.path("."));
    for tier in ["fast", "slow"] {
        command.arg(format!("--{tier}")).arg(place.path(&format!("{name}-{tier}")));
    }
    command
}

#[test]
fn a_synthetic_trace_is_made_classified_and_replayed_on_two_systems_with_their_ratio() {
    let place = Place::new();
    let path = made(&place, "t.csv.zst");
    let json: Value = serde_json::from_str(&stdout(
        trace(&place, "a").args(["--classify", "--ops", "6k", "--json", "-"]).arg(&path),
    ))
    .unwrap();
    let near = |name: &str, wanted: f64| (json[name].as_f64().unwrap_or(9.0) - wanted).abs() < 0.02;
    assert!(near("sunk_share", 0.8) && near("hot_share", 0.6) && near("read_share", 0.9), "{json:#}");
    assert_eq!(json["category"], "read-heavy");

    let report = place.path("t.json");
    let mut command = trace(&place, "b");
    command.args(["--compare", "kelvin,fat", "--ops", "6k", "--threads", "2", "--slow-read-iops", "20k"]);
    command.args(["--fast-capacity", "1MiB", "--json"]).arg(&report).arg("--html").arg(place.path("t.html"));
    let table = stdout(command.arg(&path));
    for words in
        ["t.csv.zst", "of sunk records", "ops_per_s_last10", "read_p99_us", "ratio (median of 1)", "p99.9"]
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    let json: Value = serde_json::from_slice(&place.read("t.json")).unwrap();
    assert!(json["speedups"]["fat"].as_f64().is_some_and(|speedup| speedup > 0.0), "{json:#}");
    assert_eq!((&json["first"], &json["trace"]["run_ops"]), (&"kelvin".into(), &6_000.into()));
    let runs = json["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["system"], &runs[1]["system"]), (&"kelvin".into(), &"fat".into()));
    for run in runs {
        assert!(
            run["latency_us"]["read"]["p999"].is_f64() && run["fast_hit_rate_last10"].is_f64(),
            "{run:#}"
        );
        assert!(run["slow_used_bytes"].as_u64() > Some(1 << 20), "{run:#}");
    }
    assert!(String::from_utf8(place.read("t.html")).unwrap().contains("t.csv.zst"));
}

#[test]
fn a_published_line_is_repeated_until_there_is_enough_data() {
    let place = Place::new();
    let lines = "0,nz:u:eeW5,9,213,4,get,0\n1,other,5,90,4,set,600\n2,nz:u:eeW5,9,0,4,delete,0\n";
    let path = place.file("cluster.csv", lines.as_bytes());
    let text = stdout(trace(&place, "a").args(["--data", "300kB", "--json", "-"]).arg(path));
    let json: Value = serde_json::from_str(&text).unwrap();
    let trace = &json["trace"];
    // "other" alone is left at the end: 95 bytes, 300,000 of which are 3,158 copies with prefixes of four digits.
    assert_eq!((&trace["copies"], &trace["data_bytes"]), (&3_158.into(), &(3_158 * 99).into()), "{trace:#}");
    assert_eq!((&trace["run_ops"], &trace["deletes"]), (&1_363.into(), &1_363.into()), "{trace:#}");
}

#[test]
fn what_is_no_trace_is_refused_with_its_place() {
    let place = Place::new();
    let mut lines = "0,key,3,213,4,get,0\n".repeat(20);
    lines.push_str("7,key,3,many,4,get,0\n");
    let path = place.file("bad.csv", lines.as_bytes());
    let (code, told) = failure(trace(&place, "a").arg(&path));
    assert_eq!(code, 2, "{told}");
    for words in ["line 21", "value size", "bad.csv", "'many'", "--skip-malformed"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let table = stdout(trace(&place, "a").args(["--skip-malformed", "--classify"]).arg(&path));
    assert!(table.contains("1 malformed line(s) left out") && table.contains("line 21"), "{table}");

    let whole = made(&place, "whole.csv.zst");
    let bytes = place.read("whole.csv.zst");
    let cut = place.file("cut.csv.zst", &bytes[..bytes.len() / 2]);
    let (code, told) = failure(trace(&place, "a").arg(cut));
    assert!(code == 3 && told.contains("ends in the middle") && told.contains("cut.csv.zst"), "{told}");

    for (args, code, words) in [
        (&["--compare", "kelvin"][..], 2, "two or more"),
        (&["--compare", "fat,fat"], 2, "two or more"),
        (&["--compare", "kelvin,elsewhere"], 2, "no system is called 'elsewhere'"),
        (&["--semantics", "redis"], 2, "no meaning of writes"),
        (&["--prepare-memory", "1kB"], 2, "--prepare-memory"),
        (&["--threads", "0"], 2, "at least 1"),
    ] {
        let (found, told) = failure(trace(&place, "a").args(args).arg(&whole));
        assert!(found == code && told.contains(words), "{args:?}: {told}");
    }
    let (code, told) = failure(trace(&place, "a").arg(place.path("nowhere.csv")));
    assert!(code == 7 && told.contains("nowhere.csv"), "{told}");
    let (code, told) = failure(kelvin().args(["bench", "make-trace"]).arg(&whole));
    assert!(code == 2 && told.contains("--force"), "{told}");
}
