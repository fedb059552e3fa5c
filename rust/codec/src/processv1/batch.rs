//! A run of messages as Arrow columns.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::BinaryBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::message::ToStitch;
use crate::base64;
use crate::error::{Error, ErrorKind, Result};
use crate::message_batch::MessageBatch;

/// The kind of the messages' data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataColumn {
    /// Base64, which becomes a binary column.
    Base64,
    /// Text, which becomes a string column.
    Text,
}

/// All fields are nullable: Spark compares schemas literally.
fn schema(data: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("channel", DataType::Utf8, true),
        Field::new("sender", DataType::Utf8, true),
        Field::new("node", DataType::Utf8, true),
        Field::new("data", data, true),
    ]))
}

static BINARY: LazyLock<SchemaRef> = LazyLock::new(|| schema(DataType::Binary));
static TEXT: LazyLock<SchemaRef> = LazyLock::new(|| schema(DataType::Utf8));

/// The columns id, channel, sender, node and data of `messages`, a row each.
///
/// # Errors
/// Data that is no base64, or a column of 2 GiB and more; the record is the message's index.
pub fn batch(messages: &[&ToStitch], data: DataColumn) -> Result<MessageBatch> {
    let texts = |value: fn(&ToStitch) -> &Option<String>| -> Result<ArrayRef> {
        let mut bytes = 0;
        for (row, message) in messages.iter().enumerate() {
            bytes += value(message).as_ref().map_or(0, String::len);
            check_length(bytes, row)?;
        }
        Ok(Arc::new(messages.iter().map(|message| value(message).as_deref()).collect::<StringArray>()))
    };
    let (schema, data): (&SchemaRef, _) = match data {
        DataColumn::Text => (&TEXT, texts(|message| &message.data)?),
        DataColumn::Base64 => (&BINARY, decoded(messages)?),
    };
    let columns = vec![
        Arc::new(messages.iter().map(|message| message.id).collect::<Int64Array>()) as ArrayRef,
        texts(|message| &message.channel_name)?,
        texts(|message| &message.from_stitch_instance_id)?,
        texts(|message| &message.node_id)?,
        data,
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map(MessageBatch::new)
        .map_err(|error| Error::new(ErrorKind::WrongType, 0, error.to_string()))
}

fn decoded(messages: &[&ToStitch]) -> Result<ArrayRef> {
    let texts = messages.iter().map(|message| message.data.as_deref());
    let bytes = texts.clone().flatten().map(|text| text.len() / 4 * 3).sum::<usize>().min(i32::MAX as usize);
    let mut column = BinaryBuilder::with_capacity(messages.len(), bytes);
    let mut written = 0;
    for (row, text) in texts.enumerate() {
        let Some(text) = text else {
            column.append_null();
            continue;
        };
        let data = base64::decode(text.as_bytes())
            .map_err(|error| error.in_field("Data").in_record(row).with_context(text.as_bytes(), 0))?;
        written += data.len();
        check_length(written, row)?;
        column.append_value(data);
    }
    Ok(Arc::new(column.finish()))
}

/// Offsets of a column have 32 bits.
fn check_length(bytes: usize, row: usize) -> Result<()> {
    if i32::try_from(bytes).is_ok() {
        return Ok(());
    }
    let what = "a column of messages has more than 2 GiB; take fewer at a time";
    Err(Error::new(ErrorKind::OutOfRange, bytes, what).in_record(row))
}
