//! Where the conformance cases are read from.

use std::path::PathBuf;

use serde_json::Value;

/// `tests/data/cases`, or the folder that `FASTKCL_CASES` names.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("FASTKCL_CASES")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/cases")), PathBuf::from)
}

/// The cases of one file and kind; none if the folder does not hold the file.
pub(crate) fn cases(file: &str, kind: &str) -> Vec<Value> {
    all_cases(file).into_iter().filter(|case| case["kind"] == kind).collect()
}

/// All cases of one file.
pub(crate) fn all_cases(file: &str) -> Vec<Value> {
    let path = folder().join(format!("{file}.jsonl"));
    match std::fs::read_to_string(&path) {
        Ok(text) => text.lines().map(|line| serde_json::from_str(line).expect("a case is a JSON object")).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
