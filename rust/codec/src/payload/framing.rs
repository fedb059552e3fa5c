//! The headers that registries put before payloads: which writer's schema a payload has.
//!
//! | framing | bytes before the body |
//! |---|---|
//! | none | none |
//! | Glue | `03`, compression (`00` none, `05` zlib), schema version id (UUID, big-endian) |
//! | Confluent | `00`, schema id (4 bytes, big-endian) |
//! | single object | `C3 01`, CRC-64-AVRO of the writer's schema (8 bytes, little-endian) |

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Read;

use flate2::bufread::ZlibDecoder;

/// Which header payloads have. It is named by whoever reads them, never guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// None: payloads are written in the reader's schema.
    None,
    /// AWS Glue Schema Registry's.
    Glue,
    /// Confluent Schema Registry's.
    Confluent,
    /// Avro's single-object encoding.
    SingleObject,
}

/// The id of a writer's schema, of any framing: as wide as the widest, a UUID.
pub type SchemaId = u128;

/// The longest header.
pub(crate) const LONGEST: usize = 18;

/// A payload without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framed<'a> {
    /// None without a header.
    pub(crate) id: Option<SchemaId>,
    /// Whether the body is packed.
    pub(crate) zlib: bool,
    pub(crate) body: &'a [u8],
}

impl Framing {
    /// Takes the header off; None if it is not there.
    pub(crate) fn split(self, payload: &[u8]) -> Option<Framed<'_>> {
        match self {
            Self::None => Some(Framed { id: None, zlib: false, body: payload }),
            Self::Glue => {
                let [3, compression @ (0 | 5), rest @ ..] = payload else { return None };
                let (id, body) = rest.split_first_chunk()?;
                Some(Framed { id: Some(u128::from_be_bytes(*id)), zlib: *compression == 5, body })
            }
            Self::Confluent => {
                let [0, rest @ ..] = payload else { return None };
                let (id, body) = rest.split_first_chunk()?;
                Some(Framed { id: Some(u32::from_be_bytes(*id).into()), zlib: false, body })
            }
            Self::SingleObject => {
                let [0xc3, 1, rest @ ..] = payload else { return None };
                let (id, body) = rest.split_first_chunk()?;
                Some(Framed { id: Some(u64::from_le_bytes(*id).into()), zlib: false, body })
            }
        }
    }

    /// The id as people write it: a UUID, a decimal number, 16 hexadecimal digits.
    #[must_use]
    pub fn text(self, id: SchemaId) -> String {
        match self {
            Self::None => String::new(),
            Self::Confluent => id.to_string(),
            Self::SingleObject => format!("{id:016x}"),
            Self::Glue => {
                let mut text = String::with_capacity(36);
                for (index, byte) in id.to_be_bytes().iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        text.push('-');
                    }
                    let _ = write!(text, "{byte:02x}");
                }
                text
            }
        }
    }

    /// The id of a text that [`Self::text`] wrote; None of any other.
    #[must_use]
    pub fn id(self, text: &str) -> Option<SchemaId> {
        let id = match self {
            Self::None => None,
            Self::Confluent => text.parse::<u32>().ok().map(SchemaId::from),
            Self::SingleObject => u64::from_str_radix(text, 16).ok().map(SchemaId::from),
            Self::Glue => u128::from_str_radix(&text.replace('-', ""), 16).ok(),
        }?;
        (self.text(id) == text).then_some(id)
    }
}

impl<'a> Framed<'a> {
    /// The body, unpacked if it has to be; None if it cannot be, or has more than `max_bytes` then.
    pub(crate) fn unpacked(&self, max_bytes: usize) -> Option<Cow<'a, [u8]>> {
        if !self.zlib {
            return Some(Cow::Borrowed(self.body));
        }
        let mut out = Vec::new();
        inflate(self.body, &mut out, max_bytes).then_some(Cow::Owned(out))
    }
}

/// Unpacks a zlib stream into `out`, which is cleared first; whether it is whole, sound, alone, and not too large.
pub(crate) fn inflate(packed: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> bool {
    out.clear();
    let mut stream = ZlibDecoder::new(packed).take(max_bytes as u64 + 1);
    if stream.read_to_end(out).is_err() || out.len() > max_bytes {
        return false;
    }
    stream.into_inner().into_inner().is_empty()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::{Framing, inflate};

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn ids_have_one_text() {
        let uuid = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63";
        assert_eq!(Framing::Glue.id(uuid).map(|id| Framing::Glue.text(id)).as_deref(), Some(uuid));
        assert_eq!(Framing::Confluent.id("17"), Some(17));
        assert_eq!(Framing::SingleObject.id("00000000000000ff"), Some(255));
        for text in ["", "-1", "+1", "017", "4294967296", "x"] {
            assert_eq!(Framing::Confluent.id(text), None, "{text}");
        }
        for text in [&uuid.to_uppercase(), &uuid.replace('-', ""), &uuid[1..], "ff", "+0000000000000ff"] {
            assert_eq!(Framing::Glue.id(text), None, "{text}");
            assert_eq!(Framing::SingleObject.id(text), None, "{text}");
        }
    }

    #[test]
    fn headers_that_are_not_whole_are_none() {
        let glue = [&[3, 0][..], &[7; 16], b"body"].concat();
        let confluent = [&[0, 0, 0, 1, 2][..], b"body"].concat();
        let object = [&[0xc3, 1][..], &[1, 0, 0, 0, 0, 0, 0, 0], b"body"].concat();
        for (framing, payload, id) in [
            (Framing::Glue, glue, u128::from_be_bytes([7; 16])),
            (Framing::Confluent, confluent, 258),
            (Framing::SingleObject, object, 1),
        ] {
            let framed = framing.split(&payload).unwrap();
            assert_eq!((framed.id, framed.body), (Some(id), &b"body"[..]));
            let header = payload.len() - 4;
            for end in 0..header {
                assert_eq!(framing.split(&payload[..end]), None, "{framing:?} cut at {end}");
            }
            let mut other = payload.clone();
            other[0] ^= 0x80;
            assert_eq!(framing.split(&other), None);
        }
    }

    #[test]
    fn zlib_is_whole_alone_and_bounded() {
        let packed = zlib(b"the body of a record");
        let mut out = Vec::new();
        assert!(inflate(&packed, &mut out, 20) && out == b"the body of a record");
        assert!(!inflate(&packed, &mut out, 19));
        for end in 0..packed.len() {
            assert!(!inflate(&packed[..end], &mut out, 100), "cut at {end}");
        }
        assert!(!inflate(&[&packed[..], b"x"].concat(), &mut out, 100));
        let bomb = zlib(&vec![0; 50 << 20]);
        let mut out = Vec::new();
        assert!(!inflate(&bomb, &mut out, 1000) && out.capacity() < 1 << 16);
    }
}
