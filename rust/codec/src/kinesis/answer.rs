//! A GetRecords answer, and the way to it from any encoding.

use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use super::cbor::{self, TimeUnit};
use super::get_records;
use super::parts::ChildShard;
use crate::batch::RecordBatch;
use crate::columns::Columns;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Kernels;
use crate::kernel::cpu::Isa;
use crate::pool::Pool;

/// The largest body: 32-bit offsets cannot overflow below it, as no value is longer decoded than encoded.
pub const LARGEST_BODY_BYTES: usize = (1 << 31) - 1;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// AWS JSON: base64 `Data`, times in seconds with a fraction.
    Json,
    /// CBOR as the Java SDKs speak it: times in milliseconds.
    AmzCbor,
    /// CBOR of Smithy RPC v2: times in seconds.
    SmithyCbor,
}

impl Encoding {
    /// The content types that have one.
    pub const CONTENT_TYPES: [(&'static str, Self); 5] = [
        ("application/x-amz-json-1.1", Self::Json),
        ("application/x-amz-json-1.0", Self::Json),
        ("application/json", Self::Json),
        ("application/x-amz-cbor-1.1", Self::AmzCbor),
        ("application/cbor", Self::SmithyCbor),
    ];

    /// The encoding that a `Content-Type` header names, parameters aside; none if no answer has it.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        let mut known = Self::CONTENT_TYPES.into_iter();
        known.find_map(|(name, encoding)| media_type.eq_ignore_ascii_case(name).then_some(encoding))
    }
}

/// An answer of GetRecords.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The records, with the column encryptionType.
    pub batch: RecordBatch,
    /// Where to go on; none at the end of a closed shard.
    pub next_shard_iterator: Option<String>,
    /// The shards that follow, at the end of a closed shard.
    pub child_shards: Vec<ChildShard>,
    /// Where the value of `Records` stands in the body.
    pub records_span: Range<usize>,
}

/// Decodes the body of a GetRecords answer. `shard_id` is noted in the batch.
///
/// ```
/// use fastkcl_codec::kinesis::{Encoding, decode_get_records};
///
/// let body = br#"{"Records":[{"Data":"aGVsbG8=","PartitionKey":"k","SequenceNumber":"4959"}],"MillisBehindLatest":0}"#;
/// let encoding = Encoding::of_content_type("application/x-amz-json-1.1").expect("a content type of answers");
/// let answer = decode_get_records(body, encoding, None)?;
/// assert_eq!(answer.batch.data(0), Some(&b"hello"[..]));
/// assert_eq!(answer.batch.millis_behind_latest(), Some(0));
/// assert_eq!(answer.next_shard_iterator, None);
/// # Ok::<(), fastkcl_codec::Error>(())
/// ```
///
/// # Errors
/// `body` is no such answer.
pub fn decode_get_records(body: &[u8], encoding: Encoding, shard_id: Option<Arc<str>>) -> Result<Answer> {
    with_kernels(Kernels::active(), body, encoding, shard_id)
}

/// [`decode_get_records`] with the kernels of `isa`, for tests and benches.
///
/// # Errors
/// The same.
pub fn decode_get_records_with_isa(isa: Isa, body: &[u8], encoding: Encoding) -> Result<Answer> {
    with_kernels(Kernels::of(isa), body, encoding, None)
}

fn with_kernels(kernels: Kernels, body: &[u8], encoding: Encoding, shard_id: Option<Arc<str>>) -> Result<Answer> {
    if body.len() > LARGEST_BODY_BYTES {
        let what = format!("an answer of more than {LARGEST_BODY_BYTES} bytes");
        return Err(Error::new(ErrorKind::LineTooLong, LARGEST_BODY_BYTES, what));
    }
    let mut columns = Spare::take();
    let parts = match encoding {
        Encoding::Json => get_records::parse(kernels, body, &mut columns),
        Encoding::AmzCbor => cbor::parse(body, TimeUnit::Milliseconds, &mut columns),
        Encoding::SmithyCbor => cbor::parse(body, TimeUnit::Seconds, &mut columns),
    };
    let parts = parts.map_err(|error| in_answer(error, body))?;
    let batch = RecordBatch::from_columns(&mut columns, shard_id, parts.millis_behind_latest);
    Spare::put(columns, body.len());
    Ok(Answer {
        batch,
        next_shard_iterator: parts.next_shard_iterator,
        child_shards: parts.child_shards,
        records_span: parts.records_span.unwrap_or_default(),
    })
}

/// Says what concerns lines of a daemon as it is for an answer, and adds the bytes around the place.
#[cold]
fn in_answer(error: Error, body: &[u8]) -> Error {
    let offset = error.offset().unwrap_or_default();
    let error = if error.is_at_end() && offset < body.len() {
        error.with_what("no JSON: a line feed inside of a value")
    } else if error.is_at_end() {
        error.with_what("the answer ended inside a value")
    } else if error.kind() == ErrorKind::Utf8 {
        error.with_what("bytes that are no UTF-8")
    } else {
        error
    };
    error.with_context(body, offset)
}

/// Buffers of batches that nobody holds any longer: one pool for all answers, whichever thread decodes them.
static POOL: LazyLock<Arc<Pool>> = LazyLock::new(Arc::default);

/// The columns that were used last. Whoever finds them taken makes others.
pub(super) struct Spare;

/// Above this much their memory is given back. The service's answers have at most 10 MiB of data, and the user records of an
/// answer up to twenty times as much.
const SPARE_BYTES: usize = 32 << 20;

/// The largest batch whose buffers rest, in bytes; buffers may have room for twice as many.
const LARGEST_AT_REST: usize = SPARE_BYTES / 2;

static SPARE: Mutex<Option<Columns>> = Mutex::new(None);

impl Spare {
    pub(super) fn take() -> Columns {
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.take());
        let mut columns = spare.unwrap_or_else(|| Columns::of_answers(&POOL, LARGEST_AT_REST));
        columns.begin();
        columns
    }

    /// `bytes` are those of the input, or of the batch.
    pub(super) fn put(columns: Columns, bytes: usize) {
        if bytes <= SPARE_BYTES
            && let Ok(mut spare) = SPARE.try_lock()
        {
            *spare = Some(columns);
        }
    }
}
