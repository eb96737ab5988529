//! Target of the formats that records are loaded from and dumped to.
//!
//! What is accepted is written in the same format and must read the same. Tests: `tests/corpus.rs`.

use kelvin::transfer::{DecodeOptions, Decoder, Encoder, Encoding, Format, Header, Limits, MAGIC, Record};
use kelvin_base::coding::{get_bytes, get_u32};
use kelvin_base::hash::hash64_seeded;

/// Most records read of one input.
const RECORDS_MAX: usize = 4096;

/// The first byte chooses format, header and encoding; the rest is the input.
pub(crate) fn transfer(data: &[u8]) -> bool {
    let Some((&choice, input)) = data.split_first() else { return false };
    for encoding in Encoding::ALL {
        if let Some(text) = encoding.encode(input) {
            assert_eq!(encoding.decode(text.as_bytes()).as_deref(), Ok(input), "{encoding:?}");
        }
        drop(encoding.decode(input));
    }
    let encoding = Encoding::ALL[usize::from(choice >> 2 & 3)];
    let header = [Header::Detect, Header::Present, Header::Absent][usize::from(choice >> 4) % 3];
    let limits = Limits { record_bytes_max: 1 << 16 };
    let options = DecodeOptions { header, encoding, limits, now_ms: 1_000_000 };
    let signed;
    let (format, input) = match choice & 3 {
        0 => (Format::Csv, input),
        1 => (Format::JsonLines, input),
        2 => (Format::Dump, input),
        _ => {
            signed = sign_dump(input);
            (Format::Dump, &*signed)
        }
    };
    let Some(records) = read(format, input, options) else { return false };
    let mut written = Vec::new();
    let mut encoder = Encoder::new(format, &mut written, Encoding::Escape);
    for record in &records {
        encoder.write(record).expect("memory takes a record");
    }
    encoder.finish().expect("memory takes the end");
    let again = read(format, &written, DecodeOptions::default());
    assert_eq!(again.as_ref(), Some(&records), "{}", String::from_utf8_lossy(&written));
    true
}

fn read(format: Format, input: &[u8], options: DecodeOptions) -> Option<Vec<Record>> {
    let mut decoder = Decoder::new(format, input, options);
    let (mut records, mut record) = (Vec::new(), Record::default());
    while decoder.next(&mut record).ok()? {
        records.push(record.clone());
        if records.len() > RECORDS_MAX {
            return None;
        }
    }
    Some(records)
}

/// A dump of frames under good checksums (docs/formats/dump.md): for each its count of records, then its payload
/// behind its length.
pub(crate) fn sign_dump(mut input: &[u8]) -> Vec<u8> {
    let mut out = [&MAGIC[..], &1_u32.to_le_bytes()].concat();
    let mut frame = 0_u64;
    while let (Some(records), Some(payload)) = (get_u32(&mut input), get_bytes(&mut input)) {
        let seed = frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(records);
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&records.to_le_bytes());
        out.extend_from_slice(&hash64_seeded(seed, payload).to_le_bytes());
        out.extend_from_slice(payload);
        frame += 1;
    }
    out
}
