//! ptars-core's columns as Spark has them: no numbers without signs, and every field nullable.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, DurationMicrosecondType, Int64Type, Time64MicrosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ListArray, MapArray, PrimitiveArray, StringArray, StructArray};
use arrow_schema::{DataType, Fields};

use super::plan::{Column, Shape};

/// The columns of a message's fields; None if they are others than its descriptor promised.
pub(crate) fn columns(arrays: &[ArrayRef], columns: &[Column], types: &Fields) -> Option<Vec<ArrayRef>> {
    let each = columns.iter().zip(types.iter());
    each.map(|(column, field)| one(arrays.get(column.index)?, &column.shape, field.data_type())).collect()
}

fn one(array: &ArrayRef, shape: &Shape, wanted: &DataType) -> Option<ArrayRef> {
    let done: ArrayRef = match (shape, wanted) {
        (Shape::Same, _) => Arc::clone(array),
        (Shape::Unsigned, DataType::Int64) => {
            Arc::new(array.as_primitive_opt::<UInt32Type>()?.unary::<_, Int64Type>(i64::from))
        }
        (Shape::Unsigned, _) => {
            let wide: PrimitiveArray<Decimal128Type> = array.as_primitive_opt::<UInt64Type>()?.unary(i128::from);
            Arc::new(wide.with_precision_and_scale(20, 0).ok()?)
        }
        (Shape::DurationText, _) => {
            let values = array.as_primitive_opt::<DurationMicrosecondType>()?;
            Arc::new(values.iter().map(|value| value.map(duration)).collect::<StringArray>())
        }
        (Shape::TimeText, _) => {
            let values = array.as_primitive_opt::<Time64MicrosecondType>()?;
            Arc::new(values.iter().map(|value| value.map(time)).collect::<StringArray>())
        }
        (Shape::List(item), DataType::List(field)) => {
            let (_, offsets, values, nulls) = array.as_list_opt::<i32>()?.clone().into_parts();
            let values = one(&values, item, field.data_type())?;
            Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls).ok()?)
        }
        (Shape::Map(key, value), DataType::Map(field, _)) => {
            let (_, offsets, entries, nulls, ordered) = array.as_map_opt()?.clone().into_parts();
            let DataType::Struct(entry) = field.data_type() else { return None };
            let keys = one(entries.column(0), key, entry.first()?.data_type())?;
            let values = one(entries.column(1), value, entry.get(1)?.data_type())?;
            let entries = StructArray::try_new(entry.clone(), vec![keys, values], None).ok()?;
            Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, ordered).ok()?)
        }
        (Shape::Struct(inner), DataType::Struct(types)) => {
            let message = array.as_struct_opt()?;
            let inner = columns(message.columns(), inner, types)?;
            Arc::new(StructArray::try_new(types.clone(), inner, message.nulls().cloned()).ok()?)
        }
        _ => return None,
    };
    (done.data_type() == wanted).then_some(done)
}

/// Seconds, as Protobuf's JSON has them.
fn duration(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let whole = micros.unsigned_abs();
    format!("{sign}{}.{:06}s", whole / 1_000_000, whole % 1_000_000)
}

fn time(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    format!("{:02}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}
