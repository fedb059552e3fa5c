//! Answers of aggregates and plain records that the bytes choose part by part, with sizes, counts and indexes that lie,
//! taken apart within a bound that they can pass: an answer that does not fit is refused, never a panic, and only such
//! an answer is.

#![no_main]

#[allow(dead_code, reason = "only what chooses is needed")]
#[path = "../../codec/tests/grammar/mod.rs"]
mod grammar;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastkcl_codec::RecordBatch;
use fastkcl_codec::kinesis::kpl::deaggregate;
use fastkcl_codec::kinesis::{Encoding, decode_get_records};
use grammar::Choices;
use libfuzzer_sys::fuzz_target;
use md5::Digest;
use serde_json::json;

const MAGIC: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// A number that is nearly right, or one that overflows something.
fn lying(choices: &mut Choices<'_>, value: u64) -> u64 {
    match choices.below(24) {
        0 => choices.pick(&[
            0,
            1,
            0x7f,
            0x80,
            u64::from(u32::MAX),
            1 << 31,
            (1 << 31) - 1,
            1 << 63,
            u64::MAX,
            u64::MAX - 15,
        ]),
        1 => value + 1,
        2 => value.saturating_sub(1),
        _ => value,
    }
}

fn bytes_field(choices: &mut Choices<'_>, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    varint(number << 3 | 2, out);
    varint(lying(choices, bytes.len() as u64), out);
    out.extend_from_slice(bytes);
}

fn varint_field(choices: &mut Choices<'_>, number: u64, value: u64, out: &mut Vec<u8>) {
    varint(number << 3, out);
    varint(lying(choices, value), out);
}

fn aggregate(choices: &mut Choices<'_>) -> Vec<u8> {
    let (mut body, keys) = (Vec::new(), 1 + choices.below(3));
    for _ in 0..keys {
        let key = vec![choices.pick(&[b'k', b'a', 0xff, b'x', b'y']); choices.pick(&[0, 1, 1, 3, 200])];
        bytes_field(choices, 1, &key, &mut body);
    }
    let hash_keys = choices.below(3);
    for _ in 0..hash_keys {
        let key = choices.pick(&[
            &b"0"[..],
            b"5",
            b"340282366920938463463374607431768211455",
            b"-0",
            b"x",
            b"9999999999999999999999999999999999999999",
        ]);
        bytes_field(choices, 2, key, &mut body);
    }
    for _ in 0..choices.pick(&[0, 1, 1, 2, 3, 40]) {
        let mut record = Vec::new();
        let key = choices.below(keys) as u64;
        varint_field(choices, 1, key, &mut record);
        if hash_keys > 0 && choices.one_in(2) {
            let key = choices.below(hash_keys) as u64;
            varint_field(choices, 2, key, &mut record);
        }
        let data = vec![b'd'; choices.pick(&[0, 1, 2, 60])];
        bytes_field(choices, 3, &data, &mut record);
        match choices.below(12) {
            0 => bytes_field(choices, 4, b"\x0a\x01t", &mut record),
            1 => bytes_field(choices, 4, b"\x12\x01t", &mut record),
            2 => record.extend_from_slice(&[0x2b; 101][..choices.pick(&[1, 2, 100])]),
            3 => record.extend_from_slice(b"\x2b\x2c"),
            4 => record.extend_from_slice(b"\x2d1234\x311234"),
            _ => {}
        }
        bytes_field(choices, 3, &record, &mut body);
    }
    let mut data = MAGIC.to_vec();
    data.extend_from_slice(&body);
    let mut digest = md5::Md5::digest(&body).to_vec();
    if choices.one_in(16) {
        digest[0] ^= 1;
    }
    data.extend_from_slice(&digest);
    data
}

fn answer(choices: &mut Choices<'_>) -> RecordBatch {
    let count = 1 + choices.below(6);
    let records: Vec<_> = (0..count)
        .map(|_| {
            let data = if choices.one_in(3) { vec![b'p'; choices.pick(&[0, 1, 70])] } else { aggregate(choices) };
            let mut record = json!({
                "Data": STANDARD.encode(data),
                "PartitionKey": "k".repeat(choices.pick(&[0, 1, 30])),
                "SequenceNumber": "7".repeat(choices.pick(&[0, 1, 56, 300])),
            });
            if choices.one_in(2) {
                record["EncryptionType"] = json!("KMS ".repeat(choices.pick(&[0, 1, 50])));
            }
            record
        })
        .collect();
    let body = json!({ "Records": records }).to_string();
    decode_get_records(body.as_bytes(), Encoding::Json, None).expect("an answer").batch
}

/// What `max_bytes` bounds: values, 36 bytes a row, five columns of bits, and the last offset of five columns. No rows take
/// nothing.
fn size(batch: &RecordBatch) -> usize {
    let of_row = |row| {
        36 + batch.data(row).map_or(0, <[u8]>::len)
            + batch.partition_key(row).len()
            + batch.sequence_number(row).len()
            + batch.encryption_type(row).map_or(0, str::len)
            + batch.explicit_hash_key(row).map_or(0, str::len)
    };
    let last_offsets = if batch.is_empty() { 0 } else { 5 * 4 };
    (0..batch.len()).map(of_row).sum::<usize>() + 5 * batch.len().div_ceil(8) + last_offsets
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let bound = choices.below(1 << 14);
    let owned = choices.pick(&[(0, u128::MAX), (0, u128::MAX), (0, u128::MAX / 2), (5, 5), (u128::MAX, 0)]);
    let owned = owned.0..=owned.1;
    let batch = answer(&mut choices);
    let whole = deaggregate(&batch, &owned, usize::MAX).expect("so little fits");
    assert!(whole.batch.nbytes() <= whole.batch.capacity_bytes());
    let again = deaggregate(&whole.batch, &owned, 0).expect("nothing to do");
    assert_eq!(again.batch.as_arrow(), whole.batch.as_arrow());
    let size = size(&whole.batch);
    for most in [bound, size, size.saturating_sub(1)] {
        match deaggregate(&batch, &owned, most) {
            // A batch without aggregates keeps its own columns, which fit.
            Ok(taken) => {
                assert_eq!(taken.batch.as_arrow(), whole.batch.as_arrow());
                assert!(
                    size <= most
                        || taken.aggregates + taken.dropped_aggregates + taken.fallbacks.iter().sum::<usize>() == 0
                );
            }
            Err(_) => assert!(size > most, "{size} bytes fit into {most}"),
        }
    }
    let rows: usize = (0..batch.len())
        .map(|row| {
            let one = deaggregate(&batch.slice(row, 1), &owned, usize::MAX).expect("so little fits");
            assert!(one.batch.nbytes() <= one.batch.capacity_bytes());
            one.batch.len()
        })
        .sum();
    assert_eq!(rows, whole.batch.len());
});
