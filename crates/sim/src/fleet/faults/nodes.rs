//! Sets of machines.

/// Machines by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nodes {
    All,
    /// First and last of each range; sorted and without overlap.
    Some(Vec<(usize, usize)>),
}

impl Nodes {
    pub(super) fn new(mut ranges: Vec<(usize, usize)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, before)) if first <= *before => *before = last.max(*before),
                _ => merged.push((first, last)),
            }
        }
        Self::Some(merged)
    }

    pub(super) fn contain(&self, node: usize) -> bool {
        let Self::Some(ranges) = self else {
            return true;
        };
        let after = ranges.partition_point(|(first, _)| *first <= node);
        ranges[..after].last().is_some_and(|(_, last)| node <= *last)
    }
}

/// `7`, `sim-00007` or `10-19`; the error is a sentence.
pub(super) fn range(text: &str, nodes: usize) -> Result<(usize, usize), String> {
    let number = |text: &str| {
        let digits = text.strip_prefix("sim-").unwrap_or(text);
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| digits.parse::<usize>().ok()).flatten();
        number.ok_or_else(|| format!("`{text}` is not a machine: write 7, sim-00007 or 10-19"))
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) if first != "sim" => (number(first)?, number(last)?),
        _ => (number(text)?, number(text)?),
    };
    if first > last {
        return Err(format!("`{text}` has its last machine before its first"));
    }
    if last >= nodes {
        return Err(format!(
            "there is no machine {last}: the fleet has machines 0 to {}",
            nodes - 1
        ));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_merged() {
        let ranges = ["4-6", "0", "sim-00009", "5-7"].map(|text| range(text, 10).unwrap());
        let nodes = Nodes::new(ranges.to_vec());
        assert_eq!(nodes, Nodes::Some(vec![(0, 0), (4, 7), (9, 9)]));
        let found: Vec<usize> = (0..12).filter(|node| nodes.contain(*node)).collect();
        assert_eq!(found, [0, 4, 5, 6, 7, 9]);
        assert!(Nodes::All.contain(7) && !Nodes::new(Vec::new()).contain(0));
    }

    #[test]
    fn unknown_machines_are_refused() {
        for text in [
            "",
            "-",
            "-1",
            "1-",
            "x",
            "sim-",
            "sim-x",
            "10",
            "0-10",
            "3-2",
            "+1",
            "1 ",
            "1-2-3",
            "٣",
            "99999999999999999999999",
        ] {
            assert!(range(text, 10).is_err(), "`{text}` was taken");
        }
    }
}
