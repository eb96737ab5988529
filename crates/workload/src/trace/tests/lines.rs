//! Reading: what a line says, what is wrong with one, and files that are cut off, compressed, or full of garbage.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::trace::request::{TRACE_KEY_BYTES_MAX, TRACE_VALUE_BYTES_MAX};

fn read(files: &TraceFiles) -> kelvin_base::Result<Vec<Line>> {
    let (mut reader, mut lines) = (files.read(), Vec::new());
    while let Some(request) = reader.next_request()? {
        lines.push(Line::of(&request));
    }
    Ok(lines)
}

fn read_bytes(bytes: &[u8], malformed: MalformedLines) -> kelvin_base::Result<Vec<Line>> {
    let dir = tempfile::tempdir().unwrap();
    read(&TraceFiles::new(&[file(dir.path(), "t.csv", bytes)], malformed).unwrap())
}

#[test]
fn a_line_as_published_is_read_field_by_field() {
    let lines =
        read_bytes(b"17,nz:u:eeW511W3,11,213,4,gets,0\r\n\n17,a,1,0,5,add,3600", MalformedLines::Refuse);
    let [first, second] = &lines.unwrap()[..] else { panic!("two lines") };
    assert_eq!(
        *first,
        Line { timestamp: 17, key: b"nz:u:eeW511W3".to_vec(), value_size: 213, kind: Kind::Gets, ttl: 0 }
    );
    assert_eq!((second.value_size, second.kind, second.ttl), (0, Kind::Add, 3600));
}

#[test]
fn what_is_written_is_read_back_plain_and_compressed_in_one_file_and_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let lines = random_lines(3, 3_000, 50);
    assert!(Kind::ALL.iter().all(|kind| lines.iter().any(|line| line.kind == *kind)));
    assert!(lines.iter().any(|line| line.key.contains(&b',')));
    let (half, rest) = lines.split_at(1_000);
    let plain = file(dir.path(), "a", &text(half));
    let header = b"timestamp,key,key size,value size,client,op,ttl\n";
    let with_header = file(dir.path(), "b", &[&header[..], &text(rest)].concat());
    let compressed = zstd::encode_all(&text(&lines)[..], 3).unwrap();
    let zstd = file(dir.path(), "c.zst", &compressed);
    // As programs write that compress with several threads: frames one behind the other, and one to be passed over.
    let passed_over = b"\x50\x2A\x4D\x18\x04\0\0\0size".to_vec();
    let frames: Vec<Vec<u8>> =
        [half, rest].iter().map(|part| zstd::encode_all(&text(part)[..], 1).unwrap()).collect();
    let several = file(dir.path(), "d.zst", &[vec![passed_over], frames].concat().concat());
    for paths in [vec![plain, with_header], vec![zstd], vec![several]] {
        let files = TraceFiles::new(&paths, MalformedLines::Refuse).unwrap();
        assert_eq!(read(&files).unwrap(), lines);
        assert_eq!(read(&files).unwrap(), lines, "and again");
    }
}

#[test]
fn a_malformed_line_is_refused_with_its_place_and_what_to_do_and_left_out_if_wanted() {
    let (good, other) = (&b"1,key,3,10,4,get,0\n"[..], &b"2,other,5,20,4,set,60\n"[..]);
    let key = "k".repeat(TRACE_KEY_BYTES_MAX + 1);
    let value = TRACE_VALUE_BYTES_MAX + 1;
    for (line, field) in [
        ("1,key,3,10,4,get".to_string(), "ttl"),
        ("1,key,3,10".to_string(), "client"),
        ("hello".to_string(), "key"),
        ("1,key,3,10,4,get,0,9".to_string(), "key"),
        ("1,key,more,3,10,4,get,0".to_string(), "key"),
        ("1,,0,10,4,get,0".to_string(), "key"),
        (format!("1,{key},3,10,4,get,0"), "key"),
        ("x,key,3,10,4,get,0".to_string(), "timestamp"),
        ("-1,key,3,10,4,get,0".to_string(), "timestamp"),
        ("1,key,3.5,10,4,get,0".to_string(), "key size"),
        ("1,key,3,,4,get,0".to_string(), "value size"),
        (format!("1,key,3,{value},4,get,0"), "value size"),
        ("1,key,3,10,4,fetch,0".to_string(), "operation"),
        ("1,key,3,10,4,GET,0".to_string(), "operation"),
        ("1,key,3,10,4,get,99999999999".to_string(), "ttl"),
        ("1,key,3,10,4,get,".to_string(), "ttl"),
        ("99999999999999999999999,key,3,10,4,get,0".to_string(), "timestamp"),
        ("y".repeat(3 * TRACE_KEY_BYTES_MAX), "its length"),
    ] {
        let bytes = [good, line.as_bytes(), b"\n", other].concat();
        let error = read_bytes(&bytes, MalformedLines::Refuse).unwrap_err();
        assert!(error.what().contains("line 2 ") && error.what().ends_with(field), "{line:.60}: {error}");
        assert!(error.path().is_some_and(|path| path.ends_with("t.csv")));
        assert!(error.advised().is_some_and(|advice| advice.contains("--skip-malformed")));
        assert!(error.expected_found().is_some_and(|(_, found)| found.len() < 200), "{error}");
        assert_eq!(read_bytes(&bytes, MalformedLines::Skip).unwrap().len(), 2, "{line:.60}");
    }
}

