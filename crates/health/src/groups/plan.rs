//! The groups of the first two rounds: the rows and columns of a grid of nodes.

use std::collections::BTreeMap;

/// The rows: nodes below one leaf. A large leaf has several rows of about the root of the number of nodes, and small leaves
/// share a row. A node without a known leaf counts as below a leaf of its own kind.
#[must_use]
pub fn rows(leaves: &[Option<usize>]) -> Vec<Vec<usize>> {
    let width = width(leaves.len());
    let mut by_leaf: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (node, leaf) in leaves.iter().enumerate() {
        by_leaf.entry(*leaf).or_default().push(node);
    }
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for nodes in by_leaf.into_values() {
        let parts = nodes.len().div_ceil(width);
        for part in nodes.chunks(nodes.len().div_ceil(parts.max(1))) {
            match rows.last_mut() {
                Some(row) if row.len() + part.len() <= width => row.extend(part),
                _ => rows.push(part.to_vec()),
            }
        }
    }
    // A node alone has no partner for a test.
    if rows.len() > 1
        && let Some(single) = rows.pop_if(|row| row.len() == 1)
        && let Some(row) = rows.last_mut()
    {
        row.extend(single);
    }
    rows
}

/// The columns: one node of each row. Empty if there is only one row.
#[must_use]
pub fn columns(rows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    if rows.len() < 2 {
        return Vec::new();
    }
    let widest = rows.iter().map(Vec::len).max().unwrap_or_default();
    let column = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at).copied())
            .collect::<Vec<usize>>()
    };
    let mut columns: Vec<Vec<usize>> = Vec::new();
    for column in (0..widest).map(column) {
        match columns.last_mut() {
            // Only the longest row reaches here; its nodes join the column before.
            Some(before) if column.len() == 1 => before.extend(column),
            _ => columns.push(column),
        }
    }
    for column in &mut columns {
        column.sort_unstable();
    }
    columns
}

/// The square root of `nodes`, rounded up, and at least 2.
fn width(nodes: usize) -> usize {
    (2..).find(|width| width * width >= nodes).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_in_one_row_and_one_column() {
        for (count, per_leaf) in [
            (232, 32),
            (232, 29),
            (232, 4),
            (232, 500),
            (16, 4),
            (17, 16),
            (3, 1),
            (2, 2),
        ] {
            let leaves: Vec<Option<usize>> = (0..count).map(|node| Some(node / per_leaf)).collect();
            let rows = rows(&leaves);
            let columns = columns(&rows);
            for groups in [&rows, &columns] {
                let mut nodes: Vec<usize> = groups.iter().flatten().copied().collect();
                nodes.sort_unstable();
                if !groups.is_empty() {
                    assert_eq!(nodes, (0..count).collect::<Vec<_>>(), "{count} {per_leaf}");
                }
                assert!(
                    groups.iter().all(|group| group.len() > 1),
                    "{count} {per_leaf} {groups:?}"
                );
            }
            let most = 2 * width(count) + 2;
            assert!(
                rows.len() + columns.len() <= most,
                "{count} {per_leaf}: {} {}",
                rows.len(),
                columns.len()
            );
        }
    }

    #[test]
    fn a_row_stays_below_one_leaf_if_leaves_are_large() {
        let leaves: Vec<Option<usize>> = (0..232).map(|node| Some(node / 32)).collect();
        for row in rows(&leaves) {
            assert!(row.iter().all(|node| leaves[*node] == leaves[row[0]]), "{row:?}");
        }
    }
}
