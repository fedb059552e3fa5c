//! The conformance cases of the protocol, whole and cut into pieces, on every instruction set of this CPU.
//!
//! Case files are read from `tests/data/cases`, or from the folder that `FASTKCL_CASES` names, which may hold some of
//! them only. `FASTKCL_REQUIRE_ISA` (a comma list) makes it a failure that this machine lacks a level.

mod case_files;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use case_files::{all_cases, cases, folder};
use fastkcl_codec::cpu::{self, Isa};
use fastkcl_codec::dkb;
use fastkcl_codec::framing::markers::Markers;
use fastkcl_codec::kcl::{self, Decoder, Message};
use fastkcl_codec::{Error, RecordBatch};
use serde_json::{Value, json};

/// The files that this crate is about, and their kinds. Kind dialogue is about a whole child: Python's tests play it.
const KINDS: &[(&str, &[&str])] = &[
    (
        "base64",
        &[
            "alphabet",
            "block_boundary",
            "canonical",
            "concatenated",
            "invalid_character",
            "json_escape",
            "padding",
            "raw_control",
            "rfc4648",
            "trailing_bits",
            "truncated",
            "white_space",
        ],
    ),
    // Kinds dialogue and options are about a whole worker: Python's tests play them.
    ("dkb-frames", &["decode", "dialogue", "options"]),
    ("json-grammar", &["accept", "reject", "either"]),
    ("kcl-modern", &["decode", "decode_error", "child_line", "dialogue"]),
    ("kcl-legacy", &["decode", "decode_error", "child_line", "dialogue"]),
    ("processv1-frames", &["frames", "write"]),
    ("processv1-json", &["json", "json_either", "json_error"]),
];

/// A case that no test knows must not pass for tested.
#[test]
fn every_case_is_of_a_known_kind() {
    let entries = std::fs::read_dir(folder()).expect("FASTKCL_CASES names a folder that can be read");
    let files =
        entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension() == Some("jsonl".as_ref())));
    assert_ne!(files.count(), 0, "no case file in {}", folder().display());
    for (file, kinds) in KINDS {
        for case in all_cases(file) {
            let kind = case["kind"].as_str().unwrap_or_default();
            assert!(kinds.contains(&kind), "{file}.jsonl, {}: no test knows the kind {kind:?}", case["name"]);
        }
    }
}

#[test]
fn instruction_sets() {
    let names: Vec<_> = cpu::supported().into_iter().map(Isa::name).collect();
    eprintln!("instruction sets tested: {}; not on this CPU or not in this build: {}", names.join(", "), {
        let all = ["avx512", "avx2", "neon", "portable"];
        all.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>().join(", ")
    });
    for required in std::env::var("FASTKCL_REQUIRE_ISA")
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        assert!(names.contains(&required), "FASTKCL_REQUIRE_ISA names {required}; here are only {names:?}");
    }
}

/// What a line gave, in a form that compares.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Ignored,
    Message(Value),
    Error(Value),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn records(batch: &RecordBatch) -> Value {
    let record = |row: usize| {
        let micros = batch.timestamp_micros(row);
        json!({
            "data": batch.data(row).map(hex),
            "partitionKey": batch.partition_key(row),
            "sequenceNumber": batch.sequence_number(row),
            "subSequenceNumber": batch.sub_sequence_number(row),
            "approximateArrivalTimestamp": micros.map(|micros| micros / 1000),
        })
    };
    (0..batch.len()).map(record).collect()
}

fn outcome(result: Option<Result<Message, Error>>) -> Outcome {
    match result {
        None => Outcome::Ignored,
        Some(Err(error)) => {
            assert!(error.context().len() <= 200);
            Outcome::Error(json!({
                "kind": error.kind().name(),
                "field": error.field(),
                "record": error.record(),
                "offset": error.offset(),
                "reason": error.reason().map(fastkcl_codec::Base64Reason::name),
            }))
        }
        Some(Ok(message)) => Outcome::Message(match message {
            Message::Initialize(message) => json!({
                "action": "initialize",
                "shardId": message.shard_id,
                "sequenceNumber": message.sequence_number,
                "subSequenceNumber": message.sub_sequence_number,
                "dialect": message.dialect.name(),
            }),
            Message::ProcessRecords(batch) => json!({
                "action": "processRecords",
                "records": records(&batch),
                "millisBehindLatest": batch.millis_behind_latest(),
            }),
            Message::LeaseLost => json!({"action": "leaseLost"}),
            Message::ShardEnded => json!({"action": "shardEnded"}),
            Message::ShutdownRequested => json!({"action": "shutdownRequested"}),
            Message::Shutdown(reason) => json!({"action": "shutdown", "reason": reason.name()}),
            Message::Checkpoint(reply) => json!({
                "action": "checkpoint",
                "sequenceNumber": reply.sequence_number,
                "subSequenceNumber": reply.sub_sequence_number,
                "error": reply.error,
            }),
            other => panic!("no case has a {other:?}"),
        }),
    }
}

