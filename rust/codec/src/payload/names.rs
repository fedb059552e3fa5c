//! Names that Spark does not tell apart.

use std::collections::HashSet;

use arrow_schema::{DataType, Fields};

/// The path of a field within a column whose name another one beside it has, in large or small letters. Columns
/// themselves are compared where all of a table's are known.
pub(crate) fn twice(columns: &Fields) -> Option<String> {
    columns.iter().find_map(|column| inside(column.data_type()).map(|path| format!("{}.{path}", column.name())))
}

fn among(fields: &Fields) -> Option<String> {
    let mut names = HashSet::new();
    fields.iter().find_map(|field| {
        if !names.insert(field.name().to_lowercase()) {
            return Some(field.name().clone());
        }
        inside(field.data_type()).map(|path| format!("{}.{path}", field.name()))
    })
}

fn inside(kind: &DataType) -> Option<String> {
    let of = |step: &str, kind: &DataType| inside(kind).map(|path| format!("{step}.{path}"));
    match kind {
        DataType::Struct(fields) => among(fields),
        DataType::List(item) => of("element", item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => of("value", pair.get(1)?.data_type()),
            _ => None,
        },
        _ => None,
    }
}
