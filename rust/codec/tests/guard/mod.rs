//! Memory between two pages that may not be touched: a read or write beyond the given input ends the test.

use std::ptr;

/// At least `size` bytes of memory, all of it pages, with a guard page on both sides.
pub(crate) struct Pages {
    mapping: *mut u8,
    page: usize,
    size: usize,
}

impl Pages {
    pub(crate) fn new(size: usize) -> Self {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        let size = size.next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice, and a change of all but its first and last page.
        let mapping = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping = libc::mmap(ptr::null_mut(), size + 2 * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapping.byte_add(page), size, libc::PROT_READ | libc::PROT_WRITE), 0);
            mapping.cast()
        };
        Self { mapping, page, size }
    }

    /// All bytes between the guards.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: between the guards memory is readable, writable, initialised by the kernel, and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.add(self.page), self.size) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, whole.
        unsafe { libc::munmap(self.mapping.cast(), self.size + 2 * self.page) };
    }
}