const MAX: usize = kcl::DEFAULT_MAX_LINE_BYTES;

/// Decodes the line in pieces of the lengths that `cut` gives in turn.
fn in_pieces(isa: Isa, line: &[u8], max: usize, mut cut: impl FnMut() -> usize) -> Outcome {
    let mut decoder = Decoder::with_isa(isa, max);
    let mut input = line.to_vec();
    input.extend_from_slice(b"\n{}\n");
    let (mut rest, mut results) = (&input[..], Vec::new());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cut().clamp(1, rest.len()));
        rest = after;
        decoder.feed(piece);
        while let Some(result) = decoder.next_message() {
            results.push(outcome(Some(result)));
        }
    }
    assert!(decoder.finish().is_none());
    let next = results.pop();
    assert!(
        matches!(&next, Some(Outcome::Error(error)) if error["offset"] == 1),
        "the next line stands alone: {next:?}"
    );
    assert!(results.len() <= 1, "one line gives one result: {results:?}");
    results.pop().unwrap_or(Outcome::Ignored)
}

/// Decodes the line in every way; they must agree.
fn decode_with_limit(line: &[u8], max: usize) -> Outcome {
    let whole = outcome(kcl::decode_line(line, max).transpose());
    if line.contains(&b'\n') {
        return whole;
    }
    for isa in cpu::supported() {
        let name = isa.name();
        assert_eq!(in_pieces(isa, line, max, || usize::MAX), whole, "fed whole on {name}");
        assert_eq!(in_pieces(isa, line, max, || 1), whole, "fed by byte on {name}");
        for width in [2, 3, 7, 31, 64, 65] {
            assert_eq!(in_pieces(isa, line, max, || width), whole, "fed by {width} on {name}");
        }
        for cut in (1..line.len()).step_by(1 + line.len() / 300) {
            let mut cuts = vec![usize::MAX, cut];
            assert_eq!(in_pieces(isa, line, max, || cuts.pop().unwrap_or(1)), whole, "cut at {cut} on {name}");
        }
    }
    whole
}

fn decode(line: &[u8]) -> Outcome {
    decode_with_limit(line, MAX)
}

fn line_of(case: &Value) -> Vec<u8> {
    match case["line"].as_str() {
        Some(line) => line.as_bytes().to_vec(),
        None => STANDARD.decode(case["line_b64"].as_str().expect("line or line_b64")).expect("base64"),
    }
}

/// The line with another key order and white space, so that it takes the general way.
fn other_way(line: &[u8]) -> Vec<u8> {
    let text = line.strip_prefix(b"{").map(|rest| [b" {", rest].concat());
    text.unwrap_or_else(|| line.to_vec())
}

#[test]
fn decode_cases() {
    for file in ["kcl-modern", "kcl-legacy"] {
        for case in cases(file, "decode") {
            let expected = match &case["expect"] {
                Value::String(word) if word == "ignored" => Outcome::Ignored,
                message => Outcome::Message(message.clone()),
            };
            let line = line_of(&case);
            assert_eq!(decode(&line), expected, "{file} {}", case["name"]);
            assert_eq!(decode(&other_way(&line)), expected, "{file} {}, the general way", case["name"]);
        }
    }
}

fn assert_error(outcome: &Outcome, expected: &Value, moved: u64, name: &str) {
    let Outcome::Error(error) = outcome else { panic!("{name}: {outcome:?}, expected {expected}") };
    for (field, value) in expected.as_object().expect("an error is an object") {
        if field == "offset" {
            assert_eq!(
                error[field].as_u64(),
                value.as_u64().map(|offset| offset + moved),
                "{name}: {field} of {error}"
            );
        } else {
            assert_eq!(&error[field], value, "{name}: {field} of {error}");
        }
    }
}

