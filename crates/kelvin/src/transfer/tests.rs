//! Round trips, every truncation, every flipped byte, and bad lines of each format.

use std::io::Cursor;

use kelvin_base::ErrorKind;
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { record_bytes_max: 1 << 20 };

fn options(header: Header) -> DecodeOptions {
    DecodeOptions { header, limits: LIMITS, now_ms: 1_000, ..DecodeOptions::default() }
}

fn encode(format: Format, encoding: Encoding, records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(format, &mut out, encoding);
    for record in records {
        encoder.write(record).unwrap();
    }
    encoder.finish().unwrap();
    out
}

fn decode(format: Format, bytes: &[u8], header: Header) -> Result<Vec<Record>> {
    let mut decoder = Decoder::new(format, Cursor::new(bytes), options(header));
    let (mut all, mut record) = (Vec::new(), Record::default());
    while decoder.next(&mut record)? {
        all.push(record.clone());
    }
    Ok(all)
}

fn record(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Record {
    Record { key: key.to_vec(), value: value.to_vec(), expiry_ms }
}

fn sample() -> Vec<Record> {
    vec![
        record(b"plain", b"text", None),
        record(b"with,comma\"quote", b"line\r\nbreak", Some(7)),
        record(&[0, 255, b'\\'], b"", Some(u64::MAX)),
        record("gr\u{f6}\u{df}e".as_bytes(), &[9; 300], None),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    let bytes =
        || prop_oneof![prop::collection::vec(any::<u8>(), 1..40), "[ -~]{1,20}".prop_map(String::into_bytes)];
    (bytes(), prop_oneof![Just(Vec::new()), bytes()], any::<Option<u64>>())
        .prop_map(|(key, value, expiry_ms)| Record { key, value, expiry_ms })
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(records in prop::collection::vec(any_record(), 0..30)) {
        for encoding in [Encoding::Escape, Encoding::Base64, Encoding::Hex] {
            let csv = encode(Format::Csv, encoding, &records);
            prop_assert_eq!(&decode(Format::Csv, &csv, Header::Detect).unwrap(), &records);
        }
        for encoding in Encoding::ALL {
            let json = encode(Format::JsonLines, encoding, &records);
            prop_assert_eq!(&decode(Format::JsonLines, &json, Header::Detect).unwrap(), &records);
        }
        let dump = encode(Format::Dump, Encoding::Text, &records);
        prop_assert_eq!(&decode(Format::Dump, &dump, Header::Detect).unwrap(), &records);
    }

    #[test]
    fn no_input_makes_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for format in Format::ALL {
            let _any_answer = decode(format, &bytes, Header::Detect);
        }
        let framed = [MAGIC.as_slice(), &[1, 0, 0, 0], &bytes].concat();
        prop_assert!(decode(Format::Dump, &framed, Header::Detect).is_err());
    }
}

#[test]
fn a_dump_cut_at_any_byte_is_refused() {
    let dump = encode(Format::Dump, Encoding::Text, &sample());
    for cut in 0..dump.len() {
        let error = decode(Format::Dump, &dump[..cut], Header::Detect).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "cut at {cut}: {error}");
        assert!(error.at().is_some(), "cut at {cut}: {error}");
    }
}

#[test]
fn a_dump_with_any_byte_flipped_is_refused() {
    let dump = encode(Format::Dump, Encoding::Text, &sample());
    for at in 0..dump.len() {
        let mut damaged = dump.clone();
        damaged[at] ^= 0x40;
        assert!(decode(Format::Dump, &damaged, Header::Detect).is_err(), "byte {at} flipped");
    }
}

#[test]
fn frames_that_change_places_are_refused() {
    let long: Vec<Record> = (0..4u8).map(|n| record(&[n], &vec![n; 70_000], None)).collect();
    let dump = encode(Format::Dump, Encoding::Text, &long);
    let frame = 16 + 9 + 1 + 70_000;
    let (first, second) = (12..12 + frame, 12 + frame..12 + 2 * frame);
    let mut swapped = dump[..12].to_vec();
    swapped.extend_from_slice(&dump[second.clone()]);
    swapped.extend_from_slice(&dump[first]);
    swapped.extend_from_slice(&dump[second.end..]);
    assert_eq!(swapped.len(), dump.len());
    assert!(decode(Format::Dump, &swapped, Header::Detect).is_err());
    assert_eq!(decode(Format::Dump, &dump, Header::Detect).unwrap(), long);
}

#[test]
fn text_cut_inside_a_line_is_refused_or_a_prefix_of_whole_lines() {
    for (format, encoding) in [(Format::JsonLines, Encoding::Text), (Format::JsonLines, Encoding::Hex)] {
        let text = encode(format, encoding, &sample());
        for cut in 0..text.len() {
            match decode(format, &text[..cut], Header::Detect) {
                Ok(records) => assert_eq!(records, sample()[..records.len()]),
                Err(error) => assert!(error.to_string().contains("line "), "cut at {cut}: {error}"),
            }
        }
    }
}

