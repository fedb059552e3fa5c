//! The plan of a message type: the walk and the columns, or a refusal that names the field and the choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields, TimeUnit};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::walk::{self, DURATION, Field, Message, TIME_OF_DAY, TIMESTAMP};
use crate::payload::reader::Cast;

/// The most fields of a message and the messages in it: as a tree, each type once for each path.
const MOST_FIELDS: usize = 20_000;
/// The deepest message.
const DEEPEST: usize = 64;
/// The highest number of a field: ptars-core has a table from 0 on.
const HIGHEST: u32 = 100_000;

/// A column, and where ptars-core has it.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) index: usize,
    pub(crate) shape: Shape,
}

/// What is made of ptars-core's column.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Same,
    /// A number without a sign as one with.
    Unsigned,
    DurationText,
    TimeText,
    List(Box<Shape>),
    Map(Box<Shape>, Box<Shape>),
    Struct(Vec<Column>),
}

pub(crate) struct Planned {
    pub(crate) message: Message,
    pub(crate) columns: Vec<Column>,
    pub(crate) fields: Fields,
}

pub(crate) fn plan(descriptor: &MessageDescriptor, casts: &BTreeMap<String, Cast>) -> Result<Planned, String> {
    let mut planner = Planner { casts: casts.clone(), problems: Vec::new(), open: Vec::new(), count: 0 };
    let (message, columns, fields) = planner.message(descriptor, "", true)?;
    if let Some(path) = planner.casts.keys().next() {
        return Err(format!("casts: the message has no field {path:?}, or none to cast"));
    }
    if !planner.problems.is_empty() {
        return Err(planner.problems.join("; "));
    }
    if fields.is_empty() {
        return Err(format!("{} has no fields", descriptor.full_name()));
    }
    Ok(Planned { message, columns, fields })
}

struct Planner {
    /// Those that are left.
    casts: BTreeMap<String, Cast>,
    problems: Vec<String>,
    /// Full names of the messages down to the one that is planned.
    open: Vec<String>,
    count: usize,
}

/// A field's walk, and its column unless it has none.
type One = (walk::Kind, Option<(Shape, DataType)>);

