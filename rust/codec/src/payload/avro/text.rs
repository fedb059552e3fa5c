//! Texts of values that have no type of Spark, where their reader wants strings.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, StringArray};
use chrono::DateTime;

use super::convert::plain;
use super::schema::{Kind, Logical, Node};

/// Whether values are single, and have one text.
pub(crate) fn is_scalar(node: &Node) -> bool {
    match node.kind {
        Kind::Boolean | Kind::Int | Kind::Long | Kind::Float | Kind::Double => node.logical.is_none(),
        Kind::String | Kind::Enum { .. } => true,
        _ => false,
    }
}

/// The texts of a column.
pub(crate) fn texts(array: &ArrayRef, node: &Node) -> Option<StringArray> {
    if let Kind::Union(branches) = &node.kind {
        return union(array, branches);
    }
    let array = &plain(array)?;
    let row: Box<dyn Fn(usize) -> String + '_> = match (&node.kind, node.logical) {
        (Kind::Int, Some(Logical::TimeMillis)) => {
            let values = array.as_primitive_opt::<Int32Type>()?.values();
            Box::new(|row| time(values[row].into(), 1000))
        }
        (Kind::Long, Some(Logical::TimeMicros)) => {
            let values = array.as_primitive_opt::<Int64Type>()?.values();
            Box::new(|row| time(values[row], 1_000_000))
        }
        (Kind::Long, Some(Logical::TimestampNanos)) => {
            let values = array.as_primitive_opt::<Int64Type>()?.values();
            Box::new(|row| format!("{:?}Z", DateTime::from_timestamp_nanos(values[row]).naive_utc()))
        }
        (Kind::Long, Some(Logical::LocalTimestampNanos)) => {
            let values = array.as_primitive_opt::<Int64Type>()?.values();
            Box::new(|row| format!("{:?}", DateTime::from_timestamp_nanos(values[row]).naive_utc()))
        }
        (Kind::Fixed { .. }, Some(Logical::Duration)) => {
            let values = array.as_fixed_size_binary_opt()?;
            Box::new(|row| duration(values.value(row)))
        }
        (Kind::Boolean, _) => {
            let values = array.as_boolean_opt()?;
            Box::new(|row| values.value(row).to_string())
        }
        (Kind::Int, _) => {
            let values = array.as_primitive_opt::<Int32Type>()?.values();
            Box::new(|row| values[row].to_string())
        }
        (Kind::Long, _) => {
            let values = array.as_primitive_opt::<Int64Type>()?.values();
            Box::new(|row| values[row].to_string())
        }
        (Kind::Float, _) => {
            let values = array.as_primitive_opt::<Float32Type>()?.values();
            Box::new(|row| format!("{:?}", values[row]))
        }
        (Kind::Double, _) => {
            let values = array.as_primitive_opt::<Float64Type>()?.values();
            Box::new(|row| format!("{:?}", values[row]))
        }
        (Kind::String, _) => return Some(array.as_string_opt::<i32>()?.clone()),
        (Kind::Enum { .. }, _) => return Some(super::convert::symbols(array)?.as_string_opt::<i32>()?.clone()),
        _ => return None,
    };
    Some((0..array.len()).map(|at| array.is_valid(at).then(|| row(at))).collect())
}

fn union(array: &ArrayRef, branches: &[Node]) -> Option<StringArray> {
    let union = array.as_union_opt()?;
    let children: Vec<Option<StringArray>> = branches
        .iter()
        .enumerate()
        .map(|(index, branch)| texts(union.child(i8::try_from(index).ok()?), branch))
        .collect();
    let value = |row: usize| {
        let child = children.get(usize::try_from(union.type_id(row)).ok()?)?.as_ref()?;
        let at = union.value_offset(row);
        child.is_valid(at).then(|| child.value(at))
    };
    Some((0..union.len()).map(value).collect())
}

/// A time of day in parts of a second, as ISO 8601 has it; a number that is none stays a number.
fn time(value: i64, parts: i64) -> String {
    if !(0..86_400 * parts).contains(&value) {
        return value.to_string();
    }
    let (seconds, part) = (value / parts, value % parts);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let digits = if parts == 1000 { 3 } else { 6 };
    format!("{hours:02}:{minutes:02}:{seconds:02}.{part:0digits$}")
}

/// Months, days and milliseconds, each in four bytes, as ISO 8601 has it.
fn duration(bytes: &[u8]) -> String {
    let part = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (months, days, millis) = (part(0), part(4), part(8));
    format!("P{months}M{days}DT{}.{:03}S", millis / 1000, millis % 1000)
}
