//! A range of keys as the command line gives it: `--from`, `--to`, `--prefix`.

use bytes::Bytes;
use kelvin::IterOptions;
use kelvin::transfer::Encoding;

use crate::args::data::RangeArgs;
use crate::exit::Failure;
use crate::store;

/// Bounds of keys; `None` is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first key of the range.
    pub lower: Option<Bytes>,
    /// The first key behind it.
    pub upper: Option<Bytes>,
}

impl Range {
    /// The range that `args` name, keys written in `encoding`.
    ///
    /// # Errors
    /// `InvalidArgument` for keys that cannot be read.
    pub fn parse(args: &RangeArgs, encoding: Encoding) -> Result<Self, Failure> {
        let read = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| store::decode_as(encoding, name, text).map(Bytes::from)).transpose()
        };
        if let Some(prefix) = read("prefix", &args.prefix)? {
            return Ok(Self { upper: after_prefix(&prefix), lower: Some(prefix) });
        }
        Ok(Self { lower: read("from", &args.from)?, upper: read("to", &args.to)? })
    }

    /// As options of an iterator.
    pub fn into_options(self) -> IterOptions {
        IterOptions { lower: self.lower, upper: self.upper, ..IterOptions::default() }
    }
}

/// The first key behind all keys that begin with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_grows() {
        assert_eq!(after_prefix(b"ab").as_deref(), Some(b"ac".as_slice()));
        assert_eq!(after_prefix(&[b'a', 0xff, 0xff]).as_deref(), Some(b"b".as_slice()));
        assert_eq!(after_prefix(&[0xff]), None);
        assert_eq!(after_prefix(b""), None);
    }
}
