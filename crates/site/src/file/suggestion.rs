//! "Did you mean ...?"

/// The candidate most similar to `name`, with at most one change per three characters and at most three changes. On a
/// tie, the first.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().take(MAX_LEN + 1).collect();
    if wanted.is_empty() || wanted.len() > MAX_LEN {
        return None;
    }
    let most = (wanted.len() / 3).min(3);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let limit = best.map_or(most, |(distance, _)| distance - 1);
        if candidate.len().abs_diff(name.len()) > 4 * (most + 1) {
            continue;
        }
        let distance = distance(&wanted, candidate, limit);
        if let Some(distance) = distance {
            best = Some((distance, candidate));
            if distance == 0 {
                break;
            }
        }
    }
    best.map(|(_, candidate)| candidate)
}

const MAX_LEN: usize = 64;

/// The number of insertions, removals, replacements and swaps of neighbours (optimal string alignment) between two
/// words, if it is at most `limit`.
fn distance(a: &[char], b: &str, limit: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().take(MAX_LEN + 1).flat_map(char::to_lowercase).collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && *x == b[j - 1] {
                cost = cost.min(before[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        if row.iter().all(|cost| *cost > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|cost| *cost <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["units", "weight_limit_kg", "room", "gpu-001", "gpu-002"];
        assert_eq!(nearest("untis", names), Some("units"));
        assert_eq!(nearest("weight_limit", ["weight_limit_kg"]), Some("weight_limit_kg"));
        assert_eq!(nearest("gpu-003", names), Some("gpu-001"));
        assert_eq!(nearest("GPU-002", names), Some("gpu-002"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("q", ["u", "Q"]), Some("Q"));
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
