//! ProcessV1: its conformance cases, whole and in pieces; the framer against a reference; a batch of messages.

mod case_files;

use std::borrow::Cow;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use case_files::cases;
use fastkcl_codec::ErrorKind;
use fastkcl_codec::framing::end_lines::{Frame, Framer, is_blank, joined_lines};
use fastkcl_codec::processv1::{
    self, DEFAULT_MAX_FRAME_BYTES, DataColumn, Decoder, FromStitch, Message, ToStitch, batch,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A frame's text, and whether it has a terminator; none for one that is too long.
type Seen = Option<(Vec<u8>, bool)>;

fn seen(frame: Frame<'_>) -> Seen {
    match frame {
        Frame::Text { raw, terminated } => Some((joined_lines(raw).into_owned(), terminated)),
        Frame::TooLong => None,
        other => panic!("a frame is a text or too long: {other:?}"),
    }
}

fn frames_of<'a>(pieces: impl Iterator<Item = &'a [u8]>, max_frame_bytes: usize) -> Vec<Seen> {
    let (mut framer, mut found) = (Framer::new(max_frame_bytes), Vec::new());
    for piece in pieces {
        framer.feed(piece, |frame| found.push(seen(frame)));
    }
    framer.finish(|frame| found.push(seen(frame)));
    assert!(framer.is_at_frame_start());
    found
}

/// What the protocol says, in a few lines: all lines of the input, cut at the terminators.
fn reference(input: &[u8], max_frame_bytes: usize) -> Vec<Seen> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let text: Vec<char> = input.iter().map(|byte| char::from(*byte)).collect::<String>().chars().collect();
    let mut lines = vec![(Vec::new(), 0)];
    let mut at = 0;
    while at < text.len() {
        let length = match text[at..] {
            ['\r', '\n', ..] => 2,
            ['\r' | '\n', ..] => 1,
            _ => 0,
        };
        if length == 0 {
            lines.last_mut().unwrap().0.push(input[at]);
            at += 1;
        } else {
            lines.last_mut().unwrap().1 = length;
            lines.push((Vec::new(), 0));
            at += length;
        }
    }
    if lines.last().unwrap().0.is_empty() {
        lines.pop();
    }
    let (mut frames, mut open): (Vec<Seen>, Vec<(Vec<u8>, usize)>) = (Vec::new(), Vec::new());
    let close = |open: &mut Vec<(Vec<u8>, usize)>, terminated| {
        let length = open.iter().map(|(line, end)| line.len() + end).sum::<usize>();
        let length = length - open.last().map_or(0, |(_, end)| *end);
        let text = open.drain(..).map(|(line, _)| line).collect::<Vec<_>>().join(&b'\n');
        (length <= max_frame_bytes).then_some((text, terminated))
    };
    for (line, end) in lines {
        if str::from_utf8(&line).is_ok_and(|line| line.trim() == "end") {
            frames.push(close(&mut open, true));
        } else {
            open.push((line, end));
        }
    }
    let blank = open.iter().all(|(line, _)| str::from_utf8(line).is_ok_and(|line| line.trim().is_empty()));
    if !blank {
        frames.push(close(&mut open, false));
    }
    frames
}

