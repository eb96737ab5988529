//! fjall as a subject: everything on the fast disk.
//!
//! Sizes of memtables, blocks and tables, filter bits and background threads are those that Kelvin derives from the same
//! options; what fjall cannot be given stands in the crate `kelvin-peer-fjall`. Tests stand below.

use kelvin_base::{OrderedStore, Result, SystemClock};
use kelvin_peer_fjall::{MEMTABLES_MAX, Peer, Settings};

use crate::options::BenchOptions;
use crate::peer::Same;
use crate::subject::{ByteCounts, Counters, Subject};

fn settings(options: &BenchOptions) -> Result<Settings> {
    let same = Same::of(options)?;
    let config = &same.config;
    Ok(Settings {
        dir: options.fast_dir(),
        memtable_bytes: config.memtable_bytes,
        cache_bytes: same.cache_bytes(options, MEMTABLES_MAX * config.memtable_bytes),
        block_bytes: config.block_bytes[0],
        filter_bits_per_key: config.filter_bits_per_key,
        table_bytes: config.table_bytes,
        level0_tables: u8::try_from(config.level0_compact_at).unwrap_or(u8::MAX),
        level_ratio: u16::try_from(config.level_ratio).map_or(f32::MAX, f32::from),
        background_threads: config.compactions_max + config.flushes_max,
    })
}

/// Opens fjall for these options.
pub(crate) fn open(options: &BenchOptions) -> Result<Box<dyn Subject>> {
    Ok(Box::new(FjallSubject { peer: Peer::open(&settings(options)?)? }))
}

struct FjallSubject {
    peer: Peer,
}

impl Subject for FjallSubject {
    fn store(&self) -> &dyn OrderedStore {
        &self.peer
    }

    fn counters(&self) -> Counters {
        // What the process moved; of its own fjall counts nothing.
        let device = kelvin_base::process::device_bytes();
        Counters {
            slow_hits: Some(0),
            bytes: ByteCounts {
                fast_read: device.map(|bytes| bytes.0),
                fast_written: device.map(|bytes| bytes.1),
                slow_read: Some(0),
                slow_written: Some(0),
                ..ByteCounts::default()
            },
            sizes: vec![("peer.memtable_bytes".to_string(), self.peer.memtable_bytes())],
            ..Counters::default()
        }
    }

    fn settle(&self) -> Result<()> {
        self.peer.settle(&SystemClock::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::System;
    use crate::runner::{NoProgress, run};

    fn options(dir: &std::path::Path) -> BenchOptions {
        let mut options = BenchOptions::new(System::Fjall, dir.join("fast"));
        options.memory = 8 << 20;
        options.records = 10_000;
        options.ops = Some(5_000);
        options.threads = 2;
        options
    }

    #[test]
    fn fjall_runs_every_kind_of_operation_and_its_store_can_be_used_again() {
        for workload in ["RW", "E", "F"] {
            let dir = tempfile::tempdir().unwrap();
            let mut options = options(dir.path());
            options.workload = workload.parse().unwrap();
            let report = run(&options, &mut NoProgress).unwrap();
            assert_eq!((report.ops, report.slow_used_bytes), (5_000, 0), "{workload}");
            assert!(report.load.is_some() && report.peaks.fast_bytes > 10 << 20, "{:?}", report.peaks);
            options.reuse = true;
            assert!(run(&options, &mut NoProgress).unwrap().load.is_none());
        }
    }

    #[test]
    fn memory_is_shared_out_and_not_exceeded() {
        let mut options = BenchOptions::new(System::Fjall, "x");
        options.records = 1_100_000;
        let settings = settings(&options).unwrap();
        let taken = settings.memtable_bytes * MEMTABLES_MAX + settings.cache_bytes;
        assert!(taken < 64 << 20 && settings.cache_bytes > 24 << 20, "{settings:?}");
    }
}
