//! Answers of the service on every instruction set, beside `serde_json`; KPL aggregates by the case file.

mod case_files;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use case_files::cases;
use fastkcl_codec::RecordBatch;
use fastkcl_codec::cpu;
use fastkcl_codec::kinesis::kpl::{Aggregate, MAX_BATCH_BYTES, TooLarge, deaggregate};
use fastkcl_codec::kinesis::{Encoding, decode_get_records, decode_get_records_with_isa};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};
use proptest::strategy::Strategy;
use serde_json::{Value, json};

/// Members of a record in the order that `order` sorts them into.
fn record(data: &[u8], key: &str, encryption_type: Option<&str>, order: u64) -> Value {
    let mut members = vec![
        ("Data", json!(STANDARD.encode(data))),
        ("PartitionKey", json!(key)),
        ("SequenceNumber", json!(order.to_string())),
        ("ApproximateArrivalTimestamp", json!(1_748_736_000.123_456)),
        ("Unknown", json!({"a": [1, null, "]}"]})),
    ];
    members.extend(encryption_type.map(|text| ("EncryptionType", json!(text))));
    let count = members.len() as u64;
    members.rotate_left(usize::try_from(order % count).unwrap());
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

proptest! {
    #[test]
    fn answers_are_what_serde_json_reads(
        records in prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..200),
                "\\PC{0,20}",
                prop::option::of("(NONE|KMS|\\PC{0,3})"),
                any::<u64>(),
            ),
            0..8,
        ),
        others_first in any::<bool>(),
        pretty in any::<bool>(),
        space in 0_usize..80,
        iterator in "\\PC{0,80}".prop_map(|text| text + "\u{1}\"\\"),
    ) {
        let rows: Vec<_> =
            records.iter().map(|(data, key, encryption, order)| record(data, key, encryption.as_deref(), *order)).collect();
        let mut members = vec![
            ("Records".to_owned(), json!(rows)),
            ("NextShardIterator".to_owned(), json!(iterator)),
            ("MillisBehindLatest".to_owned(), json!(i64::MAX)),
        ];
        if others_first {
            members.reverse();
        }
        let answer = Value::Object(members.into_iter().collect());
        let mut body = if pretty { serde_json::to_vec_pretty(&answer) } else { serde_json::to_vec(&answer) }.unwrap();
        body.resize(body.len() + space, b'\n');
        for isa in cpu::supported() {
            let found = decode_get_records_with_isa(isa, &body, Encoding::Json).unwrap();
            let batch = &found.batch;
            prop_assert_eq!(found.next_shard_iterator.as_deref(), Some(iterator.as_str()));
            prop_assert_eq!(batch.millis_behind_latest(), Some(i64::MAX));
            prop_assert_eq!(batch.len(), records.len());
            for (row, (data, key, encryption, order)) in records.iter().enumerate() {
                prop_assert_eq!(batch.data(row), Some(data.as_slice()));
                prop_assert_eq!(batch.partition_key(row), key);
                prop_assert_eq!(batch.encryption_type(row), encryption.as_deref());
                prop_assert_eq!(batch.sequence_number(row), order.to_string());
                prop_assert_eq!(batch.timestamp_micros(row), Some(1_748_736_000_123_456));
                prop_assert_eq!(batch.sub_sequence_number(row), None);
            }
            let span: Value = serde_json::from_slice(&body[found.records_span]).unwrap();
            prop_assert_eq!(span, json!(rows));
        }
    }
}

fn data(case: &Value) -> Vec<u8> {
    STANDARD.decode(case["data_b64"].as_str().unwrap()).unwrap()
}

#[test]
fn aggregates_are_encoded_as_in_the_case_file() {
    for case in cases("kpl", "encode") {
        let mut aggregate = Aggregate::default();
        for user in case["users"].as_array().unwrap() {
            let (key, hash_key) = (user["partition_key"].as_str().unwrap(), user["explicit_hash_key"].as_str());
            aggregate.add(key, &bytes_of_hex(&user["data_hex"]), hash_key).unwrap();
        }
        assert_eq!(aggregate.encode(), data(&case), "{case}");
    }
}

