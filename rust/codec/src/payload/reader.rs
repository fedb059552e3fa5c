//! Payloads that have a schema: headers taken off, values checked, columns of all good ones, in the records' order.
//!
//! ```text
//!  payload ─▶ gzip ─▶ framing ─▶ id ─▶ writer ─▶ check ─┬─ good ─▶ decoded with all of its writer ─▶ back in order
//!               │        │        │                     │
//!               └────────┴────────┴─────────────────────┴─ bad ──▶ _corrupt, as it came
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch as ArrowBatch};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};

use super::framing::{Framing, LONGEST, SchemaId};
use super::{Compression, LARGEST_BYTES, Opened, Payloads, Unpack, groups, gzip, own_bytes};
use crate::batch::RecordBatch;
use crate::schema::{Column as RecordColumn, RecordSchema};

/// What becomes of a field whose type has no column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cast {
    /// A string.
    String,
    /// It is left out.
    Drop,
}

/// What payloads are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SchemaFormat {
    /// Avro, by a schema's JSON.
    #[cfg(feature = "avro")]
    Avro(String),
    /// Protobuf, by a `FileDescriptorSet` and a message's full name.
    #[cfg(feature = "protobuf")]
    Protobuf(Vec<u8>, Option<String>),
    /// JSON objects, with these fields.
    Json(Fields),
}

/// A payload that was found good.
pub(crate) struct Checked<'a> {
    /// For the decoder.
    pub(crate) body: Cow<'a, [u8]>,
    /// Bytes of columns, about.
    pub(crate) cost: usize,
}

/// How the payloads of one writer are read.
pub(crate) trait Writer: Send + Sync + std::fmt::Debug {
    /// None if the body is no value of the schema, or takes more than `most` bytes of columns.
    fn check<'a>(&self, body: Cow<'a, [u8]>, most: usize) -> Option<Checked<'a>>;

    /// The columns of bodies that were checked; None if one of them fails all the same.
    fn decode(&self, bodies: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>>;

    /// Whether a check that refuses a body is meant to be stricter than the decoder.
    #[cfg(feature = "fuzzing")]
    fn is_stricter(&self, body: &[u8], most: usize) -> bool;
}

#[derive(Debug)]
enum Known {
    Writer(Arc<dyn Writer>),
    Rejected(String),
}

#[derive(Debug)]
enum Reader {
    #[cfg(feature = "avro")]
    Avro(super::avro::Reader),
    #[cfg(feature = "protobuf")]
    Protobuf(super::protobuf::Reader),
    Json(Payloads),
}

/// Opens payloads by a reader's schema, from writers whose schemas are added as they come.
#[derive(Debug)]
pub struct SchemaReader {
    reader: Reader,
    framing: Framing,
    compression: Compression,
    max_payload_bytes: usize,
    keep_payload: bool,
    fields: Fields,
    /// Writes in the reader's schema, without a header.
    own: Option<Arc<dyn Writer>>,
    known: RwLock<HashMap<SchemaId, Known>>,
}

