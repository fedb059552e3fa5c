//! Properties that hold for any input, against oracles that share no code with the decoder: `serde_json`, the `base64`
//! crate, and a slow path written once more from the protocol's table.

mod markers;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastkcl_codec::cpu::{self, Isa};
use fastkcl_codec::dkb;
use fastkcl_codec::framing::markers::Markers;
use fastkcl_codec::kcl::write::{RecordToWrite, process_records};
use fastkcl_codec::kcl::{self, Decoder, Dialect, Message};
use fastkcl_codec::{Base64Reason, Error, RecordBatch};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

const MAX: usize = kcl::DEFAULT_MAX_LINE_BYTES;

/// The protocol's table for base64, as plainly as it can be said.
fn table_decode(text: &[u8]) -> Result<Vec<u8>, (Base64Reason, usize)> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut unit, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let byte = text[at];
        if let Some(value) = alphabet.iter().position(|character| *character == byte) {
            unit.push(u32::try_from(value).unwrap());
        } else {
            match (byte, unit.len()) {
                (b'=', 0 | 1) => return Err((Base64Reason::BadPadding, at)),
                (b'=', 2) => {
                    match text.get(at + 1) {
                        None => return Err((Base64Reason::Truncated, at + 1)),
                        Some(b'=') => out.push(u8::try_from((unit[0] << 2 | unit[1] >> 4) & 0xff).unwrap()),
                        Some(_) => return Err((Base64Reason::BadPadding, at + 1)),
                    }
                    unit.clear();
                    at += 1;
                }
                (b'=', _) => {
                    let bits = unit[0] << 10 | unit[1] << 4 | unit[2] >> 2;
                    out.extend_from_slice(&bits.to_be_bytes()[2..]);
                    unit.clear();
                }
                (0..=0x20, 0) => {}
                _ => return Err((Base64Reason::InvalidCharacter, at)),
            }
        }
        if unit.len() == 4 {
            let bits = unit.iter().fold(0, |bits, value| bits << 6 | value);
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            unit.clear();
        }
        at += 1;
    }
    if unit.is_empty() { Ok(out) } else { Err((Base64Reason::Truncated, at)) }
}

fn value_of(batch: &RecordBatch) -> Value {
    let record = |row: usize| {
        let micros = batch.timestamp_micros(row);
        json!([
            batch.data(row),
            batch.partition_key(row),
            batch.sequence_number(row),
            batch.sub_sequence_number(row),
            micros
        ])
    };
    (0..batch.len()).map(record).collect()
}

