//! `fastkcl-bench [--json FILE] FOLDER [WORD]`: the codec beside other ways through the lines in the files of a folder
//! (whose names hold the word).
//!
//! Each line is decoded from memory into reused buffers, twice over: always the same copy (*warm*: in the cache, as
//! far as it fits), and copies that rotate through 256 MB (*cold*: input from memory). Peers take turns, so that a
//! busy machine slows all of them; the best round, the one that a quarter of them beats, and the median are reported.
//! The first round warms up and is not counted. Before any peer is timed, the values that it reads in a line (simdjson,
//! the scanner that checks nothing, the codec on each instruction set) are compared with those of the portable codec.
//!
//! FILE gets an array of `{"suite": "codec, warm", "profile": "iot", "peer": "codec avx512", "line_bytes": …,
//! "records": …, "seconds": […]}`, seconds being those of one line in each round. `bench/report.py` reads it.

mod simdjson;
#[cfg(target_arch = "x86_64")]
mod unchecked;

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use fastkcl_codec::RecordBatch;
use fastkcl_codec::cpu::{self, Isa};
use fastkcl_codec::kcl::{DEFAULT_MAX_LINE_BYTES, Decoder, Message};

use simdjson::{PADDING, Simdjson};

const ROTATING_BYTES: usize = 256 << 20;
const ROUND_BYTES: usize = 16 << 20;
const ROUNDS: usize = 25;

/// A line, with [`PADDING`] bytes after it that belong to nobody.
#[derive(Clone)]
struct Line(Vec<u8>);

impl Line {
    fn new(mut line: Vec<u8>) -> Self {
        line.resize(line.len() + PADDING, 0);
        Self(line)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.0.len() - PADDING]
    }
}

/// One way through a line; gives its number of records, if that is what it looks for.
type Peer = Box<dyn FnMut(&Line) -> Option<usize>>;

fn decode(decoder: &mut Decoder, line: &[u8]) -> RecordBatch {
    decoder.feed(line);
    match decoder.next_message() {
        Some(Ok(Message::ProcessRecords(batch))) => batch,
        other => panic!("no processRecords line: {other:?}"),
    }
}

/// The codec, which has shown that it reads the same on each instruction set.
fn codec(isa: Isa, line: &Line, expected: &RecordBatch) -> Peer {
    let mut decoder = Decoder::with_isa(isa, DEFAULT_MAX_LINE_BYTES);
    let batch = decode(&mut decoder, line.bytes());
    assert!(batch.as_arrow() == expected.as_arrow(), "{} and portable read different records", isa.name());
    Box::new(move |line| Some(decode(&mut decoder, line.bytes()).len()))
}

/// simdjson, which has shown that it reads what the codec does.
fn simdjson(line: &Line, any_order: bool, expected: &RecordBatch) -> Peer {
    let mut peer = Simdjson::new(any_order);
    assert!(peer.agrees(&line.0, expected), "simdjson and the codec read different records");
    Box::new(move |line| peer.scan(&line.0))
}

/// As a pipe gives it: pieces of 256 KiB, read into the decoder's own buffer.
fn pieces(isa: Isa) -> Peer {
    let mut decoder = Decoder::with_isa(isa, DEFAULT_MAX_LINE_BYTES);
    Box::new(move |line| {
        let mut message = None;
        for piece in line.bytes().chunks(fastkcl_codec::framing::READ_BYTES) {
            // In small steps: glibc copies 2 KiB and more by `rep movsb`, which takes Zen 4 five times as long here.
            for (to, from) in decoder.space().chunks_mut(1024).zip(piece.chunks(1024)) {
                to[..from.len()].copy_from_slice(from);
            }
            decoder.commit(piece.len());
            message = decoder.next_message();
        }
        match message {
            Some(Ok(Message::ProcessRecords(batch))) => Some(batch.len()),
            _ => None,
        }
    })
}

