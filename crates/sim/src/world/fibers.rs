//! The threads of a world but the first: coroutines on the one thread of the operating system that runs the world. Handing a turn on costs
//! nanoseconds so, and no thread of another processor is ever woken for it.
//!
//! The first thread, which has the operating system's own stack, goes on with each of the others ([`resume`]) until its turn comes again; the others
//! go back to it ([`suspend`]). What never ends is left where it is when the world ends, as a thread that waits for ever would be.
//! Tests: those of the world.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kelvin_base::sync::{Own, Work};

/// As large as those of the operating system's threads; only what is used of it takes memory.
const STACK_BYTES: usize = 2 << 20;
/// So many stacks are kept for later threads.
const SPARE_STACKS_MAX: usize = 32;

type Back = Yielder<(), ()>;

struct Fiber {
    /// Never dropped as it is: what waits for ever cannot be unwound, as unwinding may wait.
    coroutine: ManuallyDrop<Coroutine<(), (), ()>>,
    /// Where it can go back; known once it has begun.
    back: Option<NonNull<Back>>,
    own: Own,
}

#[derive(Default)]
struct Fibers {
    /// By number. Who has the turn is not among them.
    suspended: BTreeMap<usize, Fiber>,
    /// Where the one that has the turn can go back.
    back: Option<NonNull<Back>>,
    spare_stacks: Vec<DefaultStack>,
}

thread_local! {
    static FIBERS: RefCell<Fibers> = RefCell::default();
}

/// Thread `number` does `work` once it has its first turn.
pub(super) fn start(number: usize, work: Work) {
    let stack = FIBERS.with_borrow_mut(|fibers| fibers.spare_stacks.pop());
    let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a thread's stack"));
    let coroutine = Coroutine::with_stack(stack, move |back: &Back, ()| {
        FIBERS.with_borrow_mut(|fibers| fibers.back = Some(NonNull::from(back)));
        work();
    });
    let own = Own::of(number as u64);
    let fiber = Fiber { coroutine: ManuallyDrop::new(coroutine), back: None, own };
    FIBERS.with_borrow_mut(|fibers| fibers.suspended.insert(number, fiber));
}

/// Goes on with thread `number` until it goes back or ends. Called by the first thread.
pub(super) fn resume(number: usize) {
    let taken = FIBERS.with_borrow_mut(|fibers| {
        let fiber = fibers.suspended.remove(&number)?;
        fibers.back = fiber.back;
        Some(fiber)
    });
    let mut fiber = taken.expect("who is next was started and has not ended");
    let first = fiber.own.swap();
    let outcome = fiber.coroutine.resume(());
    fiber.own = first.swap();
    FIBERS.with_borrow_mut(|fibers| match outcome {
        CoroutineResult::Yield(()) => {
            fiber.back = fibers.back;
            fibers.suspended.insert(number, fiber);
        }
        CoroutineResult::Return(()) => {
            let stack = ManuallyDrop::into_inner(fiber.coroutine).into_stack();
            if fibers.spare_stacks.len() < SPARE_STACKS_MAX {
                fibers.spare_stacks.push(stack);
            }
        }
    });
}

/// Goes back from the calling thread to the first one, until that goes on with it.
pub(super) fn suspend() {
    let back = FIBERS.with_borrow(|fibers| fibers.back).expect("a thread of a world");
    // SAFETY: `back` is what the coroutine that runs now was given, which is there for as long as its work is: `resume` sets it before each
    // turn to what the work itself said in its first one.
    unsafe { back.as_ref() }.suspend(());
}

/// Forgets what has not ended.
pub(super) fn forget() {
    FIBERS.with_borrow_mut(|fibers| {
        fibers.suspended.clear();
        fibers.back = None;
    });
}
