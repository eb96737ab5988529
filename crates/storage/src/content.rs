//! Bytes of an in-memory file: pages shared between copies, copied when written.
//!
//! Invariant: `pages.len() == len.div_ceil(PAGE)`; bytes of the last page at or after `len` are zero.
//! A clone costs one reference count per page, which is what makes crash images cheap.

use std::sync::Arc;

const PAGE: usize = 4096;

/// Bytes of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pages: Vec<Arc<[u8; PAGE]>>,
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
            let page = Arc::make_mut(&mut self.pages[at / PAGE]);
            page[within..within + count].copy_from_slice(&rest[..count]);
            at += count;
            rest = &rest[count..];
        }
    }

    /// Makes the length at least `len`; new bytes are zeros.
    pub(crate) fn grow(&mut self, len: usize) {
        if len > self.len {
            self.pages.resize_with(len.div_ceil(PAGE), || Arc::new([0; PAGE]));
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
            buf[done..done + count].copy_from_slice(&self.pages[at / PAGE][within..within + count]);
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
}
