//! `framing`: framers beside a plain search for a byte over the same input, in pieces of 256 KiB, from the cache.
//!
//! Messages have 1 KiB. Peers take turns, so that a busy machine slows all of them; the best round and the median are
//! reported, and each peer's median beside that of the search. The first round warms up and is not counted.

use std::hint::black_box;
use std::time::Instant;

use fastkcl_codec::framing::end_lines::{Frame, Framer};

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
        let head = format!("{{\"Id\":{id},\"FromStitchInstanceId\":\"s\",\"NodeId\":\"n\",\"ChannelName\":\"c\",\"Data\":\"");
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

fn main() {
    let input = end_lines();
    let mut framer = Framer::new(16 << 20);
    let mut peers: Vec<Peer<'_>> = vec![
        ("memchr", Box::new(|| memchr::memchr_iter(b'\n', black_box(&input)).count() / 2)),
        (
            "end lines",
            Box::new(|| {
                let mut messages = 0;
                framer.feed(black_box(&input), |frame| {
                    messages += usize::from(matches!(black_box(frame), Frame::Text { terminated: true, .. }));
                });
                messages
            }),
        ),
    ];
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
    println!("framing: {MESSAGES} messages of {MESSAGE_BYTES} bytes, from the cache");
    let mut search = None;
    for ((name, _), times) in peers.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let [best, median] = [times[0], times[times.len() / 2]].map(|time| input.len() as f64 / time / 1e9);
        let search = *search.get_or_insert(median);
        println!("  {name:10} best {best:6.2} GB/s   median {median:6.2} GB/s   {:5.2} of the search", median / search);
    }
}
