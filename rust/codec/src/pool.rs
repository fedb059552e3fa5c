//! Where column buffers rest between batches, so that no batch pays for first-touching fresh pages.
//!
//! Writing to fresh memory costs more than reading and decoding a line together (a page fault each 4 KiB). So the
//! buffers of a batch come back here when the last Arrow consumer lets go, and the next batch of the same decoder takes
//! them. Only held bytes take memory, not reserved ones: a column that fills less than half of its buffer leaves as a
//! copy of its size (see `columns`). Before a child goes idle its pool is closed, for good: buffers that batches still
//! hold then are freed when they let go, and the next batch has a new pool.
//!
//! Letting go can happen on any thread, in a forked child, or while the interpreter shuts down. So returning a buffer
//! takes no lock and calls nothing but the allocator: a lane is a few atomic slots, a buffer moves in and out by one
//! exchange, and a buffer that finds no empty slot is freed.

mod slots;

use std::mem::{self, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_buffer::Buffer;

use crate::input::{Padded, SLACK};
use crate::schema::Column;
use slots::{Rests, Slots};

/// Alignment of every buffer: a cache line, and what Arrow recommends.
const ALIGNMENT: usize = 64;

/// The smallest buffer that is allocated for building.
const SMALLEST: usize = 1024;

/// A growable byte buffer, aligned to 64 bytes: a `Vec<u8>` whose memory can be written ahead of its length and handed
/// to Arrow.
///
/// The one invariant: `pointer` is an allocation of `capacity` bytes (none if 0) of which the first `len` are
/// initialised, and `len <= capacity`.
#[derive(Debug)]
pub(crate) struct Buf {
    pointer: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: a `Buf` owns its allocation alone, like a `Vec<u8>`.
unsafe impl Send for Buf {}
// SAFETY: `&Buf` only gives shared reads of initialised bytes.
unsafe impl Sync for Buf {}

impl Default for Buf {
    fn default() -> Self {
        Self::new()
    }
}

impl Buf {
    pub(crate) const fn new() -> Self {
        // 64 is not zero: an aligned, dangling pointer for the empty buffer.
        Self { pointer: NonNull::without_provenance(std::num::NonZero::new(ALIGNMENT).unwrap()), len: 0, capacity: 0 }
    }

    /// A buffer of exactly these bytes.
    #[cfg(test)]
    pub(crate) fn exact(bytes: &[u8]) -> Self {
        let mut buf = Self::new();
        if !bytes.is_empty() {
            buf.set_capacity(bytes.len());
            buf.extend_from_slice(bytes);
        }
        buf
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised and owned by `self` (the invariant).
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    /// Room for `additional` bytes after `len`.
    #[inline]
    pub(crate) fn reserve(&mut self, additional: usize) {
        if self.capacity - self.len < additional {
            self.grow(additional);
        }
    }

    #[cold]
    fn grow(&mut self, additional: usize) {
        let needed = self.len.checked_add(additional).expect("column buffers stay below usize::MAX bytes");
        self.set_capacity(memory::rounded(needed.max(self.capacity * 2).max(SMALLEST)));
    }

    /// Moves the bytes into an allocation of `capacity`, which is larger than the present one.
    fn set_capacity(&mut self, capacity: usize) {
        debug_assert!(capacity > self.capacity);
        // SAFETY: `pointer` is an allocation of `self.capacity` bytes (the invariant), and `capacity` is larger.
        self.pointer = unsafe { memory::grow(self.pointer, self.capacity, capacity) };
        self.capacity = capacity;
    }

    /// Where the byte at `len` goes. Valid for writes of `capacity - len` bytes until the next change of the buffer.
    #[inline]
    pub(crate) fn spare(&mut self) -> *mut u8 {
        // SAFETY: `len <= capacity`, so the result is inside the allocation or one past its end.
        unsafe { self.pointer.as_ptr().add(self.len) }
    }

    /// Room for `len` bytes after the content.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [MaybeUninit<u8>] {
        self.reserve(len);
        // SAFETY: `reserve` made room for `len` bytes there, in memory that `self` owns alone; they need no values.
        unsafe { std::slice::from_raw_parts_mut(self.spare().cast(), len) }
    }

    /// # Safety
    /// `len <= capacity`, and the first `len` bytes have been initialised.
    #[inline]
    pub(crate) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity);
        self.len = len;
    }

    /// Writes `bytes` from index `at` on, and leaves `len` as it is.
    ///
    /// # Safety
    /// `at + N <= capacity`.
    #[inline]
    pub(crate) unsafe fn write_at<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        debug_assert!(at + N <= self.capacity);
        // SAFETY: the caller's promise keeps the write inside of the allocation.
        unsafe { ptr::write_unaligned(self.pointer.as_ptr().add(at).cast(), bytes) };
    }

    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        // SAFETY: `reserve` made room for `bytes.len()` bytes after `len`; `bytes` cannot overlap memory that `self`
        // owns alone. Afterwards `len + bytes.len()` bytes are initialised.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.spare(), bytes.len());
            self.set_len(self.len + bytes.len());
        }
    }
}