impl Planner {
    /// `wanted`: whether there will be columns of it.
    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        path: &str,
        wanted: bool,
    ) -> Result<(Message, Vec<Column>, Fields), String> {
        if self.open.len() >= DEEPEST {
            return Err(format!("{path}: messages deeper than {DEEPEST}"));
        }
        self.open.push(descriptor.full_name().to_owned());
        let oneofs: Vec<String> = descriptor.oneofs().map(|oneof| oneof.full_name().to_owned()).collect();
        let (mut fields, mut by_number, mut width) = (Vec::new(), Vec::new(), 1);
        for (index, field) in descriptor.fields().enumerate() {
            self.count += 1;
            if self.count > MOST_FIELDS {
                return Err(format!("more than {MOST_FIELDS} fields, each message counted wherever it is"));
            }
            let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
            if field.number() > HIGHEST {
                return Err(format!("{path}: number {}; the highest is {HIGHEST}", field.number()));
            }
            let wanted = wanted && !(self.casts.get(&path) == Some(&Cast::Drop) && self.casts.remove(&path).is_some());
            let (kind, column) = self.field(&field, &path, wanted)?;
            let own = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
            let oneof = own.and_then(|own| oneofs.iter().position(|name| name == own.full_name()));
            let repeated = field.is_list() || field.is_map();
            width += match &kind {
                walk::Kind::Message(message) if !repeated => message.width,
                _ => 9,
            };
            fields.push(Field { number: field.number(), kind, repeated, oneof });
            by_number.push((field.number(), field.name().to_owned(), index, column));
        }
        self.open.pop();
        fields.sort_by_key(|field| field.number);
        // Columns in the order of the text, as others have them; ptars-core's are in the order of the numbers.
        let order: BTreeMap<u32, usize> = descriptor
            .descriptor_proto()
            .field
            .iter()
            .enumerate()
            .map(|(place, field)| (field.number().cast_unsigned(), place))
            .collect();
        by_number.sort_by_key(|(number, ..)| order.get(number).copied());
        let (mut columns, mut types) = (Vec::new(), Vec::new());
        for (_, name, index, column) in by_number {
            if let Some((shape, data_type)) = column {
                columns.push(Column { index, shape });
                types.push(ArrowField::new(name, data_type, true));
            }
        }
        Ok((Message { fields, width }, columns, Fields::from(types)))
    }

    fn field(&mut self, field: &FieldDescriptor, path: &str, wanted: bool) -> Result<One, String> {
        if field.is_group() {
            return Err(format!("{path}: a group; use a message"));
        }
        if !field.is_map() {
            let (step, repeated) =
                if field.is_list() { (format!("{path}.element"), true) } else { (path.to_owned(), false) };
            let (kind, column) = self.single(&field.kind(), &step, wanted)?;
            return Ok((
                kind,
                column.map(
                    |(shape, data_type)| {
                        if repeated { (Shape::List(Box::new(shape)), list(data_type)) } else { (shape, data_type) }
                    },
                ),
            ));
        }
        let Kind::Message(entry) = field.kind() else { return Err(format!("{path}: a map without entries")) };
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let (key_walk, key_column) = self.single(&key.kind(), &format!("{path}.key"), wanted)?;
        let (value_walk, value_column) = self.single(&value.kind(), &format!("{path}.value"), wanted)?;
        let part = |number, kind| Field { number, kind, repeated: false, oneof: None };
        let entry = Message { fields: vec![part(1, key_walk), part(2, value_walk)], width: 18 };
        let column = key_column.zip(value_column).map(|((key, key_type), (value, value_type))| {
            (Shape::Map(Box::new(key), Box::new(value)), map(key_type, value_type))
        });
        Ok((walk::Kind::Entry(entry), column))
    }

    fn single(&mut self, kind: &Kind, path: &str, wanted: bool) -> Result<One, String> {
        let same = |walk, data_type| Ok((walk, wanted.then_some((Shape::Same, data_type))));
        match kind {
            Kind::Int32 | Kind::Sint32 => same(walk::Kind::Varint, DataType::Int32),
            Kind::Int64 | Kind::Sint64 => same(walk::Kind::Varint, DataType::Int64),
            Kind::Uint32 => Ok((walk::Kind::Varint, wanted.then_some((Shape::Unsigned, DataType::Int64)))),
            Kind::Uint64 => Ok((walk::Kind::Varint, wanted.then_some((Shape::Unsigned, BIG)))),
            Kind::Fixed32 => Ok((walk::Kind::Fixed32, wanted.then_some((Shape::Unsigned, DataType::Int64)))),
            Kind::Fixed64 => Ok((walk::Kind::Fixed64, wanted.then_some((Shape::Unsigned, BIG)))),
            Kind::Sfixed32 => same(walk::Kind::Fixed32, DataType::Int32),
            Kind::Sfixed64 => same(walk::Kind::Fixed64, DataType::Int64),
            Kind::Float => same(walk::Kind::Fixed32, DataType::Float32),
            Kind::Double => same(walk::Kind::Fixed64, DataType::Float64),
            Kind::Bool => same(walk::Kind::Varint, DataType::Boolean),
            Kind::Enum(_) => same(walk::Kind::Varint, DataType::Utf8),
            Kind::String => same(walk::Kind::Utf8, DataType::Utf8),
            Kind::Bytes => same(walk::Kind::Bytes, DataType::Binary),
            Kind::Message(message) => self.known(message, path, wanted),
        }
    }

    /// A message of Google's, or any other.
    fn known(&mut self, message: &MessageDescriptor, path: &str, wanted: bool) -> Result<One, String> {
        let name = message.full_name();
        let wrapper = |walk_kind: walk::Kind, shape: Shape, data_type: DataType| {
            let field = Field { number: 1, kind: walk_kind, repeated: false, oneof: None };
            let message = Message { fields: vec![field], width: 9 };
            Ok((walk::Kind::Message(message), wanted.then_some((shape, data_type))))
        };
        match name {
            "google.protobuf.Timestamp" => {
                let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                Ok((walk::Kind::Numbers(TIMESTAMP), wanted.then_some((Shape::Same, utc))))
            }
            "google.type.Date" => Ok((walk::Kind::Date, wanted.then_some((Shape::Same, DataType::Date32)))),
            "google.protobuf.Duration" => {
                Ok((walk::Kind::Numbers(DURATION), self.text(name, path, wanted, Shape::DurationText)))
            }
            "google.type.TimeOfDay" => {
                Ok((walk::Kind::Numbers(TIME_OF_DAY), self.text(name, path, wanted, Shape::TimeText)))
            }
            "google.protobuf.DoubleValue" => wrapper(walk::Kind::Fixed64, Shape::Same, DataType::Float64),
            "google.protobuf.FloatValue" => wrapper(walk::Kind::Fixed32, Shape::Same, DataType::Float32),
            "google.protobuf.Int64Value" => wrapper(walk::Kind::Varint, Shape::Same, DataType::Int64),
            "google.protobuf.UInt64Value" => wrapper(walk::Kind::Varint, Shape::Unsigned, BIG),
            "google.protobuf.Int32Value" => wrapper(walk::Kind::Varint, Shape::Same, DataType::Int32),
            "google.protobuf.UInt32Value" => wrapper(walk::Kind::Varint, Shape::Unsigned, DataType::Int64),
            "google.protobuf.BoolValue" => wrapper(walk::Kind::Varint, Shape::Same, DataType::Boolean),
            "google.protobuf.StringValue" => wrapper(walk::Kind::Utf8, Shape::Same, DataType::Utf8),
            "google.protobuf.BytesValue" => wrapper(walk::Kind::Bytes, Shape::Same, DataType::Binary),
            _ if self.open.iter().any(|open| open == name) => {
                if wanted {
                    self.problems.push(format!("{path}: {name} contains itself; cast it to \"drop\""));
                }
                Ok((walk::Kind::Bytes, None))
            }
            _ => {
                let (inner, columns, fields) = self.message(message, path, wanted)?;
                let some = wanted && !fields.is_empty();
                if wanted && !some && self.problems.is_empty() {
                    self.problems.push(format!("{path}: {name} has no fields; cast it to \"drop\""));
                }
                let column = some.then_some((Shape::Struct(columns), DataType::Struct(fields)));
                Ok((walk::Kind::Message(inner), column))
            }
        }
    }

    /// A type of Google's without one of Spark.
    fn text(&mut self, name: &str, path: &str, wanted: bool, shape: Shape) -> Option<(Shape, DataType)> {
        if !wanted {
            return None;
        }
        if self.casts.get(path) == Some(&Cast::String) {
            self.casts.remove(path);
            return Some((shape, DataType::Utf8));
        }
        self.problems.push(format!("{path}: {name} has no type of Spark; cast it to \"string\" or \"drop\""));
        None
    }
}

/// Every number of 64 bits without a sign.
const BIG: DataType = DataType::Decimal128(20, 0);

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(ArrowField::new("element", item, true)))
}

fn map(key: DataType, value: DataType) -> DataType {
    let entry = vec![ArrowField::new("key", key, false), ArrowField::new("value", value, true)];
    DataType::Map(Arc::new(ArrowField::new("entries", DataType::Struct(entry.into()), false)), false)
}
