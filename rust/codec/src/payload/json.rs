//! One JSON object into typed columns, by the schema, without a value tree.
//!
//! `serde_json` walks over the text and calls the visitor of the column that a key belongs to; a value that the column
//! does not take as it is ends the walk. Then a second, rarer one finds out whether the text is an object at all. Text
//! that is not valid UTF-8, has something after the object, or an array at its top, is none (RFC 8259).

use std::fmt;

use chrono::NaiveDate;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::columns::{Column, LARGEST_ITEMS, Struct, Values};
use super::loss::Kind;

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a row.
    Parsed,
    /// It is an object with something that the columns do not take as it is. Nothing of it was added.
    Left,
    /// As `Left`, and something of it would be lost without a word: see [`super::loss`].
    LeftWithLoss,
    /// It is no JSON object. Nothing of it was added.
    Corrupt,
}

/// Adds `text` as a row of `objects`, a struct column, if every value in it is certain.
///
/// `kind` is what the row is read by if it is left.
/// Lists are left that would make columns of more than `max_bytes`: a column takes more than an empty object's text.
pub(crate) fn push(objects: Option<&mut Column>, kind: &Kind, text: &[u8], max_bytes: usize) -> Outcome {
    let Ok(text) = std::str::from_utf8(text) else { return Outcome::Corrupt };
    if !text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return Outcome::Corrupt;
    }
    if let Some(objects) = objects {
        let rows = objects.len();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parsed = Slot { column: objects, max_bytes }.deserialize(&mut deserializer);
        if parsed.and_then(|()| deserializer.end()).is_ok() {
            return Outcome::Parsed;
        }
        objects.truncate(rows);
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) if kind.loses(text) => Outcome::LeftWithLoss,
        Ok(_) => Outcome::Left,
        Err(_) => Outcome::Corrupt,
    }
}

/// Where the next value goes.
struct Slot<'a> {
    column: &'a mut Column,
    max_bytes: usize,
}

impl Slot<'_> {
    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        fn within<T: TryFrom<i128>, E: Error>(value: i128) -> Result<T, E> {
            T::try_from(value).map_err(|_| misfit())
        }
        match &mut self.column.values {
            Values::Int8(values) => values.push(within(value)?),
            Values::Int16(values) => values.push(within(value)?),
            Values::Int32(values) => values.push(within(value)?),
            Values::Int64(values) => values.push(within(value)?),
            #[allow(clippy::cast_precision_loss, reason = "the nearest double is what a double column has")]
            Values::Float64(values) => values.push(value as f64),
            _ => return Err(misfit()),
        }
        self.column.value_added();
        Ok(())
    }
}

/// Ends the walk. Whoever gets it looks no closer.
fn misfit<E: Error>() -> E {
    E::custom("misfit")
}

impl<'de> DeserializeSeed<'de> for Slot<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Slot<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value of the column's type")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.column.push_null();
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        let Values::Boolean(values) = &mut self.column.values else { return Err(misfit()) };
        values.append(value);
        self.column.value_added();
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let Values::Float64(values) = &mut self.column.values else { return Err(misfit()) };
        if value == 0.0 && value.is_sign_negative() {
            return Err(misfit()); // -0 is an integer to some
        }
        values.push(value);
        self.column.value_added();
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        match &mut self.column.values {
            Values::Utf8(values) => values.push(value.as_bytes()),
            Values::Date(values) => values.push(days(value).ok_or_else(misfit)?),
            Values::Timestamp(values, _) => values.push(micros(value).ok_or_else(misfit)?),
            _ => return Err(misfit()),
        }
        self.column.value_added();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Values::List(lists) = &mut self.column.values else { return Err(misfit()) };
        let before = lists.items.nbytes();
        while items.next_element_seed(Slot { column: &mut lists.items, max_bytes: self.max_bytes })?.is_some() {
            if lists.items.nbytes() - before > self.max_bytes || lists.items.len() > LARGEST_ITEMS {
                return Err(misfit());
            }
        }
        lists.end();
        self.column.value_added();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let rows = self.column.len() + 1;
        let Values::Struct(objects) = &mut self.column.values else { return Err(misfit()) };
        let mut guess = 0;
        while let Some(index) = entries.next_key_seed(Key { objects, guess })? {
            let Some(index) = index else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            let column = &mut objects.columns[index];
            if column.len() == rows {
                return Err(misfit()); // the key came before
            }
            entries.next_value_seed(Slot { column, max_bytes: self.max_bytes })?;
            guess = index + 1;
        }
        for column in objects.columns.iter_mut().filter(|column| column.len() < rows) {
            column.push_null();
        }
        self.column.value_added();
        Ok(())
    }
}