impl Buf {
    /// Appends `input[from..to]`. Short pieces are copied as one block of fixed size, which needs no call.
    #[inline(always)]
    pub(crate) fn extend_from_input(&mut self, input: Padded<'_>, from: usize, to: usize) {
        match input.block(from) {
            Some(block) if to - from <= SLACK => self.extend_from_block(block, to - from),
            _ => self.extend_from_slice(&input.input()[from..to]),
        }
    }

    /// Appends the first `len` bytes of `block`.
    #[inline(always)]
    pub(crate) fn extend_from_block(&mut self, block: &[u8; SLACK], len: usize) {
        assert!(len <= SLACK);
        self.reserve(SLACK);
        // SAFETY: `reserve` made room for the whole block, of which `len` bytes count; `block` cannot overlap memory that
        // `self` owns alone.
        unsafe {
            ptr::copy_nonoverlapping(block.as_ptr(), self.spare(), SLACK);
            self.set_len(self.len + len);
        }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: `pointer` is an allocation of `capacity` bytes (the invariant), and nobody uses it any more.
        unsafe { memory::free(self.pointer, self.capacity) };
    }
}

/// Room for input: bytes that are all initialised, zero until something is written there.
///
/// A large one costs the pages that input has reached, not its size: pages that the kernel maps are zero already. A `Vec`
/// would write each zero.
#[derive(Debug, Default)]
pub(crate) struct Room(Buf);

impl Room {
    /// Makes it `len` bytes or more, and keeps its content; does nothing if it is as long.
    pub(crate) fn grow(&mut self, len: usize) {
        let before = self.0.capacity;
        if len <= before {
            return;
        }
        let len = memory::rounded(len);
        self.0.set_capacity(len);
        if !memory::is_mapped(len) {
            // SAFETY: the allocation has `len` bytes, of which those before `before` keep their content.
            unsafe { ptr::write_bytes(self.0.pointer.as_ptr().add(before), 0, len - before) };
        }
        // SAFETY: `len` is the capacity. The bytes before `before` were initialised, and those after it are zero: they
        // were written just now, or a mapping of whole pages has grown by them.
        unsafe { self.0.set_len(len) };
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `Buf::as_slice`, and `self` is borrowed for itself alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer.as_ptr(), self.0.len) }
    }
}

/// Memory of buffers: from the allocator, and large ones straight from the kernel.
///
/// glibc raises the size from which it maps allocations to that of the largest one freed, up to 32 MiB, and then keeps
/// smaller blocks that are freed. A child that has decoded a large line would hold its buffers' memory for good. Mappings
/// are given back when they are freed, and grow without being copied.
pub(crate) mod memory {
    use std::alloc::{self, Layout};
    use std::ptr::{self, NonNull};

    use super::ALIGNMENT;

