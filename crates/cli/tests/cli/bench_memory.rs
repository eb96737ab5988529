//! The limit on memory is one on what is resident (promise 11): a benchmark in a process of its own, with more data
//! than memory, is told by the system how much it took.

use serde_json::Value;

use crate::common::{kelvin, stdout};

const MEMORY: u64 = 48 << 20;

fn measure(system: &str, workload: &str) -> Value {
    let text = stdout(
        kelvin()
            .args(["bench", "--system", system, "--workload", workload, "--keys", "uniform"])
            .args(["--records", "60k", "--ops", "40k", "--threads", "2"])
            .args(["--memory", "48MiB", "--fast-capacity", "24MB", "--json", "-"]),
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_process_with_a_store_never_has_more_than_a_tenth_over_memory_resident() {
    for (system, workload) in [("kelvin", "RO"), ("fast-only", "UH")] {
        let report = measure(system, workload);
        let peak = report["rss_peak_bytes"].as_u64().unwrap();
        assert!(peak <= MEMORY + MEMORY / 10, "{system} {workload}: {peak}, {}", report["memory_bytes"]);
        assert_eq!(report["rss_over_limit_bytes"], 0);
        let cache = report["memory_bytes"]["cache"].as_u64().unwrap();
        assert!(cache > MEMORY / 4, "{system} {workload}: the cache has filled: {}", report["memory_bytes"]);
    }
}
