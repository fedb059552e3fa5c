//! Gzip payloads unpacked, whole or not at all.
//!
//! RFC 1952: a file is one or more members, one after another, each with a CRC-32 and a length. Bytes after the last
//! member, padding included, are damage here: a payload has a length of its own.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

/// The first two bytes of a member.
pub(crate) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Unpacks all members of `packed` into `out`, which is cleared first.
///
/// Returns whether it is whole and sound, and no more than `max_bytes`; `out` is of no use otherwise.
pub(crate) fn unpack(packed: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> bool {
    out.clear();
    if packed.is_empty() {
        return false; // no member at all
    }
    // One byte more tells "too large" from "just as large".
    let mut members = MultiGzDecoder::new(packed).take(max_bytes as u64 + 1);
    members.read_to_end(out).is_ok() && out.len() <= max_bytes
}

/// The first bytes of what `packed` has, as many as there are and `out` takes; damage ends them.
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub(crate) fn beginning<'a>(packed: &[u8], out: &'a mut [u8]) -> &'a [u8] {
    let mut members = MultiGzDecoder::new(packed);
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match members.read(rest) {
            Ok(read @ 1..) => filled += read,
            _ => break,
        }
    }
    &out[..filled]
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::unpack;

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(packed: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
        let mut out = b"left over".to_vec();
        unpack(packed, &mut out, max_bytes).then_some(out)
    }

    #[test]
    fn members_follow_each_other() {
        let two = [member(b"one, "), member(b""), member(b"two")].concat();
        assert_eq!(unpacked(&two, 100).unwrap(), b"one, two");
        assert_eq!(unpacked(&member(b""), 0).unwrap(), b"");
    }

    #[test]
    fn every_cut_and_every_flipped_byte_of_what_counts_is_damage() {
        let packed = [member(b"the payload of a record"), member(b"and more")].concat();
        let first = member(b"the payload of a record").len();
        for end in (0..packed.len()).filter(|&end| end != first) {
            assert_eq!(unpacked(&packed[..end], 100), None, "cut at {end}");
        }
        for place in first - 8..first {
            let mut damaged = packed.clone();
            damaged[place] ^= 1;
            assert_eq!(unpacked(&damaged, 100), None, "CRC or length, byte {place}");
        }
    }

    #[test]
    fn what_follows_the_last_member_is_damage() {
        for tail in [&b"\0"[..], b"x", b"\x1f", b"\x1f\x8b", b"{}"] {
            assert_eq!(unpacked(&[&member(b"payload")[..], tail].concat(), 100), None, "{tail:?}");
        }
    }

    #[test]
    fn a_bomb_is_not_blown_up() {
        let bomb = member(&vec![0; 50 << 20]);
        let mut out = Vec::new();
        assert!(!unpack(&bomb, &mut out, 1000));
        assert!(out.capacity() < 1 << 16);
        assert_eq!(unpacked(&member(&[7; 1000]), 1000).unwrap().len(), 1000);
        assert_eq!(unpacked(&member(&[7; 1001]), 1000), None);
    }
}
