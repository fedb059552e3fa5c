//! The columns of record batches, each defined once: its name, its type, and the first schema that has it.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// Which columns a batch has. Each schema begins with the columns of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecordSchema {
    /// The records of a `processRecords` line.
    Canonical,
    /// The records of a GetRecords answer.
    Answered,
    /// Records whose aggregates have been split.
    Deaggregated,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Binary,
    Text,
    Integer,
    /// Microseconds since the epoch, in UTC.
    Time,
    Boolean,
}

struct Definition {
    name: &'static str,
    kind: Type,
    since: RecordSchema,
}

macro_rules! columns {
    ($($column:ident: $name:literal, $kind:ident, $since:ident;)*) => {
        /// A column of record batches. As a number it is the column's index in each batch that has it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Column {
            $(
                #[doc = concat!("`", $name, "`.")]
                $column,
            )*
        }

        impl Column {
            /// All columns, in their order.
            pub const ALL: &[Self] = &[$(Self::$column),*];

            const fn definition(self) -> Definition {
                match self {
                    $(Self::$column => {
                        Definition { name: $name, kind: Type::$kind, since: RecordSchema::$since }
                    })*
                }
            }
        }
    };
}

columns! {
    Data: "data", Binary, Canonical;
    PartitionKey: "partitionKey", Text, Canonical;
    SequenceNumber: "sequenceNumber", Text, Canonical;
    SubSequenceNumber: "subSequenceNumber", Integer, Canonical;
    ApproximateArrivalTimestamp: "approximateArrivalTimestamp", Time, Canonical;
    EncryptionType: "encryptionType", Text, Answered;
    ExplicitHashKey: "explicitHashKey", Text, Deaggregated;
    Aggregated: "aggregated", Boolean, Deaggregated;
}

const _: () = {
    let mut at = 1;
    while at < Column::ALL.len() {
        let (before, here) = (Column::ALL[at - 1].definition().since, Column::ALL[at].definition().since);
        assert!(before as usize <= here as usize, "a schema begins with the columns of those before it");
        at += 1;
    }
};

impl Column {
    /// The name in Arrow, which is that on a daemon's lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// The name of the Arrow type, as pyarrow writes it.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self.definition().kind {
            Type::Binary => "binary",
            Type::Text => "string",
            Type::Integer => "int64",
            Type::Time => "timestamp[us, tz=UTC]",
            Type::Boolean => "bool",
        }
    }

    /// The Arrow type.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self.definition().kind {
            Type::Binary => DataType::Binary,
            Type::Text => DataType::Utf8,
            Type::Integer => DataType::Int64,
            Type::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::Boolean => DataType::Boolean,
        }
    }

    /// Whether its values are of any length, each with an offset.
    pub(crate) const fn has_offsets(self) -> bool {
        matches!(self.definition().kind, Type::Binary | Type::Text)
    }

    /// Bytes of a row beside the values of any length: an offset, a number or a time. A bit counts as none.
    pub(crate) const fn row_bytes(self) -> usize {
        match self.definition().kind {
            Type::Binary | Type::Text => size_of::<i32>(),
            Type::Integer | Type::Time => size_of::<i64>(),
            Type::Boolean => 0,
        }
    }
}

impl RecordSchema {
    /// The columns, in their order.
    #[must_use]
    pub const fn columns(self) -> &'static [Column] {
        let mut count = 0;
        while count < Column::ALL.len() && Column::ALL[count].definition().since as usize <= self as usize {
            count += 1;
        }
        Column::ALL.split_at(count).0
    }

    /// The schema in Arrow. All fields are nullable: Spark compares schemas literally.
    pub(crate) fn arrow(self) -> &'static SchemaRef {
        static SCHEMAS: LazyLock<[SchemaRef; 3]> = LazyLock::new(|| {
            [RecordSchema::Canonical, RecordSchema::Answered, RecordSchema::Deaggregated].map(|schema| {
                let fields = schema.columns().iter().map(|column| Field::new(column.name(), column.data_type(), true));
                Arc::new(Schema::new(fields.collect::<Vec<_>>()))
            })
        });
        &SCHEMAS[self as usize]
    }

    /// Bytes of the offsets that no row begins at: one in each column of values of any length.
    #[cfg(feature = "kinesis")]
    pub(crate) const fn last_offsets(self) -> usize {
        let (mut bytes, mut at) = (0, 0);
        let columns = self.columns();
        while at < columns.len() {
            if columns[at].has_offsets() {
                bytes += columns[at].row_bytes();
            }
            at += 1;
        }
        bytes
    }

    /// Bytes of a row beside the values of any length.
    pub(crate) const fn row_bytes(self) -> usize {
        let (mut bytes, mut at) = (0, 0);
        let columns = self.columns();
        while at < columns.len() {
            bytes += columns[at].row_bytes();
            at += 1;
        }
        bytes
    }
}
