//! Frames of ProcessV1 in any pieces are those of the whole input, and those that a split into lines finds. Messages are
//! read or refused, the same in any pieces, and a message that is read and written is read again.

#![no_main]

use fastkcl_codec::framing::end_lines::{Frame, Framer, joined_lines};
use fastkcl_codec::processv1::{Decoder, FromStitch, Message, ToStitch};
use libfuzzer_sys::fuzz_target;

type Seen = Vec<(Vec<u8>, bool)>;

fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let (mut framer, mut seen) = (Framer::new(usize::MAX), Vec::new());
    let mut take = |frame: Frame<'_>| match frame {
        Frame::Text { raw, terminated } => seen.push((joined_lines(raw).into_owned(), terminated)),
        other => panic!("no frame is too long: {other:?}"),
    };
    for piece in pieces {
        framer.feed(piece, &mut take);
    }
    framer.finish(&mut take);
    seen
}

/// Lines cut at CR LF, CR and LF; those that trim to the word end a frame.
fn expected(input: &[u8]) -> Seen {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let mut text = Vec::new();
    for (at, byte) in input.iter().enumerate() {
        match byte {
            b'\r' if input.get(at + 1) == Some(&b'\n') => {}
            b'\r' => text.push(b'\n'),
            _ => text.push(*byte),
        }
    }
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let (mut seen, mut open) = (Vec::new(), Vec::new());
    for line in lines {
        if str::from_utf8(line).is_ok_and(|line| line.trim() == "end") {
            seen.push((std::mem::take(&mut open).join(&b'\n'), true));
        } else {
            open.push(line);
        }
    }
    if open.iter().any(|line| !str::from_utf8(line).is_ok_and(|line| line.trim().is_empty())) {
        seen.push((open.join(&b'\n'), false));
    }
    seen
}

fn messages<M: Message + PartialEq + std::fmt::Debug>(input: &[u8], size: usize) -> Vec<Result<M, String>> {
    let mut decoder = Decoder::<M>::new(1 << 20);
    for piece in input.chunks(size) {
        decoder.feed(piece);
    }
    decoder.finish();
    std::iter::from_fn(|| decoder.next_message()).map(|outcome| outcome.map_err(|error| error.to_string())).collect()
}

fn check<M: Message + PartialEq + std::fmt::Debug>(input: &[u8]) {
    let whole = messages::<M>(input, usize::MAX);
    assert_eq!(messages::<M>(input, 1), whole);
    for message in whole.into_iter().flatten() {
        assert_eq!(messages::<M>(&message.to_frame(), usize::MAX), [Ok(message)]);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((sizes, bytes)) = input.split_first_chunk::<4>() else { return };
    let mut sizes = sizes.iter().map(|size| usize::from(*size) + 1).cycle();
    let mut rest = bytes;
    let pieces = std::iter::from_fn(|| {
        let (piece, left) = rest.split_at(rest.len().min(sizes.next()?));
        rest = left;
        (!piece.is_empty()).then_some(piece)
    });
    let whole = frames(std::iter::once(bytes));
    assert_eq!(frames(pieces), whole);
    assert_eq!(whole, expected(bytes));
    check::<ToStitch>(bytes);
    check::<FromStitch>(bytes);
});
