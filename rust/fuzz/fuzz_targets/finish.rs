//! Whatever has been taken before the end of input: the messages that are found then, and their order, are those that a
//! caller finds who takes everything at once. For every decoder that has an end.

#![no_main]

#[path = "../../codec/tests/grammar/mod.rs"]
mod grammar;

use fastkcl_codec::Error;
use fastkcl_codec::dkb;
use fastkcl_codec::framing::markers::Markers;
use fastkcl_codec::kcl::{self, DEFAULT_MAX_LINE_BYTES as MAX, Message};
use fastkcl_codec::processv1::{self, ToStitch};
use grammar::{Choices, lines};
use libfuzzer_sys::fuzz_target;

/// A decoder as far as this is about: what it takes, what it finds, in words, and its end.
trait Ending {
    fn feed(&mut self, bytes: &[u8]);
    fn next(&mut self) -> Option<String>;
    /// The end of input, and what is found at once.
    fn finish(&mut self) -> Option<String>;
}

/// What was found, in words; of an error all but its context, which is what was at hand.
fn words<T: std::fmt::Debug>(found: Result<T, Error>) -> String {
    found.map_or_else(|error| error.to_string(), |found| format!("{found:?}"))
}

/// Words for a batch that say no more than its rows.
fn message(found: Result<Message, Error>) -> String {
    match found {
        Ok(Message::ProcessRecords(batch)) => format!("{} records, {} bytes", batch.len(), batch.nbytes()),
        other => words(other),
    }
}

impl Ending for kcl::Decoder {
    fn feed(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let waiting = self.has_waiting();
        let next = self.next_message();
        assert_eq!(next.is_some(), waiting);
        next.map(message)
    }

    fn finish(&mut self) -> Option<String> {
        self.finish().map(message)
    }
}

impl Ending for processv1::Decoder<ToStitch> {
    fn feed(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let waiting = self.has_waiting();
        let next = self.next_message();
        assert_eq!(next.is_some(), waiting);
        next.map(words)
    }

    fn finish(&mut self) -> Option<String> {
        self.finish();
        Ending::next(self)
    }
}

impl Ending for dkb::Decoder {
    fn feed(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    fn next(&mut self) -> Option<String> {
        self.next_event().map(words)
    }

    fn finish(&mut self) -> Option<String> {
        self.finish();
        Ending::next(self)
    }
}

/// What is found where a piece is followed by so many looks.
fn found(decoder: &mut dyn Ending, input: &[u8], pieces: &[(usize, usize)]) -> Vec<String> {
    let (mut rest, mut results) = (input, Vec::new());
    for (piece, looks) in pieces.iter().cycle() {
        let (piece, after) = rest.split_at((*piece).clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        decoder.feed(piece);
        results.extend((0..*looks).map_while(|_| decoder.next()));
        if rest.is_empty() {
            break;
        }
    }
    loop {
        let last = decoder.finish();
        let done = last.is_none();
        results.extend(last);
        if done {
            assert_eq!(decoder.next(), None);
            return results;
        }
    }
}

const FRAMES: [&[u8]; 14] = [
    b"{\"Id\":1}\nend\n",
    b"{\"Id\":\nend\n",
    b"\nend\r\n",
    b"{\"Id\":2}",
    b"\nend",
    b"\r",
    b" end \n",
    b"null\nend\n",
    b"EOM",
    b"EOP",
    b"EOB",
    b"EO",
    b"E",
    b"\xe2\x80",
];

/// Frames and markers of few kinds, between which anything may stand.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..choices.below(30) {
        out.extend_from_slice(choices.pick(&FRAMES));
    }
    out
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let pieces: [(usize, usize); 4] =
        std::array::from_fn(|_| (1 + choices.below(256), choices.pick(&[0, 0, 1, 2, usize::MAX])));
    let limit = choices.pick(&[MAX, 1, 8, 40, 100, 300]);
    let which = choices.below(4);
    let marker = |text: &str| text.as_bytes().to_vec();
    let markers = Markers {
        end_of_message: marker("EOM"),
        end_of_process: Some(marker(choices.pick(&["EOP", "EOM", "P"]))),
        at_boundary: Some(marker("EOB")),
    };
    let input = if which < 2 { lines(&mut choices) } else { frames(&mut choices) };
    let decoder = || -> Box<dyn Ending> {
        match which {
            0 | 1 => Box::new(kcl::Decoder::new(limit)),
            2 => Box::new(processv1::Decoder::<ToStitch>::new(limit)),
            _ => Box::new(dkb::Decoder::new(markers.clone(), limit).expect("markers that can be told apart")),
        }
    };
    let expected = found(&mut *decoder(), &input, &[(usize::MAX, usize::MAX)]);
    let shown = input.escape_ascii();
    assert_eq!(found(&mut *decoder(), &input, &pieces), expected, "{pieces:?}, limit {limit}: \"{shown}\"");
    assert_eq!(found(&mut *decoder(), &input, &[(usize::MAX, 0)]), expected, "limit {limit}: \"{shown}\"");
});
