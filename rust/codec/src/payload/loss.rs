//! The values that Spark's `from_json` takes into a column and does not keep, without a word about it.
//!
//! An object that the columns do not take as it is gets to `from_json`, which says of most values that do not fit that
//! they do not. Of some it says nothing (Spark 4.3): it reads 200 for a byte as -56, 1e400 as infinity, half of a
//! surrogate pair as a question mark, and text of a number only as far as a double goes. This module finds the losses that it does not report.
//!
//! Rounding that a type does by its nature is no loss: a double's nearest, a decimal's scale, a timestamp's
//! microseconds, a date's day. Nor is it one to name something that `from_json` says itself.

use std::collections::HashMap;
use std::fmt;

use arrow_schema::{DataType, Fields, TimeUnit};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The values that a column takes, as far as a part of them may be lost.
#[derive(Debug)]
pub(crate) enum Kind {
    Byte,
    Float,
    Double,
    /// Text, which numbers, lists and objects are turned into as well.
    Text,
    /// Seconds since the epoch, if they are a number; kept in microseconds.
    Instant,
    List(Box<Kind>),
    /// Values of any keys.
    Map(Box<Kind>),
    /// A number for each field, in no order.
    Object(HashMap<String, (usize, Kind)>),
    /// Nothing is lost of it in silence.
    Other,
}

impl Kind {
    /// Of objects with these fields.
    pub(crate) fn of_fields(fields: &Fields) -> Self {
        Self::Object(
            fields
                .iter()
                .enumerate()
                .map(|(index, field)| (field.name().clone(), (index, Self::of(field.data_type()))))
                .collect(),
        )
    }

    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int8 => Self::Byte,
            DataType::Float32 => Self::Float,
            DataType::Float64 => Self::Double,
            DataType::Utf8 => Self::Text,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Instant,
            DataType::List(item) => Self::List(Box::new(Self::of(item.data_type()))),
            DataType::Struct(fields) => Self::of_fields(fields),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => Self::Map(Box::new(Self::of(pair[1].data_type()))),
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }

    /// Whether something of `text`, which is JSON, is lost in silence.
    pub(crate) fn loses(&self, text: &str) -> bool {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        match (self, text.as_bytes().first()) {
            (Self::Object(_) | Self::Map(_), Some(b'{')) | (Self::List(_), Some(b'[')) => {
                // What cannot be walked over is not known to be kept.
                Walk(self).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap_or(true)
            }
            (Self::Text, Some(b'"')) => is_half_a_pair(text),
            (Self::Text, _) => !numbers(text).all(is_kept_by_a_double),
            (_, Some(b'-' | b'0'..=b'9')) => match self {
                Self::Byte => text.parse::<u8>().is_ok_and(|number| i8::try_from(number).is_err()),
                Self::Float => text.parse::<f32>().is_ok_and(f32::is_infinite),
                Self::Double => text.parse::<f64>().is_ok_and(f64::is_infinite),
                Self::Instant => text.parse::<i64>().is_ok_and(|seconds| seconds.checked_mul(1_000_000).is_none()),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Goes over the items of a list, or the entries of an object.
struct Walk<'a>(&'a Kind);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let Kind::List(kind) = self.0 else { return Ok(false) };
        let mut lost = false;
        while let Some(item) = items.next_element::<&RawValue>()? {
            lost |= kind.loses(item.get());
        }
        Ok(lost)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let mut lost = false;
        let mut seen = match self.0 {
            Kind::Object(fields) => vec![false; fields.len()],
            _ => Vec::new(),
        };
        while let Some(key) = entries.next_key_seed(Key(self.0))? {
            let value: &RawValue = entries.next_value()?;
            let kind = match key {
                Found::Field(index, kind) => {
                    lost |= std::mem::replace(&mut seen[index], true); // the value before is lost
                    kind
                }
                Found::Entry { kind, half_a_pair } => {
                    lost |= half_a_pair;
                    kind
                }
                Found::Nothing => continue,
            };
            lost |= kind.loses(value.get());
        }
        Ok(lost)
    }
}

/// The target of a key.
struct Key<'a>(&'a Kind);

enum Found<'a> {
    Field(usize, &'a Kind),
    Entry {
        kind: &'a Kind,
        half_a_pair: bool,
    },
    /// No column.
    Nothing,
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Found<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'a>, D::Error> {
        deserializer.deserialize_bytes(self) // as text, half of a surrogate pair would be an error
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Found<'a>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Found<'a>, E> {
        let key = std::str::from_utf8(key);
        Ok(match self.0 {
            Kind::Object(fields) => key
                .ok()
                .and_then(|key| fields.get(key))
                .map_or(Found::Nothing, |(index, kind)| Found::Field(*index, kind)),
            Kind::Map(kind) => Found::Entry { kind, half_a_pair: key.is_err() },
            _ => Found::Nothing,
        })
    }
}