#[test]
fn decode_error_cases() {
    for file in ["kcl-modern", "kcl-legacy"] {
        for case in cases(file, "decode_error") {
            let name = format!("{file} {}", case["name"]);
            let line = line_of(&case);
            let mut error = case["error"].clone();
            if case["name"] == "b64_truncated" && error["offset"] == 54 && line[54] == b'=' {
                // An erratum of the case: by its own words the offset is that of the closing quote, but byte 54 is the
                // padding of record 0, where the same text stands first; record 1's closing quote is byte 198.
                assert_eq!(&line[190..199], b"\"aGVsbG8\"");
                error["offset"] = json!(198);
            }
            assert_error(&decode(&line), &error, 0, &name);
            if line.starts_with(b"{") {
                assert_error(&decode(&other_way(&line)), &error, 1, &format!("{name}, the general way"));
            }
        }
    }
}

/// A record whose data is the JSON string `literal`, and the offset of the literal's content, in three ways through.
fn data_lines(literal: &str) -> [(Vec<u8>, u64); 3] {
    let daemons = "{\"action\":\"processRecords\",\"records\":[{\"data\":";
    let permuted = "{\"action\":\"processRecords\",\"records\":[{\"partitionKey\":\"k\",\"data\":";
    let spaced = "{\"records\": [{ \"data\":";
    let rest = ",\"partitionKey\":\"k\",\"sequenceNumber\":\"1\"}]";
    [
        (format!("{daemons}{literal}{rest},\"millisBehindLatest\":0}}"), daemons.len()),
        (format!("{permuted}{literal},\"sequenceNumber\":\"1\"}}]}}"), permuted.len()),
        (format!("{spaced}{literal}{rest},\"action\":\"processRecords\"}}"), spaced.len()),
    ]
    .map(|(line, before)| (line.into_bytes(), before as u64 + 1))
}

#[test]
fn base64_cases() {
    for case in all_cases("base64") {
        let name = case["name"].to_string();
        let hex_expected = case["hex"].as_str();
        let mut literals = Vec::new();
        if let Some(text) = case["text"].as_str() {
            match (fastkcl_codec::base64::decode(text.as_bytes()), hex_expected) {
                (Ok(data), Some(expected)) => assert_eq!(hex(&data), expected, "{name}"),
                (Err(error), None) => {
                    assert_eq!(
                        error.reason().map(fastkcl_codec::Base64Reason::name),
                        case["error"]["kind"].as_str(),
                        "{name}"
                    );
                    // The offset counts characters of ASCII text, bytes of the text in all cases.
                    assert_eq!(error.offset().map(|at| at as u64), case["error"]["offset"].as_u64(), "{name}");
                }
                (got, _) => panic!("{name}: {got:?}, expected {hex_expected:?}"),
            }
            if text.chars().all(|character| character >= ' ' && !"\"\\".contains(character)) {
                literals.push(format!("\"{text}\""));
            } else if hex_expected.is_some() {
                literals.push(Value::String(text.to_owned()).to_string());
            }
        } else {
            literals.push(case["json"].as_str().expect("text or json").to_owned());
        }
        for (line, before) in literals.iter().flat_map(|literal| data_lines(literal)) {
            match (decode(&line), hex_expected) {
                (Outcome::Message(message), Some(expected)) => {
                    assert_eq!(message["records"][0]["data"], expected, "{name}");
                }
                (error @ Outcome::Error(_), None) => {
                    let mut expected = json!({"offset": case["error"]["offset"]});
                    if case["error"]["kind"] == "json" {
                        expected["kind"] = json!("json");
                    } else {
                        expected["kind"] = json!("base64");
                        expected["reason"] = case["error"]["kind"].clone();
                    }
                    assert_error(&error, &expected, before, &name);
                }
                (got, _) => panic!("{name}: {got:?}, expected {hex_expected:?}"),
            }
        }
    }
}

fn grammar_text(case: &Value) -> Vec<u8> {
    let (text, times) = match &case["repeat"] {
        Value::Null => (&case["b64"], 1),
        repeat => (&repeat["b64"], repeat["times"].as_u64().expect("times")),
    };
    let text = STANDARD.decode(text.as_str().expect("b64")).expect("base64");
    text.repeat(usize::try_from(times).expect("times"))
}

