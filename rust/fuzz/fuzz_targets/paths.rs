//! Lines that the bytes choose token by token: the path that their shape makes the decoder choose, in any pieces, gives
//! the result of the general path, at every limit; short ones at every cut. One line with line feeds in it gives the
//! same result as without them.

#![no_main]

#[path = "../../codec/tests/grammar/mod.rs"]
mod grammar;
#[path = "../../codec/tests/results/mod.rs"]
mod results;

use fastkcl_codec::cpu;
use fastkcl_codec::kcl::{self, DEFAULT_MAX_LINE_BYTES as MAX};
use grammar::{Choices, lines};
use libfuzzer_sys::fuzz_target;
use results::{Found, How, found, generally, without_line_feeds};

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let (limit, one, other) = (choices.below(1 << 16), choices.below(1 << 16), 1 + choices.below(80));
    let (drains, reads, at_limit) = (!choices.one_in(3), choices.one_in(2), choices.one_in(2));
    let feeds = [choices.below(1 << 16), choices.below(1 << 16)];
    let input = lines(&mut choices);
    let (room, max_line_bytes) = (input.len() + 2, if at_limit { 1 + limit % (input.len() + 2) } else { MAX });
    let expected = generally(&input, max_line_bytes);
    for isa in cpu::supported() {
        for pieces in [&[usize::MAX][..], &[1], &[1 + one % room, other]] {
            let how = How { isa, max_line_bytes, pieces, drains, reads };
            assert!(found(&input, how) == expected, "{how:?}: \"{}\"", input.escape_ascii());
        }
    }
    if input.len() < 160 {
        let isa = cpu::supported()[other % cpu::supported().len()];
        for cut in 1..input.len() {
            let how = How { isa, max_line_bytes, pieces: &[cut, usize::MAX], drains, reads };
            assert!(found(&input, how) == expected, "{how:?}: \"{}\"", input.escape_ascii());
        }
    }
    let mut one_line = input;
    for at in feeds {
        one_line.insert(at % (one_line.len() + 1), b'\n');
    }
    let without = without_line_feeds(one_line.strip_suffix(b"\n").unwrap_or(&one_line));
    let result = kcl::decode_line(&one_line, max_line_bytes).transpose().map(Found::from);
    let expected = generally(&without, max_line_bytes);
    assert!(Vec::from_iter(result) == expected, "limit {max_line_bytes}: \"{}\"", one_line.escape_ascii());
});
