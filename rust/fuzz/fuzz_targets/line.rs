//! A decoder fed whole, in pieces and byte by byte, on every instruction set, gives the same messages and errors; the
//! values of a line are those that `serde_json` reads in it.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use fastkcl_codec::cpu::{self, Isa};
use fastkcl_codec::kcl::{Decoder, Message};
use fastkcl_codec::{Error, RecordBatch};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const BASE64: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

fn records(batch: &RecordBatch) -> Vec<Value> {
    let record = |row: usize| {
        json!([
            batch.data(row),
            batch.partition_key(row),
            batch.sequence_number(row),
            batch.sub_sequence_number(row),
            batch.timestamp_micros(row),
        ])
    };
    (0..batch.len()).map(record).collect()
}

/// A result in a form that compares.
fn comparable(result: Result<Message, Error>) -> Value {
    match result {
        Ok(Message::ProcessRecords(batch)) => json!(["records", records(&batch), batch.millis_behind_latest()]),
        Ok(other) => json!(format!("{other:?}")),
        Err(error) => {
            let reason = error.reason().map(|reason| reason.name());
            json!(["error", error.kind().name(), error.field(), error.record(), error.offset(), reason])
        }
    }
}

fn results(isa: Isa, bytes: &[u8], max_line_bytes: usize, pieces: &[u8]) -> Vec<Value> {
    let mut decoder = Decoder::with_isa(isa, max_line_bytes);
    let mut pieces = pieces.iter().map(|piece| usize::from(*piece) + 1).cycle();
    let (mut rest, mut results) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(pieces.next().unwrap_or(usize::MAX).min(rest.len()));
        rest = after;
        decoder.feed(piece);
        results.extend(std::iter::from_fn(|| decoder.next_message()).map(comparable));
    }
    results.extend(decoder.finish().map(comparable));
    results
}

/// What `serde_json` reads in a line whose members all have one value; none where it is no help.
fn reference(line: &[u8]) -> Option<Vec<Value>> {
    if line.windows(2).any(|pair| pair == b"-0") {
        // A float, to serde_json.
        return None;
    }
    let line: Value = serde_json::from_slice(line).ok()?;
    let record = |record: &Value| {
        let data = match &record["data"] {
            Value::Null => Value::Null,
            text => json!(BASE64.decode(text.as_str()?).ok()?),
        };
        let micros = record["approximateArrivalTimestamp"].as_i64().map(|millis| millis.wrapping_mul(1000));
        Some(json!([data, record["partitionKey"], record["sequenceNumber"], record["subSequenceNumber"], micros]))
    };
    line["records"].as_array()?.iter().map(record).collect()
}

fuzz_target!(|input: &[u8]| {
    // The limit, how the input is cut, the input: so a case's line, after six bytes, is a seed.
    let Some((&[low, high, ref pieces @ ..], bytes)) = input.split_first_chunk::<6>() else { return };
    let max_line_bytes = usize::from(u16::from_le_bytes([low, high])) + 1;
    let whole = results(Isa::Portable, bytes, max_line_bytes, &[]);
    for isa in cpu::supported() {
        for pieces in [&[][..], &[0], pieces] {
            assert_eq!(results(isa, bytes, max_line_bytes, pieces), whole, "{} in {pieces:?}", isa.name());
        }
    }
    // One valid line of records: what another parser reads in it.
    if let [result] = &whole[..]
        && result[0] == "records"
        && !bytes.contains(&b'\n')
        && let Some(expected) = reference(bytes)
    {
        assert_eq!(result[1], Value::Array(expected));
    }
});