#[test]
fn lines_left_out_are_counted_and_the_first_one_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "t.csv", b"bad\n1,key,3,10,4,get,0\nworse\n\nworst");
    let files = TraceFiles::new(&[path], MalformedLines::Skip).unwrap();
    let mut reader = files.read();
    while reader.next_request().unwrap().is_some() {}
    assert_eq!(reader.skipped().count, 3);
    assert!(reader.skipped().first.as_ref().unwrap().what().contains("line 1 "));
}

#[test]
fn compressed_data_that_is_cut_off_or_changed_is_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    let whole = zstd::encode_all(&text(&random_lines(1, 5_000, 50))[..], 3).unwrap();
    for (name, bytes) in [
        ("cut.zst", whole[..whole.len() / 2].to_vec()),
        ("head.zst", whole[..5].to_vec()),
        ("changed.zst", {
            let mut bytes = whole.clone();
            let len = bytes.len();
            bytes[len / 2..].iter_mut().for_each(|byte| *byte = !*byte);
            bytes
        }),
    ] {
        for malformed in [MalformedLines::Refuse, MalformedLines::Skip] {
            let files = TraceFiles::new(&[file(dir.path(), name, &bytes)], malformed).unwrap();
            // Changed bytes may also come out as lines that are none.
            let Err(error) = read(&files) else { panic!("{name} was read to its end") };
            let is_line = error.what().contains("is no request");
            assert!(is_line || error.kind() == kelvin_base::ErrorKind::Corruption, "{name}: {error}");
            assert!(!is_line || name == "changed.zst", "{name}: {error}");
            assert!(error.path().is_some_and(|path| path.ends_with(name)));
        }
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |paths: &[PathBuf]| TraceFiles::new(paths, MalformedLines::Skip).unwrap_err().to_string();
    assert!(refused(&[dir.path().to_path_buf()]).contains("must be a file"));
    assert!(refused(&[dir.path().join("nowhere")]).contains("opening the trace"));
    assert!(refused(&[]).contains("at least one file"));
}

/// Garbage between good lines, whole lines of it and lines made of pieces of good ones: never a panic, never a good
/// line lost, and what is taken for a request is one.
#[test]
fn garbage_is_told_from_requests() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    for round in 0..200u64 {
        let good = random_lines(round, 20, 9);
        let (mut bytes, mut garbage_lines) = (Vec::new(), 0);
        for line in &good {
            text(std::slice::from_ref(line)).iter().for_each(|byte| bytes.push(*byte));
            let mut garbage = vec![0; rng.random_range(0..80)];
            rng.fill_bytes(&mut garbage);
            if rng.random_bool(0.5) {
                // A good line with a few bytes changed, so that most of it still looks right.
                garbage = text(std::slice::from_ref(line));
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(0..garbage.len());
                    garbage[at] = b",09-gx\n\xff"[rng.random_range(0..8)];
                }
            }
            garbage.retain(|byte| *byte != b'\r');
            garbage_lines += garbage.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
            bytes.extend_from_slice(&garbage);
            bytes.push(b'\n');
        }
        let dir = tempfile::tempdir().unwrap();
        let name = if round % 2 == 0 { "t.csv" } else { "t.zst" };
        let stored = if round % 2 == 0 { bytes.clone() } else { zstd::encode_all(&bytes[..], 1).unwrap() };
        let files = TraceFiles::new(&[file(dir.path(), name, &stored)], MalformedLines::Skip).unwrap();
        let found = read(&files).unwrap();
        let mut rest = found.iter();
        assert!(good.iter().all(|line| rest.any(|one| one == line)), "round {round}: a good line is missing");
        assert!(found.len() <= good.len() + garbage_lines);
        // What was found and is written again means the same.
        let again = read_bytes(&text(&found), MalformedLines::Refuse).unwrap();
        assert_eq!(again, found, "round {round}");
    }
}
