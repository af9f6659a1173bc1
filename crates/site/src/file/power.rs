//! Sections `outlet_layouts` and `power`.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_yaml::{Tree, Value};

use super::fields::{Cycle, Entry, Fields, NameCycle};
use super::names::{fill, shown};
use super::nodes::addresses;
use super::quantity::Unit;
use super::rooms::{chain, cycles};
use super::table::NONE;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{
    DomainId, DomainKind, FeedId, LayoutId, Outlet, OutletLayout, Phase, Phases, PowerDomain, RackId, Rating,
};

/// Maximum number of outlets of a rack PDU.
const MAX_OUTLETS: usize = 512;

/// Usable share of a breaker for continuous load if the file gives none (NEC 210.20).
const DEFAULT_DERATE: f64 = 0.8;

pub(super) fn read(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    read_layouts(draft, sections, sink);
    let mut wires = Vec::new();
    for item in sections.of("power") {
        match item_fields("power", *item, sink) {
            Some(fields) => read_domain(draft, fields, &mut wires),
            None => draft.domains.lost = true,
        }
    }
    join(draft, &wires, sink);
    sort(draft);
    check_parents(draft, sink);
    assign_feeds(draft, &wires, sink);
}

fn read_layouts(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("outlet_layouts") {
        let Some(mut fields) = item_fields("outlet_layouts", *item, sink) else {
            draft.layouts.lost = true;
            continue;
        };
        let names = fields.own_names("name");
        let outlets = match fields.need("outlets") {
            Some(tree) => outlets(&mut fields, tree),
            None => Vec::new(),
        };
        let entry = draft.layouts.enter(fields.finish());
        draft.layouts.lost |= names.is_empty();
        for name in names.iter() {
            if draft.layouts.add(sink, entry, name) {
                let (name, outlets) = (name.into(), outlets.clone());
                draft.site.layouts.push(OutletLayout { name, outlets });
            }
        }
    }
}

/// The outlets of a layout or a PDU. Empty if the list is invalid: then references to its outlets give no findings.
fn outlets<'t>(fields: &mut Fields<'t, '_>, tree: &'t Tree) -> Vec<Outlet> {
    let mut outlets: Vec<Outlet> = Vec::new();
    let mut broken = false;
    for (i, tree) in fields.list_in("outlets", tree).iter().enumerate() {
        let path = format!("outlets[{i}]");
        let Some(mut outlet) = fields.nested_in(&path, tree) else {
            broken = true;
            continue;
        };
        let names = outlet.own_names("name");
        let phases = phases(&mut outlet);
        outlet.distributes("phase", phases.len(), names.len());
        let amps = outlet.turns(|outlet| outlet.number("amps", Unit::Amps, 0.1..=1000.0));
        let entry = outlet.finish();
        broken |= names.is_empty();
        if outlets.len() + names.len() > MAX_OUTLETS {
            entry.error(
                fields.sink,
                "name",
                format!("there are more than {MAX_OUTLETS} outlets"),
                "",
            );
            return Vec::new();
        }
        for (i, name) in names.iter().enumerate() {
            if outlets.iter().any(|other| *other.name == *name) {
                entry.error(
                    fields.sink,
                    "name",
                    format!("outlet {name} exists already"),
                    "rename one of them",
                );
            }
            let phase = phases.get(i).copied().unwrap_or(Phase::All);
            outlets.push(Outlet {
                name: name.into(),
                phase,
                amps: amps.get(i).copied().flatten(),
            });
        }
    }
    if broken { Vec::new() } else { outlets }
}

/// One phase, or a list that is distributed over the items.
fn phases(fields: &mut Fields<'_, '_>) -> Cycle<Phase> {
    let words = fields.names("phase");
    let mut phases = Vec::new();
    for i in 0..words.len() {
        let word = words.get(i).unwrap_or("");
        match Phase::ALL.iter().find(|phase| phase.name() == word) {
            Some(phase) => phases.push(*phase),
            None => {
                let fix = "write one of L1, L2, L3, L1-L2, L2-L3, L3-L1, all";
                fields.error("phase", format!("`{word}` is not a phase"), fix);
                return Cycle::none();
            }
        }
    }
    Cycle::from(phases)
}

