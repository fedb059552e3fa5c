//! A daemon's input out of arbitrary bytes: each byte chooses a token of the grammar, so that most lines are nearly
//! right, and every mistake is as likely in every place. For the tests and the fuzz targets alike.

/// Bytes that choose. When none are left, every choice is the first.
#[derive(Debug)]
pub(crate) struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    #[must_use]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    fn byte(&mut self) -> usize {
        self.0.next().copied().unwrap_or_default().into()
    }

    /// From 0 to `count` - 1.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let byte = self.byte();
        if count > 256 { (byte << 8 | self.byte()) % count } else { byte % count }
    }

    /// True once in `count` times.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What breaks a line, or does not, depending on the place: also what a cut or a limit can fall into.
const PIECES: [&[u8]; 48] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\t",
    b"\r",
    b"\x01",
    b"\x0b",
    b"=",
    b"==",
    b"Q",
    b"QQ",
    b"Q=JD",
    b"/",
    b"-",
    b"+",
    b"0",
    b"07",
    b"1.0",
    b"1e5",
    b"9223372036854775808",
    b"nul",
    b"null",
    b"t",
    b"true",
    b"\\n",
    b"\\u",
    b"\\u00",
    b"\\u0051",
    b"\\ud83d",
    b"\\ud83d\\",
    b"\\ud83d\\ude00",
    b"\\udc00",
    b"\\x",
    b"\xc3",
    b"\xc3\xa9",
    b"\xe2\x82",
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b"\xef\xbb\xbf",
    b"[1,{\"a\":[\"]\"]}]",
];

/// White space that ends no line, seldom any.
const SPACES: [&[u8]; 8] = [b"", b"", b"", b"", b"", b" ", b"\t\r", b"          "];

const TEXTS: [&[u8]; 12] = [
    b"k",
    b"",
    b"key-1",
    b"49590338271490256608559692538361571095921575989136588898",
    b"\\\"",
    b"\xc3\xa9",
    b"\xe2\x82\xac",
    b"\\ud83d\\ude00",
    b"\\u0041",
    b"a key that is longer than one block of sixty-four bytes, and so takes two",
    b"\\udc00",
    b"\x7f",
];

const NUMBERS: [&[u8]; 10] =
    [b"0", b"7", b"null", b"1748736000000", b"-1", b"-0", b"12345678901234567", b"9223372036854775807", b"1.5", b"-"];

/// Base64 and what is nearly some.
const DATA: [&[u8]; 18] = [
    b"",
    b"QUJD",
    b"QQ==",
    b"QUI=",
    b"QUJDREVG",
    b"=",
    b"Q",
    b"QQ",
    b"QQ=",
    b"QQ=A",
    b"QQ==QQ==",
    b"Q=",
    b" QUJD",
    b"QU JD",
    b"\\u0051UJD",
    b"Q\\/==",
    b"\\r\\n",
    b"QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0NTY3ODkrLw==",
];

const NAMES: [&[u8]; 10] = [
    b"\"data\"",
    b"\"partitionKey\"",
    b"\"sequenceNumber\"",
    b"\"approximateArrivalTimestamp\"",
    b"\"subSequenceNumber\"",
    b"\"action\"",
    b"\"x\"",
    b"\"\\u0064ata\"",
    b"\"records\"",
    b"\"\\ud83d\"",
];

/// The members of records, by their names' index: as daemons write them, and otherwise.
const ORDERS: [&[usize]; 12] = [
    &[0, 1, 2, 3, 4, 5],
    &[0, 1, 2, 3],
    &[0, 1, 2, 3, 4, 5],
    &[6, 0, 1, 2, 3, 4, 5],
    &[5, 0, 1, 2, 3, 4],
    &[1, 0, 2],
    &[2, 1, 0, 6],
    &[0, 0, 1, 2, 1],
    &[7, 1, 2],
    &[0, 6, 1, 2, 3],
    &[0, 1],
    &[],
];

const MESSAGES: [&[u8]; 12] = [
    b"{\"action\":\"leaseLost\"}",
    b"{\"action\":\"shardEnded\"}",
    b"{\"action\":\"shutdownRequested\"}",
    b"{\"action\":\"shutdown\",\"reason\":\"ZOMBIE\"}",
    b"{\"action\":\"shutdown\",\"reason\":\"TERMINATE\"}",
    b"{\"action\":\"initialize\",\"shardId\":\"s\"}",
    b"{\"action\":\"initialize\",\"shardId\":\"s\",\"sequenceNumber\":\"1\",\"subSequenceNumber\":0}",
    b"{\"action\":\"checkpoint\",\"checkpoint\":\"1\",\"error\":\"ThrottlingException\"}",
    b"{\"action\":\"checkpoint\",\"sequenceNumber\":\"1\",\"subSequenceNumber\":2,\"error\":null}",
    b"{\"x\":[{\"y\":-1.5e3}],\"action\":\"leaseLost\"}",
    b"",
    b"[]",
];

