//! A writer's schema against the reader's, by the rules of the Avro specification.
//!
//! The result is the plan of the walk, and the same pair once more for arrow-avro, so that it has to decide nothing: types
//! have names of ours that agree, fields the reader's, aliases and namespaces are gone, and logical types but decimals
//! are, too (`convert` turns the numbers into their values).

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::schema::{Field, Kind, Logical, Name, Node};
use super::shape::nullable;
use super::walk::{Check, Plan};

/// A type of a writer as the reader has it.
pub(crate) struct Resolved {
    pub(crate) plan: Plan,
    /// For arrow-avro.
    pub(crate) writer: Value,
    pub(crate) reader: Value,
}

/// Types that are looked at, of both schemas: branches of a writer's union are each read as all of the reader's type.
const MOST_STEPS: usize = 200_000;
const TOO_MANY: &str = "too many types to compare: the writer's union has too many branches for this type";

pub(crate) struct Resolver {
    /// Types that were looked at so far.
    steps: usize,
    /// Types that have a name so far.
    names: usize,
    /// Names of the fields down to the one that is resolved.
    path: Vec<String>,
    /// Paths of the writer's fields that the reader has not.
    pub(crate) dropped: Vec<String>,
}

impl Resolver {
    pub(crate) fn new() -> Self {
        Self { steps: 0, names: 0, path: Vec::new(), dropped: Vec::new() }
    }

    fn error<T>(&self, reason: &str) -> Result<T, String> {
        let path = self.path.join(".");
        Err(if path.is_empty() { reason.to_owned() } else { format!("{path}: {reason}") })
    }

