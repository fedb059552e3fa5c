//! Netstrings: `<decimal length>:<bytes>,` one after the other, read strictly and in one pass.
//!
//! A length has no leading zeros and no sign, the comma must be there, and nothing may be left over. No bytes are no
//! items.

use std::fmt;

/// Why bytes are no netstrings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetstringError {
    /// The byte where it shows.
    pub offset: usize,
    /// The item, from 0.
    pub item: usize,
    what: &'static str,
}

impl fmt::Display for NetstringError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no netstring: {} (item {}, byte {})", self.what, self.item, self.offset)
    }
}

impl std::error::Error for NetstringError {}

/// The items of `data`; after an error there are none.
pub fn split(data: &[u8]) -> impl Iterator<Item = Result<&[u8], NetstringError>> {
    Netstrings { data, at: 0, item: 0 }
}

struct Netstrings<'a> {
    data: &'a [u8],
    at: usize,
    item: usize,
}

impl<'a> Netstrings<'a> {
    fn take(&mut self) -> Result<&'a [u8], NetstringError> {
        let error = |offset, what| Err(NetstringError { offset, item: self.item, what });
        let (mut at, mut length) = (self.at, 0_usize);
        while let Some(digit) = self.data.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            length = match length.checked_mul(10).and_then(|tens| tens.checked_add(usize::from(digit))) {
                Some(_) if at > self.at && self.data[self.at] == b'0' => return error(self.at, "a leading zero"),
                Some(length) if length <= self.data.len() => length,
                _ => return error(self.at, "a length beyond the data"),
            };
            at += 1;
        }
        match self.data.get(at) {
            Some(b':') if at > self.at => at += 1,
            None => return error(at, "the data ended inside a length"),
            Some(_) => return error(at, "neither a digit nor, after one, a colon"),
        }
        let Some(item) = self.data.get(at..at + length) else { return error(self.at, "a length beyond the data") };
        at += length;
        match self.data.get(at) {
            Some(b',') => {}
            None => return error(at, "the data ended before a comma"),
            Some(_) => return error(at, "another byte where a comma must be"),
        }
        self.at = at + 1;
        self.item += 1;
        Ok(item)
    }
}

impl<'a> Iterator for Netstrings<'a> {
    type Item = Result<&'a [u8], NetstringError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.data.len() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.at = self.data.len();
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn strictly() {
        let items = |data: &'static str| split(data.as_bytes()).collect::<Result<Vec<_>, _>>();
        assert_eq!(items(""), Ok(vec![]));
        assert_eq!(items("0:,3:a:,,10:0123456789,"), Ok(vec![&b""[..], b"a:,", b"0123456789"]));
        for (data, offset, item) in [
            ("1", 1, 0),
            (":a,", 0, 0),
            ("1:a", 3, 0),
            ("1:a;", 3, 0),
            ("1:a,01:b,", 4, 1),
            ("00:,", 0, 0),
            ("+1:a,", 0, 0),
            ("-1:a,", 0, 0),
            ("2:a,", 4, 0),
            ("3:a,", 0, 0),
            ("99999999999999999999999:a,", 0, 0),
            ("1:a,x", 4, 1),
            ("1 :a,", 1, 0),
        ] {
            let error = items(data).unwrap_err();
            assert_eq!((error.offset, error.item), (offset, item), "{data}: {error}");
        }
    }
}
