//! Columns of JSON values while they are filled, with a way back: a row that turns out not to fit is taken out again.
//!
//! Arrow's own builders cannot be shortened, and a record that is found not to fit at its last key has filled columns
//! on every level by then. So these are plain vectors and validity bits, which become Arrow arrays at the end.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields, TimeUnit};

/// Values of one type, and which of them there are.
pub(crate) struct Column {
    valid: BooleanBufferBuilder,
    pub(crate) values: Values,
}

/// The values of a column; where there is none, something of the right size stands for it.
pub(crate) enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float64(Vec<f64>),
    /// Days since the epoch.
    Date(Vec<i32>),
    /// Microseconds since the epoch, with the type's time zone.
    Timestamp(Vec<i64>, DataType),
    Binary(Bytes),
    Utf8(Bytes),
    List(List),
    Struct(Struct),
}

/// Byte strings one after another.
pub(crate) struct Bytes {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

/// The items of all lists of a column: eight of them may take a byte, so that no bound of bytes bounds their number.
pub(crate) const LARGEST_ITEMS: usize = (1 << 31) - 1;

/// Lists one after another.
pub(crate) struct List {
    field: FieldRef,
    ends: Vec<i32>,
    pub(crate) items: Box<Column>,
}

/// Objects with these fields.
pub(crate) struct Struct {
    pub(crate) fields: Fields,
    pub(crate) columns: Vec<Column>,
    indices: HashMap<String, usize>,
}

impl Column {
    /// A column of byte strings.
    pub(crate) fn binary() -> Self {
        Self::with(Values::Binary(Bytes::new()))
    }

    /// A column of JSON values; None if this type's values are not parsed here.
    pub(crate) fn of_json(data_type: &DataType) -> Option<Self> {
        Some(Self::with(match data_type {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Values::Timestamp(Vec::new(), data_type.clone()),
            DataType::Utf8 => Values::Utf8(Bytes::new()),
            DataType::List(field) => {
                let items = Box::new(Self::of_json(field.data_type())?);
                Values::List(List { field: Arc::clone(field), ends: vec![0], items })
            }
            DataType::Struct(fields) if !fields.is_empty() => Values::Struct(Struct {
                fields: fields.clone(),
                columns: fields.iter().map(|field| Self::of_json(field.data_type())).collect::<Option<_>>()?,
                indices: fields.iter().enumerate().map(|(index, field)| (field.name().clone(), index)).collect(),
            }),
            _ => return None,
        }))
    }

    fn with(values: Values) -> Self {
        Self { valid: BooleanBufferBuilder::new(0), values }
    }

    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    /// Bytes of the Arrow array that it would be.
    pub(crate) fn nbytes(&self) -> usize {
        self.len().div_ceil(8)
            + match &self.values {
                Values::Boolean(values) => values.len().div_ceil(8),
                Values::Int8(values) => size_of_val(&values[..]),
                Values::Int16(values) => size_of_val(&values[..]),
                Values::Int32(values) | Values::Date(values) => size_of_val(&values[..]),
                Values::Int64(values) | Values::Timestamp(values, _) => size_of_val(&values[..]),
                Values::Float64(values) => size_of_val(&values[..]),
                Values::Binary(values) | Values::Utf8(values) => size_of_val(&values.ends[..]) + values.bytes.len(),
                Values::List(lists) => size_of_val(&lists.ends[..]) + lists.items.nbytes(),
                Values::Struct(objects) => objects.columns.iter().map(Self::nbytes).sum(),
            }
    }

    /// Says that the value just added to `values` is one.
    pub(crate) fn value_added(&mut self) {
        self.valid.append(true);
    }

    pub(crate) fn push_bytes(&mut self, value: &[u8]) {
        match &mut self.values {
            Values::Binary(values) | Values::Utf8(values) => values.push(value),
            _ => unreachable!("only of columns of byte strings"),
        }
        self.value_added();
    }

