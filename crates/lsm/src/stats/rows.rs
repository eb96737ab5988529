//! The figures of [`Stats`] by name, for the command line, JSON and metrics. Tests: `tests/trust`, `crates/cli/tests`.

use super::Stats;

/// A figure's name, and the figure.
type Row = (String, u64);

fn put(rows: &mut Vec<Row>, named: &[(&str, u64)]) {
    rows.extend(named.iter().map(|&(name, value)| (name.to_string(), value)));
}

impl Stats {
    /// Every number with its name, in the order of printing. Lists are spelt out, names joined by a dot.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        self.put_reads(&mut rows);
        self.put_work(&mut rows);
        for (list, values) in [
            ("delayed_us", &self.delayed_us),
            ("stopped_us", &self.stopped_us),
            ("memory_bytes", &self.memory),
            ("background_cpu_us", &self.background_cpu_us),
            ("promotion", &self.promotion),
        ] {
            rows.extend(values.iter().map(|(name, value)| (format!("{list}.{name}"), *value)));
        }
        if let Some(one) = &self.hotness {
            let figures = one.counts().into_iter().chain(one.sizes());
            rows.extend(figures.map(|(name, value)| (format!("ralt.{name}"), value)));
        }
        for (name, tiers) in [
            ("read_ios", self.read_ios),
            ("read_bytes", self.read_bytes),
            ("compaction_read_bytes", self.compaction_read_bytes),
            ("compaction_written_bytes", self.compaction_written_bytes),
            ("device_reads", self.device_reads),
            ("device_read_bytes", self.device_read_bytes),
            ("device_written_bytes", self.device_written_bytes),
            ("used_bytes", self.used_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("used_bytes_max", self.used_bytes_max),
        ] {
            rows.push((format!("{name}.fast"), tiers[0]));
            rows.push((format!("{name}.slow"), tiers[1]));
        }
        for (purpose, tiers) in &self.io {
            let name = purpose.name();
            for (tier, count) in ["fast", "slow"].into_iter().zip(tiers) {
                rows.push((format!("io.{name}.read_bytes.{tier}"), count.read_bytes));
                rows.push((format!("io.{name}.written_bytes.{tier}"), count.written_bytes));
            }
        }
        rows
    }

    fn put_reads(&self, rows: &mut Vec<Row>) {
        put(
            rows,
            &[
                ("gets", self.gets),
                ("gets_memtable", self.gets_memtable),
                ("gets_promotion", self.gets_promotion),
            ],
        );
        let levels = self.gets_level.iter().enumerate();
        rows.extend(levels.map(|(level, gets)| (format!("gets_level.{level}"), *gets)));
        put(
            rows,
            &[
                ("gets_hot", self.gets_hot),
                ("gets_absent", self.gets_absent),
                ("gets_fast", self.gets_fast),
                ("gets_slow", self.gets_slow),
                ("cache_hits", self.cache_hits),
                ("cache_misses", self.cache_misses),
                ("iterators", self.iterators),
                ("iterators_slow", self.iterators_slow),
            ],
        );
    }

    fn put_work(&self, rows: &mut Vec<Row>) {
        put(
            rows,
            &[
                ("writes", self.writes),
                ("write_groups", self.write_groups),
                ("write_bytes", self.write_bytes),
                ("wal_syncs", self.wal_syncs),
                ("wal_bytes", self.wal_bytes),
                ("conflicts", self.conflicts),
                ("flushes", self.flushes),
                ("flushed_bytes", self.flushed_bytes),
                ("compactions", self.compactions),
                ("trivial_moves", self.trivial_moves),
                ("boundary_compactions", self.boundary.compactions),
                ("retained_bytes", self.boundary.retained_bytes),
                ("guarded_bytes", self.boundary.guarded_bytes),
                ("lifted_bytes", self.boundary.lifted_bytes),
                ("promoted_flush_bytes", self.boundary.flushed_bytes),
                ("promoted_compaction_bytes", self.boundary.promoted_bytes),
                ("not_hot_bytes", self.boundary.not_hot_bytes),
                ("damaged_tables", self.boundary.damaged_tables),
                ("hot_level.runs", self.hot_level.runs),
                ("hot_level.bytes", self.hot_level.bytes),
                ("hot_level.records", self.hot_level.records),
                ("background_failures", self.background_failures),
                ("events", self.events),
                ("events_lost", self.events_lost),
                ("snapshots", self.snapshots),
                ("sequence", self.sequence),
                ("entries", self.entries),
                ("memory_limit_bytes", self.memory_limit_bytes),
                ("memory_used_bytes_max", self.memory_used_bytes_max),
                ("resident_bytes", self.resident_bytes),
                ("resident_bytes_max", self.resident_bytes_max),
            ],
        );
    }
}
