//! Batches that are made, held, sliced and let go in any order, here and on another thread, beside decoders that give
//! their memory back: no batch has more bytes than it says it holds, resting buffers are counted, and at the end none
//! rests.

#![no_main]

#[allow(dead_code, reason = "only what chooses is needed")]
#[path = "../../codec/tests/grammar/mod.rs"]
mod grammar;

use fastkcl_codec::kcl::write::{RecordToWrite, process_records};
use fastkcl_codec::kcl::{Decoder, Dialect, Message};
use fastkcl_codec::kinesis::kpl::deaggregate;
use fastkcl_codec::kinesis::{Encoding, decode_get_records};
use fastkcl_codec::{RecordBatch, pool};
use grammar::Choices;
use libfuzzer_sys::fuzz_target;

/// More than all decoders' pools have places for.
const MOST_BUFFERS: usize = 1000;

fn line(choices: &mut Choices<'_>) -> Vec<u8> {
    let rows = choices.pick(&[0, 0, 1, 2, 130, 300]);
    let data = vec![7; choices.pick(&[0, 1, 50, 300, if rows > 2 { 1000 } else { 200_000 }])];
    let key = "k".repeat(choices.pick(&[0, 1, 40, 400]));
    let record = |row: usize| RecordToWrite {
        data: (row % 5 != 4).then_some(&data[..]),
        partition_key: &key,
        sequence_number: "12",
        sub_sequence_number: (row % 3 != 2).then_some(1),
        timestamp_millis: (row % 7 != 6).then_some(1_748_736_000_000),
    };
    process_records((0..rows).map(record), None, Dialect::Modern)
}

fn check(batch: &RecordBatch) {
    assert!(batch.nbytes() <= batch.capacity_bytes(), "{} of {}", batch.nbytes(), batch.capacity_bytes());
    let stats = pool::stats();
    assert!(stats.buffers < MOST_BUFFERS && stats.bytes < 1 << 40, "{stats:?}");
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let before = pool::stats();
    let mut decoders = [Decoder::new(1 << 30), Decoder::new(1 << 30)];
    let mut held: Vec<RecordBatch> = Vec::new();
    for _ in 0..12 {
        let which = choices.below(2);
        match choices.below(10) {
            0..4 => {
                decoders[which].feed(&line(&mut choices));
                let Some(Ok(Message::ProcessRecords(batch))) = decoders[which].next_message() else {
                    panic!("a line that was written is read")
                };
                held.push(batch);
            }
            4 => decoders[which].release_memory(),
            5 if !held.is_empty() => {
                let batch = &held[choices.below(held.len())];
                let offset = choices.below(batch.len() + 1);
                let slice = batch.slice(offset, choices.below(batch.len() - offset + 1));
                held.push(slice);
            }
            6 if !held.is_empty() => {
                let batch = &held[choices.below(held.len())];
                let other = if choices.one_in(2) {
                    batch.canonical()
                } else {
                    deaggregate(batch, &(0..=u128::MAX), usize::MAX).expect("so little fits").batch
                };
                held.push(other);
            }
            7 if !held.is_empty() => {
                // The buffers come back on another thread while this one gives memory back.
                let batch = held.swap_remove(choices.below(held.len()));
                let letting_go = std::thread::spawn(move || drop(batch));
                decoders[which].release_memory();
                letting_go.join().expect("letting go");
            }
            8 => {
                let answer = decode_get_records(b"{\"Records\":[]}", Encoding::Json, None);
                held.push(answer.expect("an answer").batch);
            }
            _ if !held.is_empty() => drop(held.swap_remove(choices.below(held.len()))),
            _ => {}
        }
        held.iter().for_each(check);
    }
    drop(held);
    decoders.iter_mut().for_each(Decoder::release_memory);
    drop(decoders);
    let after = pool::stats();
    // What may rest besides belongs to all answers of the process.
    assert!(after.buffers <= before.buffers + 10 && after.bytes < 1 << 24, "{before:?}, {after:?}");
});
