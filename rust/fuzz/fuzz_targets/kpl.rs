//! Any message after the magic number and before its digest is delivered, dropped or plain; delivered records are the
//! same after they have been packed again. Netstrings that are read are those that are written.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastkcl_codec::RecordBatch;
use fastkcl_codec::kinesis::kpl::{Aggregate, MAX_BATCH_BYTES, deaggregate, user_data};
use fastkcl_codec::kinesis::{Encoding, decode_get_records, netstring};
use libfuzzer_sys::fuzz_target;
use md5::Digest;

fn batch(data: &[u8]) -> RecordBatch {
    let data = STANDARD.encode(data);
    let body = format!(r#"{{"Records":[{{"Data":"{data}","PartitionKey":"k","SequenceNumber":"1"}}]}}"#);
    decode_get_records(body.as_bytes(), Encoding::Json, None).expect("an answer").batch
}

type User = (String, Option<String>, Vec<u8>);

fn users(batch: &RecordBatch) -> Vec<User> {
    let user = |row: usize| {
        let hash_key = batch.explicit_hash_key(row).map(str::to_owned);
        (batch.partition_key(row).to_owned(), hash_key, batch.data(row).expect("no null").to_vec())
    };
    (0..batch.len()).map(user).collect()
}

fuzz_target!(|message: &[u8]| {
    if let Ok(items) = netstring::split(message).collect::<Result<Vec<_>, _>>() {
        let written: Vec<u8> =
            items.iter().flat_map(|item| [item.len().to_string().as_bytes(), b":", item, b","].concat()).collect();
        assert_eq!(written, message);
    }
    let mut data = vec![0xf3, 0x89, 0x9a, 0xc2];
    data.extend_from_slice(message);
    data.extend_from_slice(&md5::Md5::digest(message));
    let taken = deaggregate(&batch(&data), &(0..=u128::MAX), MAX_BATCH_BYTES).expect("one record always fits");
    let outcomes = taken.aggregates + taken.dropped_aggregates + taken.fallbacks.iter().sum::<usize>();
    assert_eq!(outcomes, usize::from(!message.is_empty()));
    if taken.aggregates == 0 {
        return;
    }
    let delivered = users(&taken.batch);
    let plain: Vec<_> = delivered.iter().map(|user| user.2.as_slice()).collect();
    assert_eq!(user_data(&data).expect("an aggregate"), plain);
    let mut again = Aggregate::default();
    for (key, hash_key, data) in &delivered {
        let size = again.size_with(key, data.len(), hash_key.as_deref());
        if again.add(key, data, hash_key.as_deref()).is_err() {
            return;
        }
        assert_eq!(again.size(), size);
    }
    if !again.is_empty() {
        assert_eq!(again.encode().len() + delivered[0].0.len(), again.size());
        let packed =
            deaggregate(&batch(&again.encode()), &(0..=u128::MAX), MAX_BATCH_BYTES).expect("one record always fits");
        assert_eq!(users(&packed.batch), delivered);
    }
});
