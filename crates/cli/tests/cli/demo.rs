//! `kelvin demo`, small: it ends, cleans up, and writes its report.

use crate::common::{Place, kelvin, stdout};

#[test]
fn a_small_demo_runs_reports_and_cleans_up() {
    let place = Place::new();
    let temp = place.path("temp");
    #[expect(clippy::disallowed_methods, reason = "a test prepares its directory")]
    std::fs::create_dir_all(&temp).unwrap();
    let mut command = kelvin();
    command.env("TMPDIR", &temp).args(["demo", "--records", "2000", "--seconds", "1", "--report"]);
    let text = stdout(command.arg(place.path("report.html")));
    for word in ["The same reads", "hotness off", "hotness on", "Where the data lies", "What it cost"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let report = String::from_utf8(place.read("report.html")).unwrap();
    assert!(report.matches("<svg").count() >= 5 && report.ends_with("</html>\n"));
    assert!(!report.contains("src=") && !report.contains("href="), "it needs nothing else");
    #[expect(clippy::disallowed_methods, reason = "a test looks at its directory")]
    let left = std::fs::read_dir(&temp).unwrap().count();
    assert_eq!(left, 0, "the demo leaves nothing behind");
}

#[test]
fn the_demo_as_json_counts_its_reads_and_keeps_to_its_capacity() {
    let place = Place::new();
    let mut command = kelvin();
    command.args(["demo", "--records", "1k", "--seconds", "1", "--json", "--report"]);
    let summary = stdout(command.arg(place.path("report.html")));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["records"], 1_000);
    for phase in ["hotness_off", "hotness_on"] {
        let reads = &summary[phase];
        assert!(reads["reads"].as_u64().unwrap() > 0, "{phase}: {summary}");
        let rate = reads["fast_hit_rate_at_end"].as_f64().unwrap();
        assert!(
            (0.0..=1.0).contains(&rate) && reads["traffic"]["slow"]["reads"].is_u64(),
            "{phase}: {summary}"
        );
    }
    assert_eq!(summary["hotness_off"]["promoted_bytes"], 0, "{summary}");
    assert!(summary["fast_used_bytes_max"].as_u64() <= summary["fast_capacity_bytes"].as_u64(), "{summary}");
}

#[test]
fn a_demo_without_records_is_refused() {
    kelvin().args(["demo", "--records", "0"]).assert().code(2);
}
