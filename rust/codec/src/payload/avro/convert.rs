//! arrow-avro's columns as Spark has them: UTC in microseconds, enums and UUIDs as strings, fixed as binary, and every
//! field nullable.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, ListArray, MapArray, StringArray, StructArray, UInt32Array};
use arrow_schema::{DataType, Fields};
use arrow_select::take::take;

use super::schema::{Field, Kind, Logical, Node};
use super::shape::nullable;
use super::text::texts;

/// The columns of a record's fields; None if they are others than its schema promised.
pub(crate) fn columns(arrays: &[ArrayRef], fields: &[Field], types: &Fields) -> Option<Vec<ArrayRef>> {
    if arrays.len() != fields.len() || types.len() != fields.len() {
        return None;
    }
    let each = arrays.iter().zip(fields).zip(types.iter());
    each.map(|((array, field), wanted)| column(array, &field.node, wanted.data_type())).collect()
}

fn column(array: &ArrayRef, node: &Node, wanted: &DataType) -> Option<ArrayRef> {
    if node.text {
        return Some(Arc::new(texts(array, node)?));
    }
    let array = plain(array)?;
    if let Kind::Union(_) = node.kind {
        return column(&array, nullable(node)?, wanted);
    }
    let done: ArrayRef = match (&node.kind, wanted) {
        (Kind::Long, DataType::Timestamp(_, zone)) => {
            let millis = matches!(node.logical, Some(Logical::TimestampMillis | Logical::LocalTimestampMillis));
            let values = array.as_primitive_opt::<Int64Type>()?;
            // The walk has refused what does not fit; what nulls stand on does not matter.
            let micros = if millis { values.unary(|value: i64| value.wrapping_mul(1000)) } else { values.clone() };
            Arc::new(micros.reinterpret_cast::<TimestampMicrosecondType>().with_timezone_opt(zone.clone()))
        }
        (Kind::Enum { .. }, _) => symbols(&array)?,
        (Kind::Fixed { .. }, DataType::Utf8) => {
            let values = array.as_fixed_size_binary_opt()?;
            Arc::new(values.iter().map(|value| value.map(uuid)).collect::<StringArray>())
        }
        (Kind::Fixed { .. }, DataType::Binary) => {
            let values = array.as_fixed_size_binary_opt()?;
            let mut builder = BinaryBuilder::with_capacity(values.len(), values.value_data().len());
            values.iter().for_each(|value| builder.append_option(value));
            Arc::new(builder.finish())
        }
        (Kind::Array(item), DataType::List(field)) => {
            let (_, offsets, values, nulls) = array.as_list_opt::<i32>()?.clone().into_parts();
            let values = column(&values, item, field.data_type())?;
            Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls).ok()?)
        }
        (Kind::Map(value), DataType::Map(field, _)) => {
            let (_, offsets, entries, nulls, ordered) = array.as_map_opt()?.clone().into_parts();
            let DataType::Struct(entry) = field.data_type() else { return None };
            let values = column(entries.column(1), value, entry.get(1)?.data_type())?;
            let columns = vec![Arc::clone(entries.column(0)), values];
            let entries = StructArray::try_new(entry.clone(), columns, None).ok()?;
            Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, ordered).ok()?)
        }
        (Kind::Record { fields, .. }, DataType::Struct(types)) => {
            let record = array.as_struct_opt()?;
            let inner = columns(record.columns(), fields, types)?;
            Arc::new(StructArray::try_new(types.clone(), inner, record.nulls().cloned()).ok()?)
        }
        _ => array,
    };
    (done.data_type() == wanted).then_some(done)
}

/// A union of one type and null as a column of that type; other columns as they are.
pub(crate) fn plain(array: &ArrayRef) -> Option<ArrayRef> {
    let Some(union) = array.as_union_opt() else { return Some(Arc::clone(array)) };
    let DataType::Union(fields, _) = union.data_type() else { return None };
    let mut others = fields.iter().filter(|(_, field)| *field.data_type() != DataType::Null);
    let (one, _) = others.next()?;
    if others.next().is_some() {
        return None;
    }
    let at = |row: usize| u32::try_from(union.value_offset(row)).ok();
    let rows: UInt32Array = (0..union.len()).map(|row| at(row).filter(|_| union.type_id(row) == one)).collect();
    take(union.child(one), &rows, None).ok()
}

/// The strings of a dictionary.
pub(crate) fn symbols(array: &ArrayRef) -> Option<ArrayRef> {
    let dictionary = array.as_dictionary_opt::<Int32Type>()?;
    take(dictionary.values(), dictionary.keys(), None).ok()
}

fn uuid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}
