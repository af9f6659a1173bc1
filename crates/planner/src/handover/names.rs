//! Checks of names for each format.

/// Words with a special meaning in Slurm's files (slurm.conf(5)).
const SLURM_WORDS: [&str; 3] = ["default", "all", "localhost"];

/// Checks a node's or partition's name for Slurm. Its lists reserve brackets, commas and white space.
pub(super) fn slurm(name: &str) -> Result<(), &'static str> {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || name.len() > 253 {
        Err("a name has 1 to 253 characters")
    } else if !name.bytes().all(sound) || !name.as_bytes()[0].is_ascii_alphanumeric() {
        Err("a name has letters, digits and `-_.`, a letter or digit first")
    } else if SLURM_WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        Err("this name is reserved in Slurm")
    } else {
        Ok(())
    }
}

/// Checks the lower-case name of a Kubernetes object (RFC 1123 subdomain).
pub(super) fn subdomain(name: &str) -> Result<(), &'static str> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(())
    } else {
        Err("a name has parts of letters, digits and `-` with `.` between them, as in RFC 1123")
    }
}

/// Checks a label's value.
pub(super) fn label_value(value: &str) -> Result<(), &'static str> {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    if bytes.len() <= 63 && bytes.iter().copied().all(sound) && ends(bytes.first()) && ends(bytes.last()) {
        Ok(())
    } else {
        Err("a label has at most 63 letters, digits and `-_.`, a letter or digit at both ends")
    }
}

/// The name of an Ansible group. As in a variable name, characters other than letters, digits and `_` become `_`.
pub(super) fn group(kind: &str, name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{kind}_{}", name.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_names_of_its_own() {
        assert!(slurm("gpu-001").is_ok() && slurm("a_b.c").is_ok());
        for name in [
            "", "-a", "a b", "a,b", "a[1-2]", "Default", "ALL", "a\nb", "a=b", "ä", "a#b",
        ] {
            assert!(slurm(name).is_err(), "{name}");
        }
        assert!(subdomain("gpu-001.hall.example").is_ok());
        for name in ["", "a_b", "A", ".a", "a.", "-a", "a-", "a..b", &"a".repeat(64)] {
            assert!(subdomain(name).is_err(), "{name}");
        }
        assert!(label_value("").is_ok() && label_value(&"a".repeat(63)).is_ok() && label_value("A_b.c-1").is_ok());
        for value in ["-a", "a-", "a:b", &"a".repeat(64), "a b", "a."] {
            assert!(label_value(value).is_err(), "{value}");
        }
        assert_eq!(group("rack", "r-1.a"), "rack_r_1_a");
    }
}
