//! The alphabet of base64.

/// The characters of RFC 4648 section 4, by value.
pub(crate) const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Not an alphabet character, in [`VALUES`].
pub(crate) const NONE: u8 = 0xff;

/// The value of each byte that is an alphabet character, else [`NONE`].
pub(crate) static VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < 64 {
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        {
            values[ALPHABET[value] as usize] = value as u8;
        }
        value += 1;
    }
    values
};
