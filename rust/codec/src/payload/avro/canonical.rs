//! A schema's Parsing Canonical Form, and its CRC-64-AVRO, as the Avro specification has them.
//!
//! arrow-avro's own has names such as `.R` for an empty namespace, lets types inside inherit the namespace that an empty
//! one ends, and keeps errors apart from records.
//!
//! Source: Avro 1.12 specification, "Parsing Canonical Form for Schemas" and "Schema Fingerprints".

use std::collections::HashSet;

use serde_json::Value;

use super::schema::{Kind, Name, Node};

/// The fingerprint of nothing, and the polynomial.
const EMPTY: u64 = 0xc15d_213a_a4d7_a795;

/// The Parsing Canonical Form: full names, no attributes but those that payloads depend on, no spaces.
pub(crate) fn canonical(node: &Node) -> String {
    let mut form = Form { text: String::new(), defined: HashSet::new() };
    form.node(node);
    form.text
}

/// The CRC-64-AVRO of bytes.
pub(crate) fn rabin(bytes: &[u8]) -> u64 {
    bytes.iter().fold(EMPTY, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| (crc >> 1) ^ (EMPTY & (crc & 1).wrapping_neg()))
    })
}

struct Form<'a> {
    text: String,
    /// Full names; a second time a type is its name.
    defined: HashSet<&'a str>,
}

impl<'a> Form<'a> {
    fn node(&mut self, node: &'a Node) {
        match &node.kind {
            Kind::Null => self.quoted("null"),
            Kind::Boolean => self.quoted("boolean"),
            Kind::Int => self.quoted("int"),
            Kind::Long => self.quoted("long"),
            Kind::Float => self.quoted("float"),
            Kind::Double => self.quoted("double"),
            Kind::Bytes => self.quoted("bytes"),
            Kind::String => self.quoted("string"),
            Kind::Array(item) => self.inner(r#"{"type":"array","items":"#, item),
            Kind::Map(value) => self.inner(r#"{"type":"map","values":"#, value),
            Kind::Union(branches) => self.list(branches, Self::node),
            Kind::Fixed { name, size } => self.named(name, "fixed", |form| {
                form.text.push_str(r#","size":"#);
                form.text.push_str(&size.to_string());
            }),
            Kind::Enum { name, symbols, .. } => self.named(name, "enum", |form| {
                form.text.push_str(r#","symbols":"#);
                form.list(symbols, |form, symbol| form.quoted(symbol));
            }),
            Kind::Record { name, fields } => self.named(name, "record", |form| {
                form.text.push_str(r#","fields":"#);
                form.list(fields, |form, field| {
                    form.text.push_str(r#"{"name":"#);
                    form.quoted(&field.name);
                    form.inner(r#","type":"#, &field.node);
                });
            }),
        }
    }

    /// An object whose last member is a type.
    fn inner(&mut self, head: &str, node: &'a Node) {
        self.text.push_str(head);
        self.node(node);
        self.text.push('}');
    }

    fn named(&mut self, name: &'a Name, kind: &str, rest: impl FnOnce(&mut Self)) {
        if !self.defined.insert(&name.full) {
            return self.quoted(&name.full);
        }
        self.text.push_str(r#"{"name":"#);
        self.quoted(&name.full);
        self.text.push_str(r#","type":"#);
        self.quoted(kind);
        rest(self);
        self.text.push('}');
    }

    fn list<T>(&mut self, items: &'a [T], mut one: impl FnMut(&mut Self, &'a T)) {
        self.text.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            one(self, item);
        }
        self.text.push(']');
    }

    fn quoted(&mut self, text: &str) {
        self.text.push_str(&Value::from(text).to_string());
    }
}