/// A text is JSON if it can stand as a member's value and as an array's element, both: no text that is none can do both.
#[test]
fn json_grammar_cases() {
    let wrappings: [[&[u8]; 2]; 4] = [
        [b"{\"action\":\"leaseLost\",\"x\":", b"}"],
        [b"{\"action\":\"leaseLost\",\"x\":[", b"]}"],
        [
            b"{\"action\":\"processRecords\",\"records\":[{\"data\":\"\",\"x\":",
            b",\"partitionKey\":\"\",\"sequenceNumber\":\"\"}]}",
        ],
        [
            b"{\"action\":\"processRecords\",\"records\":[{\"x\":[",
            b"],\"data\":\"\",\"partitionKey\":\"\",\"sequenceNumber\":\"\"}]}",
        ],
    ];
    for kind in ["accept", "reject", "either"] {
        for case in cases("json-grammar", kind) {
            let text = grammar_text(&case);
            let outcomes = wrappings.map(|[before, after]| {
                let line = [before, &text, after].concat();
                if line.len() > 10_000 {
                    return outcome(kcl::decode_line(&line, MAX).transpose());
                }
                decode(&line)
            });
            decode(&text);
            for pair in outcomes.chunks(2) {
                let accepted = pair.iter().all(|outcome| matches!(outcome, Outcome::Message(_)));
                match kind {
                    "accept" => assert!(accepted, "{} refused: {pair:?}", case["name"]),
                    "reject" => assert!(!accepted, "{} accepted", case["name"]),
                    _ => {}
                }
            }
        }
    }
}

