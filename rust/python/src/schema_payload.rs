//! `SchemaReader`: payloads that have a schema, opened; and the functions that make descriptor sets and fingerprints.

use std::collections::{BTreeMap, HashMap};

use fastkcl_codec::payload::{self, Cast, Framing, SchemaFormat, SchemaId};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow;
use crate::batch::RecordBatch;
use crate::bytes::{Bytes, detach_for};
use crate::payload::{OpenedPayloads, bound, compression_named};

/// Opens payloads that have a schema: Avro, Protobuf, or JSON after a registry's header. Safe in several threads.
///
/// Raises:
///     ValueError: an argument without a meaning; a schema that is none; types without a Spark type: each with its
///         path, and the choices.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct SchemaReader(payload::SchemaReader);

#[pymethods]
impl SchemaReader {
    #[new]
    #[pyo3(signature = (*, format, framing, schema, message=None, casts=None, compression="none", max_payload_bytes,
        keep_payload=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        format: &str,
        framing: &str,
        schema: Bytes,
        message: Option<String>,
        casts: Option<HashMap<String, String>>,
        compression: &str,
        max_payload_bytes: i64,
        keep_payload: bool,
    ) -> PyResult<Self> {
        let framing = match framing {
            "none" => Framing::None,
            "glue" => Framing::Glue,
            "confluent" => Framing::Confluent,
            "single-object" => Framing::SingleObject,
            other => {
                return Err(PyValueError::new_err(format!(
                    "framing must be 'none', 'glue', 'confluent' or 'single-object', not {other:?}"
                )));
            }
        };
        if message.is_some() && format != "protobuf" {
            return Err(PyValueError::new_err(format!("message is an option of protobuf, not of {format}")));
        }
        let of_schema = |error: String| PyValueError::new_err(format!("schema: {error}"));
        let format = match format {
            "avro" => {
                let text = std::str::from_utf8(&schema).map_err(|error| of_schema(error.to_string()))?;
                SchemaFormat::Avro(text.to_owned())
            }
            "protobuf" => SchemaFormat::Protobuf(schema.to_vec(), message),
            "json" => {
                let fields = payload::fields_of_ipc(&schema).map_err(|error| of_schema(error.to_string()))?;
                SchemaFormat::Json(fields)
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "format must be 'avro', 'protobuf' or 'json', not {other:?}"
                )));
            }
        };
        let casts = casts.unwrap_or_default().into_iter().map(cast).collect::<PyResult<BTreeMap<_, _>>>()?;
        let compression = compression_named(compression)?;
        let most = bound("max_payload_bytes", max_payload_bytes)?;
        py.detach(|| payload::SchemaReader::new(format, framing, &casts, compression, most, keep_payload))
            .map(Self)
            .map_err(of_schema)
    }

    /// Ids in the headers of a batch that were neither added nor rejected, each once, in the records' order.
    fn unknown(&self, py: Python<'_>, batch: &RecordBatch) -> Vec<String> {
        let ids = detach_for(py, batch.0.nbytes(), || self.0.unknown(&batch.0));
        ids.into_iter().map(|id| self.0.framing().text(id)).collect()
    }

    /// Takes the schema of an id: records of it can be opened from now on. An id keeps the schema that it has.
    ///
    /// Raises:
    ///     ValueError: no such id can be; a definition that is none, or that cannot be resolved against the reader's
    ///         schema. Nothing is added; `reject` it.
    fn add(&self, py: Python<'_>, id: &str, definition: Bytes) -> PyResult<Vec<String>> {
        let number = self.id(id)?;
        py.detach(|| self.0.add(number, &definition))
            .map_err(|error| PyValueError::new_err(format!("schema {id}: {error}")))
    }

    /// Records of this id are corrupt from now on, until `add` takes it.
    ///
    /// Raises:
    ///     ValueError: no such id can be, or it was added.
    fn reject(&self, id: &str, reason: String) -> PyResult<()> {
        if self.0.reject(self.id(id)?, reason) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("schema {id} was added already")))
    }

    /// The reasons by id.
    #[getter]
    fn rejected(&self) -> HashMap<String, String> {
        self.0.rejected().into_iter().map(|(id, reason)| (self.0.framing().text(id), reason)).collect()
    }

    /// Open the payloads from row offset on: as many as make no more than max_bytes, and at least one.
    ///
    /// Raises:
    ///     IndexError: offset is outside of the batch.
    ///     ValueError: max_bytes out of range; a record of an id that was neither added nor rejected.
    fn open(&self, py: Python<'_>, batch: &RecordBatch, offset: i64, max_bytes: i64) -> PyResult<OpenedPayloads> {
        let max_bytes = bound("max_bytes", max_bytes)?;
        let rows = batch.0.len();
        let offset = usize::try_from(offset)
            .ok()
            .filter(|&offset| offset <= rows)
            .ok_or_else(|| PyIndexError::new_err(format!("row {offset} of a batch of {rows} records")))?;
        detach_for(py, batch.0.nbytes(), || self.0.open(&batch.0, offset, max_bytes)).map(OpenedPayloads).map_err(
            |id| {
                let id = self.0.framing().text(id);
                PyValueError::new_err(format!("a record has schema {id}, which was neither added nor rejected"))
            },
        )
    }

    /// The columns that it makes, as a struct.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule_of(py, &self.0.schema())
    }
}

impl SchemaReader {
    fn id(&self, text: &str) -> PyResult<SchemaId> {
        let of_none = || PyValueError::new_err(format!("{text:?} is no id of a schema in this framing"));
        self.0.framing().id(text).ok_or_else(of_none)
    }
}

fn cast((path, cast): (String, String)) -> PyResult<(String, Cast)> {
    match cast.as_str() {
        "string" => Ok((path, Cast::String)),
        "drop" => Ok((path, Cast::Drop)),
        other => Err(PyValueError::new_err(format!("casts: {path} must be 'string' or 'drop', not {other:?}"))),
    }
}

/// A FileDescriptorSet of .proto texts by their names: `main` is its last file, after those that it imports.
///
/// Raises:
///     ValueError: a text that does not compile, or imports what is not there; the message has file, line and column.
#[pyfunction]
pub(crate) fn compile_proto<'py>(
    py: Python<'py>,
    files: HashMap<String, String>,
    main: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let set = py.detach(|| payload::compile_proto(&files, main)).map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &set))
}

/// The CRC-64-AVRO of a schema's Parsing Canonical Form, as 16 lower-case hexadecimal digits.
///
/// Raises:
///     ValueError: it is no Avro schema.
#[pyfunction]
pub(crate) fn avro_fingerprint(schema: &str) -> PyResult<String> {
    let number = payload::fingerprint(schema).map_err(|error| PyValueError::new_err(format!("schema: {error}")))?;
    Ok(Framing::SingleObject.text(number.into()))
}
