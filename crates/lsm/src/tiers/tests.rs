//! Tests of a tier's errors, health and counts, over memory and the failing device.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_base::{ErrorKind, ManualClock, Tier};
use kelvin_storage::fault::{EIO, ENODEV, ENOSPC, Effect, FaultStorage, Op, Rule};
use kelvin_storage::{AlignedBuf, Create, IoMode, MemoryStorage, Storage};

use super::*;

struct Rig {
    tier: TierHandle,
    device: Arc<FaultStorage>,
    clock: Arc<ManualClock>,
}

fn rig(tier: Tier) -> Rig {
    let device = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), 1));
    let clock = Arc::new(ManualClock::new(5_000));
    let handle =
        TierHandle::new(tier, "/disk", Arc::clone(&device) as Arc<dyn Storage>, Arc::clone(&clock) as _);
    handle.create_dir_all().unwrap();
    Rig { tier: handle, device, clock }
}

fn write(tier: &TierHandle, name: &str, bytes: &[u8], purpose: Purpose) {
    let mut file = tier.create(name, Create::new(IoMode::Direct), purpose).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

#[test]
fn every_operation_on_a_slow_tier_that_is_away_says_so_and_what_to_do() {
    for errno in [EIO, ENODEV, 6, 107, 110, 112, 116] {
        let Rig { tier, device, .. } = rig(Tier::Slow);
        write(&tier, "a", b"abc", Purpose::Flush);
        device.away(errno);
        let errors = [
            tier.create("b", Create::new(IoMode::Direct), Purpose::Flush).map(drop).unwrap_err(),
            tier.open("a", IoMode::Direct).map(drop).unwrap_err(),
            tier.sync_dir().unwrap_err(),
            tier.create_dir_all().unwrap_err(),
            tier.rename("a", "b").unwrap_err(),
            tier.remove_if_there("a").unwrap_err(),
            tier.list().map(drop).unwrap_err(),
            tier.file_len("a").map(drop).unwrap_err(),
            tier.exists("a").map(drop).unwrap_err(),
            tier.lock("LOCK").map(drop).unwrap_err(),
            tier.free_space().map(drop).unwrap_err(),
            tier.read_small("a", 10).map(drop).unwrap_err(),
            tier.replace_small("a", b"x").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::TierUnavailable, "{errno}: {error}");
            assert_eq!(error.on(), Some(Tier::Slow));
            assert!(error.is_retryable() && error.to_string().contains("nothing is lost"), "{error}");
        }
        assert!(!tier.health().available());
        device.back();
        assert_eq!(tier.read_small("a", 10).unwrap(), b"abc");
        assert!(tier.health().available());
    }
}

#[test]
fn the_same_device_error_on_the_fast_tier_is_an_io_error() {
    let Rig { tier, device, .. } = rig(Tier::Fast);
    device.away(EIO);
    let error = tier.list().unwrap_err();
    assert_eq!((error.kind(), error.on()), (ErrorKind::Io, Some(Tier::Fast)));
}

#[test]
fn full_read_only_and_forbidden_have_their_own_kind_and_advice() {
    for tier_kind in Tier::ALL {
        for (errno, kind, advice) in [
            (ENOSPC, ErrorKind::NoSpace, "free space on the disk of /disk"),
            (122, ErrorKind::NoSpace, "free space on the disk of /disk"),
            (30, ErrorKind::ReadOnly, "takes no writes"),
            (13, ErrorKind::Io, "let this user read and write /disk"),
        ] {
            let Rig { tier, device, .. } = rig(tier_kind);
            device.add(Rule::new(Op::Create, Effect::Error(errno)));
            let error = tier.create("a", Create::new(IoMode::Direct), Purpose::Flush).map(drop).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(advice), "{error}");
            assert_eq!(error.path(), Some(Path::new("/disk/a")));
            assert!(tier.health().available(), "the device did answer");
            assert_eq!(tier.health_report().errors, 1);
        }
    }
}

#[test]
fn a_missing_file_is_an_error_of_that_file_while_the_slow_disk_is_mounted() {
    let Rig { tier, .. } = rig(Tier::Slow);
    write(&tier, identity::FILE_NAME, b"x", Purpose::Upkeep);
    let error = tier.open("000007.tbl", IoMode::Direct).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the file is missing from /disk"), "{error}");
    assert!(tier.health().available());
}

