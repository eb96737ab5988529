//! The limit on memory is one on what is resident (promise 11): a benchmark in a process of its own, with more data
//! than memory, is told by the system how much it took.

use serde_json::Value;

use crate::common::{kelvin, stdout};

const MIB: u64 = 1 << 20;

fn measure(system: &str, workload: &str, keys: &str, memory: u64) -> Value {
    let text = stdout(
        kelvin()
            .args(["bench", "--system", system, "--workload", workload, "--keys", keys])
            .args(["--records", "60k", "--ops", "40k", "--threads", "2"])
            .args(["--memory", &memory.to_string(), "--fast-capacity", "24MB", "--json", "-"]),
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_process_with_a_store_never_has_more_than_a_tenth_over_memory_resident() {
    for (system, workload, keys, mib) in [
        ("kelvin", "RO", "uniform", 48),
        ("fast-only", "UH", "uniform", 48),
        // Hot records move, and each compaction takes memory.
        ("kelvin", "UH", "hotspot:5", 32),
    ] {
        let memory = mib * MIB;
        let report = measure(system, workload, keys, memory);
        let (peak, parts) = (report["rss_peak_bytes"].as_u64().unwrap(), &report["memory_bytes"]);
        assert!(peak <= memory + memory / 10, "{system} {workload} {mib}: {peak}, {parts}");
        assert_eq!(report["rss_over_limit_bytes"], 0);
        let all = parts["all_max"].as_u64().unwrap();
        assert!(
            all > memory / 4 && all <= memory,
            "{system} {workload} {mib}: memory was put to use: {parts}"
        );
        let cache = parts["cache"].as_u64().unwrap();
        assert!(mib < 48 || cache > memory / 4, "{system} {workload}: the cache has filled: {parts}");
    }
}
