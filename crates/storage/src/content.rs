//! Bytes of an in-memory file: pages shared between copies, copied when written, and kept short where most of them is zero.
//!
//! Invariant: `pages.len() == len.div_ceil(PAGE)`; bytes of the last page at or after `len` are zero.
//! A clone costs one reference count per page, which is what makes crash images cheap. A page that a write has come to the end of is packed
//! if that halves it: in a simulation values are zeros, and a hundred gigabytes of them are a few.

use std::sync::Arc;

const PAGE: usize = 4096;
/// Zeros are left out eight at a time.
const WORD: usize = 8;
/// A stretch of a packed page: words of zeros, then words as they are, counted in two bytes each.
const HEAD: usize = 4;

#[derive(Clone, Debug)]
enum Page {
    Whole(Arc<[u8; PAGE]>),
    /// Stretches: [`HEAD`], and the words that are no zeros.
    Packed(Arc<[u8]>),
}

impl Page {
    fn zeros() -> Self {
        Self::Packed(Arc::default())
    }

    /// The stretches of a packed page: where the words as they are begin, and these.
    fn stretches(mut packed: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (head, rest) = packed.split_at_checked(HEAD)?;
            let count = |of: usize| usize::from(u16::from_le_bytes([head[of], head[of + 1]])) * WORD;
            let (zeros, len) = (count(0), count(2));
            let (bytes, after) = rest.split_at_checked(len)?;
            let start = at + zeros;
            (at, packed) = (start + len, after);
            Some((start, bytes))
        })
    }

    /// All of its bytes.
    fn into_whole(self) -> Arc<[u8; PAGE]> {
        match self {
            Self::Whole(whole) => whole,
            Self::Packed(packed) => {
                let mut whole = [0; PAGE];
                for (start, bytes) in Self::stretches(&packed) {
                    whole[start..start + bytes.len()].copy_from_slice(bytes);
                }
                Arc::new(whole)
            }
        }
    }

    /// A page of these bytes.
    fn of(bytes: &[u8; PAGE]) -> Self {
        Self::without_zeros(bytes).unwrap_or_else(|| Self::Whole(Arc::new(*bytes)))
    }

    /// `whole` without its zeros, if that halves it.
    fn without_zeros(whole: &[u8; PAGE]) -> Option<Self> {
        let mut packed = [0; PAGE / 2];
        let (mut at, mut len) = (0, 0);
        while at < PAGE {
            let start = at + zeros(&whole[at..]);
            let end = start + words(&whole[start..]);
            if start == end {
                break;
            }
            let (head, next) = (len + HEAD, len + HEAD + end - start);
            let stretch = packed.get_mut(len..next)?;
            for (place, bytes) in stretch.chunks_exact_mut(HEAD / 2).zip([start - at, end - start]) {
                place.copy_from_slice(&u16::try_from(bytes / WORD).unwrap_or(u16::MAX).to_le_bytes());
            }
            packed[head..next].copy_from_slice(&whole[start..end]);
            (at, len) = (end, next);
        }
        Some(Self::Packed(packed[..len].into()))
    }

    /// Fills `buf` from `within` on.
    fn read(&self, within: usize, buf: &mut [u8]) {
        match self {
            Self::Whole(whole) => buf.copy_from_slice(&whole[within..within + buf.len()]),
            Self::Packed(packed) => {
                buf.fill(0);
                let end = within + buf.len();
                for (start, bytes) in Self::stretches(packed) {
                    let (from, to) = (start.max(within), (start + bytes.len()).min(end));
                    if from < to {
                        buf[from - within..to - within].copy_from_slice(&bytes[from - start..to - start]);
                    }
                }
            }
        }
    }
}

/// Bytes of the words of zeros at the beginning of `bytes`, which are whole words.
fn zeros(bytes: &[u8]) -> usize {
    const MANY: usize = 8 * WORD;
    let many = bytes.chunks_exact(MANY).take_while(|many| many.iter().fold(0, |any, byte| any | byte) == 0);
    let many = many.count() * MANY;
    many + bytes[many..].chunks_exact(WORD).take_while(|word| **word == [0; WORD]).count() * WORD
}

/// Bytes of the words before the first one of zeros.
fn words(bytes: &[u8]) -> usize {
    bytes.chunks_exact(WORD).take_while(|word| **word != [0; WORD]).count() * WORD
}

