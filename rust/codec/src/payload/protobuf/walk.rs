//! A walk over one Protobuf message that only checks: good bytes from bad, before any column is touched.
//!
//! A message may say the same thing in several ways: a field of a message twice (they are merged), two members of a oneof
//! (the last one counts), a map's key twice. ptars-core has its own mind about these, so the walk calls them odd; they are
//! written once more, in the one usual way, before they are decoded.

use std::collections::HashSet;

use simdutf8::basic::from_utf8;

/// The deepest message or group. Other implementations stop there, too.
const DEEPEST: usize = 100;

/// A message type's fields.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// By number, ascending.
    pub(crate) fields: Vec<Field>,
    /// Bytes of the columns beside texts and items.
    pub(crate) width: usize,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) repeated: bool,
    /// Which oneof of its message it belongs to.
    pub(crate) oneof: Option<usize>,
}

/// What the bytes of a field are.
#[derive(Debug)]
pub(crate) enum Kind {
    Varint,
    Fixed32,
    Fixed64,
    Utf8,
    Bytes,
    Message(Message),
    /// A map's entry: field 1 is the key, 2 the value.
    Entry(Message),
    /// A well-known type of whole numbers, each within its bounds.
    Numbers(&'static [(i64, i64)]),
    /// `google.type.Date`.
    Date,
}

/// Years 1 to 9999 in seconds, and the nanoseconds of a second.
pub(crate) const TIMESTAMP: &[(i64, i64)] = &[(-62_135_596_800, 253_402_300_799), (0, 999_999_999)];
/// Ten thousand years either way.
pub(crate) const DURATION: &[(i64, i64)] = &[(-315_576_000_000, 315_576_000_000), (-999_999_999, 999_999_999)];
/// Hours, minutes, seconds, nanoseconds.
pub(crate) const TIME_OF_DAY: &[(i64, i64)] = &[(0, 23), (0, 59), (0, 59), (0, 999_999_999)];

/// Why bytes are no message, or none as ptars-core reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    Malformed,
    /// The decoder might take them: a field of another wire type, numbers that are no time, a group that ends as another,
    /// numbers of more than 64 bits, a tag of more than 32, packed numbers with a rest, an entry without its date, or columns
    /// that would fill the memory.
    Stricter,
}

/// The action for a good message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Good {
    /// Bytes of columns, about.
    pub(crate) cost: usize,
    /// Whether it has to be written in the usual way first.
    pub(crate) odd: bool,
}

/// Checks that `bytes` are one message.
pub(crate) fn walk(message: &Message, bytes: &[u8], most: usize) -> Result<Good, Bad> {
    let mut walk = Walk { cost: 0, most, odd: false };
    walk.message(message, bytes, 0)?;
    Ok(Good { cost: walk.cost, odd: walk.odd })
}

struct Walk {
    cost: usize,
    most: usize,
    odd: bool,
}

/// Fields of one message that were seen: the first 256 of a type, and the member of each of 16 oneofs.
struct Seen {
    fields: [u64; 4],
    oneofs: [usize; 16],
}

impl Seen {
    /// Notes a field; whether that was its second time, or the place of another member.
    fn again(&mut self, index: usize, oneof: Option<usize>) -> bool {
        let mut odd = false;
        if let Some(oneof) = oneof {
            odd |= match self.oneofs.get_mut(oneof) {
                Some(member) => {
                    let before = std::mem::replace(member, index + 1);
                    before != 0 && before != index + 1
                }
                None => true,
            };
        }
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        match self.fields.get_mut(word) {
            Some(fields) => {
                odd |= *fields & bit != 0;
                *fields |= bit;
            }
            None => odd = true,
        }
        odd
    }
}

impl Walk {
    fn pay(&mut self, bytes: usize) -> Result<(), Bad> {
        self.cost = self.cost.saturating_add(bytes);
        if self.cost > self.most { Err(Bad::Stricter) } else { Ok(()) }
    }

    /// Which of the first 64 fields there are: a bit each, of messages that are not repeated.
    fn message(&mut self, message: &Message, mut bytes: &[u8], depth: usize) -> Result<u64, Bad> {
        if depth > DEEPEST {
            return Err(Bad::Stricter);
        }
        self.pay(message.width)?;
        let mut seen = Seen { fields: [0; 4], oneofs: [0; 16] };
        let mut keys: Option<HashSet<(usize, &[u8])>> = None;
        while !bytes.is_empty() {
            let (number, wire) = tag(&mut bytes)?;
            let Ok(index) = message.fields.binary_search_by_key(&number, |field| field.number) else {
                skip(&mut bytes, number, wire, depth)?;
                continue;
            };
            let field = &message.fields[index];
            if wire != field.kind.wire() && !(wire == 2 && field.repeated && field.kind.is_number()) {
                // Its writer has another type for it; others would lose the value without a word.
                return Err(Bad::Stricter);
            }
            if !field.repeated && (field.oneof.is_some() || field.kind.wire() == 2) {
                let text = matches!(field.kind, Kind::Utf8 | Kind::Bytes) && field.oneof.is_none();
                self.odd |= !text && seen.again(index, field.oneof);
            }
            let Kind::Entry(entry) = &field.kind else {
                self.value(field, &mut bytes, wire, depth)?;
                continue;
            };
            let body = sized(&mut bytes)?;
            let value = self.message(entry, body, depth + 1)? & 2;
            if value == 0 {
                match &entry.fields[1].kind {
                    // ptars-core has no value for it, and panics. The usual way has the type's default, which no date is.
                    Kind::Message(_) | Kind::Numbers(_) => self.odd = true,
                    Kind::Date => return Err(Bad::Stricter),
                    _ => {}
                }
            }
            match key(body) {
                Some(key) => self.odd |= !keys.get_or_insert_default().insert((index, key)),
                None => self.odd = true,
            }
        }
        Ok(seen.fields[0])
    }

