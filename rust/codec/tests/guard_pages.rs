//! No read or write beyond the given input, which ends, or begins, where memory does.

mod guard;

use fastkcl_codec::kcl::write::{RecordToWrite, process_records};
use fastkcl_codec::kcl::{self, Decoder, Dialect, Message};
use fastkcl_codec::kinesis::{Encoding, decode_get_records_with_isa};
use fastkcl_codec::{base64, cpu};
use guard::Pages;

/// `bytes`, the last of them before the guard.
fn at_the_end<'a>(pages: &'a mut Pages, bytes: &[u8]) -> &'a [u8] {
    let all = pages.bytes();
    let from = all.len() - bytes.len();
    all[from..].copy_from_slice(bytes);
    &all[from..]
}

/// `bytes`, the first of them after the guard.
fn at_the_start<'a>(pages: &'a mut Pages, bytes: &[u8]) -> &'a [u8] {
    let place = &mut pages.bytes()[..bytes.len()];
    place.copy_from_slice(bytes);
    place
}

#[test]
fn base64_of_every_length() {
    let mut page = Pages::new(4096);
    let data: Vec<u8> = (0..=255).cycle().take(600).collect();
    for length in 0..data.len() {
        let text = base64::encode(at_the_end(&mut page, &data[..length]));
        assert_eq!(base64::encode(at_the_start(&mut page, &data[..length])), text);
        assert_eq!(base64::decode(at_the_end(&mut page, text.as_bytes())).unwrap(), &data[..length]);
        assert_eq!(base64::decode(at_the_start(&mut page, text.as_bytes())).unwrap(), &data[..length]);
    }
}

/// Large pieces are decoded where they stand, so their ends matter: whole lines, and lines cut at every place.
#[test]
fn lines_of_every_length() {
    let mut page = Pages::new(4096);
    let data: Vec<u8> = (0..=255).cycle().take(1100).collect();
    for isa in cpu::supported() {
        for length in (0..300).chain(900..1100) {
            let record = RecordToWrite {
                data: Some(&data[..length]),
                partition_key: "key",
                sequence_number: "49590338271490256608559692538361571095921575989136588898",
                sub_sequence_number: Some(0),
                timestamp_millis: Some(1_700_000_000_123),
            };
            let line = process_records([record].into_iter(), Some(7), Dialect::Modern);
            for place in [at_the_end, at_the_start] {
                let mut decoder = Decoder::with_isa(isa, kcl::DEFAULT_MAX_LINE_BYTES);
                decoder.feed(place(&mut page, &line));
                let Some(Ok(Message::ProcessRecords(batch))) = decoder.next_message() else { panic!("no batch") };
                assert_eq!(batch.data(0), Some(&data[..length]), "{length} on {}", isa.name());
            }
        }
        let record = RecordToWrite {
            data: Some(&data),
            partition_key: "key",
            sequence_number: "1",
            sub_sequence_number: None,
            timestamp_millis: None,
        };
        let line = process_records([record].into_iter(), None, Dialect::Modern);
        for cut in 1..line.len() {
            let mut decoder = Decoder::with_isa(isa, kcl::DEFAULT_MAX_LINE_BYTES);
            decoder.feed(at_the_end(&mut page, &line[..cut]));
            decoder.feed(at_the_end(&mut page, &line[cut..]));
            let Some(Ok(Message::ProcessRecords(batch))) = decoder.next_message() else { panic!("no batch") };
            assert_eq!(batch.data(0), Some(&data[..]), "cut at {cut} on {}", isa.name());
        }
    }
}

/// Answers are parsed where they stand, but for their last bytes.
#[test]
fn answers_of_every_length() {
    let mut page = Pages::new(4096);
    let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for isa in cpu::supported() {
        for length in (0..300).chain(900..1000) {
            let text = base64::encode(&data[..length]);
            let body = format!(
                r#"{{"Records":[{{"SequenceNumber":"1","ApproximateArrivalTimestamp":1748736000.5,"Data":"{text}",
                "PartitionKey":"key"}},{{"Data":"{text}","PartitionKey":"key","SequenceNumber":"2"}}]}}"#
            );
            for place in [at_the_end, at_the_start] {
                let body = place(&mut page, body.as_bytes());
                let batch = decode_get_records_with_isa(isa, body, Encoding::Json).unwrap().batch;
                for row in [0, 1] {
                    assert_eq!(batch.data(row), Some(&data[..length]), "{length} on {}", isa.name());
                }
            }
        }
    }
}
