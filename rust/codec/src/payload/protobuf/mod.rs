//! Protobuf payloads: a walk that only checks, then ptars-core for all good ones at once.
//!
//! ptars-core fails for a whole batch, so no message gets to it that was not walked.

mod convert;
mod depth;
mod plan;
mod walk;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray};
use arrow_schema::Fields;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use ptars_core::{EnumRepr, PtarsConfig, TimeUnit, binary_array_to_record_batch_direct};

use super::framing::Framing;
use super::reader::{Cast, Checked};
use plan::Column;
use walk::Message;

/// The largest descriptor set, in bytes.
const LARGEST_SET: usize = 4 << 20;

/// Texts of .proto files by their names, as imports have them.
struct Texts(HashMap<String, String>);

impl FileResolver for Texts {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        path.to_str().filter(|name| self.0.contains_key(*name)).map(str::to_owned)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// A `FileDescriptorSet` of .proto texts by their names: `main` is its last file, after those that it imports. Google's
/// well-known types need no text.
///
/// # Errors
/// A text does not compile, is too deep, or imports a missing file.
pub fn compile<S: BuildHasher>(files: &HashMap<String, String, S>, main: &str) -> Result<Vec<u8>, String> {
    if !files.contains_key(main) {
        return Err(format!("{main}: there is no text of this name"));
    }
    if let Some((name, _)) = files.iter().find(|(_, text)| depth::is_too_deep(text)) {
        return Err(format!("{name}: brackets are deeper than 64"));
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Texts(files.iter().map(|(name, text)| (name.clone(), text.clone())).collect()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    // Its debug text is the one with line and column.
    compiler.open_file(main).map_err(|error| format!("{error:?}"))?;
    Ok(compiler.encode_file_descriptor_set())
}

/// A reader's message.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    descriptor: MessageDescriptor,
    message: Arc<Message>,
    columns: Arc<[Column]>,
    pub(crate) fields: Fields,
}

impl Reader {
    /// Of the message of this full name; without one, of the only message at the top of the set's last file.
    pub(crate) fn new(set: &[u8], name: Option<&str>, casts: &BTreeMap<String, Cast>) -> Result<Self, String> {
        let (pool, last) = decode(set)?;
        let mut messages = last.messages();
        let descriptor = match (name, messages.next(), messages.next()) {
            (Some(name), ..) => pool.get_message_by_name(name).ok_or_else(|| format!("there is no message {name}"))?,
            (None, Some(one), None) => one,
            _ => return Err(format!("{} has not one message at its top: name it", last.name())),
        };
        let planned = plan::plan(&descriptor, casts)?;
        Ok(Self {
            descriptor,
            message: Arc::new(planned.message),
            columns: planned.columns.into(),
            fields: planned.fields,
        })
    }

    /// A writer without a header.
    pub(crate) fn own(&self) -> Writer {
        Writer { reader: self.clone(), indexes: None }
    }

    /// A writer's descriptor set, its last file the one that was registered; and the paths of its fields that are
    /// dropped.
    pub(crate) fn writer(&self, set: &[u8], framing: Framing) -> Result<(Writer, Vec<String>), String> {
        let (_, file) = decode(set)?;
        let indexes = Indexes::of(&file, self.descriptor.full_name(), framing)?;
        let message = file
            .parent_pool()
            .get_message_by_name(self.descriptor.full_name())
            .ok_or_else(|| format!("there is no message {}", self.descriptor.full_name()))?;
        let mut dropped = Vec::new();
        compare(&message, &self.descriptor, "", &mut HashSet::new(), &mut dropped)?;
        Ok((Writer { reader: self.clone(), indexes: Some(indexes) }, dropped))
    }
}

/// A set's pool, and its last file.
fn decode(set: &[u8]) -> Result<(DescriptorPool, FileDescriptor), String> {
    if set.len() > LARGEST_SET {
        return Err(format!("a descriptor set of {} bytes; the most are {LARGEST_SET}", set.len()));
    }
    let pool = DescriptorPool::decode(set).map_err(|error| format!("no FileDescriptorSet: {error}"))?;
    let last = pool.files().last().ok_or("a FileDescriptorSet without files")?;
    Ok((pool, last))
}

/// How the header names the message within its file.
#[derive(Clone, Debug)]
enum Indexes {
    /// Its place among all messages of the file, sorted by their full names.
    Glue(u64),
    /// Its place among the messages at the top, and down from there.
    Confluent(Vec<u64>),
}

impl Indexes {
    fn of(file: &FileDescriptor, name: &str, framing: Framing) -> Result<Self, String> {
        let missing = || format!("{} has no message {name}", file.name());
        if framing == Framing::Confluent {
            let (mut path, mut level): (Vec<u64>, Vec<MessageDescriptor>) = (Vec::new(), file.messages().collect());
            loop {
                let inside = |message: &MessageDescriptor| {
                    name.strip_prefix(message.full_name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                let at = level.iter().position(inside).ok_or_else(missing)?;
                path.push(at as u64);
                if level[at].full_name() == name {
                    return Ok(Self::Confluent(path));
                }
                level = level[at].child_messages().collect();
            }
        }
        let (mut names, mut next) = (Vec::new(), file.messages().collect::<Vec<_>>());
        while let Some(message) = next.pop() {
            next.extend(message.child_messages());
            names.push(message.full_name().to_owned());
        }
        names.sort_unstable();
        let at = names.iter().position(|other| other == name).ok_or_else(missing)?;
        Ok(Self::Glue(at as u64))
    }

    /// The bytes after the index, if it names the message.
    fn split<'a>(&self, mut body: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Glue(wanted) => (walk::varint(&mut body).ok()? == *wanted).then_some(body),
            Self::Confluent(wanted) => {
                let mut next = || {
                    let number = walk::varint(&mut body).ok()?;
                    // Zig-zag: negative ones are none.
                    number.is_multiple_of(2).then_some(number / 2)
                };
                let count = next()?;
                if count == 0 {
                    return (wanted[..] == [0]).then_some(body);
                }
                let same = count == wanted.len() as u64 && wanted.iter().all(|index| next() == Some(*index));
                same.then_some(body)
            }
        }
    }
}

/// Compares a writer's message with the reader's: numbers that both have must be readable.
fn compare(
    writer: &MessageDescriptor,
    reader: &MessageDescriptor,
    path: &str,
    seen: &mut HashSet<String>,
    dropped: &mut Vec<String>,
) -> Result<(), String> {
    if !seen.insert(writer.full_name().to_owned()) {
        return Ok(());
    }
    for field in writer.fields() {
        let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        let Some(own) = reader.get_field(field.number()) else {
            dropped.push(path);
            continue;
        };
        let lists = field.is_map() == own.is_map() && (field.is_list() == own.is_list() || own.is_list());
        if !lists || family(&field) != family(&own) {
            return Err(format!("{path}: {:?} cannot be read as {:?} {}", field.kind(), own.kind(), own.name()));
        }
        if let (Kind::Message(inner), Kind::Message(own)) = (field.kind(), own.kind()) {
            compare(&inner, &own, &path, seen, dropped)?;
        }
    }
    Ok(())
}

/// Kinds of one family are read as each other.
fn family(field: &FieldDescriptor) -> u8 {
    match field.kind() {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Bool | Kind::Enum(_) => 0,
        Kind::Sint32 | Kind::Sint64 => 1,
        Kind::Fixed32 | Kind::Sfixed32 => 2,
        Kind::Fixed64 | Kind::Sfixed64 => 3,
        Kind::Float => 4,
        Kind::Double => 5,
        Kind::String | Kind::Bytes => 6,
        Kind::Message(_) => 7,
    }
}

/// A writer of a reader's message.
#[derive(Debug)]
pub(crate) struct Writer {
    reader: Reader,
    /// Before the message, in the framings of registries.
    indexes: Option<Indexes>,
}

impl super::reader::Writer for Writer {
    fn check<'a>(&self, body: Cow<'a, [u8]>, most: usize) -> Option<Checked<'a>> {
        let body = match (&self.indexes, body) {
            (None, body) => body,
            (Some(indexes), Cow::Borrowed(body)) => Cow::Borrowed(indexes.split(body)?),
            (Some(indexes), Cow::Owned(body)) => Cow::Owned(indexes.split(&body)?.to_vec()),
        };
        let good = walk::walk(&self.reader.message, &body, most).ok()?;
        if !good.odd {
            return Some(Checked { body, cost: good.cost });
        }
        let message = DynamicMessage::decode(self.reader.descriptor.clone(), &body[..]).ok()?;
        let body = message.encode_to_vec();
        let good = walk::walk(&self.reader.message, &body, most).ok()?;
        Some(Checked { body: Cow::Owned(body), cost: good.cost })
    }

    fn decode(&self, bodies: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>> {
        let config = PtarsConfig::new()
            .with_timestamp_unit(TimeUnit::Microsecond)
            .with_time_unit(TimeUnit::Microsecond)
            .with_duration_unit(TimeUnit::Microsecond)
            .with_enum_repr(EnumRepr::String);
        let array = BinaryArray::from_iter_values(bodies);
        let batch = binary_array_to_record_batch_direct(&array, &self.reader.descriptor, &config).ok()?;
        if batch.num_rows() != bodies.len() {
            return None;
        }
        convert::columns(batch.columns(), &self.reader.columns, &self.reader.fields)
    }

    #[cfg(feature = "fuzzing")]
    fn is_stricter(&self, body: &[u8], most: usize) -> bool {
        walk::walk(&self.reader.message, body, most) == Err(walk::Bad::Stricter)
    }
}
