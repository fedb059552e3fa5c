//! Payloads opened: gzip unpacked, JSON objects turned into typed columns.
//!
//! A record's payload takes one of these ways, and no row is dropped on any of them:
//!
//! ```text
//!  payload ──▶ gzip::unpack ──▶ bytes ──▶ json::push ──▶ typed columns
//!                  │                          │
//!                  │ damaged, too large       ├─ no JSON object ────────────▶ _corrupt
//!                  └───────────▶ _corrupt     └─ an object, but not certain ─▶ _unparsed (_corrupt, _packed)
//! ```
//!
//! Rules:
//!
//! 1. `_corrupt` has the payload as it came if it could not be opened, or if it is left and something of it would be
//!    lost without a word: see `loss`. It is null otherwise.
//! 2. A value gets into a typed column only if every reader would read it so: an integer in range, a number for a
//!    double, a string for a string. Whatever needs a rule of its own (a number for a string field, a fraction for an
//!    integer, a key that comes twice) leaves its whole record to somebody who has such rules: `_unparsed`, unpacked.
//!    Where that was packed, `_packed` has it as it came, in case that it turns out to be corrupt.
//! 3. Memory is bounded by the caller's limits, not by the sizes that a sender claims: see [`Payloads::open`].
//!
//! Payloads with a schema, Avro and Protobuf, and those with a registry's header have a reader of their own: `reader`.

#[cfg(feature = "avro")]
mod avro;
mod columns;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod framing;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod groups;
mod gzip;
mod json;
mod loss;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod names;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod reader;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch as ArrowBatch};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};

use crate::batch::RecordBatch;
use crate::schema::{Column as RecordColumn, RecordSchema};
#[cfg(feature = "avro")]
pub use avro::fingerprint;
use columns::Column;
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub use framing::{Framing, SchemaId};
use json::Outcome;
use loss::Kind;
#[cfg(feature = "protobuf")]
pub use protobuf::compile as compile_proto;
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub use reader::{Cast, SchemaFormat, SchemaReader};

/// Bounds up to here keep every column's 32-bit offsets.
pub const LARGEST_BYTES: usize = 1 << 30;

/// Which payloads are unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// None of them.
    None,
    /// All of them: what is no gzip is corrupt.
    Gzip,
    /// Those that begin with gzip's magic number.
    Auto,
}

impl Compression {
    /// Whether a payload is taken for packed.
    fn packs(self, payload: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Gzip => true,
            Self::Auto => payload.starts_with(&gzip::MAGIC),
        }
    }
}

/// What unpacked payloads become.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Format {
    /// A `data` column.
    Binary,
    /// Columns of these types, or every object left if there is one that does not [`supports`] JSON.
    Json(Fields),
}

/// Whether JSON values can be parsed into columns of this type.
#[must_use]
pub fn supports(data_type: &DataType) -> bool {
    Column::of_json(data_type).is_some()
}

/// The fields of a schema that is written as an Arrow IPC message.
///
/// # Errors
/// It is none.
pub fn fields_of_ipc(message: &[u8]) -> Result<Fields, ArrowError> {
    arrow_ipc::convert::try_schema_from_ipc_buffer(message).map(|schema| schema.fields)
}

/// How the payloads of a shard are opened.
#[derive(Debug)]
pub struct Payloads {
    format: Format,
    kind: Kind,
    compression: Compression,
    max_payload_bytes: usize,
}

/// Rows whose payloads are opened.
#[derive(Debug)]
pub struct Opened {
    /// The format's columns, the records' own without `data`, `_corrupt`, `_unparsed` and `_packed`.
    pub arrow: ArrowBatch,
    /// Rows with something in `_unparsed`.
    pub unparsed: usize,
    /// Bytes of the columns.
    pub nbytes: usize,
}

impl Payloads {
    /// Payloads that are larger than `max_payload_bytes` when unpacked are corrupt: nobody has to hold a bomb.
    ///
    /// # Panics
    /// The bound is above [`LARGEST_BYTES`].
    #[must_use]
    pub fn new(format: Format, compression: Compression, max_payload_bytes: usize) -> Self {
        assert!(max_payload_bytes <= LARGEST_BYTES, "offsets are 32 bits wide");
        let kind = match &format {
            Format::Json(fields) => Kind::of_fields(fields),
            Format::Binary => Kind::Other,
        };
        Self { format, kind, compression, max_payload_bytes }
    }

    /// Opens payloads from row `from` on: as many as make no more than `max_bytes`, and one at least if there is one.
    ///
    /// # Panics
    /// `from` is outside of the batch, or `max_bytes` above [`LARGEST_BYTES`].
    #[must_use]
    pub fn open(&self, batch: &RecordBatch, from: usize, max_bytes: usize) -> Opened {
        self.open_with(batch, from, max_bytes, Here)
    }

    /// As `open`, with payloads unpacked by `unpack`.
    fn open_with(&self, batch: &RecordBatch, from: usize, max_bytes: usize, mut unpack: impl Unpack) -> Opened {
        assert!(max_bytes <= LARGEST_BYTES, "offsets are 32 bits wide");
        let mut columns = Columns::new(&self.format);
        let mut unpacked = Vec::new();
        let mut rows = 0;
        let mut own = 0;
        for row in from..batch.len() {
            let largest = batch.data(row).map_or(0, <[u8]>::len).max(self.max_payload_bytes);
            if rows > 0 && i32::try_from(columns.nbytes() + largest).is_err() {
                break;
            }
            columns.push(self, batch.data(row), &mut unpacked, &mut unpack);
            let more = own_bytes(batch, row);
            if rows > 0 && columns.nbytes() + own + more > max_bytes {
                columns.truncate(rows);
                break;
            }
            own += more;
            rows += 1;
        }
        columns.finish(&batch.as_arrow().slice(from, rows), own)
    }
}

