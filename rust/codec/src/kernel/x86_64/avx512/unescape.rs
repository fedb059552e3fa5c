//! AVX-512 with VBMI2: 64 characters of a string a turn, escapes and UTF-8 checked on the way.
//!
//! **Escapes.** In a run of backslashes every second one is escaped by the one before it. `runs + starts`, with the
//! starts of runs at even places only, carries those runs away, which tells them from the others: the characters
//! after their backslashes are escaped at odd places, the others' at even ones. `vpermi2b` looks up the meaning of each
//! letter, as the base64 kernel looks up its characters. `\u00XX` below U+0080 is one byte too: two permutes bring its
//! hexadecimal values to the place of the `u`. `vpcompressb` then closes the gaps that backslashes and digits leave.
//!
//! ```text
//!  text       a  \  "  b  \  u  0  0  1  f  c
//!  replaced   a  \  "  b  \ 1f  0  0  1  f  c
//!  kept       1  0  1  1  0  1  0  0  0  0  1
//!  stored     a  "  b 1f  c
//! ```
//!
//! **UTF-8** as in Keiser and Lemire, "Validating UTF-8 In Less Than One Instruction Per Byte" (2021): the possible
//! errors of two neighbours are a set of pairs, first byte by second byte. A look-up for each of them gives the sets it
//! is in, and a pair is wrong if they share one. Two continuation bytes in a row are wrong unless a lead byte two or
//! three places before asks for them. The neighbours come from loads one, two and three bytes earlier.
//!
//! A block ends before a quote, a control character, an escape that is not all in it, and one that is none of the
//! above.

#[allow(clippy::wildcard_imports, reason = "the intrinsics' names are their own namespace")]
use std::arch::x86_64::*;

use super::proof::{Avx512, Block};
use crate::input::{Padded, SLACK};
use crate::json::escape::simple_escape;
use crate::kernel::unescape::append_escape;
use crate::pool::Buf;

/// How many bytes before a block are read with it.
const BEFORE: usize = 3;

/// The part of a block that has been taken.
struct Taken {
    /// Whether the taken bytes, and the one after them, continue the text before them as UTF-8.
    is_utf8: bool,
    read: usize,
    written: usize,
}

/// Takes the rest of a string from `at`, appended to `out`: the index after its closing quote. What stands before
/// `at` is text of the same line.
#[inline(always)]
pub(crate) fn unescape(proof: Avx512, input: Padded<'_>, mut at: usize, out: &mut Buf) -> Option<usize> {
    if at < BEFORE {
        return None;
    }
    while at < input.end() {
        out.reserve(SLACK);
        // SAFETY: `BEFORE <= at < end`, and SLACK bytes after `end` are readable; `reserve` made room for SLACK
        // bytes, in memory that `out` owns alone, and `block` has initialised as many as it says.
        let taken = unsafe {
            let taken = block(proof, input.readable().as_ptr().add(at), out.spare());
            out.set_len(out.len() + taken.written);
            taken
        };
        if !taken.is_utf8 {
            return None;
        }
        at += taken.read;
        if taken.read < SLACK {
            let rest = input.input().get(at..)?;
            match rest.first()? {
                b'"' => return Some(at + 1),
                // The next block has all of it.
                b'\\' if taken.read > 0 => {}
                _ => at += append_escape(rest, out)?,
            }
        }
    }
    None
}

/// The characters that escapes stand for, by their letters; the top bit is set where there is none.
static ESCAPED: [Block; 2] = {
    let mut characters = [Block([0x80; 64]), Block([0x80; 64])];
    let mut letter = 0;
    while letter < 128 {
        if let Some(character) = simple_escape(letter) {
            characters[letter as usize / 64].0[letter as usize % 64] = character;
        }
        letter += 1;
    }
    characters
};

/// The values of hexadecimal digits; the top bit is set where there is none.
static HEXADECIMAL: [Block; 2] = {
    let mut values = [Block([0x80; 64]), Block([0x80; 64])];
    let mut value: u8 = 0;
    while value < 22 {
        let (digit, value_of) = if value < 16 {
            (b"0123456789abcdef"[value as usize], value)
        } else {
            (b"ABCDEF"[value as usize - 16], value - 6)
        };
        values[digit as usize / 64].0[digit as usize % 64] = value_of;
        value += 1;
    }
    values
};

/// First and last bytes.
type Ranges = &'static [(u8, u8)];

/// Pairs of neighbours that are no UTF-8 (Unicode 16, table 3-7), a bit each: first bytes, second bytes.
const WRONG: [(Ranges, Ranges); 8] = [
    // A lead byte wants a continuation, and ASCII none.
    (&[(0xc0, 0xff)], &[(0x00, 0x7f), (0xc0, 0xff)]),
    (&[(0x00, 0x7f)], &[(0x80, 0xbf)]),
    // Lead bytes of nothing.
    (&[(0xc0, 0xc1), (0xf5, 0xff)], &[(0x80, 0xbf)]),
    // More bytes than the character needs, surrogates, and numbers above U+10FFFF.
    (&[(0xe0, 0xe0)], &[(0x80, 0x9f)]),
    (&[(0xed, 0xed)], &[(0xa0, 0xbf)]),
    (&[(0xf0, 0xf0)], &[(0x80, 0x8f)]),
    (&[(0xf4, 0xf4)], &[(0x90, 0xbf)]),
    // Right as the third or fourth byte of a character only. It must be the top bit.
    (&[(0x80, 0xbf)], &[(0x80, 0xbf)]),
];

