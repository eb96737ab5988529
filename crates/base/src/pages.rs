//! Memory taken from the operating system by the page, and given back by the page.
//!
//! What grows with a store's data (cached blocks, memtables, buffers of files) comes from here and not from the
//! program's allocator: an allocator keeps what was freed for later, rounds sizes up, and holds each thread's share
//! apart, so that a bound on the bytes asked for would be none on the memory that stays resident.
//!
//! - [`map`] and [`unmap`]: one piece, for large ones; [`lend`] and [`take_back`]: one that is used for a moment.
//! - [`PageBytes`]: bytes of any length, cut from regions of [`REGION_BYTES`] in units of [`UNIT_BYTES`].
//!
//! Invariants
//! - P1 A unit belongs to at most one [`PageBytes`]; a region is unmapped only when none of its units is in use.
//! - P2 Pages that are free but still resident are at most [`IDLE_BYTES`] and a 64th of what is in use, and
//!   [`LENT_IDLE_BYTES`] of lent pieces.
//! - P3 All memory is initialised: the system gives zeros, and only bytes are ever written.
//!
//! Like the allocator it stands beside, it is one for the process. Tests below run under Miri, which gets its memory
//! from the allocator.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::ptr::NonNull;

use parking_lot::Mutex;

/// Bytes of a region.
pub const REGION_BYTES: usize = 1 << 20;
/// What lengths are rounded up to, bytes.
pub const UNIT_BYTES: usize = 1 << 10;
/// Free memory kept for the next who asks, bytes.
pub const IDLE_BYTES: usize = 1 << 20;
/// Most bytes of buffers kept for the next who asks.
pub const LENT_IDLE_BYTES: usize = 2 << 20;
/// What is longer gets a piece of its own.
const SHARED_BYTES_MAX: usize = REGION_BYTES / 4;
/// What the system gives and takes back, bytes. Where its pages are larger, it takes back whole regions only.
const PAGE_BYTES: usize = 4 << 10;

const UNITS: usize = REGION_BYTES / UNIT_BYTES;
const PAGES: usize = REGION_BYTES / PAGE_BYTES;
const UNITS_IN_PAGE: usize = PAGE_BYTES / UNIT_BYTES;

/// Memory of `len` bytes (at least 1), zeroed, at a page's start. It is [`unmap`]'s to give back.
#[must_use]
pub fn map(len: usize) -> NonNull<u8> {
    system::map(len).unwrap_or_else(|| {
        let layout = std::alloc::Layout::from_size_align(len, 1);
        std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()))
    })
}

/// Gives memory back.
///
/// # Safety
/// `start` is from [`map`] with the same `len`, and nobody uses the memory any more.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { system::unmap(start, len) };
}

/// Pieces of [`lend`] that nobody uses, the one given back last at the end, and their bytes together.
struct Idle {
    pieces: Vec<(NonNull<u8>, usize)>,
    bytes: usize,
}

// SAFETY: idle pieces belong to this list alone.
unsafe impl Send for Idle {}

static IDLE: Mutex<Idle> = Mutex::new(Idle { pieces: Vec::new(), bytes: 0 });

/// Memory of `len` bytes (at least 1) of any value, at a page's start: what was given back last, if that was as long, so
/// that a buffer made anew for each file costs no pages. It is [`take_back`]'s to give back.
#[must_use]
pub fn lend(len: usize) -> NonNull<u8> {
    let found = {
        let mut idle = IDLE.lock();
        let at = idle.pieces.iter().rposition(|&(_, bytes)| bytes == len);
        at.map(|at| {
            idle.bytes -= len;
            idle.pieces.remove(at).0
        })
    };
    found.unwrap_or_else(|| map(len))
}

/// Gives memory back, or keeps it for the next [`lend`].
///
/// # Safety
/// `start` is from [`lend`] with the same `len`, and nobody uses the memory any more.
pub unsafe fn take_back(start: NonNull<u8>, len: usize) {
    let mut idle = IDLE.lock();
    idle.pieces.push((start, len));
    idle.bytes += len;
    while idle.bytes > LENT_IDLE_BYTES {
        let (oldest, bytes) = idle.pieces.remove(0);
        idle.bytes -= bytes;
        // SAFETY: it was taken out of the list, and the caller who gave it back let go of it.
        unsafe { unmap(oldest, bytes) };
    }
}