/// The index of a key's field, None if the schema does not have it. Senders keep an order, so the next one is likely.
struct Key<'a> {
    objects: &'a Struct,
    guess: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.objects.index(name, self.guess))
    }
}

/// Days since the epoch of `2025-06-01`, in full; other forms are not certain.
fn days(text: &str) -> Option<i32> {
    let date = text.as_bytes();
    let (b'-', b'-', 10) = (*date.get(4)?, *date.get(7)?, date.len()) else { return None };
    let date = NaiveDate::from_ymd_opt(
        i32::try_from(number(&date[..4])?).ok().filter(|&year| year > 0)?,
        number(&date[5..7])?,
        number(&date[8..])?,
    )?;
    Some(date.to_epoch_days())
}

/// Microseconds since the epoch of `2025-06-01T12:34:56.789Z`, with up to six digits after the point or none.
fn micros(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_at_checked(10)?;
    let (time, fraction) = time.split_once('.').map_or((time, None), |(time, fraction)| (time, Some(fraction)));
    let time = time.as_bytes();
    let (b'T', b':', b':', 9) = (*time.first()?, *time.get(3)?, *time.get(6)?, time.len()) else { return None };
    let fraction = match fraction.map(str::as_bytes) {
        None => 0,
        Some(digits @ ([_] | [_, _] | [_, _, _] | [_, _, _, _] | [_, _, _, _, _] | [_, _, _, _, _, _])) => {
            number(digits)? * 10_u32.pow(6 - u32::try_from(digits.len()).ok()?)
        }
        Some(_) => return None,
    };
    let (hour, minute, second) = (number(&time[1..3])?, number(&time[4..6])?, number(&time[7..])?);
    let date = NaiveDate::from_epoch_days(days(date)?)?;
    Some(date.and_hms_micro_opt(hour, minute, second, fraction)?.and_utc().timestamp_micros())
}