/// Some lines, mostly one, and mostly of records. The last may have no LF.
#[must_use]
pub(crate) fn lines(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let mut line = line(choices);
        let open = choices.one_in(6);
        if !open {
            line.push(b'\n');
        }
        out.extend_from_slice(&line);
        if open || !choices.one_in(4) {
            return out;
        }
    }
}

/// One line without its LF.
#[must_use]
pub(crate) fn line(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    if choices.one_in(8) {
        line.extend_from_slice(choices.pick(&MESSAGES));
    } else {
        records_line(choices, &mut line);
    }
    for _ in 0..choices.pick(&[0, 0, 0, 1, 1, 2, 3]) {
        change(choices, &mut line);
    }
    line.retain(|byte| *byte != b'\n');
    line
}

/// Breaks a line in one place.
fn change(choices: &mut Choices<'_>, line: &mut Vec<u8>) {
    let at = choices.below(line.len() + 1);
    let piece = choices.pick(&PIECES);
    match choices.below(6) {
        0 => line.truncate(at),
        1 => drop(line.splice(at..at, piece.iter().copied())),
        2 if at < line.len() => drop(line.splice(at..=at, piece.iter().copied())),
        3 if at < line.len() => drop(line.remove(at)),
        4 => {
            line.truncate(at);
            line.extend_from_slice(piece);
        }
        _ => drop(line.splice(at..at, SPACES[7].iter().copied().cycle().take(choices.below(300)))),
    }
}

fn tokens(choices: &mut Choices<'_>, tokens: &[&[u8]], out: &mut Vec<u8>) {
    let tidy = !choices.one_in(4);
    for token in tokens {
        if !tidy {
            out.extend_from_slice(choices.pick(&SPACES));
        }
        out.extend_from_slice(token);
    }
}

fn records_line(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let action: [&[u8]; 3] = [b"\"action\"", b":", b"\"processRecords\""];
    let records: [&[u8]; 3] = [b"\"records\"", b":", b"["];
    let first = !choices.one_in(8);
    tokens(choices, &[b"{"], out);
    if first {
        tokens(choices, &action, out);
        tokens(choices, &[b","], out);
    }
    if choices.one_in(12) {
        member(choices, out);
        tokens(choices, &[b","], out);
    }
    tokens(choices, &records, out);
    for index in 0..choices.pick(&[1, 1, 1, 2, 3, 0]) {
        if index > 0 {
            tokens(choices, &[b","], out);
        }
        record(choices, out);
    }
    tokens(choices, &[b"]"], out);
    if !first {
        tokens(choices, &[b","], out);
        tokens(choices, &action, out);
    }
    match choices.below(6) {
        0 => {}
        1 => {
            tokens(choices, &[b","], out);
            tokens(choices, &records, out);
            record(choices, out);
            out.push(b']');
        }
        2 => {
            tokens(choices, &[b","], out);
            member(choices, out);
        }
        _ => {
            let number = choices.pick(&NUMBERS);
            tokens(choices, &[b",", b"\"millisBehindLatest\"", b":", number], out);
        }
    }
    tokens(choices, &[b"}"], out);
}

fn record(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let order = choices.pick(&ORDERS);
    if order.is_empty() && choices.one_in(2) {
        return out.extend_from_slice(choices.pick(&PIECES));
    }
    out.extend_from_slice(b"{");
    let tidy = !choices.one_in(3);
    for (index, name) in order.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b",");
        }
        if !tidy {
            out.extend_from_slice(choices.pick(&SPACES));
        }
        out.extend_from_slice(NAMES[*name]);
        out.extend_from_slice(if tidy { b":" } else { b" : " });
        value(choices, *name, out);
    }
    out.extend_from_slice(b"}");
}

fn member(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let name = choices.below(NAMES.len());
    out.extend_from_slice(NAMES[name]);
    out.push(b':');
    value(choices, name, out);
}

fn value(choices: &mut Choices<'_>, name: usize, out: &mut Vec<u8>) {
    let name = if choices.one_in(16) { choices.below(NAMES.len()) } else { name };
    match name {
        0 | 7 => match choices.below(12) {
            0 => out.extend_from_slice(b"null"),
            1 => {
                out.push(b'"');
                out.extend(std::iter::repeat_n(b"QUJD", choices.below(500)).flatten());
                out.extend_from_slice(choices.pick(&DATA));
                out.push(b'"');
            }
            _ => string(choices, &DATA, out),
        },
        1 | 2 => string(choices, &TEXTS, out),
        3 | 4 => out.extend_from_slice(choices.pick(&NUMBERS)),
        5 => out.extend_from_slice(b"\"record\""),
        _ => out.extend_from_slice(choices.pick(&PIECES[20..])),
    }
}

/// A string of some of the texts.
fn string(choices: &mut Choices<'_>, texts: &[&[u8]], out: &mut Vec<u8>) {
    out.push(b'"');
    loop {
        out.extend_from_slice(choices.pick(texts));
        if choices.one_in(12) {
            out.extend_from_slice(choices.pick(&PIECES));
        }
        if !choices.one_in(4) {
            break;
        }
    }
    out.push(b'"');
}
