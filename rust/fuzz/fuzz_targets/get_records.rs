//! A GetRecords answer is the same on every instruction set and wherever its end falls; its values are those that
//! `serde_json` reads in it. CBOR is read or refused, at a place that there is.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use fastkcl_codec::Error;
use fastkcl_codec::cpu::{self, Isa};
use fastkcl_codec::kinesis::{Answer, Encoding, decode_get_records, decode_get_records_with_isa};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const BASE64: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A result in a form that compares.
fn comparable(result: Result<Answer, Error>) -> Value {
    match result {
        Ok(answer) => {
            let batch = &answer.batch;
            let record = |row: usize| {
                json!([
                    batch.data(row),
                    batch.partition_key(row),
                    batch.sequence_number(row),
                    batch.encryption_type(row),
                    batch.timestamp_micros(row),
                ])
            };
            let records: Vec<_> = (0..batch.len()).map(record).collect();
            let shards = format!("{:?}", answer.child_shards);
            json!(["answer", records, answer.next_shard_iterator, batch.millis_behind_latest(), shards])
        }
        Err(error) => {
            let reason = error.reason().map(|reason| reason.name());
            json!(["error", error.kind().name(), error.field(), error.record(), error.offset(), reason])
        }
    }
}

/// What `serde_json` reads in the records, times aside; none where it is no help.
fn reference(body: &[u8]) -> Option<Vec<Value>> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let record = |record: &Value| {
        let data = match &record["Data"] {
            Value::Null => Value::Null,
            text => json!(BASE64.decode(text.as_str()?).ok()?),
        };
        Some(json!([data, record["PartitionKey"], record["SequenceNumber"], record["EncryptionType"]]))
    };
    answer["Records"].as_array()?.iter().map(record).collect()
}

fuzz_target!(|input: &[u8]| {
    // The encoding, then the body: so a case's answer, after one byte, is a seed.
    let Some((&encoding, body)) = input.split_first() else { return };
    let encoding = match encoding {
        b'a' => Encoding::AmzCbor,
        b's' => Encoding::SmithyCbor,
        _ => Encoding::Json,
    };
    let portable = comparable(decode_get_records_with_isa(Isa::Portable, body, encoding));
    if portable[0] == "error" {
        let offset = portable[4].as_u64().expect("errors have a place");
        assert!(usize::try_from(offset).unwrap() <= body.len());
    }
    if encoding != Encoding::Json {
        return;
    }
    for isa in cpu::supported() {
        let found = comparable(decode_get_records_with_isa(isa, body, encoding));
        assert_eq!(found, portable, "{}", isa.name());
    }
    if portable[0] == "answer" {
        // Space after it moves the part that is parsed in place.
        let longer = [body, &[b' '; 70]].concat();
        assert_eq!(comparable(decode_get_records(&longer, encoding, None)), portable);
        if let Some(expected) = reference(body) {
            let records = portable[1].as_array().unwrap().iter();
            let found: Vec<_> = records.map(|record| json!([record[0], record[1], record[2], record[3]])).collect();
            assert_eq!(found, expected);
        }
    }
});
