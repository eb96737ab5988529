//! An insert-only skiplist of internal keys and values for many writers and readers at once, without locks.
//!
//! Invariants
//! - L1 Level 0 links every published node in internal-key order; each higher level links a subset of the one below.
//! - L2 A node's header, key and value never change once it is linked at level 0; only its links do.
//! - L3 Links are set by compare-and-swap with Release from a node that was found to precede the new one, and read
//!   with Acquire, so whoever reaches a node sees all of it.
//! - L4 A node is never unlinked, and lives as long as the list's arena.
//!
//! A node is one allocation: header, links, internal key, value. The header holds the key's first eight bytes as a
//! big-endian number, so most comparisons on the way down touch one cache line and call no function.
//! Heights come from hashing the trailer with the list's seed: sequence numbers are unique, so this needs no state
//! and the same inserts build the same list.
//!
//! After RocksDB's InlineSkipList. Tests: `tests.rs` (oracles, threads), `loom_tests.rs` (link protocol).

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use kelvin_base::key::TRAILER_BYTES;

use super::arena::{ALIGN, Arena};
use kelvin_base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Links of the tallest node. With one node in four rising a level, good for 16 million entries.
pub(super) const HEIGHT_MAX: usize = 12;

/// The fixed part of a node.
#[repr(C)]
struct Node {
    /// The user key's first eight bytes, big-endian, zeros behind a shorter key.
    prefix: u64,
    /// Length of the stored value, bytes.
    value_len: u32,
    /// Length of the user key, bytes, in the upper 24 bits; links in the lower 8.
    key_len_and_height: u32,
}

impl Node {
    const fn key_len(&self) -> usize {
        (self.key_len_and_height >> 8) as usize
    }

    const fn height(&self) -> usize {
        (self.key_len_and_height & 0xff) as usize
    }
}

type Link = AtomicPtr<Node>;

const LINKS_AT: usize = size_of::<Node>().next_multiple_of(align_of::<Link>());
const _: () = assert!(align_of::<Node>() <= ALIGN && align_of::<Link>() <= ALIGN);

/// A published node, borrowed from its list.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'a> {
    /// Points to the start of a node's whole allocation, with provenance over all of it.
    node: NonNull<Node>,
    list: PhantomData<&'a SkipList>,
}

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` must be a whole node of a list's arena that stays alive for `'a`.
    unsafe fn new(node: NonNull<Node>) -> Self {
        Self { node, list: PhantomData }
    }

    fn header(self) -> &'a Node {
        // SAFETY: a node's header is written before anybody else can see it and never changes (L2).
        unsafe { self.node.as_ref() }
    }

    fn link(self, level: usize) -> &'a Link {
        debug_assert!(level < self.header().height(), "a node is only met at levels it has");
        // SAFETY: the allocation holds `height` initialised links at LINKS_AT, and `level` is below it: a node is
        // met at `level` only by following a link of that level, which was set by an insert of at least that height;
        // the head has all of them.
        unsafe { self.node.cast::<u8>().add(LINKS_AT + level * size_of::<Link>()).cast::<Link>().as_ref() }
    }

    fn next(self, level: usize) -> Option<NodeRef<'a>> {
        let next = NonNull::new(self.link(level).load(Ordering::Acquire));
        // SAFETY: links point to whole nodes of the same arena (L4); Acquire makes their bytes visible (L3).
        next.map(|node| unsafe { NodeRef::new(node) })
    }

    /// Has the processor fetch the node behind this one at `level`: the next to be looked at if the walk goes down,
    /// while the one at the level above is being compared.
    fn prefetch(self, level: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(all(loom, test))))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let next = self.link(level).load(Ordering::Relaxed);
            // SAFETY: a prefetch reads nothing architecturally; any address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast::<i8>()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(all(loom, test)))))]
        let _ = level;
    }

    fn bytes(self, offset: usize, len: usize) -> &'a [u8] {
        let at = LINKS_AT + self.header().height() * size_of::<Link>() + offset;
        // SAFETY: callers stay within the key and value bytes behind the links, which were initialised before the
        // node was linked and never change (L2); the arena outlives 'a.
        unsafe { std::slice::from_raw_parts(self.node.cast::<u8>().add(at).as_ptr(), len) }
    }

    /// The user key.
    pub(super) fn user_key(self) -> &'a [u8] {
        self.bytes(0, self.header().key_len())
    }

    /// The user key and its trailer.
    pub(super) fn internal_key(self) -> &'a [u8] {
        self.bytes(0, self.header().key_len() + TRAILER_BYTES)
    }

    /// The trailer.
    pub(super) fn trailer(self) -> u64 {
        let bytes = self.bytes(self.header().key_len(), TRAILER_BYTES);
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The stored value.
    pub(super) fn value(self) -> &'a [u8] {
        let header = self.header();
        self.bytes(header.key_len() + TRAILER_BYTES, header.value_len as usize)
    }

    /// The next node in order.
    pub(super) fn successor(self) -> Option<NodeRef<'a>> {
        self.next(0)
    }

    /// The node's address, to be given back to [`SkipList::resume`].
    pub(super) fn save(self) -> Saved {
        Saved(self.node)
    }

    fn same(self, other: Option<NodeRef<'_>>) -> bool {
        other.is_some_and(|other| other.node == self.node)
    }
}

