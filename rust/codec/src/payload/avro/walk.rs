//! A walk over one Avro value that only checks: good bytes from bad, before any column is touched.
//!
//! It allocates nothing, and is bounded by the bytes that there are. Whatever it accepts, arrow-avro decodes; where it
//! is stricter than arrow-avro, that would have made a value of bytes that are none: see [`Bad::Stricter`].

use simdutf8::basic::from_utf8;

/// Items that take no byte: so many a record may have. Nothing else bounds their number.
const MOST_EMPTY_ITEMS: usize = 1 << 16;

/// The type of a writer's bytes, and the part of them that the reader's columns take.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Null,
    Boolean,
    Int,
    /// With the factor that makes it microseconds.
    Long {
        factor: i64,
    },
    Float,
    Double,
    Bytes(Check),
    Fixed(usize, Check),
    /// Which of the symbols the reader has.
    Enum(Vec<bool>),
    Array(Box<Plan>),
    Map(Box<Plan>),
    /// The fields, and the bytes of columns that are filled with defaults.
    Record(Vec<Plan>, usize),
    /// A branch that the reader has not is None; the bytes of columns that a null takes.
    Union(Vec<Option<Plan>>, usize),
    /// A field that the reader has not.
    Skip(Box<Plan>),
}

/// What bytes have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Any,
    Utf8,
    /// A decimal of so many digits.
    Decimal(u8),
}

/// Why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// The decoder fails, too.
    Malformed,
    /// The decoder might take them: a boolean that is neither 0 nor 1, a branch or a symbol that is not there, the size
    /// of a block that is not its size, a number that its column cannot hold, or values that would fill the memory.
    Stricter,
}

/// Checks that `bytes` are one value, and returns the bytes of columns that it takes, about.
pub(crate) fn walk(plan: &Plan, bytes: &[u8], most: usize) -> Result<usize, Bad> {
    let mut walk = Walk { bytes, cost: 0, most, empty: 0, skipped: false };
    walk.value(plan)?;
    if walk.bytes.is_empty() { Ok(walk.cost) } else { Err(Bad::Malformed) }
}

struct Walk<'a> {
    bytes: &'a [u8],
    cost: usize,
    most: usize,
    empty: usize,
    skipped: bool,
}

impl<'a> Walk<'a> {
    fn value(&mut self, plan: &Plan) -> Result<(), Bad> {
        match plan {
            Plan::Null => Ok(()),
            Plan::Boolean => match self.take(1)? {
                [0 | 1] => self.pay(1),
                _ => Err(Bad::Stricter),
            },
            Plan::Int => {
                self.int()?;
                self.pay(4)
            }
            Plan::Long { factor } => {
                let value = self.long()?;
                if value.checked_mul(*factor).is_none() {
                    return Err(Bad::Stricter);
                }
                self.pay(8)
            }
            Plan::Float => self.take(4).and_then(|_| self.pay(4)),
            Plan::Double => self.take(8).and_then(|_| self.pay(8)),
            Plan::Bytes(check) => {
                let bytes = self.sized()?;
                self.check(*check, bytes)
            }
            Plan::Fixed(size, check) => {
                let bytes = self.take(*size)?;
                self.check(*check, bytes)
            }
            Plan::Enum(known) => {
                let index = self.int()?;
                match usize::try_from(index).ok().and_then(|index| known.get(index)) {
                    Some(true) => self.pay(12),
                    Some(false) => Err(Bad::Malformed),
                    None => Err(Bad::Stricter),
                }
            }
            Plan::Array(item) => self.blocks(|walk| walk.value(item)),
            Plan::Map(value) => self.blocks(|walk| {
                let key = walk.sized()?;
                walk.check(Check::Utf8, key)?;
                walk.value(value)
            }),
            Plan::Record(fields, defaults) => {
                for field in fields {
                    self.value(field)?;
                }
                self.pay(*defaults)
            }
            Plan::Union(branches, null) => {
                let index = self.long()?;
                match usize::try_from(index).ok().and_then(|index| branches.get(index)) {
                    Some(Some(Plan::Null)) => self.pay(*null),
                    Some(Some(plan)) => self.value(plan),
                    Some(None) => Err(Bad::Malformed),
                    None => Err(Bad::Stricter),
                }
            }
            Plan::Skip(plan) => {
                let before = std::mem::replace(&mut self.skipped, true);
                let done = self.value(plan);
                self.skipped = before;
                done
            }
        }
    }

    /// Bytes of the columns, with offsets and validity.
    fn pay(&mut self, bytes: usize) -> Result<(), Bad> {
        if !self.skipped {
            self.cost = self.cost.saturating_add(bytes);
        }
        if self.cost > self.most { Err(Bad::Stricter) } else { Ok(()) }
    }

    fn check(&mut self, check: Check, bytes: &[u8]) -> Result<(), Bad> {
        if self.skipped {
            return Ok(()); // no column has them
        }
        match check {
            Check::Utf8 if from_utf8(bytes).is_err() => return Err(Bad::Malformed),
            Check::Any | Check::Utf8 => {}
            Check::Decimal(precision) => {
                let value = decimal(bytes).ok_or(Bad::Malformed)?;
                let digits = 10_u128.checked_pow(precision.into());
                if digits.is_some_and(|digits| value.unsigned_abs() >= digits) {
                    return Err(Bad::Stricter);
                }
                return self.pay(16);
            }
        }
        self.pay(bytes.len() + 5)
    }

    /// The blocks of an array or a map.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        self.pay(5)?;
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            let size = if count < 0 { Some(usize::try_from(self.long()?).map_err(|_| Bad::Malformed)?) } else { None };
            let before = self.bytes.len();
            for _ in 0..count.unsigned_abs() {
                let here = self.bytes.len();
                // arrow-avro jumps over a block that it skips, whatever is in it.
                let jumped = self.skipped && size.is_some();
                item(self).map_err(|bad| if jumped { Bad::Stricter } else { bad })?;
                if self.bytes.len() == here {
                    self.empty += 1;
                    if self.empty > MOST_EMPTY_ITEMS {
                        return Err(Bad::Stricter);
                    }
                }
            }
            if size.is_some_and(|size| size != before - self.bytes.len()) {
                return Err(Bad::Stricter);
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Bad::Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn sized(&mut self) -> Result<&'a [u8], Bad> {
        let size = usize::try_from(self.long()?).map_err(|_| Bad::Malformed)?;
        self.take(size)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Bad> {
        let mut value = 0;
        for (index, &byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                if index == 9 && byte > 1 {
                    break;
                }
                self.bytes = &self.bytes[index + 1..];
                return Ok(value);
            }
        }
        Err(Bad::Malformed)
    }

    #[inline]
    fn long(&mut self) -> Result<i64, Bad> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    #[inline]
    fn int(&mut self) -> Result<i32, Bad> {
        let value = u32::try_from(self.varint()?).map_err(|_| Bad::Malformed)?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// A big-endian number in two's complement, if it fits.
fn decimal(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let sign = if negative { 0xff } else { 0 };
    let (dropped, kept) = bytes.split_at(bytes.len().saturating_sub(16));
    if dropped.iter().any(|&byte| byte != sign) {
        return None;
    }
    let mut whole = [sign; 16];
    whole[16 - kept.len()..].copy_from_slice(kept);
    let value = i128::from_be_bytes(whole);
    ((value < 0) == negative).then_some(value)
}