#[test]
fn csv_reads_any_column_order_and_no_header() {
    let rows = b"ttl_ms,value_hex,key\n,6162,k1\n500,,k2\n";
    let expected = [record(b"k1", b"ab", None), record(b"k2", b"", Some(1_500))];
    assert_eq!(decode(Format::Csv, rows, Header::Detect).unwrap(), expected);
    let bare = b"k1,\"a\nb\"\nk2,v,77\n";
    let expected = [record(b"k1", b"a\nb", None), record(b"k2", b"v", Some(77))];
    assert_eq!(decode(Format::Csv, bare, Header::Detect).unwrap(), expected);
    let named = b"key,value\n";
    assert_eq!(decode(Format::Csv, named, Header::Detect).unwrap(), []);
    assert_eq!(decode(Format::Csv, named, Header::Absent).unwrap(), [record(b"key", b"value", None)]);
}

#[test]
fn bad_lines_are_named() {
    let cases: [(Format, &str, &str); 12] = [
        (Format::Csv, "k,v\nonly-a-key\n", "line 2"),
        (Format::Csv, "k,v,1,2\n", "line 1: 4 cells"),
        (Format::Csv, "k,v,soon\n", "line 1: the expiry is no number"),
        (Format::Csv, "key_hex,value\nxyz,v\n", "line 2: key: "),
        (Format::Csv, "key,key_hex\n", "line 1: the header must name"),
        (Format::Csv, "k,v\n,v\n", "line 2: the key has a length"),
        (Format::JsonLines, "{\"key\":\"a\",\"value\":\"b\"}\n\n{", "line 3: "),
        (Format::JsonLines, "{\"key\":\"a\"}", "line 1: no value"),
        (Format::JsonLines, "{\"key\":\"a\",\"value\":\"b\",\"tll_ms\":5}", "line 1: unknown field `tll_ms`"),
        (
            Format::JsonLines,
            "{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"b\"}",
            "line 1: the key is given twice",
        ),
        (Format::JsonLines, "{\"key\":\"a\",\"value\":\"b\",\"ttl_ms\":5,\"expiry_ms\":5}", "both"),
        (Format::JsonLines, "{\"key\":\"a\",\"value\":{}}", "line 1: invalid type"),
    ];
    for (format, text, expected) in cases {
        let error = decode(format, text.as_bytes(), Header::Detect).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text:?}");
        assert!(error.to_string().contains(expected), "{text:?}: {error}");
    }
    assert!(
        decode(Format::Csv, b"id,name\n1,x\n", Header::Present).unwrap_err().to_string().contains("\"id\"")
    );
}

#[test]
fn an_endless_record_is_refused_before_it_is_held() {
    for (format, start) in [(Format::Csv, "k,\""), (Format::JsonLines, "{\"key\":\"")] {
        let endless = std::io::Read::chain(start.as_bytes(), std::io::repeat(b'x'));
        let mut decoder = Decoder::new(format, std::io::BufReader::new(endless), options(Header::Detect));
        let error = decoder.next(&mut Record::default()).unwrap_err();
        assert!(error.to_string().contains("longer than 1048576 bytes"), "{error}");
    }
}

#[test]
fn a_frame_that_claims_a_gigabyte_takes_no_memory() {
    let mut claim = [MAGIC.as_slice(), &[1, 0, 0, 0]].concat();
    claim.extend_from_slice(&0x1fff_ffffu32.to_le_bytes());
    claim.extend_from_slice(&[1; 40]);
    for limits in [LIMITS, Limits::default()] {
        let options = DecodeOptions { limits, ..DecodeOptions::default() };
        let mut decoder = Decoder::new(Format::Dump, claim.as_slice(), options);
        assert!(decoder.next(&mut Record::default()).is_err());
    }
}

#[test]
fn a_newer_dump_is_refused_by_name() {
    let mut dump = encode(Format::Dump, Encoding::Text, &sample());
    dump[8] = 2;
    let error = decode(Format::Dump, &dump, Header::Detect).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("expected at most 1, found 2"), "{error}");
}

#[test]
fn formats_are_known_by_extension_and_by_their_first_bytes() {
    assert_eq!(Format::of_path(Path::new("a/b.JSONL")), Some(Format::JsonLines));
    assert_eq!(Format::of_path(Path::new("b.csv")), Some(Format::Csv));
    assert_eq!(Format::of_path(Path::new("b.parquet")), None);
    assert_eq!(Format::of_start(b"KELVDUMP\x01"), Format::Dump);
    assert_eq!(Format::of_start(b"\n {\"key\""), Format::JsonLines);
    assert_eq!(Format::of_start(b"key,value"), Format::Csv);
    assert_eq!(Format::of_start(b""), Format::Csv);
}

#[test]
fn plain_text_csv_refuses_bytes_it_cannot_write() {
    let mut encoder = Encoder::new(Format::Csv, Vec::new(), Encoding::Text);
    let error = encoder.write(&record(&[255], b"v", None)).unwrap_err();
    assert!(error.to_string().contains("--encoding"), "{error}");
}