    /// From here on a buffer is mapped.
    const MAPPED: usize = if cfg!(all(target_os = "linux", not(portable))) { 128 * 1024 } else { usize::MAX };
    const PAGE: usize = 4096;

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("column buffers stay below isize::MAX bytes")
    }

    /// Whether a buffer of this capacity is mapped: whole pages, zero where nothing has been written.
    pub(super) const fn is_mapped(capacity: usize) -> bool {
        capacity >= MAPPED
    }

    /// A capacity that wastes nothing.
    pub(super) fn rounded(capacity: usize) -> usize {
        capacity.next_multiple_of(if capacity < MAPPED { ALIGNMENT } else { PAGE })
    }

    /// An allocation of `to` bytes that begins with the `from` bytes of the one given, which is gone.
    ///
    /// # Safety
    /// `pointer` is an allocation of this module of `from` bytes, or `from` is 0; `to > from`.
    pub(super) unsafe fn grow(pointer: NonNull<u8>, from: usize, to: usize) -> NonNull<u8> {
        let grown = if from >= MAPPED {
            // SAFETY: `pointer` is a mapping of `from` bytes.
            unsafe { remap(pointer, from, to) }
        } else if to < MAPPED && from > 0 {
            // SAFETY: `pointer` was allocated with the layout of `from`; `to` is above 0 and its layout is valid.
            unsafe { alloc::realloc(pointer.as_ptr(), layout(from), layout(to).size()) }
        } else {
            // SAFETY: the layout has a size above 0.
            let fresh = if to < MAPPED { unsafe { alloc::alloc(layout(to)) } } else { map(to) };
            if !fresh.is_null() && from > 0 {
                // SAFETY: both allocations have `from` bytes, and a fresh one overlaps no other; `pointer` is not used again.
                unsafe {
                    ptr::copy_nonoverlapping(pointer.as_ptr(), fresh, from);
                    free(pointer, from);
                }
            }
            fresh
        };
        NonNull::new(grown).unwrap_or_else(|| alloc::handle_alloc_error(layout(to)))
    }

    /// # Safety
    /// `pointer` is an allocation of this module of `capacity` bytes, or `capacity` is 0; it is not used again.
    pub(super) unsafe fn free(pointer: NonNull<u8>, capacity: usize) {
        if capacity >= MAPPED {
            // SAFETY: `pointer` is a mapping of `capacity` bytes.
            unsafe { unmap(pointer, capacity) };
        } else if capacity > 0 {
            // SAFETY: `pointer` was allocated with this layout.
            unsafe { alloc::dealloc(pointer.as_ptr(), layout(capacity)) };
        }
    }

    /// Asks the allocator to give freed memory back to the system, this crate's and everybody else's in this process.
    pub(crate) fn trim() {
        #[cfg(all(target_os = "linux", target_env = "gnu", not(portable)))]
        // SAFETY: malloc_trim(3) may be called at any time, on any thread.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    #[cfg(all(target_os = "linux", not(portable)))]
    fn checked(pointer: *mut libc::c_void) -> *mut u8 {
        if pointer == libc::MAP_FAILED { ptr::null_mut() } else { pointer.cast() }
    }

    #[cfg(all(target_os = "linux", not(portable)))]
    fn map(capacity: usize) -> *mut u8 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a private mapping without an address or a file touches nothing that exists.
        checked(unsafe {
            libc::mmap(ptr::null_mut(), capacity, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        })
    }

    /// # Safety
    /// `pointer` is a mapping of `from` bytes; it is not used again.
    #[cfg(all(target_os = "linux", not(portable)))]
    unsafe fn remap(pointer: NonNull<u8>, from: usize, to: usize) -> *mut u8 {
        // SAFETY: the mapping is ours alone and may move.
        checked(unsafe { libc::mremap(pointer.as_ptr().cast(), from, to, libc::MREMAP_MAYMOVE) })
    }

    /// # Safety
    /// `pointer` is a mapping of `capacity` bytes; it is not used again.
    #[cfg(all(target_os = "linux", not(portable)))]
    unsafe fn unmap(pointer: NonNull<u8>, capacity: usize) {
        // It fails only where the kernel has joined neighbours into one area that this would split, and has no more areas
        // to give (vm.max_map_count). Then the pages stay, and are lost: nobody uses them again.
        // SAFETY: the mapping is ours alone.
        unsafe { libc::munmap(pointer.as_ptr().cast(), capacity) };
    }

    #[cfg(any(not(target_os = "linux"), portable))]
    fn map(_capacity: usize) -> *mut u8 {
        ptr::null_mut()
    }

    #[cfg(any(not(target_os = "linux"), portable))]
    unsafe fn remap(_pointer: NonNull<u8>, _from: usize, _to: usize) -> *mut u8 {
        ptr::null_mut()
    }

    #[cfg(any(not(target_os = "linux"), portable))]
    unsafe fn unmap(_pointer: NonNull<u8>, _capacity: usize) {}
}

/// The columns' buffers, each with a lane of its own: a buffer that comes back has the right size for the next batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    Values(Column),
    Offsets(Column),
}

impl Lane {
    const COUNT: usize = 2 * Column::ALL.len();

    const fn index(self) -> usize {
        match self {
            Self::Values(column) => 2 * column as usize,
            Self::Offsets(column) => 2 * column as usize + 1,
        }
    }
}

