//! Node descriptions: the machine and the adapter, the name of a switch, and generic descriptions.

use super::adapter;

/// A machine and its adapter, from `hostname HCA-1`, `hostname mlx5_3` or `hostname ibp24s0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host<'a> {
    /// The name of the machine.
    pub machine: &'a str,
    /// The name of the adapter.
    pub adapter: &'a str,
}

/// Default descriptions of devices (seen in dumps of real fabrics).
const GENERIC: [&str; 12] = [
    "mellanox technologies",
    "connectx",
    "infinihost",
    "infiniscale",
    "switchx",
    "switch-ib",
    "quantum mellanox",
    "ports switch",
    "mt25408",
    "sub-management agent",
    "mf0;switch:",
    "localhost",
];

/// The machine and the adapter, if the description has this form: the adapter's name, which [`adapter::place`] knows, is
/// the last word.
pub fn host(description: &str) -> Option<Host<'_>> {
    let text = description.trim();
    let (mut machine, mut adapter) = text.rsplit_once(char::is_whitespace)?;
    // `HCA 3` is one name.
    if let Some(before) = machine.strip_suffix("HCA")
        && before.ends_with(char::is_whitespace)
    {
        (machine, adapter) = (before, text.get(before.len()..)?);
    }
    let machine = machine.trim_end();
    let known = !machine.is_empty() && !is_generic(machine) && adapter::place(adapter).is_some();
    known.then_some(Host { machine, adapter })
}

/// Beginnings of adapters' names that may follow a machine's name without a space (`gpu-093-mlx5_3`, `gpu-093/HCA-3`).
const JOINED: [&str; 6] = ["mlx5_", "mlx4_", "hfi1_", "mthca", "hca-", "hca"];
/// Bytes of an adapter's name, with the separator before, that are looked at.
const MAX_JOINED: usize = 16;
/// Beginnings of adapters' names that stand as a word of their own (`gpu-093 ib0`, `gpu-093 mlx5_ib3`).
const WORDS: [&str; 6] = ["mlx", "ib", "hca", "hfi", "qib", "roce"];

/// The machine and the name of its adapter, where a name has one of the forms that lists and systems use.
///
/// Takes more forms than [`host`].
pub fn machine(description: &str) -> Option<(&str, &str)> {
    let text = description.trim();
    if let Some(host) = host(text) {
        return Some((host.machine, host.adapter));
    }
    let word = || {
        let (machine, adapter) = text.rsplit_once(char::is_whitespace)?;
        let lower = adapter.to_ascii_lowercase();
        let known = WORDS.iter().any(|word| lower.starts_with(word)) && lower.contains(|c: char| c.is_ascii_digit());
        known.then_some((machine.trim_end(), adapter))
    };
    let joined = || {
        let separators = text.rmatch_indices(['-', '_', '/', ':', '.']);
        let mut near = separators.take_while(|(at, _)| text.len() - at <= MAX_JOINED);
        let (at, _) = near.find(|(at, separator)| {
            let rest = text
                .get(at + separator.len()..)
                .unwrap_or_default()
                .to_ascii_lowercase();
            let number = JOINED.iter().find_map(|word| rest.strip_prefix(word));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        })?;
        Some((text.get(..at)?, text.get(at + 1..)?))
    };
    let (machine, adapter) = word().or_else(joined)?;
    (!machine.is_empty() && !is_generic(machine)).then_some((machine, adapter))
}

/// Whether a description cannot tell one device from another.
pub fn is_generic(description: &str) -> bool {
    let text = description.trim().to_ascii_lowercase();
    text.is_empty() || GENERIC.iter().any(|generic| text.contains(generic))
}

/// The key for comparing descriptions: the name in lower case.
///
/// Managed NVIDIA switches have the description `MF0;NAME:MODEL/U1`.
pub fn key(description: &str) -> String {
    proper(description).to_ascii_lowercase()
}

/// The name in a description.
pub fn proper(description: &str) -> &str {
    let text = description.trim();
    let Some((chassis, rest)) = text.split_once(';') else {
        return text;
    };
    let managed = chassis.len() <= 4 && chassis.starts_with("MF");
    match rest.rsplit_once(':') {
        Some((name, model)) if managed && !name.is_empty() && model.contains('/') => name,
        _ => text,
    }
}