#[test]
fn frames() {
    for case in cases("processv1-frames", "frames") {
        let input = STANDARD.decode(case["input_b64"].as_str().unwrap()).unwrap();
        let expected: Vec<Seen> = case["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| Some((frame["text"].as_str().unwrap().into(), frame["terminated"].as_bool().unwrap())))
            .collect();
        assert_eq!(frames_of([&input[..]].into_iter(), usize::MAX), expected, "{case}");
        assert_eq!(frames_of(input.chunks(1), usize::MAX), expected, "a byte at a time: {case}");
        assert_eq!(reference(&input, usize::MAX), expected, "the reference: {case}");
    }
}

#[test]
fn frames_that_are_written() {
    for case in cases("processv1-frames", "write") {
        let message: FromStitch = processv1::read(case["message"].to_string().as_bytes(), true).unwrap().unwrap();
        assert_eq!(String::from_utf8(message.to_frame()).unwrap(), case["bytes"].as_str().unwrap(), "{case}");
    }
}

fn to_stitch(message: &ToStitch) -> Value {
    json!({
        "Id": message.id,
        "FromStitchInstanceId": message.from_stitch_instance_id,
        "NodeId": message.node_id,
        "ChannelName": message.channel_name,
        "Data": message.data,
    })
}

fn from_stitch(message: &FromStitch) -> Value {
    json!({
        "Command": message.command,
        "Id": message.id,
        "DataChannel": message.data_channel,
        "Data": message.data,
        "Logs": message.logs,
        "ToGroupName": message.to_group_name,
        "ToStitchInstanceId": message.to_stitch_instance_id,
    })
}

/// The message of a frame: null if it is ignored, the error's kind if it is none.
fn message_of<M: Message>(frame: &[u8], pieces: usize, value: fn(&M) -> Value) -> Result<Value, ErrorKind> {
    let mut decoder = Decoder::<M>::new(DEFAULT_MAX_FRAME_BYTES);
    for piece in [frame, b"\nend\n"].concat().chunks(pieces) {
        decoder.feed(piece);
    }
    let outcome = decoder.next_message();
    assert!(decoder.next_message().is_none() && decoder.is_at_frame_start());
    outcome.map_or(Ok(Value::Null), |outcome| outcome.as_ref().map(value).map_err(fastkcl_codec::Error::kind))
}

#[test]
fn messages() {
    for kind in ["json", "json_either", "json_error"] {
        for case in cases("processv1-json", kind) {
            let text = case["text"].as_str().unwrap().as_bytes();
            let expected = if case["message"] == "ignored" { &Value::Null } else { &case["message"] };
            for pieces in [usize::MAX, 1, 7] {
                let outcome = if case["role"] == "to_stitch" {
                    message_of(text, pieces, to_stitch)
                } else {
                    message_of(text, pieces, from_stitch)
                };
                match (kind, outcome) {
                    ("json_error", outcome) => assert!(outcome.is_err(), "accepted: {case}"),
                    ("json_either", Err(_)) => {}
                    (_, outcome) => assert_eq!(outcome.as_ref(), Ok(expected), "{case}"),
                }
            }
        }
    }
}

/// What the case files leave out.
#[test]
fn more_messages() {
    let id = |text: &str| message_of::<ToStitch>(text.as_bytes(), usize::MAX, |message| json!(message.id));
    let data = |text: &str| message_of::<ToStitch>(text.as_bytes(), usize::MAX, |message| json!(message.data));
    let logs = |text: &str| message_of::<FromStitch>(text.as_bytes(), usize::MAX, |message| json!(message.logs));
    assert_eq!(id("{Id:1e2}"), Ok(json!(100)));
    assert_eq!(id("{Id:-0.5}"), Ok(json!(0)));
    assert_eq!(id("{Id:9223372036854775807}"), Ok(json!(i64::MAX)));
    assert_eq!(id("{Id:\"-9223372036854775808\"}"), Ok(json!(i64::MIN)));
    assert_eq!(id("{Id:9.3e18}"), Err(ErrorKind::OutOfRange));
    assert_eq!(id("{Id:'9223372036854775808'}"), Err(ErrorKind::OutOfRange));
    assert_eq!(id("{Id:''}"), Err(ErrorKind::WrongType));
    assert_eq!(id("{Id:01}"), Err(ErrorKind::Json));
    assert_eq!(id("{Id:1,,}"), Err(ErrorKind::Json));
    assert_eq!(id("{,}"), Err(ErrorKind::Json));
    assert_eq!(id("{Id 1}"), Err(ErrorKind::Json));
    assert_eq!(id("// nothing\n"), Ok(Value::Null));
    assert_eq!(id(" null /* nothing */"), Ok(Value::Null));
    assert_eq!(id("nul"), Err(ErrorKind::Json));
    assert_eq!(id("{Id:7}\u{a0}// after"), Ok(json!(7)));
    assert_eq!(id("{Id:7} /* open"), Err(ErrorKind::Json));
    assert_eq!(id("{\u{3000}'x y':[1,{a:'}',},],größe_1$:null,Id:7,}"), Ok(json!(7)));
    assert_eq!(id(&format!("{{a:{}{}}}", "[".repeat(127), "]".repeat(127))), Ok(json!(0)));
    assert_eq!(id(&format!("{{a:{}{}}}", "[".repeat(128), "]".repeat(128))), Err(ErrorKind::Depth));
    assert_eq!(data("{Data:'\\ud83d'}"), Err(ErrorKind::LoneSurrogate));
    assert_eq!(data("{Data:'\\x41'}"), Err(ErrorKind::Json));
    assert_eq!(data("{Data:'\\u00e9\"\\'\\\\'}"), Ok(json!("é\"'\\")));
    assert_eq!(data("{Data:-1.50}"), Ok(json!("-1.50")));
    assert_eq!(data("{Data:12x}"), Err(ErrorKind::Json));
    assert_eq!(logs("{Logs:{$type:'x','$values':['a',],}}"), Ok(json!(["a"])));
    assert_eq!(logs("{Logs:{a:1}}"), Err(ErrorKind::WrongType));
    assert_eq!(logs("{Logs:[]}"), Ok(json!([])));
}

#[test]
fn bytes_that_are_no_utf8_are_an_error_of_their_frame_only() {
    let mut decoder = Decoder::<ToStitch>::new(DEFAULT_MAX_FRAME_BYTES);
    decoder.feed(b"{Id:1,Data:'a\xffb'}\nend\n{Id:2}\nend\n");
    let error = decoder.next_message().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Utf8, Some(13)));
    assert_eq!(decoder.next_message().unwrap().unwrap().id, 2);
}

