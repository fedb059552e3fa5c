//! Avro schemas, read from their JSON and checked: names resolved in place, so that a schema is a tree.
//!
//! A name that stands for a type is replaced by that type; a type that contains itself is refused, as no Arrow or Spark
//! type has such values. Texts come from registries, so their size, depth and number of types are bounded, and no step
//! takes more than linear time of the tree.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// The largest text of a schema, in bytes.
const LARGEST_TEXT: usize = 1 << 20;
/// The most types in a schema, each name replaced by its type.
const MOST_TYPES: usize = 20_000;
/// The most branches of a union, by the ids that Arrow has for them.
const MOST_BRANCHES: usize = 128;
/// The deepest type.
const DEEPEST: usize = 64;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) logical: Option<Logical>,
    /// Whether it becomes a string by its reader's wish.
    pub(crate) text: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed { name: Name, size: usize },
    Enum { name: Name, symbols: Vec<String>, default: Option<String> },
    Array(Box<Node>),
    Map(Box<Node>),
    Record { name: Name, fields: Vec<Field> },
    Union(Vec<Node>),
}

/// What a type's values mean; a logical type that is unknown, or does not fit its type, is left out, as Avro has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logical {
    Decimal { precision: u8, scale: u8 },
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    TimestampNanos,
    LocalTimestampMillis,
    LocalTimestampMicros,
    LocalTimestampNanos,
    Uuid,
    Duration,
}

/// A type's full name, and its aliases'.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) full: String,
    pub(crate) aliases: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) node: Node,
}

impl Name {
    /// Without the namespace.
    pub(crate) fn unqualified(&self) -> &str {
        unqualified(&self.full)
    }

    /// Whether a writer's type of that name is this reader's one: names without namespaces, or an alias.
    pub(crate) fn reads(&self, writer: &Self) -> bool {
        self.unqualified() == writer.unqualified()
            || self.aliases.iter().any(|alias| *alias == writer.full || unqualified(alias) == writer.unqualified())
    }
}

