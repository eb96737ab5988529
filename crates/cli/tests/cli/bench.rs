//! `kelvin bench` at a tiny size: what it measured adds up, for one system and for two.

use serde_json::Value;

use crate::common::{Place, failure, kelvin, stdout};

fn tiny(place: &Place, name: &str) -> assert_cmd::Command {
    let mut command = kelvin();
    command.args(["bench", "--records", "300", "--ops", "400", "--value-size", "100", "--memory", "8MiB"]);
    command.args(["--fast-capacity", "4MiB"]);
    for tier in ["fast", "slow"] {
        command.arg(format!("--{tier}")).arg(place.path(&format!("{name}-{tier}")));
    }
    command
}

#[test]
fn a_run_reports_its_operations_as_a_table_and_as_json() {
    let place = Place::new();
    let table = stdout(tiny(&place, "a").args(["--workload", "UH"]));
    assert!(table.contains("kelvin") && table.contains("UH"), "{table}");
    let text = stdout(tiny(&place, "b").args(["--workload", "UH", "--json", "-"]));
    let json: Value = serde_json::from_str(&text).unwrap();
    let report = json.as_array().map_or(&json, |all| &all[0]);
    assert_eq!((&report["ops"], &report["records"]), (&400.into(), &300.into()), "{json:#}");
    let count = |kind: &str| report["latency_us"][kind]["count"].as_u64().unwrap_or(0);
    assert_eq!(count("read") + count("update"), 400, "{json:#}");
    assert!(count("read") > 100 && count("update") > 100, "half of each: {json:#}");
}

#[test]
fn the_tracker_of_hot_records_is_chosen_and_reported() {
    let place = Place::new();
    let run = |name: &str, args: &[&str]| -> Value {
        serde_json::from_str(&stdout(tiny(&place, name).args(args).args(["--json", "-"]))).unwrap()
    };
    for (name, args) in
        [("ralt", &[][..]), ("lru", &["--hotness", "lru"]), ("clock", &["--hotness", "clock"])]
    {
        let report = run(name, args);
        assert_eq!(report["hotness"], name);
        for count in "read_bytes written_bytes physical_bytes memory_bytes hot_set_bytes hot_set_limit_bytes"
            .split(' ')
        {
            assert!(report["ralt"][count].is_u64(), "{count} {report:#}");
        }
        assert!(report["ralt"]["cpu_s"].is_f64(), "{report:#}");
        assert!(report["ralt"]["hot_set_limit_bytes"].as_u64() > Some(1 << 20), "{report:#}");
    }
    for (name, args) in [("off", &["--hotness", "off"]), ("fat", &["--system", "fat"])] {
        let report = run(name, args);
        assert_eq!((&report["hotness"], report.get("ralt")), (&"off".into(), None), "{report:#}");
    }
    let both = run("both", &["--hotness", "lru", "--vs", "fat"]);
    assert_eq!((&both["runs"][0]["hotness"], &both["runs"][1]["hotness"]), (&"lru".into(), &"off".into()));
    for (args, word) in
        [(["--hotness", "warm"], "oracle"), (["--hotness", "lru"], "says nothing to system fat")]
    {
        let (code, told) = failure(tiny(&place, "refused").args(args).args(["--system", "fat"]));
        assert!(code == 2 && told.contains(word), "{told}");
    }
}

#[test]
fn the_events_of_a_benchmark_are_those_of_one_store() {
    let place = Place::new();
    let log = place.path("events.jsonl");
    stdout(tiny(&place, "a").arg("--events").arg(&log));
    let events = String::from_utf8(place.read("events.jsonl")).unwrap();
    assert!(events.lines().any(|line| line.contains("\"event\":\"flushed\"")), "{events}");
    let (code, told) = failure(tiny(&place, "b").args(["--vs", "fat", "--events", "-"]));
    assert!(code == 2 && told.contains("--events is for one system"), "{code}: {told}");
}

#[test]
fn two_systems_are_compared_and_an_unknown_one_is_refused() {
    let place = Place::new();
    let html = place.path("report.html");
    let table = stdout(tiny(&place, "a").args(["--vs", "fast-only", "--html"]).arg(&html));
    assert!(table.contains("kelvin") && table.contains("fast-only"), "{table}");
    assert!(String::from_utf8(place.read("report.html")).unwrap().contains("fast-only"));
    let (code, told) = failure(tiny(&place, "b").args(["--system", "elsewhere"]));
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("elsewhere") && told.contains("fast-only"), "{told}");
}

#[test]
fn a_simulation_makes_no_file_but_those_asked_for_and_prints_the_same_each_time() {
    let place = Place::new();
    let (json, events) = (place.path("run.json"), place.path("events"));
    let simulated = || {
        let mut command = kelvin();
        command.args([
            "sim",
            "--records",
            "2k",
            "--ops",
            "2k",
            "--workload",
            "UH",
            "--threads",
            "3",
            "--memory",
            "8MiB",
        ]);
        command.args(["--fast-capacity", "2MiB"]);
        command
    };
    let table = stdout(&mut simulated());
    assert!(table.contains("UH on hotspot:5, 3 thread(s)"), "{table}");
    assert_eq!(stdout(&mut simulated()), table);
    let again = stdout(simulated().arg("--json").arg(&json).arg("--events").arg(&events));
    assert!(again.contains("operations/s"), "{again}");
    let report: Value = serde_json::from_slice(&place.read("run.json")).unwrap();
    assert_eq!(report["ops"], 2000, "{report:#}");
    assert!(report["levels"].as_object().is_some_and(|levels| !levels.is_empty()), "{report:#}");
    let events = String::from_utf8(place.read("events")).unwrap();
    assert!(events.lines().any(|line| line.contains("\"event\":\"flushed\"")), "{events}");
    let (code, told) = failure(simulated().args(["--system", "rocksdb-fast"]));
    assert!(code == 2 && told.contains("only Kelvin's own systems"), "{code}: {told}");
}
