//! What every fuzz target shares: a bound on memory that grows with the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest single allocation per byte of input: a number becomes a `String` or a record of some hundred bytes at most.
const BYTES_PER_INPUT_BYTE: usize = 256;
/// Granted to every input: tables of fixed size, buffers of the libraries.
const ALWAYS_BYTES: usize = 8 << 20;

/// Largest allocation that is allowed at the moment.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Watched;

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn check(size: usize) {
    if size > LIMIT.load(Ordering::Relaxed) {
        LIMIT.store(usize::MAX, Ordering::Relaxed); // the report allocates too
        panic!("an allocation of {size} bytes is out of proportion to the input");
    }
}

/// Runs `work`; an allocation out of proportion to an input of `input_bytes` ends the process.
///
/// `extra_bytes`: what the work may take besides, whatever the input.
pub fn in_proportion(input_bytes: usize, extra_bytes: usize, work: impl FnOnce()) {
    let limit = input_bytes * BYTES_PER_INPUT_BYTE + ALWAYS_BYTES + extra_bytes;
    LIMIT.store(limit, Ordering::Relaxed);
    work();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
}

/// Texts that exercise a tokenizer: marks, blanks, line breaks, several scripts.
pub const TEXTS: [&str; 4] = [
    "Hello  world\n\n 12345 it's",
    "caf\u{e9} \u{4e2d}\u{6587} \u{1f600}\u{200d} \t\r\n<|im_start|><s></s>[INST]<unk>",
    "",
    "\u{2581}\u{2581}a\0\u{fffd}e\u{301}",
];
