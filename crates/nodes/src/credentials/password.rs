//! Passwords for BMCs.

use rackwright_identity::{Rng, RngError};
use rackwright_redfish::AccountPolicy;
use secrecy::SecretString;
use secrecy::zeroize::Zeroize as _;

/// 16 characters: within every range that recorded BMCs advertise (8 to 20, 10 to 32, 13 to 20, up to 40), and the maximum
/// of IPMI 1.5 (IPMI v2.0, 22.30 "Set User Password").
const LENGTH: u64 = 16;
/// Minimum even for a BMC that accepts less.
const SHORTEST: u64 = 8;
/// Longer than any BMC requires.
const LONGEST: u64 = 64;

// Without look-alikes (0 O o, 1 l I) and without characters that have a meaning in shells, URLs, JSON, XML and BMCs' own
// web pages.
const UPPER: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZ";
const LOWER: &[u8] = b"abcdefghijkmnpqrstuvwxyz";
const DIGITS: &[u8] = b"23456789";
const MARKS: &[u8] = b"-_.";

/// A password that the policy allows: letters of both cases, digits and marks, at least two of each, a letter first and no
/// character twice in a row.
///
/// # Errors
/// There are no random numbers.
pub fn generate(rng: &dyn Rng, policy: &AccountPolicy) -> Result<SecretString, RngError> {
    let least = policy.min_length.unwrap_or(SHORTEST).clamp(SHORTEST, LONGEST);
    let most = policy.max_length.unwrap_or(LONGEST).clamp(least, LONGEST);
    let length = usize::try_from(LENGTH.clamp(least, most)).unwrap_or(16);
    let all = [UPPER, LOWER, DIGITS, MARKS].concat();
    let mut text: Vec<u8> = Vec::with_capacity(length);
    loop {
        text.zeroize();
        while text.len() < length {
            let from = if text.is_empty() { LOWER } else { &all };
            text.push(one_of(rng, from)?);
        }
        if is_good(&text) {
            break;
        }
    }
    let password = SecretString::from(String::from_utf8_lossy(&text).into_owned());
    text.zeroize();
    Ok(password)
}

fn is_good(text: &[u8]) -> bool {
    let count = |kind: &[u8]| text.iter().filter(|byte| kind.contains(byte)).count();
    let varied = [UPPER, LOWER, DIGITS, MARKS].iter().all(|kind| count(kind) >= 2);
    varied && text.windows(2).all(|pair| pair[0] != pair[1]) && text.last().is_some_and(|last| !MARKS.contains(last))
}

/// A uniformly chosen character.
fn one_of(rng: &dyn Rng, from: &[u8]) -> Result<u8, RngError> {
    let count = u8::try_from(from.len()).unwrap_or(u8::MAX).max(1);
    let limit = u8::MAX - u8::MAX % count;
    loop {
        let mut byte = [0];
        rng.fill(&mut byte)?;
        if byte[0] < limit {
            return Ok(from[usize::from(byte[0] % count)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rackwright_identity::SystemRng;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn made(min: Option<u64>, max: Option<u64>) -> String {
        let policy = AccountPolicy {
            min_length: min,
            max_length: max,
            ..AccountPolicy::default()
        };
        generate(&SystemRng, &policy).unwrap().expose_secret().to_owned()
    }

    #[test]
    fn passwords_have_the_length_that_the_bmc_takes_and_16_where_it_allows() {
        for (min, max, expected) in [
            (None, None, 16),
            (Some(13), Some(20), 16),
            (Some(10), Some(32), 16),
            (Some(8), Some(20), 16),
            (None, Some(40), 16),
            (Some(20), Some(32), 20),
            (Some(8), Some(12), 12),
            (Some(30), Some(20), 30),
            (Some(1000), None, 64),
        ] {
            assert_eq!(made(min, max).len(), expected, "{min:?} to {max:?}");
        }
    }

    #[test]
    fn passwords_are_varied_and_never_the_same() {
        let mut seen = BTreeSet::new();
        for _ in 0..500 {
            let password = made(Some(13), Some(20));
            let has = |kind: &[u8]| password.bytes().filter(|byte| kind.contains(byte)).count() >= 2;
            assert!(has(UPPER) && has(LOWER) && has(DIGITS) && has(MARKS), "{password}");
            assert!(password.starts_with(|c: char| c.is_ascii_lowercase()), "{password}");
            assert!(
                !password.contains(['0', 'O', 'o', '1', 'l', 'I', '"', '\'', '\\', '$', '&']),
                "{password}"
            );
            assert!(seen.insert(password));
        }
    }
}
