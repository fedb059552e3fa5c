//! The columns that a reader's schema has: Spark's types, or a refusal that names the field and the choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields, TimeUnit};

use super::schema::{Field, Kind, Logical, Node};
use crate::payload::reader::Cast;

/// What values of a type become; None for those without a type of Spark.
pub(crate) fn data_type(node: &Node) -> Option<DataType> {
    if node.text {
        return Some(DataType::Utf8);
    }
    Some(match (&node.kind, node.logical) {
        (Kind::Boolean, _) => DataType::Boolean,
        (Kind::Int, None) => DataType::Int32,
        (Kind::Int, Some(Logical::Date)) => DataType::Date32,
        (Kind::Long, None) => DataType::Int64,
        (Kind::Long, Some(Logical::TimestampMillis | Logical::TimestampMicros)) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        (Kind::Long, Some(Logical::LocalTimestampMillis | Logical::LocalTimestampMicros)) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        (Kind::Float, _) => DataType::Float32,
        (Kind::Double, _) => DataType::Float64,
        (Kind::Bytes | Kind::Fixed { .. }, Some(Logical::Decimal { precision, scale })) if precision <= 38 => {
            DataType::Decimal128(precision, scale.cast_signed())
        }
        (Kind::Bytes | Kind::Fixed { .. }, None) => DataType::Binary,
        (Kind::String | Kind::Enum { .. }, _) | (Kind::Fixed { .. }, Some(Logical::Uuid)) => DataType::Utf8,
        (Kind::Array(item), _) => DataType::List(Arc::new(ArrowField::new("element", data_type(item)?, true))),
        (Kind::Map(value), _) => {
            let entry = Fields::from(vec![
                ArrowField::new("key", DataType::Utf8, false),
                ArrowField::new("value", data_type(value)?, true),
            ]);
            DataType::Map(Arc::new(ArrowField::new("entries", DataType::Struct(entry), false)), false)
        }
        (Kind::Record { fields, .. }, _) if !fields.is_empty() => DataType::Struct(columns(fields)?),
        (Kind::Union(_), _) => data_type(nullable(node)?)?,
        _ => return None,
    })
}

fn columns(fields: &[Field]) -> Option<Fields> {
    fields.iter().map(|field| Some(ArrowField::new(&field.name, data_type(&field.node)?, true))).collect()
}

/// The one type of a union beside null; None if it has several.
pub(crate) fn nullable(node: &Node) -> Option<&Node> {
    let Kind::Union(branches) = &node.kind else { return None };
    let mut others = branches.iter().filter(|branch| branch.kind != Kind::Null);
    let one = others.next()?;
    others.next().is_none().then_some(one)
}

/// A reader's schema with its casts done, and its columns.
///
/// # Errors
/// It is no record, a cast names no field, or types have no column: the message names each with the choices.
pub(crate) fn prepare(mut node: Node, casts: &BTreeMap<String, Cast>) -> Result<(Node, Fields), String> {
    let Kind::Record { .. } = node.kind else {
        return Err(format!("the schema is {}: columns need a record", node.describe()));
    };
    let mut left = casts.clone();
    let mut problems = Vec::new();
    cast(&mut node, "", &mut left, &mut problems);
    if let Some(path) = left.keys().next() {
        return Err(format!("casts: the schema has no field {path:?}"));
    }
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let Kind::Record { fields, .. } = &node.kind else { unreachable!("it was a record above") };
    match columns(fields) {
        Some(columns) if !columns.is_empty() => Ok((node, columns)),
        _ => Err("the schema has no fields".to_owned()),
    }
}

/// Does the casts at `path` and below, and notes what has no type after them.
fn cast(node: &mut Node, path: &str, casts: &mut BTreeMap<String, Cast>, problems: &mut Vec<String>) {
    let below = |step: &str| if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") };
    match casts.get(path) {
        Some(Cast::String) if has_text(node) => {
            casts.remove(path);
            node.text = true;
            return;
        }
        Some(Cast::String) if data_type(node).is_some() => {
            problems.push(format!("{path}: {} has a type of Spark; no cast makes it a string", node.describe()));
            casts.remove(path);
            return;
        }
        _ => {}
    }
    match &mut node.kind {
        Kind::Record { fields, .. } => {
            fields.retain(|field| {
                let path = below(&field.name);
                casts.get(&path) != Some(&Cast::Drop) || casts.remove(&path).is_none()
            });
            for field in fields.iter_mut() {
                if field.name.is_empty() || field.name.contains('.') {
                    problems.push(format!(
                        "{}: {:?} is no name of a field in Avro, and paths could not tell it from others; rename it, \
                         or cast it to \"drop\"",
                        below(&field.name),
                        field.name
                    ));
                    continue;
                }
                cast(&mut field.node, &below(&field.name), casts, problems);
            }
            if !fields.is_empty() || path.is_empty() {
                return;
            }
        }
        Kind::Array(item) => return cast(item, &below("element"), casts, problems),
        Kind::Map(value) => return cast(value, &below("value"), casts, problems),
        Kind::Union(branches) => {
            let mut others = branches.iter_mut().filter(|branch| branch.kind != Kind::Null);
            if let (Some(one), None) = (others.next(), others.next()) {
                return cast(one, path, casts, problems);
            }
        }
        _ => {}
    }
    if data_type(node).is_none() {
        let choices = if has_text(node) { "\"string\" or \"drop\"" } else { "\"drop\"" };
        problems.push(format!("{path}: {} has no type of Spark; cast it to {choices}", node.describe()));
    }
}

/// Types without a type of Spark whose values have a text.
fn has_text(node: &Node) -> bool {
    match (&node.kind, node.logical) {
        (Kind::Int, Some(Logical::TimeMillis))
        | (Kind::Long, Some(Logical::TimeMicros | Logical::TimestampNanos | Logical::LocalTimestampNanos))
        | (Kind::Fixed { .. }, Some(Logical::Duration)) => true,
        (Kind::Union(branches), _) => {
            nullable(node).is_none()
                && branches.iter().any(|branch| branch.kind != Kind::Null)
                && branches.iter().all(|branch| {
                    matches!(branch.kind, Kind::Null) || has_text(branch) || super::text::is_scalar(branch)
                })
        }
        _ => false,
    }
}
