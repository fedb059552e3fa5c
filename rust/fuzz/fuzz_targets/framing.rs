//! The framer, fed in any pieces, finds the line ends that a split at LF finds.

#![no_main]

use fastkcl_codec::framing::{LineEnd, is_blank};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((pieces, bytes)) = input.split_first_chunk::<4>() else { return };
    let mut pieces = pieces.iter().map(|piece| usize::from(*piece) + 1).chain(std::iter::repeat(1));
    let (mut lines, mut start, mut shown, mut end) = (Vec::new(), 0, 0, LineEnd::default());
    while shown < bytes.len() {
        shown = bytes.len().min(shown + pieces.next().expect("endless"));
        while let Some(length) = end.find(&bytes[start..shown]) {
            lines.push(&bytes[start..start + length]);
            start += length + 1;
            end = LineEnd::default();
        }
    }
    let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    assert_eq!(expected.pop(), Some(&bytes[start..]));
    assert_eq!(lines, expected);
    for line in lines {
        let blank = String::from_utf8_lossy(line).trim_matches([' ', '\t', '\r']).is_empty();
        assert_eq!(is_blank(line), blank);
    }
});