    /// Adds a byte string, or null.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push_bytes(value),
            None => self.push_null(),
        }
    }

    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::Boolean(values) => values.append(false),
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Timestamp(values, _) => values.push(0),
            Values::Float64(values) => values.push(0.0),
            Values::Binary(values) | Values::Utf8(values) => values.push(b""),
            Values::List(lists) => lists.end(),
            Values::Struct(objects) => objects.columns.iter_mut().for_each(Self::push_null),
        }
        self.valid.append(false);
    }

    /// Takes rows from `rows` on out again, also those whose value is not complete.
    pub(crate) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Boolean(values) => values.truncate(rows),
            Values::Int8(values) => values.truncate(rows),
            Values::Int16(values) => values.truncate(rows),
            Values::Int32(values) | Values::Date(values) => values.truncate(rows),
            Values::Int64(values) | Values::Timestamp(values, _) => values.truncate(rows),
            Values::Float64(values) => values.truncate(rows),
            Values::Binary(values) | Values::Utf8(values) => values.truncate(rows),
            Values::List(lists) => lists.truncate(rows),
            Values::Struct(objects) => objects.columns.iter_mut().for_each(|column| column.truncate(rows)),
        }
        self.valid.truncate(rows);
    }

    /// The Arrow array.
    pub(crate) fn finish(self) -> ArrayRef {
        let nulls = nulls(self.valid);
        match self.values {
            Values::Boolean(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int8(values) => primitive::<Int8Type>(values, nulls),
            Values::Int16(values) => primitive::<Int16Type>(values, nulls),
            Values::Int32(values) => primitive::<Int32Type>(values, nulls),
            Values::Int64(values) => primitive::<Int64Type>(values, nulls),
            Values::Float64(values) => primitive::<Float64Type>(values, nulls),
            Values::Date(values) => primitive::<Date32Type>(values, nulls),
            Values::Timestamp(values, data_type) => Arc::new(
                PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), nulls).with_data_type(data_type),
            ),
            Values::Binary(values) => Arc::new(BinaryArray::new(offsets(values.ends), values.bytes.into(), nulls)),
            Values::Utf8(values) => Arc::new(StringArray::new(offsets(values.ends), values.bytes.into(), nulls)),
            Values::List(lists) => {
                Arc::new(ListArray::new(lists.field, offsets(lists.ends), lists.items.finish(), nulls))
            }
            Values::Struct(objects) => {
                let columns = objects.columns.into_iter().map(Self::finish).collect();
                Arc::new(StructArray::new(objects.fields, columns, nulls))
            }
        }
    }

    /// The Arrow arrays of a struct's fields, for themselves.
    pub(crate) fn finish_struct(self) -> Vec<ArrayRef> {
        match self.values {
            Values::Struct(objects) => objects.columns.into_iter().map(Self::finish).collect(),
            _ => unreachable!("only of a struct"),
        }
    }
}

impl Bytes {
    fn new() -> Self {
        Self { ends: vec![0], bytes: Vec::new() }
    }

    pub(crate) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(end(self.bytes.len()));
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.bytes.truncate(length(self.ends[rows]));
    }
}

impl List {
    /// Ends a list whose items have been added.
    pub(crate) fn end(&mut self) {
        self.ends.push(end(self.items.len()));
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.items.truncate(length(self.ends[rows]));
    }
}

impl Struct {
    /// The field of this name, quickly if it is the one at `guess`.
    pub(crate) fn index(&self, name: &str, guess: usize) -> Option<usize> {
        if self.fields.get(guess).is_some_and(|field| field.name() == name) {
            return Some(guess);
        }
        self.indices.get(name).copied()
    }
}

fn end(length: usize) -> i32 {
    i32::try_from(length).expect("LARGEST_BYTES and LARGEST_ITEMS bound what is in a column")
}

fn length(end: i32) -> usize {
    usize::try_from(end).expect("an end is a length")
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ends.into())
}

fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    let valid: BooleanBuffer = valid.finish();
    Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
}