#[cfg(not(miri))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    pub(super) fn map(len: usize) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the system's choice touches no other memory.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
        // A huge page is resident whole, however little of it is used. A system without them has nothing to refuse.
        // SAFETY: the advice changes no content.
        let _refused = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        NonNull::new(start.cast())
    }

    pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise: a whole mapping that nobody uses. It cannot fail then; if it did, the memory
        // would stay mapped, which harms nobody.
        let _done = unsafe { munmap(start.as_ptr().cast(), len) };
    }

    /// Lets the system take whole pages that nobody uses; they read as zeros afterwards.
    pub(super) unsafe fn purge(start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise: pages inside a mapping whose content nobody needs.
        let _refused = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len, super::PAGE_BYTES).ok()
    }

    pub(super) fn map(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: no caller asks for nothing.
        NonNull::new(unsafe { alloc_zeroed(layout(len)?) })
    }

    pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
        if let Some(layout) = layout(len) {
            // SAFETY: the caller's promise.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }

    pub(super) unsafe fn purge(start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { start.as_ptr().write_bytes(0, len) };
    }
}

/// A region: which units are in use, which pages are resident.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    used: [u64; UNITS / 64],
    /// A bit for each page, at the page's first unit.
    resident: [u64; UNITS / 64],
    used_units: usize,
    /// Units of the longest free run.
    longest: usize,
    /// Pages that nobody uses and that are resident.
    idle_pages: usize,
}

// SAFETY: a region owns its memory; it hands out disjoint pieces.
unsafe impl Send for Region {}

const fn bit(map: &[u64], at: usize) -> bool {
    map[at / 64] >> (at % 64) & 1 == 1
}

fn set(map: &mut [u64], at: usize, yes: bool) {
    let mask = 1 << (at % 64);
    if yes { map[at / 64] |= mask } else { map[at / 64] &= !mask }
}

/// Of the pages of 64 units, how many are resident and have no unit in use.
const fn idle_pages(used: u64, resident: u64) -> usize {
    const { assert!(UNITS_IN_PAGE == 4) };
    let used = used | used >> 1;
    let used = used | used >> 2;
    (resident & !used).count_ones() as usize
}

impl Region {
    fn new() -> Self {
        let start = map(REGION_BYTES);
        Self { start, used: [0; _], resident: [0; _], used_units: 0, longest: UNITS, idle_pages: 0 }
    }

    /// Calls `with` for each free run, first unit and count, until it answers true.
    fn free_runs(&self, mut with: impl FnMut(usize, usize) -> bool) {
        let mut at = 0;
        while at < UNITS {
            let ones = (!(self.used[at / 64] >> (at % 64))).trailing_zeros() as usize;
            if ones > 0 {
                at += ones.min(64 - at % 64);
                continue;
            }
            let begin = at;
            at = self.free_until(at);
            if with(begin, at - begin) {
                return;
            }
        }
    }

    /// The first unit from `at` on that is in use, or the end.
    fn free_until(&self, mut at: usize) -> usize {
        while at < UNITS {
            let zeros = (self.used[at / 64] >> (at % 64)).trailing_zeros() as usize;
            let within = 64 - at % 64;
            at += zeros.min(within);
            if zeros < within {
                break;
            }
        }
        at
    }

    /// The first unit of those before `at` between which and `at` none is in use.
    fn free_since(&self, mut at: usize) -> usize {
        while at > 0 {
            let last = at - 1;
            let zeros = (self.used[last / 64] << (63 - last % 64)).leading_zeros() as usize;
            let within = last % 64 + 1;
            at -= zeros.min(within);
            if zeros < within {
                break;
            }
        }
        at
    }

    /// Units of the longest free run, all looked at.
    fn measure_longest(&self) -> usize {
        let mut longest = 0;
        self.free_runs(|_, count| {
            longest = longest.max(count);
            false
        });
        longest
    }