/// Natural order: `leaf-2` before `leaf-10`.
pub fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut a, mut b) = (chunks(a), chunks(b));
    loop {
        let (x, y) = (a.next(), b.next());
        let order = match (&x, &y) {
            (None, None) => return std::cmp::Ordering::Equal,
            (Some(x), Some(y)) => x.cmp(y),
            (x, y) => x.is_some().cmp(&y.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Runs of digits as (length, digits) without leading zeros, other runs as (0, text).
fn chunks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (chunk, tail) = rest.split_at(end);
        rest = tail;
        let significant = chunk.trim_start_matches('0');
        Some(if digits {
            (1 + significant.len(), significant)
        } else {
            (0, chunk)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_and_adapters_are_told_apart() {
        let seen = |text| host(text).map(|host| (host.machine.to_owned(), host.adapter.to_owned()));
        let is = |machine: &str, adapter: &str| Some((machine.to_owned(), adapter.to_owned()));
        assert_eq!(seen("gpu0001 mlx5_3"), is("gpu0001", "mlx5_3"));
        assert_eq!(seen("node-7 HCA-2"), is("node-7", "HCA-2"));
        assert_eq!(seen("node-7 HCA 2"), is("node-7", "HCA 2"));
        assert_eq!(seen("gpu 12 mlx5_11"), is("gpu 12", "mlx5_11"));
        assert_eq!(seen("gpu-1 ibp24s0"), is("gpu-1", "ibp24s0"));
        assert_eq!(seen("gpu-1 mlx5_bond_0"), is("gpu-1", "mlx5_bond_0"));
        assert_eq!(seen("gpu-1 rocep25s0f1"), is("gpu-1", "rocep25s0f1"));
        for text in [
            "MT25408 ConnectX Mellanox Technologies",
            "mlx5_0",
            "",
            "gpu1 mlx5_",
            "localhost mlx5_0",
            "xmlx5_1",
            "HCA 2",
            "xHCA 2",
        ] {
            assert_eq!(seen(text), None, "{text}");
        }
    }

    #[test]
    fn machines_are_told_from_the_forms_that_lists_use() {
        for (text, is) in [
            ("gpu0001 mlx5_3", Some(("gpu0001", "mlx5_3"))),
            ("gpu 12 ib0", Some(("gpu 12", "ib0"))),
            ("gpu-1 ibp24s0", Some(("gpu-1", "ibp24s0"))),
            ("gpu-093-mlx5_3", Some(("gpu-093", "mlx5_3"))),
            ("gpu_093_mlx5_12", Some(("gpu_093", "mlx5_12"))),
            ("gpu-093/HCA-3", Some(("gpu-093", "HCA-3"))),
            ("gpu-093.hca3", Some(("gpu-093", "hca3"))),
            ("storage-ib1", None),
            ("gpu-093", None),
            ("-mlx5_3", None),
            ("localhost-mlx5_3", None),
            ("MT25408 ConnectX Mellanox Technologies", None),
            ("gpu-mlx5_", None),
            ("gpu-mlx5_12345678901234567", None),
            ("ü-hca-3", Some(("ü", "hca-3"))),
            ("", None),
        ] {
            assert_eq!(machine(text), is, "{text}");
        }
    }

    #[test]
    fn the_name_proper_of_a_managed_switch_is_found() {
        assert_eq!(proper("MF0;leaf-12:MQM9700/U1"), "leaf-12");
        assert_eq!(proper("leaf-12"), "leaf-12");
        assert_eq!(proper("a;b:c/d"), "a;b:c/d");
        assert!(is_generic("Quantum Mellanox Technologies") && is_generic(" ") && !is_generic("leaf-12"));
    }

    #[test]
    fn names_sort_as_people_sort_them() {
        let mut names = ["leaf-10", "leaf-2", "leaf-02b", "spine-1", "leaf-1"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["leaf-1", "leaf-2", "leaf-02b", "leaf-10", "spine-1"]);
    }
}