/// The references of a domain, before all names are known.
struct Wire {
    parent: Option<String>,
    /// A reference could not be read, so its consequences give no findings.
    is_broken: bool,
    feed: Feed,
    rack: Option<String>,
    layout: Option<String>,
}

fn read_domain(draft: &mut Draft, mut fields: Fields<'_, '_>, wires: &mut Vec<Wire>) {
    let names = fields.own_names("name");
    let kind = fields.need_choice("kind", &DomainKind::ALL, DomainKind::name);
    let parents = fields.names("parent");
    let has_rack = fields.has("rack");
    let parents = fields.with_placeholders("parent", parents, has_rack);
    if let Some(kind) = kind.filter(|kind| *kind >= DomainKind::Circuit && !fields.has("parent")) {
        fields.lacks("parent", format!("a {} needs a parent", kind.name()), "add `parent:`");
    }
    let racks = match kind.is_some_and(DomainKind::has_outlets) {
        true => fields.need_names("rack"),
        false => fields.names("rack"),
    };
    let bmcs = addresses(&mut fields, has_rack);
    if bmcs.len() > 0 && kind.is_some_and(|kind| !kind.has_outlets()) {
        fields.error(
            "bmc",
            "only a rack-pdu or a power-shelf is read over Redfish",
            "write `bmc` at the PDUs and power shelves below; their readings are added up",
        );
    }
    let phases = phases(&mut fields);
    let layout = layout(&mut fields, kind, draft);
    for (field, len) in [
        ("parent", parents.len()),
        ("rack", racks.len()),
        ("phase", phases.len()),
        ("outlets", layout.names.len()),
    ] {
        fields.distributes(field, len, names.len());
    }
    let values = fields.turns(|fields| domain_values(fields, kind));
    let has_parent = fields.has("parent");
    let (sink, entry) = fields.finish_with_sink();
    let entry = draft.domains.enter(entry);
    draft.domains.lost |= names.is_empty();
    for (i, name) in names.iter().enumerate() {
        let Some((feed, domain)) = values.get(i) else { continue };
        if !draft.domains.add(sink, entry, name) {
            continue;
        }
        let rack = racks.get(i).map(str::to_owned);
        let fill = |text: &str| fill(text, name, rack.as_deref().unwrap_or("")).into_owned();
        let parent = parents.get(i).map(fill);
        let bmc = bmcs.get(i).map(|bmc| fill(bmc).into());
        wires.push(Wire {
            is_broken: kind.is_none() || (has_parent && parent.is_none()),
            feed: feed.clone(),
            layout: layout.names.get(i).map(str::to_owned),
            parent,
            rack,
        });
        draft.site.domains.push(PowerDomain {
            name: name.into(),
            bmc,
            phase: phases.get(i).copied().unwrap_or(Phase::All),
            layout: layout.id,
            ..domain.clone()
        });
    }
}

/// The feed letter of a domain, and its values apart from names, phase and outlets.
fn domain_values(fields: &mut Fields<'_, '_>, kind: Option<DomainKind>) -> (Feed, PowerDomain) {
    let feed = feed_letter(fields);
    let rating = rating(fields);
    let derate = match rating {
        Rating::Watts(_) => 1.0,
        Rating::Electrical { .. } => DEFAULT_DERATE,
    };
    let domain = PowerDomain {
        name: Box::default(),
        kind: kind.unwrap_or(DomainKind::Panel),
        parent: None,
        feed: None,
        rating,
        derate: fields.number("derate", Unit::None, 0.05..=1.0).unwrap_or(derate),
        phase: Phase::All,
        rack: None,
        layout: None,
        other_watts: fields.number("other_watts", Unit::Watts, 0.0..=1e9).unwrap_or(0.0),
        measured_watts: fields.number("measured_watts", Unit::Watts, 0.0..=1e10),
        bmc: None,
    };
    (feed, domain)
}

/// The feed letter of a domain.
#[derive(Clone, PartialEq, Eq)]
enum Feed {
    None,
    Letter(Box<str>),
    /// The letter could not be read, so its absence gives no further finding.
    Broken,
}

impl Feed {
    fn letter(&self) -> Option<&str> {
        match self {
            Self::Letter(letter) => Some(letter),
            Self::None | Self::Broken => None,
        }
    }
}

