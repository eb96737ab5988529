//! Tests of the failing device: each effect, each way to choose operations.

use super::*;

const DISK: &str = "a.tbl";

fn storage() -> FaultStorage {
    FaultStorage::new(Arc::new(crate::MemoryStorage::new()), 42)
}

fn write(storage: &FaultStorage, name: &str, bytes: &[u8], reuse: bool) -> io::Result<()> {
    let how = Create { reuse, ..Create::new(IoMode::Direct) };
    let mut file = storage.create(Path::new(name), how)?;
    file.append(bytes)?;
    file.sync()
}

fn read(storage: &FaultStorage, name: &str) -> io::Result<Vec<u8>> {
    let file = storage.open(Path::new(name), IoMode::Direct)?;
    let len = usize::try_from(file.len()?).unwrap();
    let mut buf = AlignedBuf::new();
    let range = file.read_at(0, len, &mut buf)?;
    Ok(buf.as_slice()[range].to_vec())
}

#[test]
fn each_operation_of_a_scenario_can_fail_in_turn_and_the_loop_ends() {
    let mut failed = 0;
    for n in 0.. {
        let storage = storage();
        storage.fail_nth(n, ENOSPC);
        let outcome = write(&storage, DISK, b"abc", false).and_then(|()| read(&storage, DISK).map(drop));
        if storage.injected() == 0 {
            outcome.unwrap();
            break;
        }
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(ENOSPC));
        assert_eq!(storage.operations(), n + 1);
        failed += 1;
    }
    assert_eq!(failed, 6, "create, append, sync, open, len, read");
}

#[test]
fn a_device_that_is_away_fails_everything_and_comes_back() {
    let storage = storage();
    write(&storage, DISK, b"abc", false).unwrap();
    storage.away(ENODEV);
    assert_eq!(read(&storage, DISK).unwrap_err().raw_os_error(), Some(ENODEV));
    assert!(storage.exists(Path::new(DISK)).is_err());
    assert!(storage.free_space(Path::new("")).is_err());
    storage.back();
    assert_eq!(read(&storage, DISK).unwrap(), b"abc");
    storage.fail_from(1, EIO);
    assert!(storage.exists(Path::new(DISK)).is_ok());
    assert!(storage.exists(Path::new(DISK)).is_err() && storage.exists(Path::new(DISK)).is_err());
}

#[test]
fn rules_choose_by_kind_name_and_count() {
    let storage = storage();
    storage.add(Rule::new(Op::Create, Effect::Error(EIO)).on("*.log").after(1).times(1));
    let outcomes: Vec<bool> = ["1.tbl", "1.log", "2.log", "3.log"]
        .iter()
        .map(|name| write(&storage, name, b"x", false).is_ok())
        .collect();
    assert_eq!(outcomes, [true, true, false, true]);
    assert_eq!((storage.injected(), storage.operations_of(Op::Create)), (1, 4));
}

#[test]
fn a_watcher_is_told_of_the_operations_that_fail_and_may_ask_the_device_itself() {
    let storage = Arc::new(storage());
    let told = Arc::new(Mutex::new(Vec::new()));
    let (asked, kept) = (Arc::downgrade(&storage), Arc::clone(&told));
    storage.watch(Arc::new(move |op| kept.lock().push((op, asked.upgrade().unwrap().operations()))));
    storage.add(Rule::new(Op::Sync, Effect::Error(EIO)));
    assert!(write(&storage, DISK, b"abc", false).is_err());
    storage.clear();
    write(&storage, "b", b"abc", false).unwrap();
    assert_eq!(*told.lock(), [(Op::Sync, 3)]);
}

#[test]
fn random_faults_follow_the_seed() {
    let run = || {
        let storage = storage();
        storage.add(Rule::any(Effect::Error(EIO)).chance(300_000));
        (0..100).map(|_| storage.exists(Path::new("x")).is_ok()).collect::<Vec<bool>>()
    };
    let outcomes = run();
    assert_eq!(outcomes, run());
    assert!((10..60).contains(&outcomes.iter().filter(|&&ok| !ok).count()));
}

#[test]
fn a_flipped_bit_changes_exactly_one_bit_read_or_written() {
    for op in [Op::Read, Op::Append] {
        let storage = storage();
        storage.add(Rule::new(op, Effect::FlipBit));
        write(&storage, DISK, &[0; 100], false).unwrap();
        let ones: u32 = read(&storage, DISK).unwrap().iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1);
    }
}

#[test]
fn a_torn_or_short_append_leaves_a_proper_prefix_and_an_error() {
    for (effect, errno) in [(Effect::TornWrite, EIO), (Effect::ShortWrite, ENOSPC)] {
        let storage = storage();
        storage.add(Rule::new(Op::Append, effect).times(1));
        let data: Vec<u8> = (0..100).collect();
        let mut file = storage.create(Path::new(DISK), Create::new(IoMode::Direct)).unwrap();
        assert_eq!(file.append(&data).unwrap_err().raw_os_error(), Some(errno));
        file.flush().unwrap();
        let kept = read(&storage, DISK).unwrap();
        assert!(kept.len() < 100 && data.starts_with(&kept));
    }
}

#[test]
fn a_misdirected_read_answers_other_bytes_of_the_file() {
    let storage = storage();
    let data: Vec<u8> = (0..12_288_u32).map(|i| u8::try_from(i / 4096).unwrap()).collect();
    write(&storage, DISK, &data, false).unwrap();
    storage.add(Rule::new(Op::Read, Effect::MisdirectedRead));
    let file = storage.open(Path::new(DISK), IoMode::Direct).unwrap();
    let mut buf = AlignedBuf::new();
    let range = file.read_at(4096, 4096, &mut buf).unwrap();
    assert_ne!(&buf.as_slice()[range], &data[4096..8192]);
}

#[test]
fn a_stale_read_answers_what_was_there_before() {
    let storage = storage();
    storage.add(Rule::new(Op::Read, Effect::StaleRead));
    write(&storage, DISK, b"old", false).unwrap();
    assert_eq!(read(&storage, DISK).unwrap(), [0; 3], "nothing was there before");
    write(&storage, DISK, b"newer", true).unwrap();
    assert_eq!(read(&storage, DISK).unwrap(), b"old\0\0");
    write(&storage, "b", b"third", false).unwrap();
    storage.rename(Path::new("b"), Path::new(DISK)).unwrap();
    assert_eq!(read(&storage, DISK).unwrap(), b"newer");
}

#[test]
fn a_stalled_operation_goes_on_when_released_or_after_its_time() {
    let storage = storage();
    let clock = Arc::new(kelvin_base::ManualClock::new(0));
    storage.add(Rule::new(Op::Len, Effect::StallFor(std::time::Duration::from_secs(30), clock.clone())));
    storage.add(Rule::new(Op::Exists, Effect::Stall));
    assert!(storage.file_len(Path::new("x")).is_err());
    assert_eq!(kelvin_base::Clock::now(&*clock).as_secs(), 30);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| storage.exists(Path::new("x")));
        while storage.stalled() == 0 {
            std::thread::yield_now();
        }
        storage.release();
        assert!(!waiting.join().unwrap().unwrap());
    });
}