#[test]
fn records_are_taken_apart_as_in_the_case_file() {
    for case in ["aggregated", "plain", "hash_range"].into_iter().flat_map(|kind| cases("kpl", kind)) {
        let body = json!({"Records": [
            {"Data": case["data_b64"], "PartitionKey": case["partition_key"], "SequenceNumber": "1"}
        ]});
        let batch = decode_get_records(body.to_string().as_bytes(), Encoding::Json, None).unwrap().batch;
        let bound =
            |index: usize, all: u128| case["hash_range"][index].as_str().map_or(all, |key| key.parse().unwrap());
        let users = deaggregate(&batch, &(bound(0, 0)..=bound(1, u128::MAX)), MAX_BATCH_BYTES).unwrap().batch;
        let expected = case["records"].as_array().unwrap();
        assert_eq!(users.len(), expected.len(), "{case}");
        for (row, user) in expected.iter().enumerate() {
            assert_eq!(users.data(row), Some(bytes_of_hex(&user["data_hex"]).as_slice()), "{case}");
            assert_eq!(users.partition_key(row), user["partition_key"], "{case}");
            assert_eq!(json!(users.explicit_hash_key(row)), user["explicit_hash_key"], "{case}");
            assert_eq!(json!(users.sub_sequence_number(row)), user["sub_sequence_number"], "{case}");
            assert_eq!(json!(users.aggregated(row)), user["aggregated"], "{case}");
        }
    }
}

/// The record of an aggregate of `users` user records.
fn aggregated(users: usize, sequence_number: &str) -> Value {
    let mut aggregate = Aggregate::default();
    for _ in 0..users {
        aggregate.add("k", b"d", None).unwrap();
    }
    json!({"Data": STANDARD.encode(aggregate.encode()), "PartitionKey": "k", "SequenceNumber": sequence_number})
}

fn batch_of(records: &[Value]) -> RecordBatch {
    let body = json!({ "Records": records }).to_string();
    decode_get_records(body.as_bytes(), Encoding::Json, None).unwrap().batch
}

/// A plain record counts with all of its values: those that aggregates have multiplied leave no room for it.
#[test]
fn what_does_not_fit_is_too_large_whatever_record_it_is() {
    let digits = "7".repeat(1000);
    let plain =
        json!({"Data": "QQ==", "PartitionKey": "k", "SequenceNumber": digits, "EncryptionType": "K".repeat(5000)});
    let batch = batch_of(&[aggregated(9, &digits), plain]);
    let everything = 0..=u128::MAX;
    // Beside its values each user record takes five offsets, a sub-sequence number and a time. Nine and ten rows take two
    // bytes in each of five columns of bits, and five columns have one offset more than rows.
    let aggregate = 9 * (1 + 1 + 1000 + 36) + 5 * 2 + 5 * 4;
    let plain = 1 + 1 + 1000 + 5000 + 36;
    for (most, fits) in [(aggregate - 1, false), (aggregate + plain - 1, false), (aggregate + plain, true)] {
        assert_eq!(deaggregate(&batch, &everything, most).is_ok(), fits, "{most}");
    }
    let batch = batch.slice(1, 1);
    assert!(deaggregate(&batch, &everything, 1).is_ok(), "a batch without aggregates keeps its columns");
}

/// The same at the real bound, with 2 GiB of sequence numbers.
#[test]
#[ignore = "needs 2 GiB of memory"]
fn a_hostile_answer_is_too_large() {
    let plain = json!({"Data": "QQ==", "PartitionKey": "k", "SequenceNumber": "7".repeat(300_000_000)});
    let most = "7".repeat(100_000);
    let mut records: Vec<_> = (0..19).map(|_| aggregated(1000, &most)).collect();
    records.push(plain);
    let everything = 0..=u128::MAX;
    assert_eq!(deaggregate(&batch_of(&records), &everything, usize::MAX).unwrap_err(), TooLarge);
}

#[test]
fn sizes_beyond_memory_are_added_without_overflow() {
    assert_eq!(Aggregate::default().size_with("k", usize::MAX, None), usize::MAX);
}

fn bytes_of_hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap().as_bytes();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