fn feed_letter(fields: &mut Fields<'_, '_>) -> Feed {
    if !fields.has("feed") {
        // Registers the field as known.
        let _ = fields.take("feed");
        return Feed::None;
    }
    let Some(feed) = fields.text("feed") else {
        return Feed::Broken;
    };
    let mut letters = feed.bytes();
    match (letters.next(), letters.next()) {
        (Some(b'A'..=b'Z'), None) => Feed::Letter(feed.into()),
        (Some(letter @ b'a'..=b'z'), None) => {
            let fix = format!("write `{}`", char::from(letter.to_ascii_uppercase()));
            fields.error("feed", format!("`{feed}` is not a capital letter"), fix);
            Feed::Broken
        }
        _ => {
            let fix = "write one capital letter such as A or B; a domain that feeds several letters has none";
            fields.error("feed", format!("`{}` is not a feed letter", shown(feed)), fix);
            Feed::Broken
        }
    }
}

/// Watts, or volts with amps and phases. NaN if invalid.
fn rating(fields: &mut Fields<'_, '_>) -> Rating {
    let watts = fields.number("watts", Unit::Watts, 1.0..=1e10);
    let is_electrical = ["volts", "amps", "phases"].iter().any(|field| fields.has(field));
    if !is_electrical {
        if watts.is_none() {
            fields.lacks(
                "watts",
                "the rating is missing",
                "give volts, amps and phases, or watts",
            );
        }
        // Registers these fields as known, so that a misspelled one gets a suggestion.
        let _ = (fields.take("volts"), fields.take("amps"), fields.take("phases"));
        return Rating::Watts(watts.unwrap_or(f64::NAN));
    }
    let volts = fields.need_number("volts", Unit::Volts, 1.0..=1e6);
    let amps = fields.need_number("amps", Unit::Amps, 0.1..=1e5);
    let phases = match fields.need_text("phases") {
        Some("1") => Phases::Single,
        Some("3") => Phases::Three,
        Some(other) => {
            fields.error("phases", format!("`{other}` is not a number of phases"), "write 1 or 3");
            return Rating::Watts(f64::NAN);
        }
        None => return Rating::Watts(f64::NAN),
    };
    if watts.is_some() {
        fields.error(
            "watts",
            "the rating is given twice",
            "give either watts, or volts with amps and phases",
        );
    }
    Rating::Electrical { volts, amps, phases }
}

struct LayoutRef {
    id: Option<LayoutId>,
    names: NameCycle,
}

/// Outlets, given by the names of layouts or as a list.
fn layout(fields: &mut Fields<'_, '_>, kind: Option<DomainKind>, draft: &mut Draft) -> LayoutRef {
    // A domain of an unknown kind has unknown outlets, so references to them give no findings.
    let none = LayoutRef {
        id: kind.is_none().then_some(LayoutId::NONE),
        names: NameCycle::default(),
    };
    let tree = match kind.is_some_and(DomainKind::has_outlets) {
        true => fields.need("outlets"),
        false => fields.take("outlets"),
    };
    let (Some(tree), Some(kind)) = (tree, kind) else {
        return none;
    };
    if !kind.has_outlets() {
        let what = format!("a {} has no outlets", kind.name());
        fields.error("outlets", what, "outlets belong to rack-pdu and power-shelf");
        return none;
    }
    let by_name = match &tree.value {
        Value::Text(_) => true,
        Value::List(trees) => trees.iter().any(|tree| matches!(tree.value, Value::Text(_))),
        _ => false,
    };
    if by_name {
        return LayoutRef {
            id: None,
            names: fields.names_in("outlets", tree),
        };
    }
    let outlets = outlets(fields, tree);
    draft.layouts.unnamed();
    draft.site.layouts.push(OutletLayout {
        name: Box::default(),
        outlets,
    });
    LayoutRef {
        id: Some(LayoutId::of(draft.site.layouts.len() - 1)),
        names: NameCycle::default(),
    }
}