type Comparable = Result<Value, (String, Option<&'static str>, Option<usize>, Option<usize>, Option<Base64Reason>)>;

fn comparable(result: Result<Message, Error>) -> Comparable {
    match result {
        Ok(Message::ProcessRecords(batch)) => Ok(json!([value_of(&batch), batch.millis_behind_latest()])),
        Ok(other) => Ok(json!(format!("{other:?}"))),
        Err(e) => Err((e.kind().name().to_owned(), e.field(), e.record(), e.offset(), e.reason())),
    }
}

/// The results of `input`, cut after the lengths of `cuts` in turn.
fn results(isa: Isa, input: &[u8], cuts: &[usize], max: usize) -> Vec<Comparable> {
    let mut decoder = Decoder::with_isa(isa, max);
    let (mut rest, mut results, mut cuts) = (input, Vec::new(), cuts.iter().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
        rest = after;
        decoder.feed(piece);
        while let Some(result) = decoder.next_message() {
            results.push(comparable(result));
        }
    }
    results.extend(decoder.finish().map(comparable));
    results
}

/// All levels and cuts agree; the common results.
fn agreed(input: &[u8], cuts: &[usize]) -> Vec<Comparable> {
    agreed_within(input, cuts, MAX)
}

fn agreed_within(input: &[u8], cuts: &[usize], max: usize) -> Vec<Comparable> {
    let whole = results(Isa::Portable, input, &[usize::MAX], max);
    for isa in cpu::supported() {
        for cuts in [&[usize::MAX][..], &[1], cuts] {
            let shown = String::from_utf8_lossy(input);
            assert_eq!(results(isa, input, cuts, max), whole, "{} {cuts:?}, limit {max}: {shown}", isa.name());
        }
    }
    whole
}

#[derive(Clone, Debug)]
struct Record {
    data: Option<Vec<u8>>,
    key: String,
    sequence: String,
    sub: Option<i64>,
    millis: Option<i64>,
}

fn record() -> impl Strategy<Value = Record> {
    let data = prop_oneof![8 => vec(any::<u8>(), 0..200).prop_map(Some), 1 => vec(any::<u8>(), 300..3000).prop_map(Some), 1 => Just(None)];
    let key = prop_oneof![3 => "[a-z0-9-]{1,40}", 1 => any::<String>(), 1 => "[\\x00-\\x7f]{0,90}"];
    let millis = prop_oneof![6 => (0..4_102_444_800_000_i64).prop_map(Some), 1 => (-9_000_000_000_000_000..9_000_000_000_000_000_i64).prop_map(Some), 1 => Just(None)];
    (data, key, "[1-9][0-9]{0,128}", proptest::option::of(any::<i64>()), millis)
        .prop_map(|(data, key, sequence, sub, millis)| Record { data, key, sequence, sub, millis })
}

/// How a line begins, in tokens, with the white space that a writer may put between them.
const OPENING: &str = "{\"action\":\"processRecords\",\"records\":[";

fn opening() -> impl Strategy<Value = Vec<u8>> {
    let space = prop_oneof![8 => Just(""), 4 => Just(" "), 1 => Just("\t\r"), 1 => Just("          ")];
    vec(space, 8).prop_map(|spaces| {
        let tokens = ["{", "\"action\"", ":", "\"processRecords\"", ",", "\"records\"", ":", "["];
        spaces.into_iter().zip(tokens).flat_map(|(space, token)| [space, token]).collect::<String>().into_bytes()
    })
}

/// Things that a cut or a limit can fall into.
const PIECES: &[&str] = &[
    "\u{e9}",
    "\u{20ac}",
    "\u{1f600}",
    "\\",
    "\\u00",
    "\\ud83d",
    "\\ud83d\\ude00",
    "\\udc00",
    "t",
    "-",
    "nul",
    ",",
    "}",
    "[1,",
    "Q=JD",
    "1.0",
];

/// What breaks a line: any byte, or one of the pieces.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(PIECES).prop_map(|text| text.as_bytes().to_vec());
    prop_oneof![any::<u8>().prop_map(|byte| vec![byte]), pieces]
}

fn line(records: &[Record], dialect: Dialect) -> Vec<u8> {
    let records = records.iter().map(|record| RecordToWrite {
        data: record.data.as_deref(),
        partition_key: &record.key,
        sequence_number: &record.sequence,
        sub_sequence_number: record.sub,
        timestamp_millis: record.millis,
    });
    process_records(records, Some(7), dialect)
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop_oneof![Just(Dialect::Modern), Just(Dialect::Legacy)]
}