    /// Pages of the units from `first` to `end`, and of those that share their words, that nobody uses and that are resident.
    fn idle_pages_around(&self, first: usize, end: usize) -> usize {
        (first / 64..end.div_ceil(64)).map(|at| idle_pages(self.used[at], self.resident[at])).sum()
    }

    /// True if no unit of the page is in use.
    fn is_free(&self, page: usize) -> bool {
        let unit = page * UNITS_IN_PAGE;
        self.used[unit / 64] >> (unit % 64) & ((1 << UNITS_IN_PAGE) - 1) == 0
    }

    /// Notes units as used or free, but for the longest run.
    fn mark(&mut self, first: usize, count: usize, yes: bool) {
        let end = first + count;
        let before = self.idle_pages_around(first, end);
        for unit in first..end {
            set(&mut self.used, unit, yes);
        }
        self.idle_pages = self.idle_pages + self.idle_pages_around(first, end) - before;
        self.used_units = if yes { self.used_units + count } else { self.used_units - count };
    }

    /// Takes the shortest way to `count` units, which there must be; the first of them.
    fn take(&mut self, count: usize) -> usize {
        let (mut first, mut run) = (0, 0);
        self.free_runs(|begin, free| {
            (first, run) = (begin, free);
            free >= count
        });
        self.mark(first, count, true);
        for page in first / UNITS_IN_PAGE..(first + count).div_ceil(UNITS_IN_PAGE) {
            set(&mut self.resident, page * UNITS_IN_PAGE, true);
        }
        self.longest = if run == self.longest { self.measure_longest() } else { self.longest };
        debug_assert_eq!(self.longest, self.measure_longest());
        first
    }

    /// Takes back what was taken.
    fn give_back(&mut self, first: usize, count: usize) {
        self.mark(first, count, false);
        self.longest = self.longest.max(self.free_until(first) - self.free_since(first));
        debug_assert_eq!(self.longest, self.measure_longest());
        debug_assert_eq!(self.idle_pages, self.idle_pages_around(0, UNITS));
    }

    /// Gives the pages that nobody uses back to the system.
    fn purge(&mut self) {
        let mut page = 0;
        while page < PAGES {
            let begin = page;
            while page < PAGES && self.is_free(page) && bit(&self.resident, page * UNITS_IN_PAGE) {
                set(&mut self.resident, page * UNITS_IN_PAGE, false);
                page += 1;
            }
            if page > begin {
                // SAFETY: the pages lie inside the region.
                let start = unsafe { self.start.add(begin * PAGE_BYTES) };
                // SAFETY: none of their units is in use.
                unsafe { system::purge(start, (page - begin) * PAGE_BYTES) };
            }
            page += 1;
        }
        self.idle_pages = 0;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; dropped only when no unit is in use (P1).
        unsafe { unmap(self.start, REGION_BYTES) };
    }
}

/// The regions of the process.
#[derive(Debug)]
struct Regions {
    /// By number; a number whose region is gone is used again.
    all: Vec<Option<Region>>,
    gone: Vec<usize>,
    /// Longest free run and number of every region.
    by_longest: BTreeSet<(usize, usize)>,
    used_units: usize,
    /// Resident pages that nobody uses.
    idle_pages: usize,
    /// The region that is next to give up what it does not use.
    next_purge: usize,
}

static REGIONS: Mutex<Regions> = Mutex::new(Regions::new());

impl Regions {
    const fn new() -> Self {
        Self {
            all: Vec::new(),
            gone: Vec::new(),
            by_longest: BTreeSet::new(),
            used_units: 0,
            idle_pages: 0,
            next_purge: 0,
        }
    }