/// Resolves names to ids.
fn join(draft: &mut Draft, wires: &[Wire], sink: &mut Sink) {
    for (id, wire) in wires.iter().enumerate() {
        let entry = draft.domains.entry(id as u32);
        let domain = &mut draft.site.domains[id];
        if let Some(parent) = &wire.parent {
            domain.parent = Some(DomainId(draft.domains.find(sink, entry, "parent", parent)));
        }
        if let Some(rack) = &wire.rack {
            domain.rack = Some(RackId(draft.racks.find(sink, entry, "rack", rack)));
        }
        if let Some(layout) = &wire.layout {
            domain.layout = Some(LayoutId(draft.layouts.find(sink, entry, "outlets", layout)));
        }
        let lacks_parent = domain.parent.is_none() && domain.kind >= DomainKind::Circuit;
        if wire.is_broken || lacks_parent {
            domain.parent = Some(DomainId::NONE);
        }
    }
    let parents: Vec<u32> = draft
        .site
        .domains
        .iter()
        .map(|domain| domain.parent.map_or(NONE, |id| id.0))
        .collect();
    for cycle in cycles(&parents) {
        let name = |id: &u32| &*draft.site.domains[*id as usize].name;
        let what = format!(
            "the power tree has a cycle: {}",
            chain(&cycle, name).replace(" in ", " fed by ")
        );
        let entry = draft.domains.entry(cycle[0]);
        entry.error(sink, "parent", what, "give one of them another parent");
        for id in cycle {
            draft.site.domains[id as usize].parent = Some(DomainId::NONE);
        }
    }
}

/// Sorts parents before their children.
fn sort(draft: &mut Draft) {
    let domains = &draft.site.domains;
    let mut depth = vec![0_u32; domains.len()];
    for start in 0..domains.len() {
        let mut path = vec![start];
        let mut at = start;
        while let Some(parent) = domains[at].parent.filter(|id| !id.is_none()) {
            at = parent.index();
            if depth[at] > 0 {
                break;
            }
            path.push(at);
        }
        let above = depth[at];
        let base = if path.last() == Some(&at) { 0 } else { above };
        for (steps, id) in path.iter().rev().enumerate() {
            depth[*id] = base + steps as u32 + 1;
        }
    }
    let mut order: Vec<u32> = (0..domains.len() as u32).collect();
    order.sort_by_key(|id| depth[*id as usize]);
    let mut new = vec![0_u32; order.len()];
    for (to, from) in order.iter().enumerate() {
        new[*from as usize] = to as u32;
    }
    let mut old: Vec<Option<PowerDomain>> = std::mem::take(&mut draft.site.domains).into_iter().map(Some).collect();
    draft.site.domains = order.iter().filter_map(|id| old[*id as usize].take()).collect();
    for domain in &mut draft.site.domains {
        domain.parent = domain
            .parent
            .map(|id| if id.is_none() { id } else { DomainId(new[id.index()]) });
    }
    draft.domains.renumber(&new);
    draft.domain_order = order;
}

/// Checks the parent, the phase and the outlets of each domain.
fn check_parents(draft: &Draft, sink: &mut Sink) {
    for (id, domain) in draft.site.domains.iter().enumerate() {
        let entry = draft.domains.entry(id as u32);
        check_outlets(draft, domain, entry, sink);
        let Some(parent) = domain.parent.filter(|id| !id.is_none()) else {
            continue;
        };
        let above = draft.site.domain(parent);
        if above.kind.has_outlets() || above.kind > domain.kind {
            let what = format!(
                "a {} cannot be fed by {}, a {}",
                domain.kind.name(),
                above.name,
                above.kind.name()
            );
            entry.error(
                sink,
                "parent",
                what,
                "the order from the top is utility, panel, feed, circuit, rack-pdu or power-shelf",
            );
            continue;
        }
        if is_lost(above.rating) || is_lost(domain.rating) {
            continue;
        }
        let below_three = matches!(
            above.rating,
            Rating::Electrical {
                phases: Phases::Three,
                ..
            }
        );
        let single = matches!(
            domain.rating,
            Rating::Electrical {
                phases: Phases::Single,
                ..
            }
        );
        if below_three && single && domain.phase == Phase::All {
            let what = format!(
                "{} has three phases, but the phase of this single-phase domain is missing",
                above.name
            );
            entry.error(
                sink,
                "phase",
                what,
                "add `phase:` with L1, L2, L3, L1-L2, L2-L3 or L3-L1",
            );
        }
        if domain.phase != Phase::All && !(below_three && single) {
            let what = format!("{} is not a single-phase domain with a three-phase parent", domain.name);
            entry.error(sink, "phase", what, "remove `phase`");
        }
    }
}