/// Whether a JSON string has half of a surrogate pair: the only thing that keeps one from being read.
fn is_half_a_pair(string: &str) -> bool {
    string.contains("\\u") && serde_json::from_str::<String>(string).is_err()
}

/// The numbers in a JSON text.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |character: char| {
        let was_quoted = quoted;
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        was_quoted || !matches!(character, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
    })
    .filter(|part| part.starts_with(|first: char| first == '-' || first.is_ascii_digit()))
}

/// Whether a double has the number's value; whole numbers are not made doubles.
fn is_kept_by_a_double(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return true;
    }
    number.parse::<f64>().is_ok_and(|double| double.is_finite() && decimal(number) == decimal(&format!("{double:e}")))
}

/// Digits without zeros around them, and the power of ten of the first; None if that is beyond all reason.
fn decimal(number: &str) -> Option<(String, i64)> {
    let (mantissa, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa, ""));
    let whole = whole.trim_start_matches('-');
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some((String::new(), 0));
    }
    let skipped = i64::try_from(digits.len() - significant.len()).ok()?;
    let first = power.parse::<i64>().ok()?.checked_add(i64::try_from(whole.len()).ok()?)?.checked_sub(skipped)?;
    Some((significant.trim_end_matches('0').to_owned(), first))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field, Fields, TimeUnit};

    use super::Kind;

    fn schema() -> Kind {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let map = |value| {
            let pair = Fields::from(vec![Field::new("key", DataType::Utf8, false), field("value", value)]);
            DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
        };
        let inner = DataType::Struct(Fields::from(vec![field("i", DataType::Int8), field("s", DataType::Utf8)]));
        Kind::of_fields(&Fields::from(vec![
            field("i", DataType::Int8),
            field("n", DataType::Int64),
            field("f", DataType::Float32),
            field("d", DataType::Float64),
            field("s", DataType::Utf8),
            field("t", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            field("m", map(DataType::Int8)),
            field("o", inner.clone()),
            field("l", DataType::new_list(inner, true)),
            field("u", DataType::Null),
        ]))
    }

    #[test]
    fn what_is_lost_in_silence() {
        for text in [
            r#"{"i":128}"#,
            r#" {"i" : 255 } "#,
            r#"{"d":1e400}"#,
            r#"{"d":-1E999}"#,
            &format!(r#"{{"d":1{}}}"#, "0".repeat(309)),
            r#"{"f":1e39}"#,
            r#"{"s":"a\ud83d"}"#,
            r#"{"s":"\udc00\ud83d"}"#,
            r#"{"s":1e400}"#,
            r#"{"s":0.12345678901234567890}"#,
            r#"{"s":1e-400}"#,
            r#"{"s":1e99999999999999999999}"#,
            r#"{"s":[1,{"\"x":"0.1","y":-1.00000000000000000001}]}"#,
            r#"{"t":9223372036855}"#,
            r#"{"t":1748781296789000}"#,
            r#"{"m":{"a":1,"b":200}}"#,
            r#"{"m":{"\ud83d":1}}"#,
            r#"{"o":{"i":200}}"#,
            r#"{"l":[{},null,{"s":"\ud83d"}]}"#,
            r#"{"n":1,"n":2}"#,
            r#"{"n":1,"\u006e":null}"#,
            r#"{"o":{"s":"a","s":"b"}}"#,
        ] {
            assert!(schema().loses(text), "{text}");
        }
    }

    #[test]
    fn what_is_kept_or_named_or_nobodys() {
        for text in [
            "{}",
            r#"{"i":127,"n":"x","f":3.4e38,"d":1.7976931348623157e308,"s":"\ud83d\ude00 \\ud83d","t":9223372036854}"#,
            r#"{"i":256}"#,
            r#"{"i":-129}"#,
            r#"{"i":1e2}"#,
            r#"{"i":-0,"d":1e-400,"d ":1e400}"#,
            r#"{"d":"Infinity"}"#,
            r#"{"t":9223372036854775808}"#,
            r#"{"t":"2025-06-01T00:00:00.123456789Z"}"#,
            r#"{"s":1.10}"#,
            r#"{"s":-0.0}"#,
            r#"{"s":0.30000000000000004}"#,
            r#"{"s":100000000000000000000000000000000000001}"#,
            r#"{"s":[1.50,"0.12345678901234567890","\ud83d",{"1e400":1E+2,"a":true}]}"#,
            r#"{"\ud83d":1,"x":1e400,"x":"\ud83d"}"#,
            r#"{"m":{"a":1,"a":2},"l":{"i":200},"o":[{"i":200}],"u":1e400}"#,
            r#"{"m":[200],"i":"200","d":null,"s":null,"o":null,"l":null}"#,
        ] {
            assert!(!schema().loses(text), "{text}");
        }
    }
}
