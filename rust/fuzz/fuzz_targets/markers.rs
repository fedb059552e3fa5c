//! Markers of any bytes in a stream of any bytes, fed in any pieces: the result is that of the rules, byte by byte.

#![no_main]

#[path = "../../codec/tests/markers/mod.rs"]
mod markers;

use fastkcl_codec::dkb::Decoder;
use fastkcl_codec::framing::markers::Markers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Lengths of the three markers (0: none), two pieces, the markers, the stream.
    let Some(([eom, eop, at_boundary, one, other], mut rest)) = input.split_first_chunk::<5>() else { return };
    let mut marker = |length: &u8| {
        let (marker, more) = rest.split_at_checked(usize::from(*length))?;
        rest = more;
        Some(marker.to_vec()).filter(|marker| !marker.is_empty())
    };
    let Some(end_of_message) = marker(eom) else { return };
    let markers = Markers { end_of_message, end_of_process: marker(eop), at_boundary: marker(at_boundary) };
    if Decoder::new(markers.clone(), 1).is_err() {
        return;
    }
    let cuts = [usize::from(*one) + 1, usize::from(*other) + 1];
    let expected = markers::expected(&markers, rest);
    assert_eq!(markers::found(&markers, rest, &cuts), expected);
    assert_eq!(markers::found(&markers, rest, &[usize::MAX]), expected);
});