    /// Takes `count` units: their region's number and their start.
    fn take(&mut self, count: usize) -> (usize, NonNull<u8>) {
        // The tightest region that has them: nearly empty ones can then become empty.
        let number = match self.by_longest.range((count, 0)..).next() {
            Some(&(_, number)) => number,
            None => self.grow(),
        };
        let Some(region) = &mut self.all[number] else { unreachable!("a region listed by its run is there") };
        self.by_longest.remove(&(region.longest, number));
        self.idle_pages -= region.idle_pages;
        let first = region.take(count);
        self.idle_pages += region.idle_pages;
        self.by_longest.insert((region.longest, number));
        self.used_units += count;
        // SAFETY: the unit lies inside the region.
        (number, unsafe { region.start.add(first * UNIT_BYTES) })
    }

    fn grow(&mut self) -> usize {
        let region = Region::new();
        let number = self.gone.pop().unwrap_or(self.all.len());
        self.by_longest.insert((region.longest, number));
        if number == self.all.len() {
            self.all.push(Some(region))
        } else {
            self.all[number] = Some(region)
        }
        number
    }

    /// Takes back `count` units of region `number` that begin at `start`.
    fn give_back(&mut self, number: usize, start: NonNull<u8>, count: usize) {
        let Some(region) = &mut self.all[number] else { unreachable!("a region in use is there") };
        self.by_longest.remove(&(region.longest, number));
        let first = (start.addr().get() - region.start.addr().get()) / UNIT_BYTES;
        self.idle_pages -= region.idle_pages;
        region.give_back(first, count);
        self.idle_pages += region.idle_pages;
        self.by_longest.insert((region.longest, number));
        self.used_units -= count;
        let idle_max = self.idle_pages_max();
        if self.idle_pages > idle_max {
            self.purge(idle_max / 2);
        }
    }

    const fn idle_pages_max(&self) -> usize {
        (IDLE_BYTES + self.used_units * UNIT_BYTES / 64) / PAGE_BYTES
    }

    /// Gives idle memory back, region by region, until no more than `idle_pages` are left. Half of what was allowed, so
    /// that the next call comes after many pieces.
    fn purge(&mut self, idle_pages: usize) {
        while self.idle_pages > idle_pages {
            self.next_purge = (self.next_purge + 1) % self.all.len();
            let number = self.next_purge;
            let Some(region) = self.all[number].as_mut().filter(|region| region.idle_pages > 0) else {
                continue;
            };
            self.idle_pages -= region.idle_pages;
            if region.used_units == 0 {
                self.by_longest.remove(&(region.longest, number));
                self.all[number] = None;
                self.gone.push(number);
            } else {
                region.purge();
            }
        }
    }
}

/// Bytes outside the program's allocator.
#[derive(Debug)]
pub struct PageBytes {
    start: NonNull<u8>,
    len: usize,
    /// The region's number; not used by a piece of its own.
    region: usize,
}

// SAFETY: it owns its bytes alone, like a `Box<[u8]>`.
unsafe impl Send for PageBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBytes {}

