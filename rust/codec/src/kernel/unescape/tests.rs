//! Each instruction set against `serde_json`, in memory that ends where it may.

use crate::guard::Pages;
use crate::input::{Padded, SLACK};
use crate::kernel::traits::{Kernel, Routine};
use crate::kernel::{Kernels, cpu};
use crate::pool::Buf;

/// The text before a key in a line.
const BEFORE: &[u8] = b"{\"partitionKey\":\"";

struct Unescape<'a> {
    input: Padded<'a>,
    out: &'a mut Buf,
}

impl Routine for Unescape<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<usize> {
        kernel.unescape(self.input, BEFORE.len(), self.out)
    }
}

/// The string whose content begins at the start of `text`, and its length with the closing quote.
fn reference(text: &[u8]) -> Option<(String, usize)> {
    let line = [b"\"", text].concat();
    let mut values = serde_json::Deserializer::from_slice(&line).into_iter::<String>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset() - 1))
}

/// Compares all instruction sets on texts; the bytes after one of them must not matter.
struct Check {
    pages: Pages,
    out: Buf,
}

impl Check {
    fn new() -> Self {
        Self { pages: Pages::new(4096), out: Buf::new() }
    }

    fn all(&mut self, text: &[u8]) {
        let expected = reference(text);
        let memory = self.pages.bytes();
        let end = BEFORE.len() + text.len();
        let from = memory.len() - end - SLACK;
        let memory = &mut memory[from..];
        memory[..BEFORE.len()].copy_from_slice(BEFORE);
        memory[BEFORE.len()..end].copy_from_slice(text);
        for after in [b'"', b'0'] {
            memory[end..].fill(after);
            for isa in cpu::supported() {
                self.out.truncate(0);
                let input = Padded::new(memory, end);
                let found = Kernels::of(isa).run(Unescape { input, out: &mut self.out });
                let found = found.map(|at| (self.out.as_slice(), at - BEFORE.len()));
                let expected = expected.as_ref().map(|(value, length)| (value.as_bytes(), *length));
                assert_eq!(found, expected, "{:?} on {}", String::from_utf8_lossy(text), isa.name());
            }
        }
    }
}

/// Whole escapes and characters, cut ones, and some that are none, which no daemon writes.
const PIECES: &[&[u8]] = &[
    b"",
    b"\"",
    b"\\",
    b"\\\"",
    b"\\\\",
    b"\\\\\\",
    b"\\\\\\\\\\\"",
    b"\\/",
    b"\\b\\f\\n\\r\\t",
    b"\\a",
    b"\\\xc3\xa4",
    b"\\\x01",
    b"\\u",
    b"\\u00",
    b"\\u0000",
    b"\\u001f",
    b"\\u001F\\u007f",
    b"\\u0080",
    b"\\u00e4",
    b"\\u00fF",
    b"\\u0100",
    b"\\u1000",
    b"\\u20ac",
    b"\\u00g0",
    b"\\u000g",
    b"\\u000\xe4",
    b"\\u0\"00",
    b"\\U0041",
    b"\\\\u0041",
    b"\\ud83d\\ude00",
    b"\\uD83D\\uDE00\\\"",
    b"\\ud83d",
    b"\\ud83dx",
    b"\\ude00",
    b"\\ud83d\\u0041",
    b"\0",
    b"\x1f",
    b"\n",
    b"\x7f",
    "\u{e4}".as_bytes(),
    "\u{7ff}\u{800}\u{ffff}".as_bytes(),
    "\u{2028}\u{feff}".as_bytes(),
    "\u{10000}\u{10ffff}".as_bytes(),
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xff",
];

/// Each piece at each place of a block, alone and before another.
#[test]
fn pieces_at_every_place() {
    let mut check = Check::new();
    let plain: Vec<u8> = (b'a'..=b'z').cycle().take(140).collect();
    for place in 0..plain.len() {
        for piece in PIECES {
            for after in [&b""[..], b"\"", b"0\"", b"\\n\"", b"\\u0007 \"", "\u{e9}\"".as_bytes(), &plain[..70], b"\\"]
            {
                check.all(&[&plain[..place], piece, after].concat());
            }
            check.all(&[&plain[..place], piece, &plain[..70], b"\""].concat());
        }
    }
}

#[test]
fn pieces_behind_each_other() {
    let mut check = Check::new();
    for first in PIECES {
        for second in PIECES {
            for third in PIECES {
                check.all(&[*first, second, third, &b"\""[..]].concat());
            }
            let text: Vec<u8> = [*first, second].into_iter().cycle().take(60).flatten().copied().collect();
            check.all(&[&text, &b"\""[..]].concat());
        }
    }
}

/// All backslashes there can be in twelve characters, across the edge of a block.
#[test]
fn runs_of_backslashes() {
    let mut check = Check::new();
    for before in [0, 1, 55, 58, 60] {
        for pattern in 0..4096_u32 {
            let mut text = vec![b'"'; before + 12];
            for (at, byte) in text.iter_mut().enumerate() {
                *byte = match at.checked_sub(before) {
                    Some(bit) if pattern >> bit & 1 == 1 => b'\\',
                    _ => b'n',
                };
            }
            text.push(b'"');
            check.all(&text);
        }
    }
}

/// All pairs of bytes, and texts near the edges of the ranges of longer characters, across the edge of a block.
#[test]
fn sequences_of_bytes() {
    const EDGES: &[u8] = &[
        b'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef,
        0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
    ];
    let mut check = Check::new();
    for before in [0, 61, 63] {
        // The kernels of a string are entered at its first special character.
        let mut text = b"\\n".repeat(32);
        text.truncate(before / 2 * 2);
        text.resize(before, b'x');
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                check.all(&[&text[..], &[first, second, b'"']].concat());
            }
        }
        for first in &EDGES[8..] {
            for second in EDGES {
                for third in EDGES {
                    check.all(&[&text[..], &[*first, *second, *third, b'"']].concat());
                    if *first >= 0xf0 {
                        for fourth in EDGES {
                            check.all(&[&text[..], &[*first, *second, *third, *fourth, b'"']].concat());
                        }
                    }
                }
            }
        }
    }
}
