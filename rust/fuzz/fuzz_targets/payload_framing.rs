//! Any bytes are a record in each framing: with a header, or corrupt; between good records, which stay as they are.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastkcl_codec::RecordBatch;
use fastkcl_codec::kinesis::{Encoding, decode_get_records};
use fastkcl_codec::payload::{Compression, Framing, SchemaFormat, SchemaReader, fingerprint};
use libfuzzer_sys::fuzz_target;

const SCHEMA: &str = r#"{"type":"record","name":"R","fields":[{"name":"s","type":"string"}]}"#;

static READERS: LazyLock<Vec<(SchemaReader, Vec<u8>)>> = LazyLock::new(|| {
    let own = fingerprint(SCHEMA).expect("a schema");
    let headers = [
        (Framing::None, vec![]),
        (Framing::Glue, [&[3, 0][..], &[7; 16]].concat()),
        (Framing::Confluent, vec![0, 0, 0, 0, 7]),
        (Framing::SingleObject, [&[0xc3, 1][..], &own.to_le_bytes()].concat()),
    ];
    let reader = |(framing, header): (Framing, Vec<u8>)| {
        let format = SchemaFormat::Avro(SCHEMA.to_owned());
        let reader = SchemaReader::new(format, framing, &BTreeMap::new(), Compression::Auto, 1 << 16, true);
        (reader.expect("a schema"), header)
    };
    headers.into_iter().map(reader).collect()
});

fn batch(payloads: &[&[u8]]) -> RecordBatch {
    let record = |payload: &&[u8]| {
        format!(r#"{{"Data":"{}","PartitionKey":"k","SequenceNumber":"1"}}"#, STANDARD.encode(payload))
    };
    let records: Vec<String> = payloads.iter().map(record).collect();
    let body = format!(r#"{{"Records":[{}]}}"#, records.join(","));
    decode_get_records(body.as_bytes(), Encoding::Json, None).expect("an answer").batch
}

fuzz_target!(|payload: &[u8]| {
    for (reader, header) in &*READERS {
        let good = [&header[..], b"\x02a"].concat();
        let batch = batch(&[&good, payload, &good]);
        for id in reader.unknown(&batch) {
            assert_eq!(reader.framing().id(&reader.framing().text(id)), Some(id));
            if id < 16 || reader.framing().text(id).ends_with("0707") {
                reader.add(id, SCHEMA.as_bytes()).expect("it is the reader's");
            } else {
                assert!(reader.reject(id, "odd".to_owned()));
            }
        }
        let opened = reader.open(&batch, 0, 1 << 20).expect("every id is known").arrow;
        assert_eq!(opened.num_rows(), 3);
        let (values, corrupt) = (opened.column(0), opened.column(opened.num_columns() - 1));
        assert!(values.is_valid(0) && values.is_valid(2) && corrupt.is_null(0) && corrupt.is_null(2));
        assert_ne!(values.is_valid(1), corrupt.is_valid(1));
    }
});
