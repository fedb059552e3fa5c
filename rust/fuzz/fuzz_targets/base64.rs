//! Base64 against the `base64` crate: text that it takes is taken with the same bytes, and encoded bytes come back.
//!
//! Text that the crate refuses may be taken (a Java daemon's reader skips white space between units and goes on after
//! padding), but then the crate takes each of its units alone; and a refusal names a place in the text.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use fastkcl_codec::base64::{decode, encode};
use libfuzzer_sys::fuzz_target;

/// Unused bits are not looked at.
const ORACLE: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Each unit by itself, with what a Java reader skips between units left out.
fn unit_by_unit(text: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut bytes) = (text, Vec::new());
    loop {
        rest = &rest[rest.iter().take_while(|byte| **byte <= b' ').count()..];
        if rest.is_empty() {
            return Some(bytes);
        }
        bytes.extend(ORACLE.decode(rest.get(..4)?).ok()?);
        rest = &rest[4..];
    }
}

fuzz_target!(|text: &[u8]| {
    assert_eq!(encode(text), ORACLE.encode(text));
    assert_eq!(decode(encode(text).as_bytes()).expect("canonical"), text);
    match (decode(text), unit_by_unit(text)) {
        (Ok(bytes), Some(expected)) => assert_eq!(bytes, expected),
        (Err(error), None) => assert!(error.offset().is_some_and(|offset| offset <= text.len())),
        (found, expected) => panic!("{found:?}, but unit by unit {expected:?}"),
    }
});
