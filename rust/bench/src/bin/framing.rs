//! `framing`: framers beside a plain search for a byte over the same input, in pieces of 256 KiB, from the cache.
//!
//! Messages have 1 KiB. Peers take turns, so that a busy machine slows all of them; the best round and the median are
//! reported, and each peer's median beside that of the search. The first round warms up and is not counted.

use std::hint::black_box;
use std::time::Instant;

use fastkcl_codec::dkb;
use fastkcl_codec::framing::end_lines::{Frame, Framer};
use fastkcl_codec::framing::markers::{Event, MarkerFramer, Markers};

const MESSAGES: usize = 256;
const MESSAGE_BYTES: usize = 1024;
const TURNS: usize = 8;
const ROUNDS: usize = 1001;

/// One way through the input; gives the number of its messages.
type Peer<'a> = (&'static str, Box<dyn FnMut() -> usize + 'a>);

/// Frames of ProcessV1: data of base64, as a core writes it.
fn end_lines() -> Vec<u8> {
    let mut input = Vec::new();
    for id in 0..MESSAGES {
        let head =
            format!("{{\"Id\":{id},\"FromStitchInstanceId\":\"s\",\"NodeId\":\"n\",\"ChannelName\":\"c\",\"Data\":\"");
        let tail = "\"}\nend\n";
        input.extend_from_slice(head.as_bytes());
        for at in 0..MESSAGE_BYTES - head.len() - tail.len() {
            let value = (id * 31 + at * 7 + at * at % 61) % 64;
            input.push(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[value]);
        }
        input.extend_from_slice(tail.as_bytes());
    }
    assert_eq!(input.len(), MESSAGES * MESSAGE_BYTES);
    input
}

/// Messages of DKB, each with this marker after it.
fn marked(end_of_message: &[u8]) -> Vec<u8> {
    let text = (b'a'..=b'z').cycle().take(MESSAGE_BYTES - end_of_message.len());
    let message: Vec<u8> = text.chain(end_of_message.iter().copied()).collect();
    message.repeat(MESSAGES)
}

/// Where each message ends, and nothing done with it.
fn framed(input: &[u8], eom: &[u8], eop: Option<&[u8]>, at_boundary: Option<&[u8]>) -> impl FnMut() -> usize {
    let markers = Markers {
        end_of_message: eom.to_vec(),
        end_of_process: eop.map(<[u8]>::to_vec),
        at_boundary: at_boundary.map(<[u8]>::to_vec),
    };
    let mut framer = MarkerFramer::new(markers, dkb::DEFAULT_MAX_MESSAGE_BYTES).expect("good markers");
    move || {
        let (mut open, mut messages) = (black_box(input), 0);
        while let Ok(Some((event, count))) = framer.next(open, false) {
            messages += usize::from(matches!(black_box(event), Event::Message { .. }));
            open = &open[count..];
        }
        messages
    }
}

/// Copied into the decoder's buffer, and from there to Arrow.
fn columns(input: &[u8], eom: &[u8]) -> impl FnMut() -> usize {
    let markers = Markers { end_of_message: eom.to_vec(), end_of_process: None, at_boundary: None };
    let mut decoder = dkb::Decoder::new(markers, dkb::DEFAULT_MAX_MESSAGE_BYTES).expect("good markers");
    move || {
        decoder.collect(usize::MAX);
        decoder.feed(black_box(input));
        assert!(decoder.next_event().is_none());
        black_box(decoder.take_batch()).len()
    }
}

fn main() {
    let input = end_lines();
    let mut framer = Framer::new(16 << 20);
    let end_lines = || {
        let mut messages = 0;
        framer.feed(black_box(&input), |frame| {
            messages += usize::from(matches!(black_box(frame), Frame::Text { terminated: true, .. }));
        });
        messages
    };
    let search: Peer<'_> = ("memchr", Box::new(|| memchr::memchr_iter(b'\n', black_box(&input)).count() / 2));
    compare("lines that end frames", vec![search, ("end lines", Box::new(end_lines))]);
    for eom in [&b"\n"[..], b"EOM"] {
        let input = marked(eom);
        let last = eom[eom.len() - 1];
        let peers: Vec<Peer<'_>> = vec![
            ("memchr", Box::new(|| memchr::memchr_iter(last, black_box(&input)).count())),
            ("worker", Box::new(framed(&input, eom, None, None))),
            ("worker in batches", Box::new(framed(&input, eom, None, Some(b"\x17")))),
            ("supervisor", Box::new(framed(&input, eom, Some(b"\0"), Some(b"\x05")))),
            ("worker, to columns", Box::new(columns(&input, eom))),
        ];
        compare(&format!("markers, EOM {}", eom.escape_ascii()), peers);
    }
}

/// Measures and prints; the first peer is the search that the others are compared with.
fn compare(what: &str, mut peers: Vec<Peer<'_>>) {
    let mut times = vec![Vec::new(); peers.len()];
    for round in 0..=ROUNDS {
        for (index, (name, peer)) in peers.iter_mut().enumerate() {
            let start = Instant::now();
            for _ in 0..TURNS {
                assert_eq!(peer(), MESSAGES, "{name}");
            }
            if round > 0 {
                times[index].push(start.elapsed().as_secs_f64() / TURNS as f64);
            }
        }
    }
    println!("framing, {what}: {MESSAGES} messages of {MESSAGE_BYTES} bytes, from the cache");
    let mut search = None;
    for ((name, _), times) in peers.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let speed = |time: f64| (MESSAGES * MESSAGE_BYTES) as f64 / time / 1e9;
        let [best, median] = [times[0], times[times.len() / 2]].map(speed);
        let search = *search.get_or_insert(median);
        println!("  {name:18} best {best:6.2} GB/s   median {median:6.2} GB/s   {:5.2} of the search", median / search);
    }
}