/// A row's payload, opened as far as it goes.
enum Row<'a> {
    /// None came.
    Null,
    Corrupt,
    Unknown(SchemaId),
    /// Of a JSON reader: without its header.
    Text(Cow<'a, [u8]>),
    Good(Arc<dyn Writer>, Checked<'a>),
}

impl SchemaReader {
    /// Payloads that are larger than `max_payload_bytes`, or whose columns are, are corrupt. `keep_payload`: the column
    /// `data` stays.
    ///
    /// # Errors
    /// The schema is none, or has types without a column: the message names each field, and the choices.
    ///
    /// # Panics
    /// The bound is above [`LARGEST_BYTES`].
    pub fn new(
        format: SchemaFormat,
        framing: Framing,
        casts: &BTreeMap<String, Cast>,
        compression: Compression,
        max_payload_bytes: usize,
        keep_payload: bool,
    ) -> Result<Self, String> {
        assert!(max_payload_bytes <= LARGEST_BYTES, "offsets are 32 bits wide");
        #[cfg_attr(not(feature = "avro"), allow(unused_mut, reason = "only Avro has single objects"))]
        let mut known: HashMap<SchemaId, Known> = HashMap::new();
        let (reader, fields, own): (_, _, Option<Arc<dyn Writer>>) = match format {
            #[cfg(feature = "avro")]
            SchemaFormat::Avro(text) => {
                let reader = super::avro::Reader::new(&text, casts)?;
                let own: Arc<dyn Writer> = Arc::new(reader.writer(&text)?.0);
                if framing == Framing::SingleObject {
                    let id = super::avro::fingerprint(&text)?;
                    known.insert(id.into(), Known::Writer(Arc::clone(&own)));
                }
                (Reader::Avro(reader.clone()), reader.fields, Some(own))
            }
            #[cfg(feature = "protobuf")]
            SchemaFormat::Protobuf(set, message) => {
                let reader = super::protobuf::Reader::new(&set, message.as_deref(), casts)?;
                let own: Arc<dyn Writer> = Arc::new(reader.own());
                (Reader::Protobuf(reader.clone()), reader.fields, Some(own))
            }
            SchemaFormat::Json(fields) => {
                if let Some(path) = casts.keys().next() {
                    return Err(format!("casts: JSON has none ({path:?})"));
                }
                let json = Payloads::new(super::Format::Json(fields.clone()), compression, max_payload_bytes);
                (Reader::Json(json), fields, None)
            }
        };
        if framing == Framing::SingleObject && known.is_empty() {
            return Err("only Avro has single objects".to_owned());
        }
        let taken = |name: &str| RecordColumn::ALL[1..].iter().any(|column| column.name().eq_ignore_ascii_case(name));
        let special = ["_corrupt", "_unparsed", "_packed"];
        for field in &fields {
            let name = field.name();
            let data = keep_payload && name.eq_ignore_ascii_case(RecordColumn::Data.name());
            if taken(name) || data || special.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(format!("{name}: every record has a column of this name; rename the field, or drop it"));
            }
        }
        if let (false, Some(path)) = (matches!(reader, Reader::Json(_)), super::names::twice(&fields)) {
            return Err(format!("{path}: Spark has one field of this name, in large or small letters; drop this one"));
        }
        let known = RwLock::new(known);
        Ok(Self { reader, framing, compression, max_payload_bytes, keep_payload, fields, own, known })
    }

    /// The framing.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// The columns that it makes of a batch with the canonical columns.
    #[must_use]
    pub fn schema(&self) -> Schema {
        let canonical = RecordSchema::Canonical.arrow().fields();
        let own = canonical.iter().skip(usize::from(!self.keep_payload)).cloned();
        Schema::new(self.fields.iter().cloned().chain(own).chain(self.last().map(binary)).collect::<Vec<_>>())
    }

    /// Names of the columns after all others.
    fn last(&self) -> impl Iterator<Item = &'static str> {
        let all = ["_corrupt", "_unparsed", "_packed"];
        all.into_iter().take(if matches!(self.reader, Reader::Json(_)) { 3 } else { 1 })
    }

    /// Ids in the headers of the batch that were neither added nor rejected, each once, in the records' order.
    #[must_use]
    pub fn unknown(&self, batch: &RecordBatch) -> Vec<SchemaId> {
        if self.framing == Framing::None {
            return Vec::new();
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (mut seen, mut last, mut ids) = (HashSet::new(), None, Vec::new());
        let mut header = [0; LONGEST];
        for payload in (0..batch.len()).filter_map(|row| batch.data(row)) {
            let packed = self.compression.packs(payload);
            let bytes = if packed { gzip::beginning(payload, &mut header) } else { payload };
            let Some(id) = self.framing.split(bytes).and_then(|framed| framed.id) else { continue };
            if last != Some(id) && !known.contains_key(&id) && seen.insert(id) {
                ids.push(id);
            }
            last = Some(id);
        }
        ids
    }

    /// Takes the schema of an id: JSON text, or a `FileDescriptorSet`. An id keeps the schema that it has.
    ///
    /// # Errors
    /// It is none, or cannot be resolved against the reader's.
    ///
    /// Returns the paths of the writer's fields that are dropped.
    pub fn add(&self, id: SchemaId, definition: &[u8]) -> Result<Vec<String>, String> {
        let (writer, dropped): (Arc<dyn Writer>, _) = match &self.reader {
            #[cfg(feature = "avro")]
            Reader::Avro(reader) => {
                let text = std::str::from_utf8(definition).map_err(|error| error.to_string())?;
                let (writer, dropped) = reader.writer(text)?;
                (Arc::new(writer), dropped)
            }
            #[cfg(feature = "protobuf")]
            Reader::Protobuf(reader) => {
                let (writer, dropped) = reader.writer(definition, self.framing)?;
                (Arc::new(writer), dropped)
            }
            Reader::Json(_) => (Arc::new(Json), Vec::new()),
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(known.get(&id), Some(Known::Writer(_))) {
            known.insert(id, Known::Writer(writer));
        }
        Ok(dropped)
    }

    /// Records of this id are corrupt from now on, until it is added; false if it was.
    #[must_use]
    pub fn reject(&self, id: SchemaId, reason: String) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let free = !matches!(known.get(&id), Some(Known::Writer(_)));
        if free {
            known.insert(id, Known::Rejected(reason));
        }
        free
    }

    /// The ids that were rejected, with the reasons.
    #[must_use]
    pub fn rejected(&self) -> Vec<(SchemaId, String)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let reason = |(id, known): (&SchemaId, &Known)| match known {
            Known::Rejected(reason) => Some((*id, reason.clone())),
            Known::Writer(_) => None,
        };
        known.iter().filter_map(reason).collect()
    }

    /// Opens payloads from row `from` on: as many as make no more than `max_bytes`, and one at least if there is one.
    ///
    /// # Errors
    /// The id of a record that was neither added nor rejected.
    ///
    /// # Panics
    /// `from` is outside of the batch, or `max_bytes` above [`LARGEST_BYTES`].
    pub fn open(&self, batch: &RecordBatch, from: usize, max_bytes: usize) -> Result<Opened, SchemaId> {
        assert!(max_bytes <= LARGEST_BYTES, "offsets are 32 bits wide");
        if let Reader::Json(json) = &self.reader {
            return self.open_json(json, batch, from, max_bytes);
        }
        let mut rows = Vec::with_capacity(batch.len() - from);
        let mut bytes = 0;
        let null = self.fields.len() * 9;
        for row in from..batch.len() {
            let payload = batch.data(row);
            let size = payload.map_or(0, <[u8]>::len);
            let one = self.row(payload);
            bytes += own_bytes(batch, row) + 9 + if self.keep_payload { size } else { 0 };
            bytes += match &one {
                Row::Unknown(id) => return Err(*id),
                // What is kept until all are decoded counts, too.
                Row::Good(_, checked) => checked.cost.max(checked.body.len()),
                Row::Corrupt => size + null,
                Row::Null | Row::Text(_) => null,
            };
            if bytes > max_bytes && !rows.is_empty() {
                break;
            }
            rows.push(one);
        }
        let mut corrupt: Vec<bool> = rows.iter().map(|row| matches!(row, Row::Corrupt)).collect();
        let good = rows.into_iter().map(|row| match row {
            Row::Good(writer, checked) => Some((writer, checked.body)),
            _ => None,
        });
        let (columns, refused) = groups::columns(&self.fields, good.collect());
        for row in refused {
            corrupt[row] = true;
        }
        let rows = corrupt.len();
        let raw = corrupt.iter().enumerate().map(|(row, bad)| batch.data(from + row).filter(|_| *bad));
        let corrupt: BinaryArray = raw.collect();
        Ok(self.finish(columns, batch.as_arrow().slice(from, rows).columns(), batch, vec![Arc::new(corrupt)]))
    }

    /// One payload, checked.
    fn row<'a>(&self, payload: Option<&'a [u8]>) -> Row<'a> {
        let Some(payload) = payload else { return Row::Null };
        let mut unpacked = Vec::new();
        let bytes = if self.compression.packs(payload) {
            if !gzip::unpack(payload, &mut unpacked, self.max_payload_bytes) {
                return Row::Corrupt;
            }
            None
        } else {
            Some(payload)
        };
        let Some(framed) = self.framing.split(bytes.unwrap_or(&unpacked)) else { return Row::Corrupt };
        let Some(id) = framed.id else {
            let body = bytes.map_or_else(|| Cow::Owned(std::mem::take(&mut unpacked)), Cow::Borrowed);
            return match &self.own {
                Some(own) => self.checked(Arc::clone(own), body),
                None => Row::Text(body),
            };
        };
        let writer = match self.known.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            None => return Row::Unknown(id),
            Some(Known::Rejected(_)) => return Row::Corrupt,
            Some(Known::Writer(writer)) => Arc::clone(writer),
        };
        let body = match bytes {
            Some(payload) => self.framing.split(payload).and_then(|framed| framed.unpacked(self.max_payload_bytes)),
            None => framed.unpacked(self.max_payload_bytes).map(|body| Cow::Owned(body.into_owned())),
        };
        match (body, &self.reader) {
            (None, _) => Row::Corrupt,
            (Some(body), Reader::Json(_)) => Row::Text(body),
            (Some(body), _) => self.checked(writer, body),
        }
    }

    fn checked<'a>(&self, writer: Arc<dyn Writer>, body: Cow<'a, [u8]>) -> Row<'a> {
        match writer.check(body, self.max_payload_bytes) {
            Some(checked) => Row::Good(writer, checked),
            None => Row::Corrupt,
        }
    }

    fn open_json(
        &self,
        json: &Payloads,
        batch: &RecordBatch,
        from: usize,
        max_bytes: usize,
    ) -> Result<Opened, SchemaId> {
        let mut unknown = None;
        let opened = json.open_with(batch, from, max_bytes, Headers { reader: self, unknown: &mut unknown });
        match unknown {
            Some(id) => Err(id),
            None if !self.keep_payload => Ok(opened),
            None => {
                let rows = opened.arrow.num_rows();
                let data = batch.as_arrow().column(RecordColumn::Data as usize).slice(from, rows);
                let (mut fields, mut arrays) =
                    (opened.arrow.schema().fields().to_vec(), opened.arrow.columns().to_vec());
                let at = fields.iter().position(|field| field.name() == RecordColumn::PartitionKey.name()).unwrap_or(0);
                fields.insert(at, binary(RecordColumn::Data.name()));
                let nbytes = opened.nbytes + data.to_data().get_slice_memory_size().unwrap_or_default();
                arrays.insert(at, data);
                let arrow = ArrowBatch::try_new(Arc::new(Schema::new(fields)), arrays)
                    .expect("the columns are of the schema's types and equal length");
                Ok(Opened { arrow, nbytes, ..opened })
            }
        }
    }

    /// The payloads' columns, the records', and the last ones.
    fn finish(&self, columns: Vec<ArrayRef>, own: &[ArrayRef], batch: &RecordBatch, last: Vec<ArrayRef>) -> Opened {
        let skipped = usize::from(!self.keep_payload);
        let own_fields = batch.as_arrow().schema_ref().fields().iter().skip(skipped).cloned();
        let fields: Vec<FieldRef> =
            self.fields.iter().cloned().chain(own_fields).chain(self.last().map(binary)).collect();
        let arrays: Vec<ArrayRef> = columns.into_iter().chain(own.iter().skip(skipped).cloned()).chain(last).collect();
        let nbytes = arrays.iter().map(|array| array.to_data().get_slice_memory_size().unwrap_or_default()).sum();
        let arrow = ArrowBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .expect("the columns are of the schema's types and equal length");
        Opened { arrow, unparsed: 0, nbytes }
    }
}