#[test]
fn the_end_of_input() {
    let outcomes = |input: &[u8]| {
        let mut decoder = Decoder::<ToStitch>::new(DEFAULT_MAX_FRAME_BYTES);
        decoder.feed(input);
        decoder.finish();
        let ids = std::iter::from_fn(|| decoder.next_message())
            .map(|outcome| outcome.map(|message| message.id).map_err(|error| error.kind().name()));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(outcomes(b"{Id:1}\nend"), [Ok(1)]);
    assert_eq!(outcomes(b"{Id:1}\n"), [Ok(1)]);
    assert_eq!(outcomes(b"{Id:1}\nend\n{Id:2"), [Ok(1), Err("truncated_frame")]);
    assert_eq!(outcomes(b"{Id:1}\nen"), [Err("truncated_frame")]);
    assert_eq!(outcomes(b"\xef\xbb"), [Err("truncated_frame")]);
    assert_eq!(outcomes(b"\xef\xbb\xbf \r\n"), []);
}

#[test]
fn a_frame_that_is_too_long_harms_no_other() {
    let long = [b"x".repeat(5000), b"\n end\t\r\n{Id:2}\nend\n".to_vec()].concat();
    for pieces in [1, 2, 1024, 100_000] {
        let frames = frames_of(long.chunks(pieces), 100);
        assert_eq!(frames, [None, Some((b"{Id:2}".to_vec(), true))], "pieces of {pieces}");
    }
    assert_eq!(frames_of([&b"0123456789\nend\n"[..]].into_iter(), 10), [Some((b"0123456789".to_vec(), true))]);
    assert_eq!(frames_of([&b"0123456789a\nend\n"[..]].into_iter(), 10), [None]);
}

#[test]
fn a_batch() {
    let frames =
        b"{Id:9223372036854775807,ChannelName:'c',FromStitchInstanceId:'s',NodeId:'n',Data:'aGk='}\nend\n{}\nend\n";
    let mut decoder = Decoder::<ToStitch>::new(DEFAULT_MAX_FRAME_BYTES);
    decoder.feed(frames);
    let messages: Vec<ToStitch> = std::iter::from_fn(|| decoder.next_message()).map(Result::unwrap).collect();
    let messages: Vec<&ToStitch> = messages.iter().collect();
    let base64 = batch(&messages, DataColumn::Base64).unwrap();
    let base64 = base64.as_arrow();
    let names: Vec<&str> = base64.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "channel", "sender", "node", "data"]);
    assert_eq!(base64.column(0).as_primitive::<Int64Type>().values(), &[i64::MAX, 0]);
    assert_eq!(base64.column(1).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("c"), None]);
    assert_eq!(base64.column(2).as_string::<i32>().value(0), "s");
    assert_eq!(base64.column(3).as_string::<i32>().value(0), "n");
    assert_eq!(base64.column(4).as_binary::<i32>().value(0), b"hi");
    assert!(base64.column(4).is_null(1));
    let text = batch(&messages, DataColumn::Text).unwrap();
    let text = text.as_arrow();
    assert_eq!(text.column(4).as_string::<i32>().value(0), "aGk=");
    let bad = ToStitch { data: Some("aGk".into()), ..ToStitch::default() };
    let error = batch(&[messages[0], &bad], DataColumn::Base64).unwrap_err();
    assert_eq!((error.kind(), error.record(), error.field()), (ErrorKind::Base64, Some(1), Some("Data")));
    assert_eq!(batch(&[], DataColumn::Base64).unwrap().len(), 0);
}