/// How a payload becomes the bytes that are looked at.
trait Unpack {
    /// The payload unpacked, if it has to be; None if it cannot be.
    fn unpack<'a>(&mut self, how: &Payloads, payload: &'a [u8], unpacked: &'a mut Vec<u8>) -> Option<&'a [u8]>;
}

/// As the compression says.
struct Here;

impl Unpack for Here {
    fn unpack<'a>(&mut self, how: &Payloads, payload: &'a [u8], unpacked: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if !how.compression.packs(payload) {
            return Some(payload);
        }
        gzip::unpack(payload, unpacked, how.max_payload_bytes).then_some(unpacked)
    }
}

/// Bytes of the columns that a record keeps, in row `row`: all of the canonical ones but data, and a byte of validity.
fn own_bytes(batch: &RecordBatch, row: usize) -> usize {
    const FIXED: usize = RecordSchema::Canonical.row_bytes() - RecordColumn::Data.row_bytes() + 1;
    batch.partition_key(row).len() + batch.sequence_number(row).len() + FIXED
}

/// The columns being filled, all of one length.
struct Columns {
    /// A struct of typed columns, or binary; None where every object is left.
    opened: Option<Column>,
    /// Whether objects are looked for.
    json: bool,
    fields: Fields,
    corrupt: Column,
    unparsed: Column,
    packed: Column,
}

impl Columns {
    fn new(format: &Format) -> Self {
        let (opened, fields) = match format {
            Format::Binary => (
                Some(Column::binary()),
                Fields::from(vec![Field::new(RecordColumn::Data.name(), RecordColumn::Data.data_type(), true)]),
            ),
            Format::Json(fields) => match Column::of_json(&DataType::Struct(fields.clone())) {
                Some(column) => (Some(column), fields.clone()),
                None => (None, Fields::empty()),
            },
        };
        let json = matches!(format, Format::Json(_));
        let [corrupt, unparsed, packed] = [Column::binary(), Column::binary(), Column::binary()];
        Self { opened, json, fields, corrupt, unparsed, packed }
    }

    /// Adds a row. A null payload is null in every column.
    fn push(&mut self, how: &Payloads, payload: Option<&[u8]>, unpacked: &mut Vec<u8>, unpack: &mut impl Unpack) {
        let bytes = payload.and_then(|payload| unpack.unpack(how, payload, unpacked));
        let outcome = match (bytes, self.json) {
            (None, _) => Outcome::Corrupt,
            (Some(bytes), true) => json::push(self.opened.as_mut(), &how.kind, bytes, how.max_payload_bytes),
            (Some(bytes), false) => {
                if let Some(column) = &mut self.opened {
                    column.push_bytes(bytes);
                }
                Outcome::Parsed
            }
        };
        if outcome != Outcome::Parsed
            && let Some(column) = &mut self.opened
        {
            column.push_null();
        }
        self.unparsed.push(bytes.filter(|_| matches!(outcome, Outcome::Left | Outcome::LeftWithLoss)));
        self.corrupt.push(payload.filter(|_| matches!(outcome, Outcome::Corrupt | Outcome::LeftWithLoss)));
        // One copy of it is enough where nothing was unpacked.
        self.packed.push(payload.filter(|_| outcome == Outcome::Left && bytes != payload));
    }

    fn nbytes(&self) -> usize {
        self.opened.iter().chain([&self.corrupt, &self.unparsed, &self.packed]).map(Column::nbytes).sum()
    }

    fn truncate(&mut self, rows: usize) {
        for column in self.opened.iter_mut().chain([&mut self.corrupt, &mut self.unparsed, &mut self.packed]) {
            column.truncate(rows);
        }
    }

    /// With the records' own columns of the same rows, of `own` bytes.
    fn finish(self, records: &ArrowBatch, own: usize) -> Opened {
        let nbytes = self.nbytes() + own;
        let mut fields: Vec<FieldRef> = self.fields.iter().cloned().collect();
        let mut arrays: Vec<ArrayRef> = match self.opened {
            Some(column) if self.json => column.finish_struct(),
            Some(column) => vec![column.finish()],
            None => Vec::new(),
        };
        let (record_fields, record_columns) = (records.schema_ref().fields(), records.columns());
        let kept = (0..record_columns.len()).filter(|index| *index != RecordColumn::Data as usize);
        for index in kept {
            fields.push(Arc::clone(&record_fields[index]));
            arrays.push(Arc::clone(&record_columns[index]));
        }
        let unparsed = self.unparsed.finish();
        let left = unparsed.len() - unparsed.null_count();
        for (name, array) in
            [("_corrupt", self.corrupt.finish()), ("_unparsed", unparsed), ("_packed", self.packed.finish())]
        {
            fields.push(Arc::new(Field::new(name, DataType::Binary, true)));
            arrays.push(array);
        }
        let arrow = ArrowBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .expect("the columns are of the schema's types and equal length");
        Opened { arrow, unparsed: left, nbytes }
    }
}