    fn step(&mut self) {
        self.steps += 1;
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    pub(crate) fn resolve(&mut self, writer: &Node, reader: &Node) -> Result<Resolved, String> {
        self.step();
        if self.steps > MOST_STEPS {
            return self.error(TOO_MANY);
        }
        if reader.text && matches!(reader.kind, Kind::Union(_)) {
            return self.same(writer, reader);
        }
        match (&writer.kind, &reader.kind) {
            (Kind::Union(branches), _) => self.union(branches, reader),
            (_, Kind::Union(_)) => match nullable(reader) {
                Some(inner) => self.resolve(writer, inner),
                None => self.error("a union of several types"),
            },
            (Kind::Record { name, fields }, Kind::Record { name: own, fields: wanted }) if own.reads(name) => {
                self.record(fields, wanted)
            }
            (Kind::Array(item), Kind::Array(wanted)) => {
                let item = self.within("element", item, wanted)?;
                Ok(Resolved {
                    plan: Plan::Array(Box::new(item.plan)),
                    writer: object([("type", "array".into()), ("items", item.writer)]),
                    reader: object([("type", "array".into()), ("items", item.reader)]),
                })
            }
            (Kind::Map(value), Kind::Map(wanted)) => {
                let value = self.within("value", value, wanted)?;
                Ok(Resolved {
                    plan: Plan::Map(Box::new(value.plan)),
                    writer: object([("type", "map".into()), ("values", value.writer)]),
                    reader: object([("type", "map".into()), ("values", value.reader)]),
                })
            }
            (Kind::Enum { name, symbols, .. }, Kind::Enum { name: own, symbols: wanted, default })
                if own.reads(name) =>
            {
                let readable: HashSet<&String> = wanted.iter().collect();
                let known = symbols.iter().map(|symbol| default.is_some() || readable.contains(symbol)).collect();
                let name = self.name();
                let mut reader = json!({"type": "enum", "name": name, "symbols": wanted});
                if let Some(default) = default {
                    reader["default"] = json!(default);
                }
                let writer = json!({"type": "enum", "name": name, "symbols": symbols});
                Ok(Resolved { plan: Plan::Enum(known), writer, reader })
            }
            _ => self.scalar(writer, reader),
        }
    }

    fn within(&mut self, step: &str, writer: &Node, reader: &Node) -> Result<Resolved, String> {
        self.path.push(step.to_owned());
        let resolved = self.resolve(writer, reader)?;
        self.path.pop();
        Ok(resolved)
    }

    /// Types that are neither named by others nor made of others.
    fn scalar(&mut self, writer: &Node, reader: &Node) -> Result<Resolved, String> {
        let unlike = |one: Option<Logical>, other: Option<Logical>| match (one, other) {
            (Some(Logical::Decimal { scale, .. }), Some(Logical::Decimal { scale: wanted, .. })) => scale != wanted,
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        let agree = reads(&writer.kind, &reader.kind) && !unlike(writer.logical, reader.logical);
        if !agree {
            return self.error(&format!("{} cannot be read as {}", writer.describe(), reader.describe()));
        }
        let check = match (reader.logical, &reader.kind) {
            (Some(Logical::Decimal { precision, .. }), _) => Check::Decimal(precision),
            (_, Kind::String) => Check::Utf8,
            _ => Check::Any,
        };
        let millis = matches!(reader.logical, Some(Logical::TimestampMillis | Logical::LocalTimestampMillis));
        let plan = match &writer.kind {
            Kind::Null => Plan::Null,
            Kind::Boolean => Plan::Boolean,
            Kind::Int => Plan::Int,
            Kind::Long => Plan::Long { factor: if millis { 1000 } else { 1 } },
            Kind::Float => Plan::Float,
            Kind::Double => Plan::Double,
            Kind::Fixed { size, .. } => Plan::Fixed(*size, check),
            _ => Plan::Bytes(check),
        };
        let name = self.name();
        let bare = |node: &Node| match (&node.kind, reader.logical) {
            (Kind::Fixed { size, .. }, Some(Logical::Decimal { precision, scale })) => {
                json!({"type": "fixed", "name": name, "size": size, "logicalType": "decimal",
                    "precision": precision, "scale": scale})
            }
            (Kind::Bytes, Some(Logical::Decimal { precision, scale })) => {
                json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
            }
            (Kind::Fixed { size, .. }, _) => json!({"type": "fixed", "name": name, "size": size}),
            (Kind::Int, Some(Logical::Date)) => json!({"type": "int", "logicalType": "date"}),
            _ => json!(node.kind_name()),
        };
        Ok(Resolved { plan, writer: bare(writer), reader: bare(reader) })
    }

    fn record(&mut self, fields: &[Field], wanted: &[Field]) -> Result<Resolved, String> {
        let places: HashMap<&str, usize> = fields.iter().enumerate().map(|(at, field)| (&*field.name, at)).collect();
        let mut source: Vec<Option<usize>> = vec![None; fields.len()];
        let mut reader_fields = Vec::new();
        let mut resolved: Vec<Option<(Plan, Value)>> = fields.iter().map(|_| None).collect();
        let mut defaults = 0;
        for (index, field) in wanted.iter().enumerate() {
            let name = Value::from(field.name.clone());
            let named = |name: &String| places.get(name.as_str()).copied();
            let at = named(&field.name).or_else(|| field.aliases.iter().find_map(named));
            let Some(at) = at.filter(|&at| source[at].is_none()) else {
                self.path.push(field.name.clone());
                let Some(default) = &field.default else {
                    return self.error("the writer has no such field, and the reader no default for it");
                };
                defaults += width(&field.node) + default.to_string().len();
                let node = self.own(&field.node, true);
                self.path.pop();
                reader_fields.push(object([("name", name), ("type", node), ("default", default.clone())]));
                continue;
            };
            let one = self.within(&field.name, &fields[at].node, &field.node)?;
            reader_fields.push(object([("name", name), ("type", one.reader)]));
            source[at] = Some(index);
            resolved[at] = Some((one.plan, one.writer));
        }
        let mut plans = Vec::new();
        let mut writer_fields = Vec::new();
        for (at, (field, one)) in fields.iter().zip(resolved).enumerate() {
            if let (Some((plan, writer)), Some(index)) = (one, source[at]) {
                plans.push(plan);
                writer_fields.push(object([("name", wanted[index].name.clone().into()), ("type", writer)]));
            } else {
                self.dropped.push([&self.path[..], std::slice::from_ref(&field.name)].concat().join("."));
                plans.push(Plan::Skip(Box::new(alone(&field.node))));
                let node = self.own(&field.node, false);
                writer_fields.push(object([("name", format!("-{at}").into()), ("type", node)]));
            }
        }
        let name = self.name();
        Ok(Resolved {
            plan: Plan::Record(plans, defaults + 1),
            writer: record(name.clone(), writer_fields),
            reader: record(name, reader_fields),
        })
    }

    /// A union of the writer, for a reader's type that is one and may be null.
    fn union(&mut self, branches: &[Node], reader: &Node) -> Result<Resolved, String> {
        let (inner, null) = match &reader.kind {
            Kind::Union(own) => match nullable(reader) {
                Some(inner) => (inner, own.iter().any(|branch| branch.kind == Kind::Null)),
                None => return self.error("a union of several types"),
            },
            _ => (reader, false),
        };
        let (mut plans, mut writers, mut target) = (Vec::new(), Vec::new(), None);
        let (mut read, mut made_of_others, mut reason) = (0, 0, None);
        for branch in branches {
            if branch.kind == Kind::Null {
                plans.push(null.then_some(Plan::Null));
                writers.push(json!("null"));
                continue;
            }
            let (depth, dropped) = (self.path.len(), self.dropped.len());
            match self.resolve(branch, inner) {
                Ok(one) => {
                    read += 1;
                    made_of_others += usize::from(matches!(one.plan, Plan::Array(_) | Plan::Map(_) | Plan::Record(..)));
                    plans.push(Some(one.plan));
                    writers.push(one.writer);
                    target = Some(one.reader);
                }
                Err(error) if self.steps > MOST_STEPS => return Err(error),
                Err(error) => {
                    self.path.truncate(depth);
                    self.dropped.truncate(dropped);
                    plans.push(None);
                    writers.push(self.own(branch, false));
                    reason.get_or_insert(error);
                }
            }
        }
        let Some(target) = target else {
            return match reason {
                Some(reason) => Err(reason),
                None => self.error("the writer has nulls alone"),
            };
        };
        if read > 1 && made_of_others > 0 {
            return self.error("two types of the writer's union would be read as one");
        }
        let nulls = null && branches.iter().any(|branch| branch.kind == Kind::Null);
        let reader = match (nulls, &branches[0].kind) {
            (true, Kind::Null) => Value::Array(vec!["null".into(), target]),
            (true, _) if branches.len() == 2 => Value::Array(vec![target, "null".into()]),
            (true, _) => Value::Array(vec!["null".into(), target]),
            (false, _) => Value::Array(vec![target]),
        };
        Ok(Resolved { plan: Plan::Union(plans, width(inner)), writer: Value::Array(writers), reader })
    }

    /// A union that becomes text: it has to be the reader's, branch by branch.
    fn same(&mut self, writer: &Node, reader: &Node) -> Result<Resolved, String> {
        let plain = Node { text: false, ..reader.clone() };
        if *writer != plain {
            return self.error("a union that becomes a string has to be the reader's, branch by branch");
        }
        let own = self.own(writer, true);
        Ok(Resolved { plan: alone(writer), writer: own.clone(), reader: own })
    }

    /// A type for arrow-avro that is only the reader's, or only the writer's.
    fn own(&mut self, node: &Node, read: bool) -> Value {
        self.step();
        match &node.kind {
            Kind::Array(item) => object([("type", "array".into()), ("items", self.own(item, read))]),
            Kind::Map(value) => object([("type", "map".into()), ("values", self.own(value, read))]),
            Kind::Union(branches) => branches.iter().map(|branch| self.own(branch, read)).collect(),
            Kind::Enum { symbols, .. } => json!({"type": "enum", "name": self.name(), "symbols": symbols}),
            Kind::Record { fields, .. } => {
                let fields: Vec<Value> = fields
                    .iter()
                    .enumerate()
                    .map(|(at, field)| {
                        let name = if read { field.name.clone() } else { format!("-{at}") };
                        let mut value = object([("name", name.into()), ("type", self.own(&field.node, read))]);
                        if let (Some(default), true) = (&field.default, read) {
                            value["default"] = default.clone();
                        }
                        value
                    })
                    .collect();
                record(self.name(), fields)
            }
            Kind::Fixed { size, .. } => match node.logical {
                Some(Logical::Decimal { precision, scale }) if read && precision <= 38 => {
                    json!({"type": "fixed", "name": self.name(), "size": size, "logicalType": "decimal",
                        "precision": precision, "scale": scale})
                }
                _ => json!({"type": "fixed", "name": self.name(), "size": size}),
            },
            Kind::Bytes => match node.logical {
                Some(Logical::Decimal { precision, scale }) if read && precision <= 38 => {
                    json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
                }
                _ => json!("bytes"),
            },
            Kind::Int if read && node.logical == Some(Logical::Date) => json!({"type": "int", "logicalType": "date"}),
            _ => json!(node.kind_name()),
        }
    }
}

impl Node {
    /// The name of a primitive type.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::String => "string",
            _ => "bytes",
        }
    }
}

