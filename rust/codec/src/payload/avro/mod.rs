//! Avro payloads: a walk that only checks, then arrow-avro for all good ones at once.
//!
//! ```text
//!  the reader's schema ─ schema ─▶ shape: columns of Spark's types, or a refusal
//!  a writer's schema ─── schema ─▶ resolve ─┬─▶ walk: good payloads from bad
//!                                           └─▶ arrow-avro ─▶ convert ─▶ columns
//! ```
//!
//! arrow-avro's decoder loses a whole batch to one record that is cut short, so no record gets to it that was not walked.

mod canonical;
mod convert;
mod resolve;
mod schema;
mod shape;
mod text;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use arrow_array::ArrayRef;
use arrow_avro::reader::{Decoder, DecoderMode, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, SchemaStore};
use arrow_schema::Fields;

use super::reader::{Cast, Checked};
use resolve::Resolver;
use schema::{Kind, Node};
use walk::Plan;

/// Decoders at rest: as many as threads open payloads of one writer at once.
const MOST_DECODERS: usize = 4;

/// The CRC-64-AVRO of a schema's Parsing Canonical Form.
///
/// # Errors
/// It is no Avro schema.
pub fn fingerprint(text: &str) -> Result<u64, String> {
    Ok(canonical::rabin(canonical::canonical(&schema::parse(text)?).as_bytes()))
}

/// A reader's schema.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    node: Node,
    pub(crate) fields: Fields,
}

impl Reader {
    pub(crate) fn new(text: &str, casts: &BTreeMap<String, Cast>) -> Result<Self, String> {
        let (node, fields) = shape::prepare(schema::parse(text)?, casts)?;
        Ok(Self { node, fields })
    }

    /// A writer's schema against this one, and the paths of the writer's fields that are dropped.
    pub(crate) fn writer(&self, text: &str) -> Result<(Writer, Vec<String>), String> {
        let mut resolver = Resolver::new();
        let pair = resolver.resolve(&schema::parse(text)?, &self.node)?;
        let writer = Writer {
            plan: pair.plan,
            written: pair.writer.to_string(),
            wanted: pair.reader.to_string(),
            node: self.node.clone(),
            fields: self.fields.clone(),
            decoders: Mutex::new(Vec::new()),
        };
        let decoder = writer.build()?;
        writer.rest(decoder);
        Ok((writer, resolver.dropped))
    }
}

/// A writer's schema, resolved.
#[derive(Debug)]
pub(crate) struct Writer {
    plan: Plan,
    /// The schemas for arrow-avro: the writer's, and the reader's.
    written: String,
    wanted: String,
    node: Node,
    fields: Fields,
    decoders: Mutex<Vec<Decoder>>,
}

impl Writer {
    fn build(&self) -> Result<Decoder, String> {
        let mut store = SchemaStore::new();
        let id = store.register(AvroSchema::new(self.written.clone())).map_err(|error| error.to_string())?;
        ReaderBuilder::new()
            .with_batch_size(usize::MAX)
            .with_decoder_mode(DecoderMode::UnframedDatum)
            .with_reader_schema(AvroSchema::new(self.wanted.clone()))
            .with_writer_schema_store(store)
            .with_active_fingerprint(id)
            .build_decoder()
            .map_err(|error| error.to_string())
    }

    fn rest(&self, decoder: Decoder) {
        let mut decoders = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        if decoders.len() < MOST_DECODERS {
            decoders.push(decoder);
        }
    }
}

impl super::reader::Writer for Writer {
    fn check<'a>(&self, body: Cow<'a, [u8]>, most: usize) -> Option<Checked<'a>> {
        let cost = walk::walk(&self.plan, &body, most).ok()?;
        Some(Checked { body, cost })
    }

    fn decode(&self, bodies: &[Cow<'_, [u8]>]) -> Option<Vec<ArrayRef>> {
        let rested = self.decoders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut decoder = rested.or_else(|| self.build().ok())?;
        for body in bodies {
            if decoder.decode(body).ok()? != body.len() {
                return None; // the decoder holds half a batch now, and is given up
            }
        }
        let batch = decoder.flush().ok()??;
        self.rest(decoder);
        let Kind::Record { fields, .. } = &self.node.kind else { return None };
        if batch.num_rows() != bodies.len() {
            return None;
        }
        convert::columns(batch.columns(), fields, &self.fields)
    }

    #[cfg(feature = "fuzzing")]
    fn is_stricter(&self, body: &[u8], most: usize) -> bool {
        walk::walk(&self.plan, body, most) == Err(walk::Bad::Stricter)
    }
}
