//! A scanner that checks nothing: how fast one core can turn a daemon's line into columns if nothing can be wrong with it.
//!
//! A measure, not an example. It knows one key order, modern records only, AVX-512 VBMI only; it copies the alphabet's
//! look-up and multiply-adds of the codec's kernel, but finds no errors, grows no buffer inside of a line, and makes no
//! Arrow arrays. Whatever it is given must have been decoded by the codec before.

use std::arch::x86_64::*;

use fastkcl_codec::RecordBatch;

/// A look-up table within one cache line.
#[repr(align(64))]
struct Table([u8; 64]);

const fn table(from: u8) -> Table {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [0x80; 64];
    let mut value = 0;
    while value < 64 {
        let place = alphabet[value].wrapping_sub(from);
        if place < 64 {
            table[place as usize] = value as u8;
        }
        value += 1;
    }
    Table(table)
}

static LOW: Table = table(0);
static HIGH: Table = table(64);
static ORDER: Table = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 48 {
        order[at] = (at / 3 * 4 + 2 - at % 3) as u8;
        at += 1;
    }
    Table(order)
};

/// Columns that are reused.
#[derive(Default)]
pub struct Columns {
    pub data: Vec<u8>,
    pub data_ends: Vec<i32>,
    pub keys: Vec<u8>,
    pub key_ends: Vec<i32>,
    pub sequences: Vec<u8>,
    pub sequence_ends: Vec<i32>,
    pub subs: Vec<i64>,
    pub millis: Vec<i64>,
}

impl Columns {
    /// Whether they hold what `batch` has.
    pub fn agree(&self, batch: &RecordBatch) -> bool {
        fn value<'a>(bytes: &'a [u8], ends: &[i32], row: usize) -> &'a [u8] {
            let start = row.checked_sub(1).map_or(0, |before| ends[before]);
            &bytes[start as usize..ends[row] as usize]
        }
        self.millis.len() == batch.len()
            && (0..batch.len()).all(|row| {
                batch.data(row) == Some(value(&self.data, &self.data_ends, row))
                    && batch.partition_key(row).as_bytes() == value(&self.keys, &self.key_ends, row)
                    && batch.sequence_number(row).as_bytes() == value(&self.sequences, &self.sequence_ends, row)
                    && batch.sub_sequence_number(row) == Some(self.subs[row])
                    && batch.timestamp_micros(row) == Some(self.millis[row] * 1000)
            })
    }
}

/// Whether this CPU can run [`scan`].
pub fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
}

/// Scans the records of `line`.
///
/// # Safety
/// The CPU has the instructions ([`is_supported`]); `line` is a modern daemon's line of plain records with at least one
/// record, and 64 bytes after it are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2,bmi1,bmi2,lzcnt")]
pub unsafe fn scan(line: &[u8], columns: &mut Columns) {
    let Columns { data, data_ends, keys, key_ends, sequences, sequence_ends, subs, millis } = columns;
    for bytes in [&mut *data, &mut *keys, &mut *sequences] {
        bytes.clear();
        bytes.reserve(line.len() + 64);
    }
    for ends in [&mut *data_ends, &mut *key_ends, &mut *sequence_ends] {
        ends.clear();
    }
    subs.clear();
    millis.clear();
    // SAFETY: a record is longer than what is written for it, so no column outgrows the line's length; loads stay
    // within 64 bytes of what is looked for, and the caller promises what that is.
    unsafe {
        let mut at = line.as_ptr().add(br#"{"action":"processRecords","records":["#.len());
        loop {
            at = at.add(br#"{"data":""#.len());
            at = decode(at, data);
            data_ends.push(data.len() as i32);
            while *at == b'=' {
                at = at.add(1);
            }
            at = text(at.add(br#"","partitionKey":""#.len()), keys);
            key_ends.push(keys.len() as i32);
            at = text(at.add(br#"","sequenceNumber":""#.len()), sequences);
            sequence_ends.push(sequences.len() as i32);
            let (value, next) = number(at.add(br#"","approximateArrivalTimestamp":"#.len()));
            millis.push(value);
            let (value, next) = number(next.add(br#","subSequenceNumber":"#.len()));
            subs.push(value);
            at = next.add(br#","action":"record"}"#.len());
            if *at != b',' {
                return;
            }
            at = at.add(1);
        }
    }
}

/// # Safety
/// As [`scan`], which calls it with a place in its line and has reserved `out`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2,bmi1,bmi2,lzcnt")]
unsafe fn decode(mut at: *const u8, out: &mut Vec<u8>) -> *const u8 {
    // SAFETY: the caller's promises: a value ends at a quote inside of the line, and 64 bytes after that are readable.
    unsafe {
        let low = _mm512_load_si512(LOW.0.as_ptr().cast());
        let high = _mm512_load_si512(HIGH.0.as_ptr().cast());
        let order = _mm512_load_si512(ORDER.0.as_ptr().cast());
        let mut to = out.as_mut_ptr().add(out.len());
        loop {
            let text = _mm512_loadu_si512(at.cast());
            let values = _mm512_permutex2var_epi8(low, text, high);
            let bad = _mm512_movepi8_mask(_mm512_or_si512(text, values));
            if bad == 0 {
                _mm512_mask_storeu_epi8(to.cast(), (1 << 48) - 1, pack(values, order));
                at = at.add(64);
                to = to.add(48);
                continue;
            }
            let run = bad.trailing_zeros() as usize;
            let values = _mm512_maskz_mov_epi8(!bad & bad.wrapping_sub(1), values);
            _mm512_mask_storeu_epi8(to.cast(), (1 << 48) - 1, pack(values, order));
            out.set_len(to.offset_from_unsigned(out.as_ptr()) + run * 3 / 4);
            return at.add(run);
        }
    }
}

/// 64 values of 6 bits to 48 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn pack(values: __m512i, order: __m512i) -> __m512i {
    let pairs = _mm512_maddubs_epi16(values, _mm512_set1_epi32(0x0140_0140));
    _mm512_permutexvar_epi8(order, _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0001_1000)))
}

/// # Safety
/// As [`scan`], which calls it with a place in its line and has reserved `out`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2,bmi1,bmi2,lzcnt")]
unsafe fn text(mut at: *const u8, out: &mut Vec<u8>) -> *const u8 {
    // SAFETY: the caller's promises: a value ends at a quote inside of the line, and 64 bytes after that are readable.
    unsafe {
        loop {
            let text = _mm512_loadu_si512(at.cast());
            let quotes = _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8(b'"' as i8));
            _mm512_storeu_si512(out.as_mut_ptr().add(out.len()).cast(), text);
            let run = quotes.trailing_zeros() as usize;
            out.set_len(out.len() + run);
            at = at.add(run);
            if quotes != 0 {
                return at;
            }
        }
    }
}

/// # Safety
/// A byte that is no digit comes before the end of what is readable from `at`.
#[inline]
unsafe fn number(mut at: *const u8) -> (i64, *const u8) {
    let mut value = 0;
    loop {
        // SAFETY: no digit has been passed over that was the last readable byte.
        let digit = unsafe { *at }.wrapping_sub(b'0');
        if digit > 9 {
            return (value, at);
        }
        value = value * 10 + i64::from(digit);
        // SAFETY: the byte was a digit, so another one is readable.
        at = unsafe { at.add(1) };
    }
}