/// Bytes of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pages: Vec<Page>,
    len: usize,
}

impl Content {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Writes `data` at `offset`; a gap before it reads as zeros.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.grow(offset + data.len());
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let within = at % PAGE;
            let count = rest.len().min(PAGE - within);
            let page = &mut self.pages[at / PAGE];
            if let Ok(all) = rest[..count].try_into() {
                *page = Page::of(all);
            } else {
                let mut whole = std::mem::replace(page, Page::zeros()).into_whole();
                Arc::make_mut(&mut whole)[within..within + count].copy_from_slice(&rest[..count]);
                let packed = (within + count == PAGE).then(|| Page::without_zeros(&whole)).flatten();
                *page = packed.unwrap_or(Page::Whole(whole));
            }
            at += count;
            rest = &rest[count..];
        }
    }

    /// Makes the length at least `len`; new bytes are zeros.
    pub(crate) fn grow(&mut self, len: usize) {
        if len > self.len {
            self.pages.resize_with(len.div_ceil(PAGE), Page::zeros);
            self.len = len;
        }
    }

    /// Fills `buf` from `offset`; false, with nothing promised about `buf`, if the bytes end before.
    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) -> bool {
        if offset.checked_add(buf.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        let (mut at, mut done) = (offset, 0);
        while done < buf.len() {
            let within = at % PAGE;
            let count = (buf.len() - done).min(PAGE - within);
            self.pages[at / PAGE].read(within, &mut buf[done..done + count]);
            at += count;
            done += count;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0; content.len()];
        assert!(content.read(0, &mut bytes));
        bytes
    }

    #[test]
    fn writes_over_page_edges_read_back_and_gaps_are_zero() {
        let mut content = Content::default();
        content.write(PAGE - 2, b"abcd");
        assert_eq!(content.len(), PAGE + 2);
        assert!(all(&content)[..PAGE - 2].iter().all(|&byte| byte == 0));
        assert_eq!(&all(&content)[PAGE - 2..], b"abcd");
        assert!(!content.read(PAGE, &mut [0; 3]));
        assert!(!content.read(usize::MAX, &mut [0; 3]));
        assert!(content.read(PAGE + 2, &mut []));
    }

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let mut content = Content::default();
        content.write(0, b"old");
        let copy = content.clone();
        content.write(0, b"new");
        assert_eq!((all(&copy), all(&content)), (b"old".to_vec(), b"new".to_vec()));
    }

    #[test]
    fn pages_of_zeros_are_short_and_read_as_they_were_written() {
        // Records of 1 KiB: a few words, then zeros; the last page is left as it is.
        let mut bytes = vec![0; 3 * PAGE + 100];
        for (number, record) in bytes.chunks_mut(1024).enumerate() {
            record[..21].fill(u8::try_from(number).unwrap() + 1);
        }
        let mut content = Content::default();
        for (number, piece) in bytes.chunks(700).enumerate() {
            content.write(number * 700, piece);
        }
        assert_eq!(all(&content), bytes);
        let size = |page: &Page| match page {
            Page::Whole(whole) => whole.len(),
            Page::Packed(packed) => packed.len(),
        };
        let sizes: Vec<usize> = content.pages.iter().map(size).collect();
        assert_eq!(sizes, [112, 112, 112, PAGE], "four records of 24 bytes and their heads");
        for (from, len) in [(1, 30), (1000, 50), (4090, 20), (5000, 7000), (0, 1)] {
            let mut part = vec![7; len];
            assert!(content.read(from, &mut part));
            assert_eq!(part, bytes[from..from + len], "{len} from {from}");
        }
        // Written to again, a page is whole until its end is written once more.
        let copy = content.clone();
        content.write(10, &[9; 5]);
        assert_eq!((size(&content.pages[0]), &all(&content)[10..15]), (PAGE, &[9; 5][..]));
        assert_eq!(all(&copy), bytes);
    }

    #[test]
    fn pages_without_zeros_stay_as_they_are() {
        let noise: Vec<u8> = (0..2 * PAGE).map(|at| u8::try_from(at * 7 % 251).unwrap() | 1).collect();
        let mut content = Content::default();
        content.write(0, &noise);
        assert!(content.pages.iter().all(|page| matches!(page, Page::Whole(_))));
        assert_eq!(all(&content), noise);
    }
}