/// The place of a node without a borrow of its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved(NonNull<Node>);

// SAFETY: it is an address; using it takes `SkipList::resume` and what that asks for.
unsafe impl Send for Saved {}

/// A key to look for or to insert.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    prefix: u64,
    user_key: &'k [u8],
    trailer: u64,
}

impl<'k> Target<'k> {
    pub(super) fn new(user_key: &'k [u8], trailer: u64) -> Self {
        Self { prefix: prefix_of(user_key), user_key, trailer }
    }

    /// Where `node` lies as seen from this key.
    fn order_of(&self, node: NodeRef<'_>) -> Order {
        let prefix = node.header().prefix;
        if prefix != self.prefix {
            return prefix.cmp(&self.prefix);
        }
        // Equal prefixes prove equal first bytes only where both keys have eight; zeros may be padding.
        let key = node.user_key();
        let rest = match (key.get(8..), self.user_key.get(8..)) {
            (Some(key), Some(wanted)) => key.cmp(wanted),
            _ => key.cmp(self.user_key),
        };
        // Newest first: the greater trailer lies before.
        rest.then_with(|| self.trailer.cmp(&node.trailer()))
    }
}

fn prefix_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

/// The list. See the module's documentation.
pub(super) struct SkipList {
    arena: Arena,
    head: NonNull<Node>,
    /// Height of the tallest node, at least 1.
    height: AtomicUsize,
    seed: u64,
}

// SAFETY: `head` points into the arena, which moves with the list.
unsafe impl Send for SkipList {}
// SAFETY: nodes are written before they are shared and linked by atomics (L2, L3); `head` never changes.
unsafe impl Sync for SkipList {}

impl SkipList {
    pub(super) fn new(seed: u64) -> Self {
        let arena = Arena::new();
        let head = new_node(&arena, &Target::new(&[], 0), &[], HEIGHT_MAX);
        Self { arena, head, height: AtomicUsize::new(1), seed }
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    fn head(&self) -> NodeRef<'_> {
        // SAFETY: the head is a whole node of this list's arena.
        unsafe { NodeRef::new(self.head) }
    }

    /// The node behind `saved`.
    ///
    /// # Safety
    /// `saved` must come from a node of this list.
    pub(super) unsafe fn resume(&self, saved: Saved) -> NodeRef<'_> {
        // SAFETY: the caller's promise; nodes live as long as the list (L4).
        unsafe { NodeRef::new(saved.0) }
    }

    /// The first node at or behind `target`.
    pub(super) fn seek(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        let mut bound = None;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            (node, bound) = descend(target, node, bound, level);
        }
        bound
    }

    /// The last node before `target`.
    pub(super) fn seek_before(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        let mut bound = None;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            (node, bound) = descend(target, node, bound, level);
        }
        self.unless_head(node)
    }

    /// The first node.
    pub(super) fn first(&self) -> Option<NodeRef<'_>> {
        self.head().next(0)
    }

    /// The last node.
    pub(super) fn last(&self) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = node.next(level) {
                node = next;
            }
        }
        self.unless_head(node)
    }

    fn unless_head<'a>(&'a self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        (node.node != self.head).then_some(node)
    }

    /// The height of the node with `trailer`: 1 for three in four, one more for each further quarter.
    fn height_of(&self, trailer: u64) -> usize {
        // splitmix64's finaliser.
        let mut hash = (trailer ^ self.seed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        (1 + hash.trailing_zeros() as usize / 2).min(HEIGHT_MAX)
    }

    /// Raises the list's height to `height`; the height afterwards.
    fn raise(&self, height: usize) -> usize {
        // Relaxed: a reader with an older height starts lower and finds the same nodes (L1).
        self.height.fetch_max(height, Ordering::Relaxed).max(height)
    }
}

/// Walks `level` from `before`, which precedes `target`, to the last node that does. `bound` is a node known not
/// to precede it, whose comparison is spared. Answers that node and the one behind it.
fn descend<'a>(
    target: &Target<'_>,
    before: NodeRef<'a>,
    bound: Option<NodeRef<'a>>,
    level: usize,
) -> (NodeRef<'a>, Option<NodeRef<'a>>) {
    let mut node = before;
    loop {
        node.prefetch(level.saturating_sub(1));
        match node.next(level) {
            Some(next) if !next.same(bound) && target.order_of(next) == Order::Less => node = next,
            next => return (node, next),
        }
    }
}