/// Whether a rating could not be read.
fn is_lost(rating: Rating) -> bool {
    matches!(rating, Rating::Watts(watts) if watts.is_nan())
}

fn check_outlets(draft: &Draft, domain: &PowerDomain, entry: &Entry, sink: &mut Sink) {
    let single = matches!(
        domain.rating,
        Rating::Electrical {
            phases: Phases::Single,
            ..
        }
    );
    let Some(layout) = domain.layout.filter(|id| !id.is_none()) else {
        return;
    };
    let phased = draft
        .site
        .layout(layout)
        .outlets
        .iter()
        .find(|outlet| outlet.phase != Phase::All);
    if let (true, Some(outlet)) = (single, phased) {
        let what = format!(
            "outlet {} is on {}, but the PDU has only one phase",
            outlet.name,
            outlet.phase.name()
        );
        entry.error(sink, "outlets", what, "use a layout without phases");
    }
}

/// Passes feed letters down from parents. Every outlet must get a letter.
fn assign_feeds(draft: &mut Draft, wires: &[Wire], sink: &mut Sink) {
    let letters: BTreeSet<&str> = wires.iter().filter_map(|wire| wire.feed.letter()).collect();
    let ids: BTreeMap<&str, FeedId> = letters
        .iter()
        .enumerate()
        .map(|(i, letter)| (*letter, FeedId::of(i)))
        .collect();
    let mut lettered_below = vec![false; draft.site.domains.len()];
    // A letter at the domain or above it could not be read.
    let mut broken = vec![false; draft.site.domains.len()];
    for id in 0..draft.site.domains.len() {
        let feed = &wires[draft.domain_order[id] as usize].feed;
        let own = feed.letter().and_then(|letter| ids.get(letter)).copied();
        let parent = draft.site.domains[id].parent.filter(|id| !id.is_none());
        broken[id] = *feed == Feed::Broken || parent.is_some_and(|parent| broken[parent.index()]);
        let above = parent.and_then(|parent| draft.site.domain(parent).feed);
        if let (Some(own), Some(above)) = (own, above)
            && own != above
        {
            let letter = |id: FeedId| letters.iter().nth(id.index()).copied().unwrap_or_default();
            let what = format!(
                "this domain has feed {}, but its parent has feed {}",
                letter(own),
                letter(above)
            );
            draft
                .domains
                .entry(id as u32)
                .error(sink, "feed", what, "use the same feed letter from the top down");
        }
        draft.site.domains[id].feed = own.or(above);
        lettered_below[id] = own.is_some();
    }
    draft.site.feeds = letters.iter().map(|letter| (*letter).into()).collect();
    for id in (0..draft.site.domains.len()).rev() {
        if let Some(parent) = draft.site.domains[id].parent.filter(|id| !id.is_none()) {
            lettered_below[parent.index()] |= lettered_below[id];
        }
    }
    for (id, domain) in draft.site.domains.iter().enumerate() {
        if !domain.kind.has_outlets() || domain.feed.is_some() || broken[id] {
            continue;
        }
        // A path that ends at a fault gives no further finding.
        if let Some(top) = highest_without_letter(&draft.site.domains, id, &lettered_below) {
            let what = format!("the path to the outlets of {} has no feed letter", domain.name);
            let fix = "add `feed: A` (or B, C, ...) at the top of the domains that fail together";
            draft.domains.entry(top as u32).error(sink, "feed", what, fix);
        }
    }
}

/// The highest ancestor without a letter in its subtree. `None`: the path to the root is broken.
fn highest_without_letter(domains: &[PowerDomain], from: usize, lettered_below: &[bool]) -> Option<usize> {
    let mut top = from;
    let mut at = from;
    while let Some(parent) = domains[at].parent {
        if parent.is_none() {
            return None;
        }
        at = parent.index();
        if !lettered_below[at] {
            top = at;
        }
    }
    Some(top)
}
