//! Both paths of the codec give one result: the path that the decoder chooses by a line's shape, in any pieces, on
//! every instruction set, and the general path alone.
//!
//! `FASTKCL_PATH_CASES` and `FASTKCL_PATH_LINES` set how much is tried; `make test-long` tries ten million cases, and
//! every cut and limit of ten thousand lines. Everything comes from seeds, which failures name.

mod case_files;
mod grammar;
mod results;

use case_files::cases;
use fastkcl_codec::cpu;
use fastkcl_codec::kcl::{self, DEFAULT_MAX_LINE_BYTES as MAX};
use grammar::{Choices, line, lines};
use results::{Found, How, found, generally, without_line_feeds};

/// Reproducible noise (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap()
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..40).flat_map(|_| self.next().to_le_bytes()).collect()
    }
}

fn count(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |count| count.parse().expect("a number of cases"))
}

fn assert_same(input: &[u8], how: How<'_>, expected: &[Found], seed: u64) {
    let results = found(input, how);
    assert!(results == expected, "seed {seed}, {how:?}: \"{}\"\n{results:#?}\n{expected:#?}", input.escape_ascii());
}

#[test]
fn at_random() {
    let (wanted, isas) = (count("FASTKCL_PATH_CASES", 60_000), cpu::supported());
    let (mut tried, mut seed) = (0, 0);
    while tried < wanted {
        let mut noise = Noise(seed);
        let input = lines(&mut Choices::new(&noise.bytes()));
        for limit in 0..3 {
            let max_line_bytes = if limit == 0 { MAX } else { 1 + noise.below(input.len() + 2) };
            let expected = generally(&input, max_line_bytes);
            for _ in 0..4 {
                let pieces = [1 + noise.below(input.len() + 1), 1 + noise.below(40), 1 + noise.below(input.len() + 1)];
                let how = noise.next();
                let isa = isas[noise.below(isas.len())];
                let how = How { isa, max_line_bytes, pieces: &pieces, drains: how & 3 != 0, reads: how & 4 != 0 };
                assert_same(&input, how, &expected, seed);
                tried += 1;
            }
        }
        seed += 1;
    }
}

#[test]
fn every_cut_and_limit_of_short_lines() {
    let (wanted, isas) = (count("FASTKCL_PATH_LINES", 12), cpu::supported());
    for seed in 0..wanted as u64 {
        let mut noise = Noise(seed ^ 0x5eed_0000_0000_0000);
        let mut input = line(&mut Choices::new(&noise.bytes()));
        input.truncate(40 + noise.below(70));
        if noise.below(3) > 0 {
            input.push(b'\n');
        }
        for max_line_bytes in 1..=input.len() + 1 {
            let expected = generally(&input, max_line_bytes);
            for cut in 1..=input.len() {
                let isa = isas[(cut + max_line_bytes) % isas.len()];
                let how = How { isa, max_line_bytes, pieces: &[cut, usize::MAX], drains: true, reads: cut % 2 == 0 };
                assert_same(&input, how, &expected, seed);
            }
        }
    }
}

/// Lines that the published cases have, damaged at random, and parts of one in another: nothing here knows the grammar.
#[test]
fn damaged_cases() {
    let lines: Vec<Vec<u8>> = ["kcl-modern", "kcl-legacy"]
        .iter()
        .flat_map(|file| ["decode", "decode_error"].map(|kind| cases(file, kind)).into_iter().flatten())
        .filter_map(|case| case["line"].as_str().map(|line| line.as_bytes().to_vec()))
        .filter(|line| line.len() < 4096)
        .collect();
    let isas = cpu::supported();
    for seed in 0..count("FASTKCL_PATH_CASES", 60_000) as u64 / 12 * u64::from(!lines.is_empty()) {
        let mut noise = Noise(seed ^ 0xda3a_0000_0000_0000);
        let mut input = Vec::new();
        for _ in 0..=noise.below(3) {
            let mut line = lines[noise.below(lines.len())].clone();
            for _ in 0..noise.below(4) {
                damage(&mut line, &lines[noise.below(lines.len())], &mut noise);
            }
            input.extend_from_slice(&line);
            input.push(b'\n');
        }
        if noise.below(2) == 0 {
            input.truncate(noise.below(input.len() + 1));
        }
        for limit in 0..3 {
            let max_line_bytes = if limit == 0 { MAX } else { 1 + noise.below(input.len() + 2) };
            let expected = generally(&input, max_line_bytes);
            for _ in 0..4 {
                let pieces = [1 + noise.below(input.len() + 1), 1 + noise.below(40), 1 + noise.below(input.len() + 1)];
                let how = noise.next();
                let isa = isas[noise.below(isas.len())];
                let how = How { isa, max_line_bytes, pieces: &pieces, drains: how & 3 != 0, reads: how & 4 != 0 };
                assert_same(&input, how, &expected, seed);
            }
        }
    }
}