/// Batches whose buffers can rest at the same time: one at work, one on its way, two with a slow consumer.
const SLOTS: usize = 4;

static RESTING_BUFFERS: AtomicUsize = AtomicUsize::new(0);
static RESTING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Buffers at rest in all pools of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// How many.
    pub buffers: usize,
    /// Their capacity.
    pub bytes: usize,
}

/// Counts what rests in the pools of this process. A buffer is counted from shortly before it rests until shortly after,
/// so neither number is ever too small, or below 0; while other threads move buffers they are of slightly different times.
#[must_use]
pub fn stats() -> Stats {
    Stats { buffers: RESTING_BUFFERS.load(Ordering::Relaxed), bytes: RESTING_BYTES.load(Ordering::Relaxed) }
}

impl Rests for Buf {
    fn begins(&self) {
        RESTING_BUFFERS.fetch_add(1, Ordering::Relaxed);
        RESTING_BYTES.fetch_add(self.capacity, Ordering::Relaxed);
    }

    fn ends(&self) {
        RESTING_BUFFERS.fetch_sub(1, Ordering::Relaxed);
        RESTING_BYTES.fetch_sub(self.capacity, Ordering::Relaxed);
    }
}

/// Buffers at rest: a decoder's own, or those of all answers.
#[derive(Debug, Default)]
pub(crate) struct Pool(Slots<Buf, { Lane::COUNT }, SLOTS>);

impl Pool {
    /// A buffer that has rested here, emptied, or a new one without memory.
    pub(crate) fn take(&self, lane: Lane) -> Buf {
        let mut buf = self.0.take_each(lane.index()).next().unwrap_or_default();
        buf.truncate(0);
        buf
    }

    /// A buffer for `len` bytes that is at most twice as large: one that has rested here, if it can be, or a new one of
    /// exactly this size.
    pub(crate) fn take_fitting(&self, lane: Lane, len: usize) -> Buf {
        let mut fitting = Buf::new();
        let mut others: [Option<Buf>; SLOTS] = Default::default();
        for (buf, other) in self.0.take_each(lane.index()).zip(&mut others) {
            if buf.capacity() <= 2 * len {
                fitting = buf;
                break;
            }
            *other = Some(buf);
        }
        for other in others.into_iter().flatten() {
            self.put(lane, other);
        }
        fitting.truncate(0);
        if fitting.capacity() < len {
            fitting.set_capacity(len);
        }
        fitting
    }

    /// Puts a buffer to rest; frees it if the pool is closed or the lane is full.
    pub(crate) fn put(&self, lane: Lane, buf: Buf) {
        if buf.capacity() > 0 {
            self.0.put(lane.index(), buf);
        }
    }

    /// Frees all buffers at rest, and from now on each that comes back.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// A pool in which nothing rests.
    pub(crate) fn closed() -> Self {
        let pool = Self::default();
        pool.close();
        pool
    }
}

/// A buffer on loan to Arrow: back to its home when the last consumer lets go.
struct Loan {
    buf: Buf,
    lane: Lane,
    home: Arc<Pool>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.home.put(self.lane, mem::take(&mut self.buf));
    }
}

/// Hands `buf` to Arrow without a copy; it comes back to its lane.
pub(crate) fn lend(buf: Buf, lane: Lane, pool: &Arc<Pool>) -> Buffer {
    let (pointer, len) = (buf.pointer, buf.len());
    let loan = Arc::new(Loan { buf, lane, home: Arc::clone(pool) });
    // SAFETY: `pointer` is valid for reads of `len` initialised bytes for as long as `loan` lives: moving a `Buf` does
    // not move its allocation, nothing changes the buffer inside a `Loan`, and `Buffer` keeps the `Arc`.
    unsafe { Buffer::from_custom_allocation(pointer, len, loan) }
}

#[cfg(test)]
mod tests {
    use super::{AtomicUsize, Buf, Lane, Ordering, Pool, Room, lend};
    use crate::schema::Column;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const DATA: Lane = Lane::Values(Column::Data);
    const KEYS: Lane = Lane::Values(Column::PartitionKey);