/// Text that is likely to hold terminators, and what almost is one.
fn frame_text() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"end",
        b"end",
        b"en",
        b"d",
        b"\n",
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b"\t",
        b"\x0b",
        b"\x0c",
        b"\x1c",
        b"\xc2\x85",
        b"\xc2\xa0",
        b"\xc2",
        b"\xe2\x80\x83",
        b"\xe2\x80\xa8",
        b"\xe2\x80",
        b"\xe3\x80\x80",
        b"\xe1\x9a\x80",
        b"\xe2\x81\x9f",
        b"\xe2\x80\x8b",
        b"\xef\xbb\xbf",
        b"{Id:1}",
        b"END",
        b"\xff",
    ];
    prop::collection::vec(prop::sample::select(words), 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_pieces_give_the_frames_of_the_reference(
        input in frame_text(),
        cuts in prop::collection::vec(1_usize..9, 1..20),
        limit in prop::sample::select(vec![0, 3, 10, usize::MAX]),
    ) {
        let mut rest = &input[..];
        let mut sizes = cuts.iter().cycle();
        let pieces = std::iter::from_fn(|| {
            let (piece, left) = rest.split_at(rest.len().min(*sizes.next()?));
            rest = left;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(frames_of(pieces, limit), reference(&input, limit));
    }

    #[test]
    fn what_is_written_is_read(id: i64, text in "\\PC*", lines in prop::collection::vec("(?s).*", 0..3)) {
        let sent = FromStitch {
            command: Some("data".into()),
            id,
            data: Some(text.clone()),
            logs: Some(lines),
            ..FromStitch::default()
        };
        let frame = sent.to_frame();
        prop_assert!(frame.is_ascii());
        let mut decoder = Decoder::<FromStitch>::new(DEFAULT_MAX_FRAME_BYTES);
        decoder.feed(&frame);
        prop_assert_eq!(decoder.next_message().unwrap().unwrap(), sent);
        let sent = ToStitch { id, data: Some(text), ..ToStitch::default() };
        let mut decoder = Decoder::<ToStitch>::new(DEFAULT_MAX_FRAME_BYTES);
        decoder.feed(&sent.to_frame());
        prop_assert_eq!(decoder.next_message().unwrap().unwrap(), sent);
    }

    #[test]
    fn blank_is_what_trims_to_nothing(input in frame_text()) {
        let blank = String::from_utf8(input.clone()).is_ok_and(|text| text.trim().is_empty());
        prop_assert_eq!(is_blank(&input), blank);
    }
}

#[test]
fn lines_are_joined_with_lf() {
    assert!(matches!(joined_lines(b"a\nb"), Cow::Borrowed(b"a\nb")));
    assert_eq!(*joined_lines(b"\r\ra\r\nb\r"), b"\n\na\nb\n"[..]);
}