/// Cuts out, repeats, replaces, flips, or takes in a part of another line.
fn damage(line: &mut Vec<u8>, other: &[u8], noise: &mut Noise) {
    let begin = noise.below(line.len() + 1);
    let end = begin + noise.below((line.len() - begin).min(80) + 1);
    match noise.below(5) {
        0 => drop(line.drain(begin..end)),
        1 => {
            let part = line[begin..end].to_vec();
            line.splice(begin..begin, part);
        }
        2 => {
            let from = noise.below(other.len() + 1);
            let part = &other[from..from + noise.below((other.len() - from).min(200) + 1)];
            line.splice(begin..end, part.iter().copied());
        }
        3 if begin < line.len() => line[begin] ^= 1 << noise.below(8),
        _ => {
            let place = noise.next().to_le_bytes()[0];
            line.splice(begin..begin, [place]);
        }
    }
}

/// A line feed inside of one line is white space between tokens and an error in a string, with and without a limit.
#[test]
fn line_feeds_in_one_line() {
    for seed in 0..count("FASTKCL_PATH_CASES", 60_000) as u64 / 20 {
        let mut noise = Noise(seed ^ 0x1f1f_0000_0000_0000);
        let mut input = line(&mut Choices::new(&noise.bytes()));
        for _ in 0..noise.below(3) {
            let at = noise.below(input.len() + 1);
            input.insert(at, b'\n');
        }
        for limit in 0..8 {
            let max_line_bytes = if limit == 0 { MAX } else { 1 + noise.below(input.len() + 2) };
            let expected = generally(&without_line_feeds(input.strip_suffix(b"\n").unwrap_or(&input)), max_line_bytes);
            let result = kcl::decode_line(&input, max_line_bytes).transpose().map(Found::from);
            let result: Vec<_> = result.into_iter().collect();
            let shown = input.escape_ascii();
            assert!(result == expected, "seed {seed}, {max_line_bytes}: \"{shown}\"\n{result:#?}\n{expected:#?}");
        }
    }
}

/// What the paths once disagreed about.
#[test]
fn an_open_data_string_is_looked_at_to_its_end() {
    let opening = "{\"action\":\"processRecords\",\"records\":[";
    for (begin, moved) in
        [("{\"data\":\"", 0), ("{\"x\":1,\"data\":\"", 6), ("{\"data\" : \"", 2), ("{ \"x\":{},\"data\":\"", 8)]
    {
        for (rest, kind, at) in [
            ("=", "base64", 0),
            ("Q", "json", 1),
            ("QQ=", "json", 3),
            ("QQ=Q", "base64", 3),
            ("QUJD=", "base64", 4),
            ("QUJDQ=", "base64", 5),
            ("QUJDQ\\u003d", "base64", 5),
            ("QUJDQU\\u", "json", 8),
            ("QUJD\u{e9}", "base64", 4),
        ] {
            let input = format!("{opening}{begin}{rest}");
            let place = opening.len() + 9 + moved + at;
            let expected = (kind, Some(place), Some("data").filter(|_| kind == "base64"));
            let show = |found: Vec<Found>| match found[..] {
                [Found::Error((kind, field, _, offset, _))] => (kind.name(), offset, field),
                _ => panic!("{found:?}"),
            };
            assert_eq!(show(generally(input.as_bytes(), MAX)), expected, "{input}");
            for isa in cpu::supported() {
                for pieces in [&[usize::MAX][..], &[1]] {
                    let how = How { isa, max_line_bytes: MAX, pieces, drains: true, reads: false };
                    assert_eq!(show(found(input.as_bytes(), how)), expected, "{input}");
                    // The same where the limit cuts it: what was wrong before it goes first.
                    let how = How { max_line_bytes: input.len(), ..how };
                    let longer = format!("{input}QUJDQUJD\n");
                    let expected = if kind == "base64" { expected } else { ("line_too_long", Some(input.len()), None) };
                    assert_eq!(show(found(longer.as_bytes(), how)), expected, "{longer}");
                }
            }
        }
    }
}
