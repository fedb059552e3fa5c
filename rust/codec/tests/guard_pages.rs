//! No read or write beyond what was given: input that ends, or begins, where memory does.

use std::ptr;

use fastkcl_codec::kcl::write::{LineDialect, RecordToWrite, process_records};
use fastkcl_codec::kcl::{self, Decoder, Message};
use fastkcl_codec::{base64, cpu};

/// A page between two that may not be touched.
struct Page {
    mapping: *mut u8,
    size: usize,
}

impl Page {
    fn new() -> Self {
        // SAFETY: sysconf has no preconditions.
        let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice, and a change of its middle page.
        let mapping = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping = libc::mmap(ptr::null_mut(), 3 * size, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapping.byte_add(size), size, libc::PROT_READ | libc::PROT_WRITE), 0);
            mapping.cast()
        };
        Self { mapping, size }
    }

    /// `bytes`, the last of them before the guard.
    fn at_the_end(&mut self, bytes: &[u8]) -> &[u8] {
        self.put(self.size - bytes.len(), bytes)
    }

    /// `bytes`, the first of them behind the guard.
    fn at_the_start(&mut self, bytes: &[u8]) -> &[u8] {
        self.put(0, bytes)
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) -> &[u8] {
        assert!(offset + bytes.len() <= self.size);
        // SAFETY: inside of the middle page, which is readable and writable, and ours alone.
        unsafe {
            let start = self.mapping.add(self.size + offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            std::slice::from_raw_parts(start, bytes.len())
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, whole.
        unsafe { libc::munmap(self.mapping.cast(), 3 * self.size) };
    }
}

#[test]
fn base64_of_every_length() {
    let mut page = Page::new();
    let data: Vec<u8> = (0..=255).cycle().take(600).collect();
    for length in 0..data.len() {
        let text = base64::encode(page.at_the_end(&data[..length]));
        assert_eq!(base64::encode(page.at_the_start(&data[..length])), text);
        assert_eq!(base64::decode(page.at_the_end(&text)).unwrap(), &data[..length]);
        assert_eq!(base64::decode(page.at_the_start(&text)).unwrap(), &data[..length]);
    }
}

/// Large pieces are decoded where they stand, so their ends matter: whole lines, and lines cut at every place.
#[test]
fn lines_of_every_length() {
    let mut page = Page::new();
    let data: Vec<u8> = (0..=255).cycle().take(1100).collect();
    for isa in cpu::supported() {
        for length in (0..300).chain(900..1100) {
            let record = RecordToWrite {
                data: Some(&data[..length]),
                partition_key: "key",
                sequence_number: "49590338271490256608559692538361571095921575989136588898",
                sub_sequence_number: Some(0),
                timestamp_millis: Some(1_700_000_000_123),
            };
            let line = process_records([record].into_iter(), Some(7), LineDialect::Modern);
            for place in [Page::at_the_end, Page::at_the_start] {
                let mut decoder = Decoder::with_isa(isa, kcl::DEFAULT_MAX_LINE_BYTES);
                decoder.feed(place(&mut page, &line));
                let Some(Ok(Message::ProcessRecords(batch))) = decoder.next_message() else { panic!("no batch") };
                assert_eq!(batch.data(0), Some(&data[..length]), "{length} on {}", isa.name());
            }
        }
        let record = RecordToWrite {
            data: Some(&data),
            partition_key: "key",
            sequence_number: "1",
            sub_sequence_number: None,
            timestamp_millis: None,
        };
        let line = process_records([record].into_iter(), None, LineDialect::Modern);
        for cut in 1..line.len() {
            let mut decoder = Decoder::with_isa(isa, kcl::DEFAULT_MAX_LINE_BYTES);
            decoder.feed(page.at_the_end(&line[..cut]));
            decoder.feed(page.at_the_end(&line[cut..]));
            let Some(Ok(Message::ProcessRecords(batch))) = decoder.next_message() else { panic!("no batch") };
            assert_eq!(batch.data(0), Some(&data[..]), "cut at {cut} on {}", isa.name());
        }
    }
}
