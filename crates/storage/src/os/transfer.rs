//! Whole transfers out of partial ones: short reads and writes are continued, interrupted ones repeated.
//!
//! Invariant: every partial transfer starts at a multiple of `unit` from the start, as direct I/O needs it.
//! A complete first transfer is the only one: the hot path costs one system call.

use std::io;

fn offset_at(from: u64, done: usize) -> u64 {
    from.saturating_add(u64::try_from(done).unwrap_or(u64::MAX))
}

/// Reads until at least `need` bytes of `buf` are filled from file offset `from`.
///
/// # Errors
/// `UnexpectedEof` if the file ends before; else what `read` answers.
pub(super) fn read_full(
    buf: &mut [u8],
    need: usize,
    unit: usize,
    from: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < need {
        let start = done - done % unit;
        match read(offset_at(from, start), &mut buf[start..]) {
            // No byte beyond those of the last transfer: the end of the file.
            Ok(count) if start + count <= done => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done = start + count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `buf` at file offset `from`.
///
/// # Errors
/// `WriteZero` if no byte is taken; else what `write` answers.
pub(super) fn write_full(
    buf: &[u8],
    unit: usize,
    from: u64,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let start = done - done % unit;
        match write(offset_at(from, start), &buf[start..]) {
            Ok(count) if start + count <= done => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done = start + count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_in_pieces_and_interruptions_is_whole_and_aligned() {
        let file: Vec<u8> = (0..100).collect();
        let (mut buf, mut calls) = (vec![0; 64], 0);
        read_full(&mut buf, 50, 8, 16, |at, part| {
            calls += 1;
            assert_eq!(at % 8, 0);
            if calls % 2 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let at = usize::try_from(at).unwrap();
            let count = part.len().min(11);
            part[..count].copy_from_slice(&file[at..at + count]);
            Ok(count)
        })
        .unwrap();
        assert_eq!(&buf[..50], &file[16..66]);
    }

    #[test]
    fn a_file_that_ends_before_is_an_unexpected_end() {
        let outcome = read_full(&mut [0; 16], 10, 8, 0, |at, part| {
            Ok(part.len().min(9 - usize::try_from(at).unwrap()))
        });
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_write_in_pieces_is_whole_and_a_refused_one_ends() {
        let mut file = [0; 40];
        write_full(b"0123456789abcdef", 8, 8, |at, part| {
            let at = usize::try_from(at).unwrap();
            let count = part.len().min(9);
            file[at..at + count].copy_from_slice(&part[..count]);
            Ok(count)
        })
        .unwrap();
        assert_eq!(&file[8..24], b"0123456789abcdef");
        let outcome = write_full(b"x", 1, 0, |_, _| Ok(0));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