/// A few decimal digits.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| 10 * value + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Date32Type, Float64Type, Int8Type, Int64Type, TimestampMicrosecondType};
    use arrow_array::{Array, StructArray};
    use arrow_schema::{DataType, Field, Fields, TimeUnit};

    use super::super::columns::Column;
    use super::super::loss::Kind;
    use super::{Outcome, push};

    fn fields(fields: &[(&str, DataType)]) -> Fields {
        fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect()
    }

    fn schema() -> DataType {
        let inner = DataType::Struct(fields(&[("x", DataType::Int64), ("y", DataType::Utf8)]));
        DataType::Struct(fields(&[
            ("i", DataType::Int8),
            ("n", DataType::Int64),
            ("f", DataType::Float64),
            ("b", DataType::Boolean),
            ("s", DataType::Utf8),
            ("d", DataType::Date32),
            ("t", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            ("o", inner.clone()),
            ("l", DataType::new_list(inner, true)),
        ]))
    }

    fn kind() -> Kind {
        match schema() {
            DataType::Struct(fields) => Kind::of_fields(&fields),
            _ => unreachable!("a struct"),
        }
    }

    const MAX_BYTES: usize = 4096;

    /// Pushes texts; the outcomes, and the rows of those that were parsed.
    fn pushed(texts: &[&str]) -> (Vec<Outcome>, StructArray) {
        let mut column = Column::of_json(&schema()).unwrap();
        let kind = kind();
        let outcomes = texts.iter().map(|text| push(Some(&mut column), &kind, text.as_bytes(), MAX_BYTES)).collect();
        (outcomes, column.finish().as_struct().clone())
    }

    const PARSED: &[&str] = &[
        r#"{"i":-128,"n":9223372036854775807,"f":1e-3,"b":true,"s":"x","d":"1969-12-31","t":"1970-01-01T00:00:01.5Z"}"#,
        r#"{"t":"0001-01-01T00:00:00Z","d":"9999-12-31","f":18446744073709551616,"s":"\u00e9\n","o":{},"l":[]}"#,
        r#" {"l":[{"y":"a","x":1},null,{"z":[[{}]]},{"x":-5}],"o":{"x":null,"y":""},"unknown":{"o":{"x":"no"}}} "#,
        "{}",
    ];

    const LEFT: &[&str] = &[
        r#"{"n":9223372036854775808}"#,
        r#"{"n":1.0}"#,
        r#"{"n":"1"}"#,
        r#"{"n":-0}"#,
        r#"{"f":-0}"#,
        r#"{"f":"1"}"#,
        r#"{"b":1}"#,
        r#"{"s":1}"#,
        r#"{"s":{}}"#,
        r#"{"d":"2025-6-1"}"#,
        r#"{"d":"1500-02-29"}"#,
        r#"{"d":"0000-01-01"}"#,
        r#"{"d":"+025-01-01"}"#,
        r#"{"t":"2025-06-01T00:00:00"}"#,
        r#"{"t":"2025-06-01T00:00:60Z"}"#,
        r#"{"t":"2025-06-01T00:00:00.Z"}"#,
        r#"{"t":"2025-06-01T00:00:00.1234567Z"}"#,
        r#"{"t":"2025-06-01t00:00:00Z"}"#,
        r#"{"t":"2025-06-01T00:00:0éZ"}"#,
        r#"{"o":[]}"#,
        r#"{"l":{}}"#,
        r#"{"l":[{"x":1},{"x":2},{"y":7}]}"#,
    ];

    const LEFT_WITH_LOSS: &[&str] = &[
        r#"{"i":128}"#,
        r#"{"f":1e999}"#,
        r#"{"s":"\ud800"}"#,
        r#"{"s":"a","s":"b"}"#,
        r#"{"o":{"x":1,"y":"kept?","x":2}}"#,
    ];

    const CORRUPT: &[&str] = &[
        "",
        " ",
        "null",
        "1",
        "[]",
        "[{}]",
        "{",
        r#"{"n":1"#,
        r#"{"n":1}}"#,
        r#"{"n":1}{"n":1}"#,
        r#"{"n":1} x"#,
        r#"{"n":01}"#,
        "{\"\nn\":1}",
        r#"{"n":NaN}"#,
        "{'n':1}",
        r#"{"n":1,}"#,
        "{\"s\":\"\n\"}",
        r#"{"l":[{"x":1},}"#,
        "\u{feff}{}",
    ];

    #[test]
    fn what_is_certain_is_parsed() {
        let (outcomes, rows) = pushed(PARSED);
        assert_eq!(outcomes, [Outcome::Parsed; 4]);
        let column = |name: &str| rows.column_by_name(name).unwrap();
        assert_eq!(column("i").as_primitive::<Int8Type>().value(0), -128);
        assert_eq!(column("n").as_primitive::<Int64Type>().value(0), i64::MAX);
        let doubles: Vec<_> = column("f").as_primitive::<Float64Type>().iter().collect();
        assert_eq!(doubles, [Some(0.001), Some(18_446_744_073_709_551_616.0), None, None]);
        assert!(column("b").as_boolean().value(0));
        assert_eq!(column("s").as_string::<i32>().value(1), "é\n");
        let days: Vec<_> = column("d").as_primitive::<Date32Type>().iter().collect();
        assert_eq!(days, [Some(-1), Some(2_932_896), None, None]);
        let times: Vec<_> = column("t").as_primitive::<TimestampMicrosecondType>().iter().collect();
        assert_eq!(times, [Some(1_500_000), Some(-62_135_596_800_000_000), None, None]);
        let lists = column("l").as_list::<i32>();
        assert_eq!(
            lists.iter().map(|list| list.map(|items| items.len())).collect::<Vec<_>>(),
            [None, Some(0), Some(4), None]
        );
        let items = lists.values().as_struct();
        assert_eq!((0..4).map(|item| items.is_valid(item)).collect::<Vec<_>>(), [true, false, true, true]);
        let numbers: Vec<_> = items.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(1), None, None, Some(-5)]);
        assert_eq!(column("o").as_struct().column(1).as_string::<i32>().iter().collect::<Vec<_>>()[2], Some(""));
    }

    #[test]
    fn what_needs_a_rule_is_left_and_what_is_no_object_is_corrupt() {
        for (texts, expected) in
            [(LEFT, Outcome::Left), (LEFT_WITH_LOSS, Outcome::LeftWithLoss), (CORRUPT, Outcome::Corrupt)]
        {
            for text in texts {
                assert_eq!(push(None, &kind(), text.as_bytes(), MAX_BYTES), expected, "{text}");
                assert_eq!(pushed(&[text]).0, [expected], "{text}");
            }
        }
        assert_eq!(push(None, &kind(), b"{\"s\":\"\xff\"}", MAX_BYTES), Outcome::Corrupt);
    }

    #[test]
    fn nothing_stays_of_a_row_that_was_not_taken() {
        let (_, alone) = pushed(PARSED);
        for bad in LEFT.iter().chain(LEFT_WITH_LOSS).chain(CORRUPT) {
            let among: Vec<_> = PARSED.iter().flat_map(|good| [*bad, *good, *bad]).collect();
            assert_eq!(pushed(&among).1, alone, "{bad}");
        }
    }

    #[test]
    fn a_list_that_grows_out_of_all_proportion_is_left() {
        let items = |count: usize| format!(r#"{{"l":[{}{{}}]}}"#, "{},".repeat(count));
        assert_eq!(pushed(&[&items(10), &items(MAX_BYTES)]).0, [Outcome::Parsed, Outcome::Left]);
    }
}
