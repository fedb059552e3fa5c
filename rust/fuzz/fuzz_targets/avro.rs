//! Whatever the walk takes arrow-avro decodes, and whatever decodes the walk takes, but where it is stricter by intent:
//! any bytes for schemas of every type, and for pairs of a writer and a reader.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fastkcl_codec::payload::{Compression, Framing, SchemaFormat, SchemaReader};
use libfuzzer_sys::fuzz_target;

const ALL: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"a","type":"boolean"},{"name":"b","type":["null","int"]},{"name":"c","type":["long","null"]},
    {"name":"d","type":"float"},{"name":"e","type":["double"]},{"name":"f","type":"bytes"},{"name":"g","type":"string"},
    {"name":"h","type":{"type":"fixed","name":"F","size":3}},
    {"name":"i","type":{"type":"enum","name":"E","symbols":["A","B"]}},
    {"name":"j","type":{"type":"array","items":["null","string"]}},
    {"name":"k","type":{"type":"map","values":{"type":"array","items":"int"}}},
    {"name":"l","type":["null",{"type":"record","name":"S","fields":[{"name":"x","type":["null","string"]}]}]},
    {"name":"m","type":{"type":"bytes","logicalType":"decimal","precision":5,"scale":1}},
    {"name":"n","type":{"type":"long","logicalType":"timestamp-millis"}}]}"#;

/// A writer, and a reader that drops, fills, promotes, renames and reorders.
const WRITER: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"gone","type":{"type":"array","items":{"type":"map","values":["null","string","int"]}}},
    {"name":"n","type":"int"},{"name":"u","type":["null","int","long","string"]},
    {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B","C"]}},
    {"name":"l","type":{"type":"array","items":{"type":"record","name":"I","fields":[
        {"name":"a","type":"float"},{"name":"z","type":"null"}]}}},
    {"name":"s","type":"string"},{"name":"empty","type":{"type":"array","items":"null"}}]}"#;
const READER: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"text","type":"bytes","aliases":["s"]},{"name":"u","type":["null","double"]},
    {"name":"l","type":{"type":"array","items":{"type":"record","name":"I","fields":[
        {"name":"new","type":"string","default":"x"},{"name":"a","type":["null","double"]}]}}},
    {"name":"e","type":{"type":"enum","name":"E","symbols":["B","A"]}},{"name":"n","type":["null","long"]}]}"#;

static READERS: LazyLock<[SchemaReader; 2]> = LazyLock::new(|| {
    let reader = |schema: &str, framing| {
        let format = SchemaFormat::Avro(schema.to_owned());
        SchemaReader::new(format, framing, &BTreeMap::new(), Compression::None, 1 << 20, false).expect("a schema")
    };
    let pair = reader(READER, Framing::Confluent);
    pair.add(0, WRITER.as_bytes()).expect("it resolves");
    [reader(ALL, Framing::None), pair]
});

fuzz_target!(|bytes: &[u8]| {
    if let [which, body @ ..] = bytes {
        READERS[usize::from(which % 2)].assert_agreement(body);
    }
});
