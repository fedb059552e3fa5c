//! A line to columns by simdjson On-Demand and simdutf, in C++ (`cpp/simdjson.cpp`).

use std::ffi::c_char;
use std::ptr::NonNull;
use std::slice;

use fastkcl_codec::RecordBatch;

// The libraries that the C++ is linked against.
use simdjson_sys as _;
use simdutf as _;

/// Bytes after a line that simdjson wants to read.
pub const PADDING: usize = 64;

/// `Columns` of the C++.
#[repr(C)]
struct Columns {
    data: *const u8,
    keys: *const u8,
    sequences: *const u8,
    data_ends: *const i32,
    key_ends: *const i32,
    sequence_ends: *const i32,
    sub_sequence_numbers: *const i64,
    millis: *const i64,
    rows: usize,
}

#[repr(C)]
struct Scanner {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn fastkcl_simdjson_new() -> *mut Scanner;
    fn fastkcl_simdjson_free(scanner: *mut Scanner);
    fn fastkcl_simdjson_scan(
        scanner: *mut Scanner,
        line: *const c_char,
        length: usize,
        allocated: usize,
        any_order: bool,
    ) -> *const Columns;
}

/// A parser with its columns, which are reused.
pub struct Simdjson {
    scanner: NonNull<Scanner>,
    any_order: bool,
}

impl Simdjson {
    /// Members are looked for in the daemon's order, or in any.
    pub fn new(any_order: bool) -> Self {
        // SAFETY: it has no preconditions.
        let scanner = NonNull::new(unsafe { fastkcl_simdjson_new() }).expect("C++ throws instead");
        Self { scanner, any_order }
    }

    /// The number of records in `padded` less its last [`PADDING`] bytes; none if simdjson cannot take the line.
    pub fn scan(&mut self, padded: &[u8]) -> Option<usize> {
        self.columns(padded).map(|columns| columns.rows)
    }

    fn columns(&mut self, padded: &[u8]) -> Option<&Columns> {
        let length = padded.len() - PADDING;
        // SAFETY: the scanner is ours, and the line is followed by what simdjson reads; what is returned lives as long
        // as the scanner and is not written to before the next call.
        unsafe {
            let line = padded.as_ptr().cast();
            fastkcl_simdjson_scan(self.scanner.as_ptr(), line, length, padded.len(), self.any_order).as_ref()
        }
    }

    /// Whether it reads in a line what `batch` has.
    pub fn agrees(&mut self, padded: &[u8], batch: &RecordBatch) -> bool {
        let Some(columns) = self.columns(padded).filter(|columns| columns.rows == batch.len()) else { return false };
        let rows = columns.rows;
        // SAFETY: the scanner has written as many rows, and each column up to its last end.
        let (data, keys, sequences, subs, millis) = unsafe {
            (
                values(columns.data, columns.data_ends, rows),
                values(columns.keys, columns.key_ends, rows),
                values(columns.sequences, columns.sequence_ends, rows),
                slice::from_raw_parts(columns.sub_sequence_numbers, rows),
                slice::from_raw_parts(columns.millis, rows),
            )
        };
        (0..rows).all(|row| {
            batch.data(row) == Some(data[row])
                && batch.partition_key(row).as_bytes() == keys[row]
                && batch.sequence_number(row).as_bytes() == sequences[row]
                && batch.sub_sequence_number(row) == Some(subs[row])
                && batch.timestamp_micros(row) == Some(millis[row] * 1000)
        })
    }
}

impl Drop for Simdjson {
    fn drop(&mut self) {
        // SAFETY: the scanner is ours and not used again.
        unsafe { fastkcl_simdjson_free(self.scanner.as_ptr()) };
    }
}

/// The values of a column by their ends.
///
/// # Safety
/// There are `rows` ends, which only grow, and as many bytes as the last one says.
unsafe fn values<'a>(bytes: *const u8, ends: *const i32, rows: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe {
        let ends = slice::from_raw_parts(ends, rows);
        let starts = std::iter::once(&0).chain(ends);
        starts
            .zip(ends)
            .map(|(from, to)| slice::from_raw_parts(bytes.add(*from as usize), (to - from) as usize))
            .collect()
    }
}
