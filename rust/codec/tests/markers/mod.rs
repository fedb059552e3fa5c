//! The rules for markers, said once more as plainly as they can be, for property tests and fuzzing.

use fastkcl_codec::dkb;
use fastkcl_codec::framing::markers::Markers;

/// The rules for markers on a whole stream, byte by byte: 'm' a message, 'u' an unterminated one, 'p' EOP, 'b' a marker
/// at a boundary, 't' what is left.
pub(crate) fn expected(markers: &Markers, stream: &[u8]) -> Vec<(char, Vec<u8>)> {
    let (mut events, mut at, mut start) = (Vec::new(), 0, 0);
    let (eom, eop) = (&markers.end_of_message[..], markers.end_of_process.as_deref());
    while at < stream.len() {
        let rest = &stream[at..];
        if let Some(marker) = markers.at_boundary.as_deref().filter(|marker| at == start && rest.starts_with(marker)) {
            events.push(('b', Vec::new()));
            (at, start) = (at + marker.len(), at + marker.len());
        } else if rest.starts_with(eom) {
            events.push(('m', stream[start..at].to_vec()));
            events.extend((eop == Some(eom)).then(|| ('p', Vec::new())));
            (at, start) = (at + eom.len(), at + eom.len());
        } else if let Some(marker) = eop.filter(|marker| rest.starts_with(marker)) {
            events.extend((at > start).then(|| ('u', stream[start..at].to_vec())));
            events.push(('p', Vec::new()));
            (at, start) = (at + marker.len(), at + marker.len());
        } else {
            at += 1;
        }
    }
    events.extend((at > start).then(|| ('t', stream[start..].to_vec())));
    events
}

/// What the decoder makes of a stream that arrives in pieces of these lengths, in turn.
pub(crate) fn found(markers: &Markers, stream: &[u8], cuts: &[usize]) -> Vec<(char, Vec<u8>)> {
    let mut decoder = dkb::Decoder::new(markers.clone(), stream.len().max(1)).expect("checked by the caller");
    let (mut events, mut rest, mut cuts, mut finished) = (Vec::new(), stream, cuts.iter().cycle(), false);
    loop {
        events.extend(std::iter::from_fn(|| decoder.next_event()).map(|event| {
            match event.expect("no message is longer than the stream") {
                dkb::Event::Message(bytes, terminated) => (if terminated { 'm' } else { 'u' }, bytes),
                dkb::Event::EndOfProcess => ('p', Vec::new()),
                dkb::Event::AtBoundary => ('b', Vec::new()),
                dkb::Event::Truncated(bytes) => ('t', bytes),
                other => panic!("nothing was to be collected: {other:?}"),
            }
        }));
        if finished {
            return events;
        }
        if rest.is_empty() {
            decoder.finish();
            finished = true;
            continue;
        }
        let (piece, more) = rest.split_at(rest.len().min(*cuts.next().expect("at least one")));
        decoder.feed(piece);
        rest = more;
    }
}
