//! Whatever the walk takes ptars-core decodes, and whatever decodes the walk takes, but where it is stricter by intent.

#![no_main]

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use fastkcl_codec::payload::{Compression, Framing, SchemaFormat, SchemaReader, compile_proto};
use libfuzzer_sys::fuzz_target;

const TEXT: &str = r#"syntax = "proto3";
    import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    import "google/type/date.proto";
    enum E { A = 0; B = 1; }
    message M {
        int32 a = 1; optional sint64 b = 2; fixed32 c = 3; double d = 4; bool e = 5; string f = 6; bytes g = 7; E h = 8;
        repeated int32 i = 9; repeated fixed64 j = 10; repeated string k = 11; N l = 12; repeated N m = 13;
        map<string, N> n = 14; map<int32, string> o = 15; oneof q { string r = 16; N s = 17; int32 t = 18; }
        google.protobuf.Timestamp u = 19; repeated google.protobuf.Timestamp v = 20;
        google.protobuf.StringValue w = 21; google.protobuf.Int32Value x = 22; repeated E y = 23;
        map<int32, google.protobuf.Timestamp> z = 24; map<string, google.protobuf.StringValue> za = 25;
        map<int32, google.type.Date> zb = 26; google.type.Date zc = 27; map<sint32, E> zd = 28;
        map<fixed32, google.protobuf.UInt64Value> ze = 29; map<bool, bytes> zf = 30;
    }
    message N { optional int32 a = 1; P p = 2; } message P { string b = 1; map<bool, double> c = 2; }"#;

const DATE: &str = r#"syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"#;

static READER: LazyLock<SchemaReader> = LazyLock::new(|| {
    let files = HashMap::from([("m.proto", TEXT), ("google/type/date.proto", DATE)].map(|(name, text)| (name.to_owned(), text.to_owned())));
    let set = compile_proto(&files, "m.proto").expect("a text");
    let format = SchemaFormat::Protobuf(set, Some("M".to_owned()));
    SchemaReader::new(format, Framing::None, &BTreeMap::new(), Compression::None, 1 << 20, false).expect("a message")
});

fuzz_target!(|bytes: &[u8]| READER.assert_agreement(bytes));