/// Writes a JSON value with white space and escapes wherever `coins` say so.
fn untidy(value: &Value, coins: &mut impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let space = |coins: &mut dyn Iterator<Item = u8>, out: &mut Vec<u8>| match coins.next().unwrap_or(9) % 8 {
        0 => out.push(b' '),
        1 => out.extend_from_slice(b"\t\r"),
        _ => {}
    };
    let string = |text: &str, coins: &mut dyn Iterator<Item = u8>, out: &mut Vec<u8>| {
        out.push(b'"');
        for character in text.chars() {
            let plain = character >= ' ' && character != '"' && character != '\\';
            if plain && !coins.next().unwrap_or(9).is_multiple_of(6) {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
        out.push(b'"');
    };
    space(coins, out);
    match value {
        Value::Object(members) => {
            out.push(b'{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                space(coins, out);
                string(name, coins, out);
                space(coins, out);
                out.push(b':');
                untidy(member, coins, out);
            }
            out.push(b'}');
        }
        Value::Array(elements) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                untidy(element, coins, out);
            }
            out.push(b']');
        }
        Value::String(text) => string(text, coins, out),
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
    space(coins, out);
}

/// Lines of several windows, whose edges fall into records of all lengths, and into shapes that the scanner leaves.
#[test]
fn long_lines() {
    let noise: Vec<u8> = (0..60_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_be_bytes()[3]).collect();
    for longest in [90, 3000, 30_000] {
        let (mut line, mut expected) = (OPENING.as_bytes().to_vec(), Vec::new());
        while line.len() < 1_000_000 {
            let row = expected.len();
            let data = &noise[row % 97..][..row * 7919 % longest];
            let key = ["plain", "\u{e9}\u{20ac}\n\"\\", "and a long one ".repeat(9).as_str()][row % 3].to_owned();
            let unknown = if row % 101 == 7 { ",\"x\":[{}]" } else { "" };
            let before = if row % 103 == 5 { "\"action\":\"record\", " } else { "" };
            let text = STANDARD.encode(data);
            let shown = serde_json::to_string(&key).unwrap();
            let separator = if row == 0 { "" } else { "," };
            line.extend_from_slice(
                format!("{separator}{{{before}\"data\":\"{text}\",\"partitionKey\":{shown},\"sequenceNumber\":\"{row}\"{unknown}}}").as_bytes(),
            );
            expected.push(json!([data, key, row.to_string(), null, null]));
        }
        line.extend_from_slice(b"],\"millisBehindLatest\":1}\n");
        let expected = vec![Ok(json!([expected, 1]))];
        for isa in cpu::supported() {
            for cut in [usize::MAX, 300_001, 4099] {
                // Not by assert_eq, which would print megabytes.
                assert!(
                    results(isa, &line, &[cut], MAX) == expected,
                    "{} cut every {cut}, up to {longest}",
                    isa.name()
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn base64_is_the_table(text in prop_oneof![vec(any::<u8>(), 0..90), "[A-Za-z0-9+/= ]{0,200}".prop_map(String::into_bytes)]) {
        match (fastkcl_codec::base64::decode(&text), table_decode(&text)) {
            (Ok(data), Ok(expected)) => prop_assert_eq!(data, expected),
            (Err(error), Err((reason, offset))) => {
                prop_assert_eq!((error.reason(), error.offset()), (Some(reason), Some(offset)));
            }
            (got, expected) => prop_assert!(false, "{:?}, expected {:?}", got, expected),
        }
    }

    #[test]
    fn base64_encodes_as_the_crate(data in vec(any::<u8>(), 0..300)) {
        let text = fastkcl_codec::base64::encode(&data);
        prop_assert_eq!(&text, &STANDARD.encode(&data));
        prop_assert_eq!(fastkcl_codec::base64::decode(text.as_bytes()).unwrap(), data);
    }

    /// What is written is read, in any cut, on any level.
    #[test]
    fn records_come_back(records in vec(record(), 0..12), dialect in dialect(), cuts in vec(1..200_usize, 1..20)) {
        let line = line(&records, dialect);
        let modern = dialect == Dialect::Modern;
        let expected: Value = records.iter().map(|record| json!([
            record.data, record.key, record.sequence, record.sub.filter(|_| modern), record.millis.map(|millis| millis * 1000),
        ])).collect();
        let millis = modern.then_some(7);
        prop_assert_eq!(agreed(&line, &cuts), vec![Ok(json!([expected, millis]))]);
    }

    /// The same records in any key order, with white space, escapes and unknown keys, are the same batch.
    #[test]
    fn the_general_way_agrees(
        records in vec(record(), 0..6), coins in vec(any::<u8>(), 4000), shuffles in vec(any::<u64>(), 7), cuts in vec(1..99_usize, 1..9),
    ) {
        let plain = line(&records, Dialect::Modern);
        let mut value: Value = serde_json::from_slice(&plain).unwrap();
        value["later"] = json!({"version": [4, null, "é\u{1f600}"]});
        for record in value["records"].as_array_mut().unwrap() {
            record["x"] = json!([[], {}]);
        }
        let reorder = |value: &Value, seed: u64| {
            let mut members: Vec<_> = value.as_object().unwrap().clone().into_iter().collect();
            members.sort_by_key(|(name, _)| name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)));
            Value::Object(members.into_iter().collect())
        };
        for (index, record) in value["records"].as_array_mut().unwrap().iter_mut().enumerate() {
            *record = reorder(record, shuffles[index]);
        }
        let mut untidied = Vec::new();
        untidy(&reorder(&value, shuffles[6]), &mut coins.into_iter(), &mut untidied);
        untidied.push(b'\n');
        prop_assert_eq!(agreed(&untidied, &cuts), agreed(&plain, &[13]));
    }

    /// Broken lines never panic, and give one error whatever the cut and the level, also where a limit cuts them.
    #[test]
    fn broken_lines_agree(
        records in vec(record(), 1..4), dialect in dialect(), changes in vec((any::<prop::sample::Index>(), piece(), 0..3_u8), 1..4),
        opening in opening(), cuts in vec(1..99_usize, 1..9), limit in proptest::option::weighted(0.4, any::<prop::sample::Index>()),
    ) {
        let mut line = line(&records, dialect);
        line.splice(..OPENING.len(), opening);
        for (index, piece, how) in changes {
            let at = index.index(line.len());
            match how {
                0 => drop(line.splice(at..=at, piece)),
                1 => drop(line.remove(at)),
                _ => drop(line.splice(at..at, piece)),
            }
        }
        let max = limit.map_or(MAX, |limit| 1 + limit.index(line.len()));
        let results = agreed_within(&line, &cuts, max);
        let alone = !line[..line.len() - 1].contains(&b'\n') && line.ends_with(b"\n");
        if alone {
            let whole = kcl::decode_line(&line, max).transpose().map(comparable);
            prop_assert_eq!(whole.into_iter().collect::<Vec<_>>(), results, "limit {}: {}", max, String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn accepted_lines_are_json(text in "[\\[\\]{}\",:0-9a-z\\\\. -]{0,40}") {
        let line = format!("{{\"action\":\"leaseLost\",\"x\":{text}}}");
        let accepted = kcl::decode_line(line.as_bytes(), MAX).is_ok();
        // Half surrogate pairs are allowed in ignored values and refused by serde_json, and so are numbers beyond a double.
        prop_assume!(!text.contains("\\u"));
        let is_json = serde_json::from_str::<Value>(&line).map_or_else(|e| e.to_string().contains("out of range"), |_| true);
        prop_assert_eq!(accepted, is_json, "{}", line);
    }
}

proptest! {
    /// Few letters, so that markers overlap, stand inside each other and begin without going on.
    #[test]
    fn markers_in_any_pieces_are_what_the_rules_say(
        eom in "[abc]{1,4}",
        eop in proptest::option::of("[abc]{1,4}"),
        at_boundary in proptest::option::of("[abc]{1,4}"),
        stream in "[abcd]{0,60}",
        cuts in vec(1_usize..9, 1..6),
    ) {
        let markers = Markers {
            end_of_message: eom.into_bytes(),
            end_of_process: eop.map(String::into_bytes),
            at_boundary: at_boundary.map(String::into_bytes),
        };
        prop_assume!(dkb::Decoder::new(markers.clone(), 1).is_ok());
        let expected = markers::expected(&markers, stream.as_bytes());
        for cuts in [&cuts[..], &[1], &[usize::MAX]] {
            prop_assert_eq!(&markers::found(&markers, stream.as_bytes(), cuts), &expected);
        }
    }

    /// The columns of a run hold what comes message by message, numbers included.
    #[test]
    fn a_run_of_messages_as_columns(
        messages in vec(vec(0_u8..=255, 0..9), 0..40),
        cuts in vec(1_usize..30, 1..4),
        most in 1_usize..9,
    ) {
        let messages: Vec<Vec<u8>> =
            messages.into_iter().map(|message| message.into_iter().filter(|byte| *byte != b'\n').collect()).collect();
        let stream: Vec<u8> = messages.iter().flat_map(|message| [&message[..], b"\n"].concat()).collect();
        let markers = Markers { end_of_message: b"\n".to_vec(), end_of_process: None, at_boundary: None };
        let mut decoder = dkb::Decoder::new(markers, 100).unwrap();
        let (mut rest, mut cuts, mut found, mut numbers) = (&stream[..], cuts.iter().cycle(), Vec::<Vec<u8>>::new(), Vec::<i64>::new());
        decoder.collect(most);
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            decoder.feed(piece);
            rest = more;
            while let Some(event) = decoder.next_event() {
                prop_assert_eq!(event.unwrap(), dkb::Event::Collected(most));
                prop_assert_eq!(decoder.collected(), most);
                let batch = decoder.take_batch();
                found.extend(batch.as_arrow().column(0).as_binary::<i32>().iter().map(|data| data.unwrap().to_vec()));
                numbers.extend(batch.as_arrow().column(1).as_primitive::<Int64Type>().values());
                decoder.collect(most);
            }
        }
        let batch = decoder.take_batch();
        prop_assert_eq!(batch.len(), messages.len() % most);
        found.extend(batch.as_arrow().column(0).as_binary::<i32>().iter().map(|data| data.unwrap().to_vec()));
        numbers.extend(batch.as_arrow().column(1).as_primitive::<Int64Type>().values());
        prop_assert_eq!(numbers, (0..i64::try_from(messages.len()).unwrap()).collect::<Vec<_>>());
        prop_assert_eq!(found, messages);
    }
}