/// JSON payloads without their headers, and the first id that is not known.
struct Headers<'r> {
    reader: &'r SchemaReader,
    unknown: &'r mut Option<SchemaId>,
}

impl Unpack for Headers<'_> {
    fn unpack<'a>(&mut self, _: &Payloads, payload: &'a [u8], unpacked: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        match self.reader.row(Some(payload)) {
            Row::Text(Cow::Borrowed(body)) => return Some(body),
            Row::Text(Cow::Owned(body)) => {
                *unpacked = body;
                return Some(unpacked);
            }
            Row::Unknown(id) => {
                self.unknown.get_or_insert(id);
            }
            Row::Null | Row::Corrupt | Row::Good(..) => {}
        }
        None
    }
}

fn binary(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Binary, true))
}

/// The writer of JSON: its schema says nothing that a column would need.
#[derive(Debug)]
struct Json;

impl Writer for Json {
    fn check<'a>(&self, body: Cow<'a, [u8]>, _: usize) -> Option<Checked<'a>> {
        Some(Checked { body, cost: 0 })
    }

    fn decode(&self, _: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>> {
        None
    }

    #[cfg(feature = "fuzzing")]
    fn is_stricter(&self, _: &[u8], _: usize) -> bool {
        true
    }
}

#[cfg(feature = "fuzzing")]
impl SchemaReader {
    /// For fuzzing: what the check takes the decoder takes, and the other way round, but where the check is stricter.
    /// The body's id is 0, or there is no header.
    ///
    /// # Panics
    /// They do not agree.
    pub fn assert_agreement(&self, body: &[u8]) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let writer = match (known.get(&0), &self.own) {
            (Some(Known::Writer(writer)), _) => writer,
            (_, Some(own)) => own,
            _ => return,
        };
        match writer.check(Cow::Borrowed(body), self.max_payload_bytes) {
            Some(checked) => assert!(writer.decode(&[checked.body]).is_some(), "checked, and not decoded"),
            None if writer.is_stricter(body, self.max_payload_bytes) => {}
            None => assert!(writer.decode(&[Cow::Borrowed(body)]).is_none(), "decoded, and refused by the check"),
        }
    }
}