fn memcpy() -> Peer {
    let mut copy: Vec<u8> = Vec::new();
    Box::new(move |line| {
        copy.clear();
        copy.extend_from_slice(line.bytes());
        black_box(&copy);
        None
    })
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut json = None;
    if arguments.len() > 1 && arguments[0] == "--json" {
        json = arguments.drain(..2).next_back();
    }
    let mut measured = Vec::new();
    let folder = arguments.first().expect("usage: fastkcl-bench [--json FILE] FOLDER [WORD]");
    let mut paths: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| arguments.get(1).is_none_or(|word| path.to_string_lossy().contains(word))) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let line = Line::new(fs::read(path).expect("a line"));
        let length = line.bytes().len();
        let mut peers: Vec<(String, Peer)> = vec![("memcpy".into(), memcpy())];
        let expected = decode(&mut Decoder::with_isa(Isa::Portable, DEFAULT_MAX_LINE_BYTES), line.bytes());
        let records = expected.len();
        #[cfg(target_arch = "x86_64")]
        let plain = !["keys", "spaced", "shuffled"].iter().any(|word| name.contains(word));
        #[cfg(target_arch = "x86_64")]
        if plain && unchecked::is_supported() {
            let mut columns = unchecked::Columns::default();
            // SAFETY: supported, and the codec has decoded a line of this shape.
            unsafe { unchecked::scan(line.bytes(), &mut columns) };
            assert!(columns.agree(&expected), "the unchecked scanner and the codec read different records");
            peers.push((
                "unchecked".into(),
                Box::new(move |line| {
                    // SAFETY: supported, and the codec has decoded a line of this shape.
                    unsafe { unchecked::scan(line.bytes(), &mut columns) };
                    Some(columns.millis.len())
                }),
            ));
        }
        if !name.contains("shuffled") {
            peers.push(("simdjson, fixed order".into(), simdjson(&line, false, &expected)));
        }
        peers.push(("simdjson, any order".into(), simdjson(&line, true, &expected)));
        for isa in cpu::supported() {
            peers.push((format!("codec {}", isa.name()), codec(isa, &line, &expected)));
        }
        peers.push(("pieces".into(), pieces(cpu::supported()[0])));
        drop(expected);
        let copies = (ROTATING_BYTES / length).max(1) + 1;
        let rotating: Vec<Line> = (0..copies).map(|_| line.clone()).collect();
        for (place, warm) in [("warm", true), ("cold", false)] {
            let mut times = vec![Vec::new(); peers.len()];
            let mut next = 0;
            let count = (ROUND_BYTES / length).max(1);
            for round in 0..=ROUNDS {
                for (index, (_, peer)) in peers.iter_mut().enumerate() {
                    let start = Instant::now();
                    for _ in 0..count {
                        if !warm {
                            next = (next + 1) % copies;
                        }
                        if let Some(found) = peer(&rotating[next]) {
                            assert_eq!(found, records);
                        }
                    }
                    if round > 0 {
                        times[index].push(start.elapsed().as_secs_f64() / count as f64);
                    }
                }
            }
            println!("{name}, {place}: {} records, {} bytes", records, length);
            for ((peer, _), times) in peers.iter().zip(&mut times) {
                // Names of files, places and peers hold nothing that JSON escapes.
                measured.push(format!(
                    "{{\"suite\":\"codec, {place}\",\"profile\":\"{name}\",\"peer\":\"{peer}\",\"line_bytes\":{length},\
                     \"records\":{records},\"seconds\":{times:?}}}"
                ));
                times.sort_by(f64::total_cmp);
                let [best, quarter, median] = [times[0], times[times.len() / 4], times[times.len() / 2]].map(|time| {
                    let (speed, each) = (length as f64 / time / 1e9, time * 1e9 / records as f64);
                    format!("{speed:6.2} GB/s {each:9.0} ns/record")
                });
                println!("  {peer:21} best {best}   quarter {quarter}   median {median}");
            }
        }
    }
    if let Some(path) = json {
        fs::write(path, format!("[{}]\n", measured.join(",\n"))).expect("a place for the figures");
    }
}
