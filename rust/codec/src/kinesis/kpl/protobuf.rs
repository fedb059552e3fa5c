//! Protobuf's wire format: fields one after the other, nothing copied.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Of a type that no field of ours has: fixed width, or a group.
    Other,
}

/// No protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Groups in groups that are skipped: as deep as Google's readers go.
const MAX_DEPTH: usize = 100;

/// The fields of a message, in order; after [`Malformed`] there are none.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            other => {
                self.skip(number, other)?;
                Value::Other
            }
        };
        Ok((number, value))
    }

    /// A field's number, from 1 to 2^29 - 1, and the type of its value.
    fn tag(&mut self) -> Result<(u32, u32), Malformed> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        if tag >> 3 == 0 { Err(Malformed) } else { Ok((tag >> 3, tag & 7)) }
    }

    /// Skips a value that is neither a varint nor bytes; a group with all that is in it.
    fn skip(&mut self, number: u32, wire_type: u32) -> Result<(), Malformed> {
        match wire_type {
            1 => return self.take(8).map(drop),
            5 => return self.take(4).map(drop),
            3 => {}
            _ => return Err(Malformed),
        }
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            match self.tag()? {
                (_, 0) => drop(self.varint()?),
                (_, 1) => drop(self.take(8)?),
                (_, 2) => {
                    let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                    self.take(length)?;
                }
                (number, 3) if open.len() < MAX_DEPTH => open.push(number),
                (number, 4) if number == *innermost => drop(open.pop()),
                (_, 5) => drop(self.take(4)?),
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }

    /// At most ten bytes; bits beyond 64 are dropped, as by Google's readers.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Appends a varint.
pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 128")]
    out.push(value as u8);
}

/// Bytes of a varint.
pub(super) const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a field of bytes; its number is below 16.
pub(super) fn put_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Bytes of a field of `length` bytes whose number is below 16.
pub(super) const fn bytes_field_len(length: usize) -> usize {
    length.saturating_add(1 + varint_len(length as u64))
}
