//! The check of site files together with the fabric that they describe.

use std::collections::BTreeMap;

use crate::hall::{Culprit, Irregularity, Several, irregularities};
use rackwright_site::compact::patterns;
use rackwright_site::file::{self, Checked, Limits, Places, Source};
use rackwright_site::finding::{Sink, Spot};
use rackwright_site::model::Site;
use rackwright_site::text::grouped;

/// Most faults, and most patterns of names of one fault, that one warning shows.
const SHOWN_MAX: usize = 3;

/// Reads the files of one site as [`rackwright_site::file::check`] does. A warning names each part of the fabric that
/// clusters cannot use, with its cost.
#[must_use]
pub fn check(sources: &[Source<'_>]) -> Checked {
    check_also(sources, |_, _, _| {})
}

/// As [`check`], with findings of the caller.
#[must_use]
pub fn check_also(sources: &[Source<'_>], also: impl FnOnce(&Site, &Places, &mut Sink)) -> Checked {
    file::check_also(sources, Limits::default(), |site, places, sink| {
        warn(site, irregularities(site), places, sink);
        also(site, places, sink);
    })
}

/// Irregularities of one item of the file become one warning.
fn warn(site: &Site, found: Vec<Irregularity>, places: &Places, sink: &mut Sink) {
    let mut by_place: BTreeMap<(Spot, String), Vec<Irregularity>> = BTreeMap::new();
    for one in found {
        let place = match one.culprit {
            Culprit::Site => places.site(),
            Culprit::Node(node) => places.node(node, one.field),
            Culprit::Switch(switch) => places.switch(switch, one.field),
        };
        by_place.entry(place).or_default().push(one);
    }
    for ((at, path), of_place) in by_place {
        let faults = by_fault(&of_place);
        let (shown, rest) = faults.split_at(faults.len().min(SHOWN_MAX));
        let words: Vec<String> = shown.iter().map(|fault| sentence(site, fault)).collect();
        let mut what = words.join("; ");
        let more: usize = rest.iter().map(Vec::len).sum();
        if more > 0 {
            what.push_str(&format!("; and {more} more like it"));
        }
        sink.warning(at, path, what, of_place[0].fix);
    }
}

/// Irregularities with the same words for several parts, together. In the order of the first of each.
fn by_fault(found: &[Irregularity]) -> Vec<Vec<&Irregularity>> {
    let mut faults: Vec<Vec<&Irregularity>> = Vec::new();
    let mut known: BTreeMap<&Several, usize> = BTreeMap::new();
    for one in found {
        let next = faults.len();
        let at = match &one.several {
            Some(several) => *known.entry(several).or_insert(next),
            None => next,
        };
        match faults.get_mut(at) {
            Some(fault) => fault.push(one),
            None => faults.push(vec![one]),
        }
    }
    faults
}

/// One fault in words, with the names of all its nodes.
fn sentence(site: &Site, fault: &[&Irregularity]) -> String {
    let several = fault.first().and_then(|first| first.several.as_ref());
    let Some(several) = several.filter(|_| fault.len() > 1) else {
        return fault.iter().map(ToString::to_string).collect();
    };
    let nodes = fault.iter().filter_map(|one| match one.culprit {
        Culprit::Node(node) => Some(&*site.node(node).name),
        Culprit::Site | Culprit::Switch(_) => None,
    });
    let (count, names) = (grouped(fault.len()), names(nodes));
    format!("{count} nodes ({names}) {}: {}", several.what, several.cost)
}

/// The first patterns of the names, and the number of all other names.
fn names<'n>(nodes: impl Iterator<Item = &'n str>) -> String {
    let all = patterns(nodes);
    let (shown, rest) = all.split_at(all.len().min(SHOWN_MAX));
    let shown: Vec<&str> = shown.iter().map(|(pattern, _)| pattern.as_str()).collect();
    let more: usize = rest.iter().map(|(_, count)| count).sum();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn some_patterns_are_shown_and_other_names_are_counted() {
        let shown = |all: &[&str]| names(all.iter().copied());
        assert_eq!(shown(&["gpu-08", "gpu-09", "gpu-10"]), "gpu-[08-10]");
        assert_eq!(shown(&["gpu-1", "gpu-7"]), "gpu-1, gpu-7");
        assert_eq!(shown(&["a-1", "b-7", "c-3", "d-5", "e-9"]), "a-1, b-7, c-3 and 2 more");
    }
}