/// A JSON object; `json!` would copy its parts, and so each type once for each level above it.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn record(name: String, fields: Vec<Value>) -> Value {
    object([("type", "record".into()), ("name", name.into()), ("fields", Value::Array(fields))])
}

/// Whether values of one kind are read as another: promotions, and the same.
fn reads(writer: &Kind, reader: &Kind) -> bool {
    match (writer, reader) {
        (Kind::Int, Kind::Int | Kind::Long | Kind::Float | Kind::Double)
        | (Kind::Long, Kind::Long | Kind::Float | Kind::Double)
        | (Kind::Float, Kind::Float | Kind::Double)
        | (Kind::Double, Kind::Double)
        | (Kind::Boolean, Kind::Boolean)
        | (Kind::Bytes | Kind::String, Kind::Bytes | Kind::String) => true,
        (Kind::Fixed { name, size }, Kind::Fixed { name: own, size: wanted }) => {
            size == wanted && Name::reads(own, name)
        }
        _ => false,
    }
}

/// The plan of a type by itself: of a field that the reader has not, or a union that becomes text.
fn alone(node: &Node) -> Plan {
    match &node.kind {
        Kind::Null => Plan::Null,
        Kind::Boolean => Plan::Boolean,
        Kind::Int => Plan::Int,
        Kind::Long => Plan::Long { factor: 1 },
        Kind::Float => Plan::Float,
        Kind::Double => Plan::Double,
        Kind::Bytes => Plan::Bytes(Check::Any),
        Kind::String => Plan::Bytes(Check::Utf8),
        Kind::Fixed { size, .. } => Plan::Fixed(*size, Check::Any),
        Kind::Enum { symbols, .. } => Plan::Enum(vec![true; symbols.len()]),
        Kind::Array(item) => Plan::Array(Box::new(alone(item))),
        Kind::Map(value) => Plan::Map(Box::new(alone(value))),
        Kind::Record { fields, .. } => Plan::Record(fields.iter().map(|field| alone(&field.node)).collect(), 1),
        Kind::Union(branches) => Plan::Union(branches.iter().map(|branch| Some(alone(branch))).collect(), 16),
    }
}

/// Bytes that a column takes for a null.
fn width(node: &Node) -> usize {
    match &node.kind {
        Kind::Record { fields, .. } => 1 + fields.iter().map(|field| width(&field.node)).sum::<usize>(),
        Kind::Union(branches) => branches.iter().map(width).sum(),
        Kind::Fixed { size, .. } => *size + 5,
        Kind::Bytes if node.logical.is_some() => 16,
        Kind::Null | Kind::Boolean => 1,
        Kind::Int | Kind::Float => 5,
        _ => 9,
    }
}
