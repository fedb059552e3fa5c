//! One frozen class for each message of the daemon, with its wire name in `action`.
//!
//! Keyword constructors exist for tests and for code that plays a daemon; a `ProcessRecords` is only ever decoded.

use fastkcl_codec::kcl;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::batch::RecordBatch;
use crate::dialect::dialect_named;

/// `message` as the Python object of its class.
pub(crate) fn to_python(py: Python<'_>, message: kcl::Message) -> PyResult<Bound<'_, PyAny>> {
    use kcl::Message as M;
    Ok(match message {
        M::Initialize(message) => Bound::new(py, Initialize::from(message))?.into_any(),
        M::ProcessRecords(batch) => {
            let millis_behind_latest = batch.millis_behind_latest();
            let batch = Py::new(py, RecordBatch(batch))?;
            Bound::new(py, ProcessRecords { batch, millis_behind_latest })?.into_any()
        }
        M::LeaseLost => Bound::new(py, LeaseLost)?.into_any(),
        M::ShardEnded => Bound::new(py, ShardEnded)?.into_any(),
        M::ShutdownRequested => Bound::new(py, ShutdownRequested)?.into_any(),
        M::Shutdown(reason) => Bound::new(py, Shutdown { reason: reason.name() })?.into_any(),
        M::Checkpoint(message) => Bound::new(py, Checkpoint::from(message))?.into_any(),
        other => unreachable!("{other:?} is a message of a newer codec than this module's"),
    })
}

/// `Class(name=value, …)` from the names in the class's `__match_args__`.
pub(crate) fn keyword_repr(message: &Bound<'_, PyAny>) -> PyResult<String> {
    let class = message.get_type();
    let names = class.getattr("__match_args__")?.cast_into::<PyTuple>()?;
    let fields = names
        .iter()
        .map(|name| {
            let name = name.extract::<String>()?;
            Ok(format!("{name}={}", message.getattr(name.as_str())?.repr()?))
        })
        .collect::<PyResult<Vec<String>>>()?;
    Ok(format!("{}({})", class.name()?, fields.join(", ")))
}

/// The first message: which shard, and where reading starts.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Initialize {
    /// The shard that this process is for.
    #[pyo3(get)]
    shard_id: String,
    /// Decimal digits, TRIM_HORIZON, LATEST or AT_TIMESTAMP; None in the legacy dialect.
    #[pyo3(get)]
    sequence_number: Option<String>,
    /// Where the last checkpoint stands inside an aggregate.
    #[pyo3(get)]
    sub_sequence_number: Option<i64>,
    /// What the keys of the message say, legacy or modern; forcing another is the connection's business.
    #[pyo3(get)]
    dialect: &'static str,
}

#[pymethods]
impl Initialize {
    #[classattr]
    fn action() -> &'static str {
        "initialize"
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str, &'static str) {
        ("shard_id", "sequence_number", "sub_sequence_number", "dialect")
    }

    #[new]
    #[pyo3(signature = (*, shard_id, sequence_number=None, sub_sequence_number=None, dialect="modern"))]
    fn new(
        shard_id: String,
        sequence_number: Option<String>,
        sub_sequence_number: Option<i64>,
        dialect: &str,
    ) -> PyResult<Self> {
        let dialect = dialect_named(dialect, &kcl::Dialect::OF_CHILDREN)?.name();
        Ok(Self { shard_id, sequence_number, sub_sequence_number, dialect })
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

impl From<kcl::Initialize> for Initialize {
    fn from(message: kcl::Initialize) -> Self {
        Self {
            shard_id: message.shard_id,
            sequence_number: message.sequence_number,
            sub_sequence_number: message.sub_sequence_number,
            dialect: message.dialect.name(),
        }
    }
}

/// A batch of records. Only made by the decoder.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct ProcessRecords {
    /// The records, as Arrow columns.
    #[pyo3(get)]
    batch: Py<RecordBatch>,
    /// How far the shard is behind its tip, in milliseconds; None when the daemon did not say.
    #[pyo3(get)]
    millis_behind_latest: Option<i64>,
}

#[pymethods]
impl ProcessRecords {
    #[classattr]
    fn action() -> &'static str {
        "processRecords"
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("batch", "millis_behind_latest")
    }

    /// Equal when all columns are.
    fn __eq__(&self, other: &Self) -> bool {
        self.millis_behind_latest == other.millis_behind_latest
            && self.batch.get().0.as_arrow() == other.batch.get().0.as_arrow()
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

/// Another worker has the shard now: checkpoints are no longer possible.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct LeaseLost;

/// All records of the shard have been delivered: checkpoint, or its child shards never start.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ShardEnded;

/// The worker is about to stop: the last chance for a checkpoint.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ShutdownRequested;

/// A message that is nothing but its action.
macro_rules! bare_message {
    ($class:ident, $action:literal) => {
        #[pymethods]
        impl $class {
            #[classattr]
            fn action() -> &'static str {
                $action
            }

            #[classattr]
            fn __match_args__(py: Python<'_>) -> Py<PyTuple> {
                PyTuple::empty(py).unbind()
            }

            #[new]
            fn new() -> Self {
                Self
            }

            fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
                keyword_repr(this.as_any())
            }
        }
    };
}

bare_message!(LeaseLost, "leaseLost");
bare_message!(ShardEnded, "shardEnded");
bare_message!(ShutdownRequested, "shutdownRequested");

/// The end message of KCL 1.x: TERMINATE means shard ended, ZOMBIE lease lost.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Shutdown {
    /// TERMINATE or ZOMBIE.
    #[pyo3(get)]
    reason: &'static str,
}

#[pymethods]
impl Shutdown {
    #[classattr]
    fn action() -> &'static str {
        "shutdown"
    }

    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("reason",)
    }

    #[new]
    #[pyo3(signature = (*, reason))]
    fn new(reason: &str) -> PyResult<Self> {
        [kcl::ShutdownReason::Terminate, kcl::ShutdownReason::Zombie]
            .into_iter()
            .map(kcl::ShutdownReason::name)
            .find(|&name| name == reason)
            .map(|reason| Self { reason })
            .ok_or_else(|| PyValueError::new_err(format!("reason must be 'TERMINATE' or 'ZOMBIE', not {reason:?}")))
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

/// The daemon's reply to a checkpoint request.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Checkpoint {
    /// Echo of the request.
    #[pyo3(get)]
    sequence_number: Option<String>,
    /// Echo of the request.
    #[pyo3(get)]
    sub_sequence_number: Option<i64>,
    /// Simple Java class name, None on success.
    #[pyo3(get)]
    error: Option<String>,
}

#[pymethods]
impl Checkpoint {
    #[classattr]
    fn action() -> &'static str {
        "checkpoint"
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("sequence_number", "sub_sequence_number", "error")
    }

    #[new]
    #[pyo3(signature = (*, sequence_number=None, sub_sequence_number=None, error=None))]
    fn new(sequence_number: Option<String>, sub_sequence_number: Option<i64>, error: Option<String>) -> Self {
        Self { sequence_number, sub_sequence_number, error }
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

impl From<kcl::Checkpoint> for Checkpoint {
    fn from(message: kcl::Checkpoint) -> Self {
        Self {
            sequence_number: message.sequence_number,
            sub_sequence_number: message.sub_sequence_number,
            error: message.error,
        }
    }
}
