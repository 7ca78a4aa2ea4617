//! Memory that is touched a few microseconds from now: asked for early, it is there in time.

use std::ops::Range;

/// Bytes that memory hands over at a time.
const LINE: usize = 64;

/// Addresses that will be read or written. They are only prefetched, so that what lies there may be gone by then.
#[derive(Clone, Debug, Default)]
pub struct Soon {
    spans: Vec<Range<usize>>,
    bytes: usize,
}

impl Soon {
    pub fn clear(&mut self) {
        self.spans.clear();
        self.bytes = 0;
    }

    /// Bytes of all that was added.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn add<T>(&mut self, values: &[T]) {
        let range = values.as_ptr_range();
        self.spans.push(range.start.addr()..range.end.addr());
        self.bytes += size_of_val(values);
    }

    /// Asks for share `part` of `parts`: into the second-level cache of the core that runs this.
    pub fn ask(&self, part: usize, parts: usize) {
        for span in self.spans.iter().skip(part).step_by(parts.max(1)) {
            for line in (span.start / LINE * LINE..span.end).step_by(LINE) {
                prefetch(line);
            }
        }
    }
}

fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless, and every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_what_was_added_and_nothing_is_touched() {
        let mut soon = Soon::default();
        soon.add(&[1u8; 100]);
        soon.add(&[0.0f32; 3]);
        soon.add::<u16>(&[]);
        assert_eq!(soon.bytes(), 112);
        (0..2).for_each(|part| soon.ask(part, 2));
        soon.ask(0, 0);
        soon.clear();
        assert_eq!(soon.bytes(), 0);
    }
}