fn unqualified(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

impl Node {
    fn plain(kind: Kind) -> Self {
        Self { kind, logical: None, text: false }
    }

    /// A type's name in messages.
    pub(crate) fn describe(&self) -> String {
        let kind = match &self.kind {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Bytes => "bytes",
            Kind::String => "string",
            Kind::Array(_) => "array",
            Kind::Map(_) => "map",
            Kind::Fixed { name, size } => return format!("fixed {} of {size} bytes", name.full),
            Kind::Enum { name, .. } => return format!("enum {}", name.full),
            Kind::Record { name, .. } => return format!("record {}", name.full),
            Kind::Union(branches) => {
                let names: Vec<String> = branches.iter().map(Self::describe).collect();
                return format!("union of {}", names.join(", "));
            }
        };
        match self.logical {
            Some(logical) => format!("{kind} ({logical:?})"),
            None => kind.to_owned(),
        }
    }
}

/// Reads a schema.
///
/// # Errors
/// It is none, or too large, or a type contains itself; the message names the place.
pub(crate) fn parse(text: &str) -> Result<Node, String> {
    if text.len() > LARGEST_TEXT {
        return Err(format!("a schema of {} bytes; the most are {LARGEST_TEXT}", text.len()));
    }
    let value = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        Err(error) => match primitive(text.trim()) {
            Some(_) => Value::String(text.trim().to_owned()),
            None => return Err(format!("no JSON: {error}")),
        },
    };
    let mut parser = Parser { named: HashMap::new(), open: Vec::new(), path: Vec::new(), types: 0 };
    parser.node(&value, "").map_err(|reason| {
        let path = parser.path.join(".");
        if path.is_empty() { reason } else { format!("{path}: {reason}") }
    })
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// A JSON object's members.
type Members = Map<String, Value>;

struct Parser<'a> {
    /// Definitions by full name, with the namespace that they are in.
    named: HashMap<String, (&'a Members, String)>,
    /// Names of the types that are being read.
    open: Vec<String>,
    /// Names of the fields down to the one that is being read; after an error it stays, and says where.
    path: Vec<String>,
    types: usize,
}

impl<'a> Parser<'a> {
    fn node(&mut self, value: &'a Value, namespace: &str) -> Result<Node, String> {
        self.types += 1;
        if self.types > MOST_TYPES {
            return Err(format!("more than {MOST_TYPES} types"));
        }
        if self.path.len() + self.open.len() > 2 * DEEPEST {
            return Err(format!("deeper than {DEEPEST} types"));
        }
        match value {
            Value::String(name) => match primitive(name) {
                Some(kind) => Ok(Node::plain(kind)),
                None => self.reference(name, namespace),
            },
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(members) => self.complex(members, namespace),
            other => Err(format!("{other} is no type")),
        }
    }

    fn reference(&mut self, name: &str, namespace: &str) -> Result<Node, String> {
        let full = full_name(name, namespace);
        if self.open.contains(&full) {
            return Err(format!("{full} contains itself: no column has such values; leave the field out"));
        }
        let (members, namespace) = match self.named.get(&full).or_else(|| self.named.get(name)) {
            Some((members, namespace)) => (*members, namespace.clone()),
            None => return Err(format!("no type has the name {name}, or it is defined later")),
        };
        self.complex(members, &namespace)
    }

    fn union(&mut self, branches: &'a [Value], namespace: &str) -> Result<Node, String> {
        if !(1..=MOST_BRANCHES).contains(&branches.len()) {
            return Err(match branches.len() {
                0 => "a union of nothing".to_owned(),
                count => format!("a union of {count} types; the most are {MOST_BRANCHES}"),
            });
        }
        let mut nodes: Vec<Node> = Vec::with_capacity(branches.len());
        let mut seen = HashSet::with_capacity(branches.len());
        for branch in branches {
            let node = self.node(branch, namespace)?;
            if matches!(node.kind, Kind::Union(_)) {
                return Err("a union in a union".to_owned());
            }
            if !seen.insert(branch_name(&node)) {
                return Err(format!("a union with {} twice", node.describe()));
            }
            nodes.push(node);
        }
        Ok(Node::plain(Kind::Union(nodes)))
    }

    fn complex(&mut self, members: &'a Members, namespace: &str) -> Result<Node, String> {
        let kind = members.get("type").ok_or("an object without \"type\" is no type")?;
        let Value::String(kind) = kind else {
            // {"type": {"type": "int"}} is a type, too.
            return self.node(kind, namespace);
        };
        let node = match kind.as_str() {
            "record" | "error" => self.named(members, namespace, Self::record)?,
            "enum" => self.named(members, namespace, |_, members, name, _| enumeration(members, name))?,
            "fixed" => self.named(members, namespace, |_, members, name, _| fixed(members, name))?,
            "array" => Kind::Array(Box::new(self.inner(members, "items", "element", namespace)?)),
            "map" => Kind::Map(Box::new(self.inner(members, "values", "value", namespace)?)),
            other => match primitive(other) {
                Some(kind) => kind,
                None => return self.reference(other, namespace),
            },
        };
        let logical = logical(&node, members);
        Ok(Node { kind: node, logical, text: false })
    }

    fn inner(&mut self, members: &'a Members, key: &str, step: &str, namespace: &str) -> Result<Node, String> {
        let value = members.get(key).ok_or_else(|| format!("an array or map without {key:?}"))?;
        self.path.push(step.to_owned());
        let node = self.node(value, namespace)?;
        self.path.pop();
        Ok(node)
    }

    /// A type that has a name.
    fn named(
        &mut self,
        members: &'a Members,
        namespace: &str,
        read: fn(&mut Self, &'a Members, Name, &str) -> Result<Kind, String>,
    ) -> Result<Kind, String> {
        let name = text(members, "name")?.ok_or("a record, an enum or a fixed without a name")?;
        let own = text(members, "namespace")?;
        let full = full_name(name, own.unwrap_or(namespace));
        let inside = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        if self.open.contains(&full) {
            return Err(format!("{full} is defined within itself"));
        }
        let aliases = names(members, "aliases")?.iter().map(|alias| full_name(alias, &inside)).collect();
        self.open.push(full.clone());
        let kind = read(self, members, Name { full: full.clone(), aliases }, &inside)?;
        self.open.pop();
        self.named.insert(full, (members, namespace.to_owned()));
        Ok(kind)
    }

    fn record(&mut self, members: &'a Members, name: Name, namespace: &str) -> Result<Kind, String> {
        let Some(Value::Array(values)) = members.get("fields") else {
            return Err(format!("record {} without a list of fields", name.full));
        };
        let mut fields: Vec<Field> = Vec::with_capacity(values.len());
        let mut seen = HashSet::with_capacity(values.len());
        for value in values {
            let Value::Object(members) = value else { return Err(format!("{value} is no field of {}", name.full)) };
            let field = text(members, "name")?.ok_or_else(|| format!("a field of {} without a name", name.full))?;
            self.path.push(field.to_owned());
            if !seen.insert(field) {
                return Err(format!("{} has two of them", name.full));
            }
            let node = self.node(members.get("type").ok_or("a field without a type")?, namespace)?;
            let aliases = names(members, "aliases")?.iter().map(|&alias| alias.to_owned()).collect();
            self.path.pop();
            fields.push(Field { name: field.to_owned(), aliases, default: members.get("default").cloned(), node });
        }
        Ok(Kind::Record { name, fields })
    }
}

fn enumeration(members: &Members, name: Name) -> Result<Kind, String> {
    let symbols: Vec<String> = names(members, "symbols")?.iter().map(|&symbol| symbol.to_owned()).collect();
    let mut sorted = symbols.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) || symbols.is_empty() {
        return Err(format!("enum {} has no symbols, or one twice", name.full));
    }
    let default = text(members, "default")?.map(str::to_owned);
    if default.as_ref().is_some_and(|default| !symbols.contains(default)) {
        return Err(format!("enum {} has a default that is no symbol of it", name.full));
    }
    Ok(Kind::Enum { name, symbols, default })
}

fn fixed(members: &Members, name: Name) -> Result<Kind, String> {
    let size = members.get("size").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    match size.filter(|&size| size <= LARGEST_TEXT) {
        Some(size) => Ok(Kind::Fixed { name, size }),
        None => Err(format!("fixed {} without a size up to {LARGEST_TEXT}", name.full)),
    }
}

fn text<'a>(members: &'a Members, key: &str) -> Result<Option<&'a str>, String> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key:?} is {other}, no string")),
    }
}