#[test]
fn a_missing_file_with_the_identity_file_missing_too_is_an_unmounted_disk() {
    let Rig { tier, .. } = rig(Tier::Slow);
    let error = tier.open("000007.tbl", IoMode::Direct).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TierUnavailable);
    assert!(error.to_string().contains("not mounted"), "{error}");
    assert!(!tier.health().available());
}

#[test]
fn an_outage_is_reported_with_its_beginning_length_and_last_error() {
    let Rig { tier, device, clock } = rig(Tier::Slow);
    write(&tier, "a", b"abc", Purpose::Flush);
    let file = tier.open("a", IoMode::Direct).unwrap();
    clock.advance(Duration::from_secs(1));
    device.away(EIO);
    let mut buf = AlignedBuf::new();
    for _ in 0..2 {
        assert!(file.read_at(0, 3, &mut buf).is_err());
        clock.advance(Duration::from_secs(2));
    }
    let report = tier.health_report();
    assert_eq!((report.available, report.outages, report.errors), (false, 1, 2));
    assert_eq!((report.away_since_unix_ms, report.away_for), (Some(6_000), Some(Duration::from_secs(4))));
    assert!(report.last_error.unwrap().to_string().contains("cannot read the file (/disk/a)"));
    device.back();
    file.read_at(0, 3, &mut buf).unwrap();
    let report = tier.health_report();
    assert_eq!((report.available, report.outages, report.away_for), (true, 1, None));
}

#[test]
fn a_lock_that_is_held_is_busy_and_no_sign_of_trouble() {
    let Rig { tier, .. } = rig(Tier::Fast);
    let held = tier.lock("LOCK").unwrap();
    let error = tier.lock("LOCK").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("close it there first"), "{error}");
    assert_eq!(tier.health_report().errors, 0);
    drop(held);
    assert!(tier.lock("LOCK").is_ok());
}

#[test]
fn reads_count_by_what_the_thread_is_doing_and_writes_by_their_file() {
    let Rig { tier, .. } = rig(Tier::Fast);
    write(&tier, "a", &[7; 5000], Purpose::Compaction);
    let before = tier.io_stats();
    let file = tier.open("a", IoMode::Direct).unwrap();
    let mut buf = AlignedBuf::new();
    file.read_at(0, 100, &mut buf).unwrap();
    {
        let _scan = Purpose::Scan.enter();
        file.read_at(0, 1000, &mut buf).unwrap();
        {
            let _merge = Purpose::Compaction.enter();
            file.read_at(0, 10, &mut buf).unwrap();
        }
        file.read_at(0, 2000, &mut buf).unwrap();
    }
    file.read_at(0, 100, &mut buf).unwrap();
    let stats = tier.io_stats();
    let read = |purpose| (stats.of(purpose).reads, stats.of(purpose).read_bytes);
    assert_eq!(read(Purpose::Get), (2, 200));
    assert_eq!(read(Purpose::Scan), (2, 3000));
    assert_eq!(read(Purpose::Compaction), (1, 10));
    assert_eq!(before.of(Purpose::Compaction).written_bytes, 5000);
    assert_eq!((stats.total().reads, stats.total().written_bytes, before.syncs), (5, 5000, stats.syncs));
}

#[test]
fn a_small_file_is_bounded_and_replaced_whole() {
    let Rig { tier, device, .. } = rig(Tier::Fast);
    tier.replace_small("F", b"old").unwrap();
    assert_eq!(tier.read_small("F", 2).unwrap_err().kind(), ErrorKind::Corruption);
    let operations_of_one = {
        let before = device.operations();
        tier.replace_small("F", b"old").unwrap();
        device.operations() - before
    };
    for nth in 0..operations_of_one {
        device.fail_nth(nth, EIO);
        let outcome = tier.replace_small("F", b"new");
        device.clear();
        let holds = tier.read_small("F", 10).unwrap();
        assert!(holds == b"new" || (outcome.is_err() && holds == b"old"), "operation {nth}: {holds:?}");
        tier.replace_small("F", b"old").unwrap();
    }
    tier.replace_small("E", b"").unwrap();
    assert_eq!(tier.read_small("E", 10).unwrap(), b"");
}

#[test]
fn a_relative_directory_is_put_before_a_name_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    storage.create_dir_all(Path::new(".")).unwrap();
    let tier = TierHandle::new(Tier::Slow, "some/where", storage, Arc::new(ManualClock::new(0)));
    tier.create_dir_all().unwrap();
    tier.replace_small("a", b"abc").unwrap();
    assert_eq!(tier.read_small("a", 10).unwrap(), b"abc");
}