    fn value(&mut self, field: &Field, bytes: &mut &[u8], wire: u8, depth: usize) -> Result<(), Bad> {
        if wire == 2 && field.kind.is_number() {
            return self.packed(&field.kind, sized(bytes)?);
        }
        let item = if field.repeated { 8 } else { 0 };
        self.pay(item)?;
        match &field.kind {
            Kind::Varint => varint(bytes).map(drop),
            Kind::Fixed32 => take(bytes, 4).map(drop),
            Kind::Fixed64 => take(bytes, 8).map(drop),
            Kind::Utf8 => {
                let text = sized(bytes)?;
                from_utf8(text).map_err(|_| Bad::Malformed)?;
                self.pay(text.len())
            }
            Kind::Bytes => {
                let size = sized(bytes)?.len();
                self.pay(size)
            }
            Kind::Message(message) | Kind::Entry(message) => {
                let body = sized(bytes)?;
                self.message(message, body, depth + 1).map(drop)
            }
            Kind::Numbers(bounds) => numbers(sized(bytes)?, bounds, depth + 1).map(drop),
            Kind::Date => {
                const EACH: (i64, i64) = (i64::MIN, i64::MAX);
                let [year, month, day, _] = numbers(sized(bytes)?, &[EACH, EACH, EACH], depth + 1)?;
                let part = |value: i64| u32::try_from(value).ok();
                let date = part(month)
                    .zip(part(day))
                    .and_then(|(month, day)| chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day));
                if (1..=9999).contains(&year) && date.is_some() { Ok(()) } else { Err(Bad::Stricter) }
            }
        }
    }

    fn packed(&mut self, kind: &Kind, mut bytes: &[u8]) -> Result<(), Bad> {
        let width = match kind {
            Kind::Fixed32 => 4,
            Kind::Fixed64 => 8,
            _ => {
                while !bytes.is_empty() {
                    varint(&mut bytes)?;
                    self.pay(8)?;
                }
                return Ok(());
            }
        };
        self.pay(bytes.len())?;
        if bytes.len().is_multiple_of(width) { Ok(()) } else { Err(Bad::Stricter) }
    }
}

impl Kind {
    /// The wire type that its values have, not packed.
    fn wire(&self) -> u8 {
        match self {
            Self::Varint => 0,
            Self::Fixed64 => 1,
            Self::Fixed32 => 5,
            _ => 2,
        }
    }

    /// Whether many of them can be packed.
    fn is_number(&self) -> bool {
        self.wire() != 2
    }
}

/// The bytes of an entry's key, if it has one, at its beginning, and one value at most after it.
fn key(mut entry: &[u8]) -> Option<&[u8]> {
    let whole = entry;
    let (number, wire) = tag(&mut entry).ok()?;
    if number != 1 {
        return None;
    }
    skip(&mut entry, number, wire, 0).ok()?;
    let key = &whole[..whole.len() - entry.len()];
    if !entry.is_empty() {
        let (number, wire) = tag(&mut entry).ok()?;
        if number != 2 {
            return None;
        }
        skip(&mut entry, number, wire, 0).ok()?;
    }
    entry.is_empty().then_some(key)
}

/// The first fields of a message of whole numbers.
fn numbers(mut bytes: &[u8], bounds: &[(i64, i64)], depth: usize) -> Result<[i64; 4], Bad> {
    let mut values = [0; 4];
    while !bytes.is_empty() {
        let (number, wire) = tag(&mut bytes)?;
        let index = (number as usize).wrapping_sub(1);
        if index < bounds.len() {
            if wire != 0 {
                return Err(Bad::Stricter);
            }
            values[index] = varint(&mut bytes)?.cast_signed();
        } else {
            skip(&mut bytes, number, wire, depth)?;
        }
    }
    let within = values.iter().zip(bounds).all(|(value, (low, high))| (*low..=*high).contains(value));
    if within { Ok(values) } else { Err(Bad::Stricter) }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Bad> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Bad::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn sized<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Bad> {
    // ptars-core adds to a length without a look, and panics.
    let size = varint(bytes)?;
    let size = usize::try_from(size).ok().filter(|&size| size <= isize::MAX.cast_unsigned()).ok_or(Bad::Stricter)?;
    take(bytes, size)
}

#[inline]
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Bad> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            // Some decoders drop the bits beyond 64; those of Rust and Go refuse them, and nobody writes them.
            if index == 9 && byte > 1 {
                return Err(Bad::Stricter);
            }
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(Bad::Malformed)
}

fn tag(bytes: &mut &[u8]) -> Result<(u32, u8), Bad> {
    let key = u32::try_from(varint(bytes)?).map_err(|_| Bad::Stricter)?;
    let wire = (key & 7) as u8;
    if key >> 3 == 0 { Err(Bad::Malformed) } else { Ok((key >> 3, wire)) }
}

/// A field that is not looked at.
fn skip(bytes: &mut &[u8], number: u32, wire: u8, depth: usize) -> Result<(), Bad> {
    match wire {
        0 => varint(bytes).map(drop),
        1 => take(bytes, 8).map(drop),
        2 => sized(bytes).map(drop),
        5 => take(bytes, 4).map(drop),
        3 if depth >= DEEPEST => Err(Bad::Stricter),
        3 => loop {
            let (inner, wire) = tag(bytes)?;
            if wire == 4 {
                return if inner == number { Ok(()) } else { Err(Bad::Stricter) };
            }
            skip(bytes, inner, wire, depth + 1)?;
        },
        _ => Err(Bad::Malformed),
    }
}