impl PageBytes {
    /// `len` bytes of any value, which `fill` is to overwrite.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let (region, start) = match len {
            0 => (0, NonNull::dangling()),
            1..=SHARED_BYTES_MAX => REGIONS.lock().take(len.div_ceil(UNIT_BYTES)),
            _ => (0, map(len)),
        };
        Self { start, len, region }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::new(bytes.len());
        copy.as_mut_slice().copy_from_slice(bytes);
        copy
    }

    /// The bytes, to write.
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes (P3) that belong to this value alone (P1).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Memory that `len` bytes take.
    #[must_use]
    pub const fn footprint(len: usize) -> usize {
        if len <= SHARED_BYTES_MAX {
            len.next_multiple_of(UNIT_BYTES)
        } else {
            len.next_multiple_of(PAGE_BYTES)
        }
    }
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `as_mut_slice`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PageBytes {
    fn drop(&mut self) {
        match self.len {
            0 => {}
            1..=SHARED_BYTES_MAX => {
                REGIONS.lock().give_back(self.region, self.start, self.len.div_ceil(UNIT_BYTES));
            }
            // SAFETY: mapped by `new` with this length, and nobody else has it.
            _ => unsafe { unmap(self.start, self.len) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_comes_back_to_the_next_who_wants_as_much_and_what_is_kept_is_bounded() {
        // A length that no other test lends.
        const LEN: usize = 5 * PAGE_BYTES;
        let first = lend(LEN);
        // SAFETY: `LEN` bytes that are this test's, given back once.
        unsafe {
            first.as_ptr().write_bytes(7, LEN);
            take_back(first, LEN);
        }
        let again = lend(LEN);
        assert_eq!(again, first);
        let other = lend(LEN);
        assert_ne!(other, again);
        // SAFETY: as above.
        unsafe {
            assert_eq!((again.read(), other.read()), (7, 0));
            take_back(again, LEN);
            take_back(other, LEN);
        }
        let large = lend(LENT_IDLE_BYTES + PAGE_BYTES);
        // SAFETY: as above.
        unsafe { take_back(large, LENT_IDLE_BYTES + PAGE_BYTES) };
        assert!(IDLE.lock().bytes <= LENT_IDLE_BYTES);
    }

    /// Bytes that tell whose they are.
    fn filled(number: usize, len: usize) -> PageBytes {
        PageBytes::copy_of(&vec![u8::try_from(number % 251).unwrap(); len])
    }

    /// Compared as a whole: Miri takes minutes for megabytes one by one.
    fn are_all(bytes: &[u8], byte: usize) -> bool {
        bytes == vec![u8::try_from(byte).unwrap(); bytes.len()]
    }

    #[test]
    fn pieces_keep_their_bytes_whatever_is_given_back_around_them() {
        let rounds = if cfg!(miri) { 60 } else { 20_000 };
        let mut held: Vec<(usize, PageBytes)> = Vec::new();
        let mut random = 7u64;
        for number in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = usize::try_from(random >> 33).unwrap();
            let len = [1, 900, 1024, 4096, 17_400, 65_000, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1][draw % 8];
            held.push((number, filled(number, len)));
            if held.len() > 150 {
                let (number, bytes) = held.swap_remove(draw % held.len());
                assert!(are_all(&bytes, number % 251));
            }
        }
        assert!(held.iter().all(|(number, bytes)| are_all(bytes, number % 251)));
    }

    #[test]
    fn what_is_free_and_resident_is_bounded_and_empty_regions_go() {
        let mut regions = Regions::new();
        let rounds = if cfg!(miri) { 100 } else { 3000 };
        let mut held: Vec<_> = (0..rounds).map(|_| regions.take(17)).collect();
        let all = regions.used_units * UNIT_BYTES;
        assert!(all >= rounds * 17 * UNIT_BYTES && regions.all.len() <= all / REGION_BYTES * 21 / 20 + 1);
        for (at, (number, start)) in std::mem::take(&mut held).into_iter().enumerate() {
            if at % 5 == 0 {
                held.push((number, start));
            } else {
                regions.give_back(number, start, 17);
            }
            assert!(regions.idle_pages <= regions.idle_pages_max());
            let idle: usize = regions.all.iter().flatten().map(|region| region.idle_pages).sum();
            assert_eq!(regions.idle_pages, idle);
        }
        held.drain(..).for_each(|(number, start)| regions.give_back(number, start, 17));
        assert_eq!(regions.used_units, 0);
        assert!(regions.all.iter().flatten().count() <= IDLE_BYTES / REGION_BYTES + 1);
    }

    #[test]
    fn a_hole_is_used_again() {
        let mut regions = Regions::new();
        let pieces: Vec<_> = (0..UNITS / 64).map(|_| regions.take(64)).collect();
        let (number, start) = pieces[5];
        regions.give_back(number, start, 64);
        assert_eq!(regions.take(64), (number, start));
        assert_eq!(regions.take(1).0, 1, "the first region is full");
        (0..16).for_each(|at| regions.give_back(pieces[at].0, pieces[at].1, 64));
    }

    #[test]
    fn a_large_piece_is_zeroed_and_aligned() {
        let start = map(3 << 20);
        assert_eq!(start.align_offset(PAGE_BYTES), 0);
        // SAFETY: just mapped with this length.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 3 << 20) };
        assert!(are_all(bytes, 0));
        // SAFETY: as mapped, used by nobody any more.
        unsafe { unmap(start, 3 << 20) };
    }
}
