//! How deep the brackets of a .proto text are, before the compiler recurses into them.
//!
//! protox panics at 100 messages within each other, and a thousand overflow the stack; texts come from registries.

/// The deepest brackets of all kinds.
const DEEPEST: usize = 64;

/// Whether a text is deeper than its compiler may go. Brackets within comments and strings are none.
pub(crate) fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut rest) = (0_usize, text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = match first {
            b'{' | b'[' | b'(' | b'<' => {
                depth += 1;
                after
            }
            b'}' | b']' | b')' | b'>' => {
                depth = depth.saturating_sub(1);
                after
            }
            b'#' => after_line(after),
            b'/' if after.starts_with(b"/") => after_line(after),
            b'/' if after.starts_with(b"*") => after_block(&after[1..]),
            b'"' | b'\'' => after_string(after, *first),
            _ => after,
        };
        if depth > DEEPEST {
            return true;
        }
    }
    false
}

fn after_line(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &text[end..])
}

fn after_block(text: &[u8]) -> &[u8] {
    text.windows(2).position(|pair| pair == b"*/").map_or(&[], |end| &text[end + 2..])
}

/// A string ends at its quote, and, being none, with its line.
fn after_string(mut text: &[u8], quote: u8) -> &[u8] {
    loop {
        text = match text {
            [] => return text,
            [b'\\', _, after @ ..] => after,
            [byte, after @ ..] if *byte == quote || *byte == b'\n' => return after,
            [_, after @ ..] => after,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{DEEPEST, is_too_deep};

    #[test]
    fn brackets_count_outside_of_comments_and_strings() {
        let deep = "{ ".repeat(DEEPEST + 1);
        assert!(is_too_deep(&deep));
        assert!(!is_too_deep(&deep[2..]));
        assert!(!is_too_deep(&"{}".repeat(1000)));
        for hidden in ["// }\n", "# }\n", "/* } */", "'}'", "\"}\"", r#""\"}""#, "'\"}'"] {
            assert!(is_too_deep(&format!("{{{hidden}").repeat(DEEPEST + 1)), "{hidden}");
            assert!(!is_too_deep(&hidden.replace('}', "{").repeat(1000)), "{hidden}");
        }
        for open in ["//", "/*", "'", "\\", "\"\\"] {
            assert!(!is_too_deep(open), "{open}");
        }
    }
}