/// Allocates a node with every byte written and links to nothing.
fn new_node(arena: &Arena, target: &Target<'_>, value: &[u8], height: usize) -> NonNull<Node> {
    let (key_len, value_len) = (target.user_key.len(), value.len());
    let links = height * size_of::<Link>();
    let node = arena.allocate(LINKS_AT + links + key_len + TRAILER_BYTES + value_len).cast::<Node>();
    let header = Node {
        prefix: target.prefix,
        // `insert` asserted that neither is too long.
        value_len: u32::try_from(value_len).unwrap_or(0),
        key_len_and_height: u32::try_from((key_len << 8) | height).unwrap_or(0),
    };
    // SAFETY: the allocation is ALIGN-aligned, has room for exactly what is written here in this order, and belongs
    // to this call alone.
    unsafe {
        node.write(header);
        let base = node.cast::<u8>();
        for level in 0..height {
            base.add(LINKS_AT + level * size_of::<Link>()).cast::<Link>().write(Link::new(ptr::null_mut()));
        }
        let key = base.add(LINKS_AT + links).as_ptr();
        ptr::copy_nonoverlapping(target.user_key.as_ptr(), key, key_len);
        let trailer = target.trailer.to_le_bytes();
        ptr::copy_nonoverlapping(trailer.as_ptr(), key.add(key_len), TRAILER_BYTES);
        ptr::copy_nonoverlapping(value.as_ptr(), key.add(key_len + TRAILER_BYTES), value_len);
    }
    node
}

/// Inserts into one list and remembers where, so that keys in order need no search.
///
/// The splice: for each level a node before and the node behind the last insert, nested, that is
/// `before[i + 1] <= before[i] < after[i] <= after[i + 1]`. Bracketing a key at one level then brackets it above.
pub(super) struct Inserter<'a> {
    list: &'a SkipList,
    before: [NodeRef<'a>; HEIGHT_MAX + 1],
    after: [Option<NodeRef<'a>>; HEIGHT_MAX + 1],
    /// Levels of the splice that are filled; 0 for none.
    height: usize,
}

impl<'a> Inserter<'a> {
    pub(super) fn new(list: &'a SkipList) -> Self {
        Self { list, before: [list.head(); HEIGHT_MAX + 1], after: [None; HEIGHT_MAX + 1], height: 0 }
    }

    /// Inserts an entry. False, and nothing is done, if the very same internal key is there already.
    pub(super) fn insert(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> bool {
        let height = self.list.height_of(trailer);
        self.insert_at_height(user_key, trailer, value, height)
    }

    /// [`Self::insert`] with a height from 1 to [`HEIGHT_MAX`].
    pub(super) fn insert_at_height(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        height: usize,
    ) -> bool {
        assert!(
            u32::try_from(user_key.len()).is_ok() && u32::try_from(value.len()).is_ok(),
            "entry too long"
        );
        let target = Target::new(user_key, trailer);
        self.position(&target, height);
        if self.after[0].is_some_and(|next| target.order_of(next) == Order::Equal) {
            return false;
        }
        let node = new_node(&self.list.arena, &target, value, height);
        // SAFETY: a whole node of this list's arena.
        let node = unsafe { NodeRef::<'a>::new(node) };
        for level in 0..height {
            if !self.link(&target, node, level) {
                return false;
            }
        }
        self.before[..height].fill(node);
        true
    }

    /// Brings the splice around `target` at every level of the list.
    fn position(&mut self, target: &Target<'_>, height: usize) {
        let list_height = self.list.raise(height);
        let mut stale = 0;
        if self.height < list_height {
            self.before[list_height] = self.list.head();
            self.after[list_height] = None;
            self.height = list_height;
            stale = list_height;
        }
        while stale < list_height {
            let (before, after) = (self.before[stale], self.after[stale]);
            let tight = before.next(stale).map(|node| node.node) == after.map(|node| node.node);
            if !tight {
                stale += 1;
            } else if before.node != self.list.head && target.order_of(before) != Order::Less {
                // Every level with this node fails alike.
                while stale < list_height && self.before[stale].node == before.node {
                    stale += 1;
                }
            } else if let Some(after) = after.filter(|after| target.order_of(*after) == Order::Less) {
                while stale < list_height && after.same(self.after[stale]) {
                    stale += 1;
                }
            } else {
                break;
            }
        }
        for level in (0..stale).rev() {
            let (before, after) = (self.before[level + 1], self.after[level + 1]);
            (self.before[level], self.after[level]) = descend(target, before, after, level);
        }
    }

    /// Links `node` at `level`. False if another thread linked the same internal key first, at level 0.
    fn link(&mut self, target: &Target<'_>, node: NodeRef<'a>, level: usize) -> bool {
        loop {
            let after = self.after[level].map_or(ptr::null_mut(), |after| after.node.as_ptr());
            // Relaxed: the exchange below publishes it.
            node.link(level).store(after, Ordering::Relaxed);
            let link = self.before[level].link(level);
            let linked =
                link.compare_exchange(after, node.node.as_ptr(), Ordering::Release, Ordering::Relaxed);
            if linked.is_ok() {
                return true;
            }
            // Somebody linked a node here. The one before still precedes (L4): look again from it. The splice may
            // no longer be nested, so it is not used again.
            self.height = 0;
            (self.before[level], self.after[level]) = descend(target, self.before[level], None, level);
            if level == 0 && self.after[0].is_some_and(|next| target.order_of(next) == Order::Equal) {
                return false;
            }
        }
    }
}