/// Rules of precedence and edges that the case files do not hold, each as line, kind, offset.
#[test]
fn precedence() {
    let table: &[(&str, &str, u64)] = &[
        // The first error in byte order, whatever its kind.
        (r#"{"records":[{"data":5}],"action":"processRecords","x":}"#, "wrong_type", 20),
        (r#"{"records":[{"data":5}],"x":},"action":"processRecords"}"#, "json", 28),
        (r#"{"action":"processRecords","records":[{"data":"QQ==","partitionKey":"k"}] x"#, "missing_field", 71),
        (r#"{"action":"reboot","action":"leaseLost"}"#, "unknown_action", 10),
        (r#"{"action":"processRecords"} x"#, "missing_field", 26),
        (
            r#"{"action":"processRecords","records":[{"data":"QQ==","data":"!","partitionKey":"k","sequenceNumber":"1"}]}"#,
            "base64",
            61,
        ),
        (r#"{"action":"processRecords","records":[5],"records":[]}"#, "wrong_type", 38),
        // Records count only once the action is known.
        (r#"{"records":[{"data":5}],"action":"leaseLost","action":"processRecords"}"#, "wrong_type", 20),
        // What begins like a literal or a number is a value once it is one.
        ("nonsense", "json", 1),
        ("nullx", "not_an_object", 0),
        ("-", "json", 1),
        (r#"{"action":nul}"#, "json", 13),
        (r#"{"action":null}"#, "wrong_type", 10),
        (r#"{"action":-x}"#, "json", 11),
        (r#"{"action":"processRecords","records":[nul]}"#, "json", 41),
        (r#"{"action":"processRecords","records":[null]}"#, "wrong_type", 38),
        (r#"{"action":"processRecords","records":[-"#, "json", 39),
        (r#"{"action":"processRecords","records":[-1]}"#, "wrong_type", 38),
        // The line ends at each place.
        (r#"{"action":"processRecords","records":["#, "json", 38),
        (r#"{"action":"processRecords","records":[{"#, "json", 39),
        (r#"{"action":"processRecords","records":[{"data":"QQ"#, "json", 49),
        (r#"{"action":"processRecords","records":[{"data":"QQ==""#, "json", 52),
        (r#"{"action":"processRecords","records":[{"data":"QQ==","partitionKey":"\u00"#, "json", 73),
        (r#"{"action":"processRecords","records":[]"#, "json", 39),
        // White space and commas around records.
        (r#"{"action":"processRecords","records":[ , ]}"#, "json", 39),
        (r#"{"action":"processRecords","records":[{"data":"","partitionKey":"","sequenceNumber":""},]}"#, "json", 88),
        (r#"{"action":"processRecords","records":[{"data":"","partitionKey":"","sequenceNumber":""} {}]}"#, "json", 88),
        (
            r#"{"action":"processRecords","records":[{"data":"","partitionKey":"k","sequenceNumber":"1","approximateArrivalTimestamp":01}]}"#,
            "json",
            120,
        ),
        (
            r#"{"action":"processRecords","records":[{"data":"","partitionKey":"k","sequenceNumber":"1","approximateArrivalTimestamp":9223372036854775807}]}"#,
            "out_of_range",
            119,
        ),
        (
            r#"{"action":"processRecords","records":[{"data":"","partitionKey":"\ud800\x","sequenceNumber":"1"}]}"#,
            "lone_surrogate",
            65,
        ),
    ];
    for (line, kind, offset) in table {
        assert_error(&decode(line.as_bytes()), &json!({"kind": kind, "offset": offset}), 0, line);
    }
}

#[test]
fn accepted_shapes() {
    let record = |data: &str| {
        json!({"data": data, "partitionKey": "k", "sequenceNumber": "1", "subSequenceNumber": null,
               "approximateArrivalTimestamp": null})
    };
    let plain = r#"{"data":"QQ==","partitionKey":"k","sequenceNumber":"1"}"#;
    let table: &[(String, Value)] = &[
        // Another action makes records an ignored key, good JSON or not read at all.
        (r#"{"records":[{"data":5}],"action":"leaseLost"}"#.into(), json!({"action": "leaseLost"})),
        (r#"{"shardId":5,"action":"leaseLost"}"#.into(), json!({"action": "leaseLost"})),
        // The last duplicate wins, in a daemon's line too.
        (
            format!(r#"{{"action":"processRecords","records":[{plain}],"records":[]}}"#),
            json!({"action": "processRecords", "records": [], "millisBehindLatest": null}),
        ),
        (format!(r#"{{"action":"processRecords","records":[{plain}],"action":"leaseLost"}}"#), json!({"action": "leaseLost"})),
        (
            format!(r#"{{"action":"processRecords","records":[{plain}],"action":"leaseLost","action":"processRecords"}}"#),
            json!({"action": "processRecords", "records": [record("41")], "millisBehindLatest": null}),
        ),
        (
            r#"{"action":"processRecords","records":[{"data":"QQ==","partitionKey":"k","data":"Qg==","sequenceNumber":"1"}]}"#.into(),
            json!({"action": "processRecords", "records": [record("42")], "millisBehindLatest": null}),
        ),
        (
            format!("{{\"action\":\"processRecords\",\"records\":[ {plain} ,\t{plain}\r],\"millisBehindLatest\":-0 }}\r"),
            json!({"action": "processRecords", "records": [record("41"), record("41")], "millisBehindLatest": 0}),
        ),
    ];
    for (line, expected) in table {
        assert_eq!(decode(line.as_bytes()), Outcome::Message(expected.clone()), "{line}");
    }
}

#[test]
fn line_limit() {
    let line = br#"{"action":"processRecords","records":[{"data":"QUJD","partitionKey":"k","sequenceNumber":"1"}]}"#;
    assert!(matches!(decode_with_limit(line, line.len()), Outcome::Message(_)));
    let too_long = || json!({"kind": "line_too_long"});
    for max in [2, 20, 45, 60, line.len() - 1] {
        assert_error(&decode_with_limit(line, max), &too_long(), 0, &format!("limit {max}"));
        assert_error(
            &decode_with_limit(&other_way(line), max),
            &too_long(),
            0,
            &format!("limit {max}, the general way"),
        );
    }
    // An error before the limit comes first.
    let early = b"{\"action\":null}          ";
    assert_error(&decode_with_limit(early, 15), &json!({"kind": "wrong_type"}), 0, "earlier error");
    // The limit may fall inside of a character or an escape.
    let key = "\u{e9}\u{1f600}\\ud83d\\ude00";
    let line = format!(
        r#"{{"action":"processRecords","records":[{{"data":"","partitionKey":"{key}","sequenceNumber":"1"}}]}}"#
    );
    for max in 1..line.len() {
        assert_error(&decode_with_limit(line.as_bytes(), max), &too_long(), 0, &format!("limit {max}"));
        let other = other_way(line.as_bytes());
        assert_error(&decode_with_limit(&other, max), &too_long(), 0, &format!("limit {max}, the general way"));
    }
    assert!(matches!(decode_with_limit(line.as_bytes(), line.len()), Outcome::Message(_)));
    let blank = [b' '; 100];
    assert_eq!(decode_with_limit(&blank, 100), Outcome::Ignored);
}

#[test]
fn context_is_of_the_line() {
    let mut decoder = Decoder::new(MAX);
    decoder.feed(b"{\"action\":\"leaseLost\"}\nhello\nworld\n");
    assert!(matches!(decoder.next_message(), Some(Ok(Message::LeaseLost))));
    let error = decoder.next_message().unwrap().unwrap_err();
    assert_eq!(error.context(), b"hello");
    assert_eq!(kcl::decode_line(b"hello", MAX).unwrap_err().context(), b"hello");
}

#[test]
fn end_of_input() {
    for (input, expected) in [
        (&b""[..], None),
        (b"  \r", None),
        (b"{\"action\":\"leaseLost\"}\n", None),
        (b"{\"action\":\"leaseLost\"}", Some("leaseLost")),
    ] {
        let mut decoder = Decoder::new(MAX);
        decoder.feed(input);
        while let Some(result) = decoder.next_message() {
            result.unwrap();
        }
        let last = decoder.finish().map(|result| matches!(result.unwrap(), Message::LeaseLost));
        assert_eq!(last, expected.map(|_| true));
    }
    let mut decoder = Decoder::new(MAX);
    decoder.feed(b"{\"action\":\"processRecords\",\"records\":[{\"data\":\"QUJD");
    assert!(decoder.next_message().is_none());
    let error = decoder.finish().unwrap().unwrap_err();
    assert_eq!((error.kind().name(), error.offset()), ("json", Some(51)));
    assert!(error.to_string().contains("input ended inside a message"), "{error}");
}

/// The events of a stream, as its cases write them.
fn dkb_events(markers: &Markers, names: [&str; 2], pieces: &[&[u8]]) -> Vec<Value> {
    let mut decoder = dkb::Decoder::new(markers.clone(), dkb::DEFAULT_MAX_MESSAGE_BYTES).expect("markers of a case");
    let text = |bytes: Vec<u8>| match String::from_utf8(bytes) {
        Ok(text) => ("message", text),
        Err(error) => ("message_b64", STANDARD.encode(error.into_bytes())),
    };
    let mut events = Vec::new();
    for piece in pieces.iter().copied().map(Some).chain([None]) {
        match piece {
            Some(piece) => decoder.feed(piece),
            None => decoder.finish(),
        }
        while let Some(event) = decoder.next_event() {
            events.push(match event.expect("no message is too long") {
                dkb::Event::Message(bytes, _) if bytes.is_empty() && names[0] == "EOP" => continue,
                dkb::Event::Message(bytes, terminated) => {
                    let (key, text) = text(bytes);
                    if terminated { json!({key: text}) } else { json!({key: text, "unterminated": true}) }
                }
                dkb::Event::EndOfProcess => json!({"marker": names[0]}),
                dkb::Event::AtBoundary => json!({"marker": names[1]}),
                dkb::Event::Truncated(bytes) => json!({"truncated": text(bytes).1}),
                other => panic!("nothing was to be collected: {other:?}"),
            });
        }
    }
    assert!(decoder.is_at_start());
    events.push(json!({"end": true}));
    events
}

#[test]
fn dkb_cases() {
    for case in cases("dkb-frames", "decode") {
        let name = &case["name"];
        let marker = |key: &str| case["markers"][key].as_str().map(|text| text.as_bytes().to_vec());
        let worker = case["role"] == "worker";
        let (process, boundary, names) =
            if worker { (None, marker("eob"), ["", "EOB"]) } else { (marker("eop"), marker("bnc"), ["EOP", "BNC"]) };
        let markers = Markers {
            end_of_message: marker("eom").expect("a case has an EOM"),
            end_of_process: process,
            at_boundary: boundary.filter(|_| !worker || case["batch_size"] != 1),
        };
        let chunks = case["chunks_b64"].as_array().expect("chunks").iter();
        let chunks: Vec<Vec<u8>> = chunks.map(|chunk| STANDARD.decode(chunk.as_str().unwrap()).unwrap()).collect();
        let whole = chunks.concat();
        let given: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        for pieces in [given, vec![&whole[..]], bytes] {
            let events = dkb_events(&markers, names, &pieces);
            assert_eq!(Value::from(events), case["events"], "{name}, in {} pieces", pieces.len());
        }
    }
}