fn names<'a>(members: &'a Members, key: &str) -> Result<Vec<&'a str>, String> {
    match members.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) => {
            values.iter().map(|value| value.as_str().ok_or_else(|| format!("{key:?} has {value}, no string"))).collect()
        }
        Some(other) => Err(format!("{key:?} is {other}, no list of strings")),
    }
}

/// A name with its namespace; one dot before it says that it has none.
fn full_name(name: &str, namespace: &str) -> String {
    match name.strip_prefix('.') {
        Some(alone) if !alone.contains('.') => alone.to_owned(),
        _ if name.contains('.') || namespace.is_empty() => name.to_owned(),
        _ => format!("{namespace}.{name}"),
    }
}

/// What no two branches of a union have in common: named types differ by their names, all others by their kind.
fn branch_name(node: &Node) -> String {
    match &node.kind {
        Kind::Fixed { name, .. } | Kind::Enum { name, .. } | Kind::Record { name, .. } => format!(".{}", name.full),
        Kind::Array(_) => "array".to_owned(),
        Kind::Map(_) => "map".to_owned(),
        Kind::Union(_) => "union".to_owned(),
        _ => node.kind_name().to_owned(),
    }
}

fn logical(kind: &Kind, members: &Members) -> Option<Logical> {
    let name = members.get("logicalType")?.as_str()?;
    Some(match (name, kind) {
        ("decimal", Kind::Bytes | Kind::Fixed { .. }) => {
            let number = |key: &str| members.get(key).map_or(Some(0), Value::as_u64);
            let (precision, scale) = (number("precision")?, number("scale")?);
            let largest = match kind {
                // The decimal digits that fit into the bytes.
                Kind::Fixed { size, .. } => (u64::try_from(*size).ok()? * 8).checked_sub(1)? * 30_103 / 100_000,
                _ => u64::MAX,
            };
            if precision == 0 || scale > precision || precision > largest {
                return None;
            }
            Logical::Decimal { precision: u8::try_from(precision).ok()?, scale: u8::try_from(scale).ok()? }
        }
        ("date", Kind::Int) => Logical::Date,
        ("time-millis", Kind::Int) => Logical::TimeMillis,
        ("time-micros", Kind::Long) => Logical::TimeMicros,
        ("timestamp-millis", Kind::Long) => Logical::TimestampMillis,
        ("timestamp-micros", Kind::Long) => Logical::TimestampMicros,
        ("timestamp-nanos", Kind::Long) => Logical::TimestampNanos,
        ("local-timestamp-millis", Kind::Long) => Logical::LocalTimestampMillis,
        ("local-timestamp-micros", Kind::Long) => Logical::LocalTimestampMicros,
        ("local-timestamp-nanos", Kind::Long) => Logical::LocalTimestampNanos,
        ("uuid", Kind::String | Kind::Fixed { size: 16, .. }) => Logical::Uuid,
        ("duration", Kind::Fixed { size: 12, .. }) => Logical::Duration,
        _ => return None,
    })
}