    #[test]
    fn a_buffer_comes_back_when_the_last_holder_lets_go_on_any_thread() {
        let pool = Arc::new(Pool::default());
        let mut buf = pool.take(DATA);
        buf.extend_from_slice(&[7; 5000]);
        let address = buf.as_slice().as_ptr();
        let first = lend(buf, DATA, &pool);
        let second = first.clone();
        drop(first);
        assert_eq!(pool.take(DATA).capacity(), 0, "still held");
        std::thread::spawn(move || drop(second)).join().unwrap();
        let again = pool.take(DATA);
        assert_eq!((again.as_slice().as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn a_closed_pool_keeps_nothing() {
        let pool = Arc::new(Pool::default());
        let lent = lend(Buf::exact(&[1; 100]), KEYS, &pool);
        pool.put(KEYS, Buf::exact(&[2; 100]));
        pool.close();
        drop(lent);
        pool.put(KEYS, Buf::exact(&[3; 100]));
        assert_eq!(pool.take(KEYS).capacity(), 0);
    }

    /// Buffers come back on one thread while another takes them, and the first closes the pool: the counts are never
    /// below 0.
    #[test]
    fn what_rests_is_counted_before_it_can_be_taken() {
        let pools: Arc<Vec<Pool>> = Arc::new(std::iter::repeat_with(Pool::default).take(3000).collect());
        let (at, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let taker = std::thread::spawn({
            let (pools, at, done) = (Arc::clone(&pools), Arc::clone(&at), Arc::clone(&done));
            move || {
                let mut most = 0;
                while !done.load(Ordering::Relaxed) {
                    drop(pools[at.load(Ordering::Relaxed)].take(KEYS));
                    most = most.max(super::stats().buffers).max(super::stats().bytes);
                }
                most
            }
        });
        for (turn, pool) in pools.iter().enumerate() {
            at.store(turn, Ordering::Relaxed);
            for _ in 0..64 {
                pool.put(KEYS, Buf::exact(&[1; 8]));
            }
            pool.close();
        }
        done.store(true, Ordering::Relaxed);
        let most = taker.join().unwrap();
        assert!(most < 1 << 40, "{most} buffers or bytes at rest");
        assert!(pools.iter().all(|pool| pool.take(KEYS).capacity() == 0));
    }

    #[test]
    fn room_keeps_its_content_and_is_zero_beyond() {
        let mut room = Room::default();
        let mut written = 0;
        for len in [1, 100, 4096, 5000, 131_071, 131_072, 300_000, 300_001, 5_000_000] {
            room.grow(len);
            assert!(room.len() >= len);
            assert!(room[..written].iter().all(|byte| *byte == 7) && room[written..].iter().all(|byte| *byte == 0));
            room.fill(7);
            written = room.len();
            room.grow(len / 2);
            assert_eq!(room.len(), written);
        }
    }

    #[test]
    fn a_full_lane_frees_the_rest() {
        let pool = Pool::default();
        for _ in 0..2 * super::SLOTS {
            pool.put(KEYS, Buf::exact(&[1; 8]));
        }
        let mut kept = 0;
        while pool.take(KEYS).capacity() > 0 {
            kept += 1;
        }
        assert_eq!(kept, super::SLOTS);
    }

    #[test]
    fn a_fitting_buffer_is_one_that_rested_and_at_most_twice_as_large() {
        let pool = Pool::default();
        for size in [1000, 300, 100] {
            pool.put(KEYS, Buf::exact(&vec![1; size]));
        }
        let capacities = [150, 150, 400, 501].map(|len| {
            let buf = pool.take_fitting(KEYS, len);
            assert_eq!(buf.len(), 0);
            buf.capacity()
        });
        assert_eq!(capacities, [300, 150, 400, 1000], "found; grown from 100; new; found");
        assert_eq!(pool.take(KEYS).capacity(), 0);
    }

    #[test]
    fn growth_keeps_the_bytes() {
        let mut buf = Buf::new();
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        for chunk in bytes.chunks(7) {
            buf.extend_from_slice(chunk);
        }
        assert_eq!(buf.as_slice(), bytes);
        assert_eq!(buf.as_slice().as_ptr().align_offset(64), 0);
    }

    #[test]
    fn growth_from_the_allocator_into_mappings_keeps_the_bytes() {
        let mut buf = Buf::new();
        let bytes: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
        for chunk in bytes.chunks(50_001) {
            buf.extend_from_slice(chunk);
            assert_eq!(buf.as_slice(), &bytes[..buf.len()]);
        }
        let exact = Buf::exact(&bytes);
        assert_eq!((exact.as_slice(), exact.capacity()), (&bytes[..], bytes.len()));
    }
}
