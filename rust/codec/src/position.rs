//! Positions in a shard: how they are written, and their order.
//!
//! A position is that of a record, or one of the four words that a lease table has in its place:
//!
//! ```text
//! AT_TIMESTAMP < TRIM_HORIZON < LATEST < 0 < 1 < 1/1 < 1/2 < 2 < ... < any sequence number < SHARD_END
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A place in a shard: sequence number, then sub-sequence number. Orders by value; a missing sub number counts as 0.
///
/// As text it is `number`, `number/sub` or a sentinel, e.g. `TRIM_HORIZON`.
///
/// ```
/// use fastkcl_codec::Position;
///
/// let position: Position = "495903/7".parse()?;
/// assert!(Position::TRIM_HORIZON < position && position < "495903/11".parse()?);
/// assert_eq!(position.to_string(), "495903/7");
/// # Ok::<(), fastkcl_codec::PositionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Position(Form);

#[derive(Clone, Debug)]
enum Form {
    Sentinel(Sentinel),
    Record { sequence_number: String, sub_sequence_number: Option<i64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sentinel {
    AtTimestamp,
    TrimHorizon,
    Latest,
    ShardEnd,
}

impl Sentinel {
    const ALL: [Self; 4] = [Self::AtTimestamp, Self::TrimHorizon, Self::Latest, Self::ShardEnd];

    const fn name(self) -> &'static str {
        match self {
            Self::AtTimestamp => "AT_TIMESTAMP",
            Self::TrimHorizon => "TRIM_HORIZON",
            Self::Latest => "LATEST",
            Self::ShardEnd => "SHARD_END",
        }
    }
}

/// A text that is no position, or a sequence number that is not decimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionError {
    text: String,
    is_number: bool,
}

impl PositionError {
    fn new(text: &str, is_number: bool) -> Self {
        Self { text: text.chars().take(140).collect(), is_number }
    }
}

impl fmt::Display for PositionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_number {
            return write!(out, "a sequence number is decimal digits, not {:?}", self.text);
        }
        write!(
            out,
            "{:?} is no position: NUMBER, NUMBER/NUMBER, TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END is expected",
            self.text
        )
    }
}

impl std::error::Error for PositionError {}

impl Position {
    /// Before all records: a lease that begins at a time.
    pub const AT_TIMESTAMP: Self = Self(Form::Sentinel(Sentinel::AtTimestamp));
    /// Before all records: a lease that begins at the oldest one.
    pub const TRIM_HORIZON: Self = Self(Form::Sentinel(Sentinel::TrimHorizon));
    /// Before all records: a lease that begins at the newest one.
    pub const LATEST: Self = Self(Form::Sentinel(Sentinel::Latest));
    /// After all records: the shard is finished.
    pub const SHARD_END: Self = Self(Form::Sentinel(Sentinel::ShardEnd));

    /// The place (`sequence_number`, `sub_sequence_number`) of a record.
    ///
    /// # Errors
    /// The sequence number is empty or holds anything but digits.
    pub fn new(sequence_number: &str, sub_sequence_number: Option<i64>) -> Result<Self, PositionError> {
        if !is_decimal(sequence_number) {
            return Err(PositionError::new(sequence_number, true));
        }
        Ok(Self(Form::Record { sequence_number: sequence_number.to_owned(), sub_sequence_number }))
    }

    /// Decimal digits, as given, or a sentinel's name.
    #[must_use]
    pub fn sequence_number(&self) -> &str {
        match &self.0 {
            Form::Sentinel(sentinel) => sentinel.name(),
            Form::Record { sequence_number, .. } => sequence_number,
        }
    }

    /// As given; `None` for a sentinel.
    #[must_use]
    pub fn sub_sequence_number(&self) -> Option<i64> {
        match self.0 {
            Form::Sentinel(_) => None,
            Form::Record { sub_sequence_number, .. } => sub_sequence_number,
        }
    }

    /// Whether it is one of the four words, and no record's position.
    #[must_use]
    pub fn is_sentinel(&self) -> bool {
        matches!(self.0, Form::Sentinel(_))
    }

    /// What places compare by: of two numbers without leading zeros the longer is larger.
    fn key(&self) -> (bool, Option<Sentinel>, usize, &str, i64) {
        match &self.0 {
            // Sentinels but SHARD_END come first: `false` is less than `true`, and `Some` more than `None`.
            Form::Sentinel(sentinel) => (*sentinel == Sentinel::ShardEnd, Some(*sentinel), 0, "", 0),
            Form::Record { sequence_number, sub_sequence_number } => {
                let digits = sequence_number.trim_start_matches('0');
                (true, None, digits.len(), digits, sub_sequence_number.unwrap_or(0))
            }
        }
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl FromStr for Position {
    type Err = PositionError;

    /// Of `number`, `number/sub` or a sentinel.
    fn from_str(text: &str) -> Result<Self, PositionError> {
        if let Some(sentinel) = Sentinel::ALL.into_iter().find(|sentinel| sentinel.name() == text) {
            return Ok(Self(Form::Sentinel(sentinel)));
        }
        let refused = || PositionError::new(text, false);
        let (sequence_number, sub) = match text.split_once('/') {
            None => (text, None),
            Some((number, sub)) if is_decimal(sub) => (number, Some(sub.parse().map_err(|_| refused())?)),
            Some(_) => return Err(refused()),
        };
        Self::new(sequence_number, sub).map_err(|_| refused())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.sequence_number())?;
        self.sub_sequence_number().map_or(Ok(()), |sub| write!(out, "/{sub}"))
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Position {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    fn at(digits: &str, sub: Option<i64>) -> Position {
        Position::new(digits, sub).unwrap()
    }

    #[test]
    fn positions_compare_as_integers_then_by_sub_number() {
        let rising = [
            Position::AT_TIMESTAMP,
            Position::TRIM_HORIZON,
            Position::LATEST,
            at("0", None),
            at("9", None),
            at("10", None),
            at("10", Some(3)),
            at("11", Some(0)),
            at(&"9".repeat(129), None),
            Position::SHARD_END,
        ];
        assert!(rising.is_sorted_by(|a, b| a < b));
        assert_eq!(at("0010", None), at("10", Some(0)));
        assert!(Position::new("TRIM_HORIZON", None).is_err() && Position::new("", None).is_err());
    }

    #[test]
    fn text_and_back() {
        for text in ["0", "49", "49/0", "49/3", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END"] {
            let position: Position = text.parse().unwrap();
            assert_eq!(position.to_string(), text);
            assert_eq!(position.is_sentinel(), text.bytes().all(|byte| !byte.is_ascii_digit()));
        }
        for text in
            ["", "/", "49/", "/3", "49/-1", "49/+1", "4 9", "-1", "49/3/1", "trim_horizon", "49/99999999999999999999"]
        {
            let error = text.parse::<Position>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("TRIM_HORIZON"), "{error}");
        }
    }
}