/// The sets of `WRONG` that a byte is in.
const fn sets(byte: u8, second: bool) -> u8 {
    let mut sets = 0;
    let mut set = 0;
    while set < 8 {
        let ranges = if second { WRONG[set].1 } else { WRONG[set].0 };
        let mut at = 0;
        while at < ranges.len() {
            if ranges[at].0 <= byte && byte <= ranges[at].1 {
                sets |= 1 << set;
            }
            at += 1;
        }
        set += 1;
    }
    sets
}

/// The sets of non-ASCII bytes. All ASCII bytes are in the same.
const fn sets_of_others(second: bool) -> [Block; 2] {
    let mut blocks = [Block([0; 64]), Block([0; 64])];
    let mut at: u8 = 0;
    while at < 128 {
        assert!(sets(at, second) == sets(0, second));
        blocks[at as usize / 64].0[at as usize % 64] = sets(0x80 + at, second);
        at += 1;
    }
    blocks
}

static FIRST: [Block; 2] = sets_of_others(false);
static SECOND: [Block; 2] = sets_of_others(true);

/// The bytes' places, moved down by three and by four.
const fn places_behind(distance: u8) -> Block {
    let mut places = [0; 64];
    let mut at: u8 = 0;
    while at < 64 {
        places[at as usize] = (at + distance) % 64;
        at += 1;
    }
    Block(places)
}

static THREE_BEHIND: Block = places_behind(3);
static FOUR_BEHIND: Block = places_behind(4);

/// Which characters are escaped, where backslashes are; none before the block escapes its first.
#[inline(always)]
const fn escaped(backslashes: u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let after = backslashes << 1;
    let even_starts = backslashes & !after & EVEN;
    // Runs that start at even places, and one place after each.
    let even_runs = backslashes ^ backslashes.wrapping_add(even_starts);
    after & (even_runs ^ EVEN)
}

/// # Safety
/// `source` is readable for SLACK bytes, and for [`BEFORE`] before them; `destination` is writable for SLACK bytes and
/// overlaps neither.
#[inline(always)]
unsafe fn block(_proof: Avx512, source: *const u8, destination: *mut u8) -> Taken {
    // SAFETY: `_proof` proves the instructions. Loads of 64 bytes: tables, aligned, and `source`, up to three bytes
    // earlier. The store is of 64 bytes.
    unsafe {
        let table = |block: &Block| _mm512_load_si512(block.0.as_ptr().cast());
        let look_up = |blocks: &[Block; 2], at| _mm512_permutex2var_epi8(table(&blocks[0]), at, table(&blocks[1]));
        let byte = |value: u8| _mm512_set1_epi8(value.cast_signed());

        let text = _mm512_loadu_si512(source.cast());
        let backslashes = _mm512_cmpeq_epi8_mask(text, byte(b'\\'));
        let quotes = _mm512_cmpeq_epi8_mask(text, byte(b'"'));
        let controls = _mm512_cmplt_epu8_mask(text, byte(0x20));
        let letters = escaped(backslashes);
        let escapes = backslashes & !letters;
        let characters = look_up(&ESCAPED, text);
        let mut replaced = _mm512_mask_mov_epi8(text, letters, characters);
        // Letters of longer escapes, or of none.
        let mut others = letters & _mm512_movepi8_mask(_mm512_or_si512(text, characters));
        let mut dropped = escapes;
        if others != 0 {
            let zeros = _mm512_cmpeq_epi8_mask(text, byte(b'0'));
            let values = _mm512_or_si512(look_up(&HEXADECIMAL, text), _mm512_and_si512(text, byte(0x80)));
            let digits = !_mm512_movepi8_mask(values);
            let below_eight = _mm512_cmplt_epu8_mask(values, byte(8));
            let ascii = others
                & _mm512_cmpeq_epi8_mask(text, byte(b'u'))
                & (zeros >> 1)
                & (zeros >> 2)
                & (below_eight >> 3)
                & (digits >> 4);
            let high = _mm512_and_si512(_mm512_permutexvar_epi8(table(&THREE_BEHIND), values), byte(0x07));
            let low = _mm512_permutexvar_epi8(table(&FOUR_BEHIND), values);
            let joined = _mm512_or_si512(_mm512_slli_epi16::<4>(high), low);
            replaced = _mm512_mask_mov_epi8(replaced, ascii, joined);
            others &= !ascii;
            dropped |= ascii << 1 | ascii << 2 | ascii << 3 | ascii << 4;
        }
        let stops = quotes & !letters | controls | others >> 1 | escapes & 1 << 63;
        let read = stops.trailing_zeros();
        let kept = _bzhi_u64(!dropped, read);
        _mm512_storeu_si512(destination.cast(), _mm512_maskz_compress_epi8(kept, replaced));

        let before = |distance| _mm512_loadu_si512(source.sub(distance).cast());
        let (one, two, three) = (before(1), before(2), before(3));
        let ascii = (byte(const { sets(0, false) }), byte(const { sets(0, true) }));
        let first = _mm512_mask_mov_epi8(ascii.0, _mm512_movepi8_mask(one), look_up(&FIRST, one));
        let second = _mm512_mask_mov_epi8(ascii.1, _mm512_movepi8_mask(text), look_up(&SECOND, text));
        // The top bit is set after lead bytes of three and four, and of four.
        let wanted =
            _mm512_or_si512(_mm512_subs_epu8(two, byte(0xe0 - 0x80)), _mm512_subs_epu8(three, byte(0xf0 - 0x80)));
        let wanted = _mm512_and_si512(wanted, byte(0x80));
        let wrong = _mm512_xor_si512(_mm512_and_si512(first, second), wanted);
        let wrong = _bzhi_u64(_mm512_test_epi8_mask(wrong, wrong), read + 1);
        Taken { is_utf8: wrong == 0, read: read as usize, written: kept.count_ones() as usize }
    }
}
