//! Writes a draft as the text of a site file. Gaps become comments above the item and findings at its line.

use std::collections::BTreeMap;

use super::draft::{Domain, Draft, End, Node, Outlet, Rating, Remarks, Sku, Switch};
use rackwright_site::finding::{Sink, Spot};
use rackwright_site::model::{Phase, Phases};
use rackwright_site::text::{Writer, comment, scalar};

/// Column of the first field of an item, after `- `.
const COLUMN: u32 = 3;

struct Page<'a> {
    text: Writer,
    sink: &'a mut Sink,
    /// Index of the written file in the sink.
    file: u32,
    section: &'static str,
    index: usize,
    /// By section, field and fix.
    assumed: BTreeMap<(&'static str, &'static str, String), Assumed>,
}

/// The first of several items with the same assumption.
struct Assumed {
    at: Spot,
    path: String,
    what: String,
    more: usize,
}

type Fields = Vec<(&'static str, String)>;

/// Returns the text. Its gaps become findings in the file with this index.
pub(super) fn write(draft: &Draft, file: u32, sink: &mut Sink) -> String {
    let mut page = Page {
        text: Writer::default(),
        sink,
        file,
        section: "",
        index: 0,
        assumed: BTreeMap::new(),
    };
    page.text.line(format!("# {}", comment(&draft.title)));
    page.text.line("site:");
    page.text.line(format!("  name: {}", scalar(&draft.name)));
    page.places(draft);
    page.list("power", &draft.domains, |page, domain| page.domain(domain));
    page.list("skus", &draft.skus, |page, sku| page.sku(sku));
    page.list("nodes", &draft.nodes, |page, node| page.node(node));
    page.list("switches", &draft.switches, |page, switch| page.switch(switch));
    page.list("cables", &draft.cables, |page, cable| {
        let (a, b) = (end(draft, &cable.a), end(draft, &cable.b));
        if !cable.note.is_empty() {
            page.text.line(format!("# {}", comment(&cable.note)));
        }
        page.text.item(&[("label", scalar(&cable.label)), ("a", a), ("b", b)]);
    });
    page.report_assumed();
    page.text.finish()
}

fn end(draft: &Draft, end: &End) -> String {
    match end {
        End::Hca(node, hca) => {
            let name = draft.nodes.get(*node).map_or("", |node| node.name.as_str());
            scalar(&format!("{name}/{hca}"))
        }
        End::Port(switch, port) => {
            let name = draft.switches.get(*switch).map_or("", |switch| switch.name.as_str());
            scalar(&format!("{name}/{port}"))
        }
    }
}

impl Page<'_> {
    fn list<T>(&mut self, section: &'static str, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        if items.is_empty() {
            return;
        }
        self.text.section(section);
        self.section = section;
        for (index, item) in items.iter().enumerate() {
            self.index = index;
            write(self, item);
        }
    }

    fn remarks(&mut self, remarks: &Remarks) {
        for line in &remarks.comments {
            self.text.line(format!("# {}", comment(line)));
        }
        let at = Spot {
            file: self.file,
            line: self.text.next_line(),
            column: COLUMN,
        };
        for gap in &remarks.gaps {
            let path = format!("{}[{}].{}", self.section, self.index, gap.field);
            if gap.missing {
                self.sink.error(at, path, gap.what.as_str(), gap.fix.as_str());
                continue;
            }
            // The same assumption about thousands of items is reported once. Each item has a comment.
            let like = (self.section, gap.field, gap.fix.clone());
            let what = gap.what.clone();
            let first = self.assumed.entry(like).or_insert_with(|| Assumed {
                at,
                path,
                what,
                more: 0,
            });
            first.more += usize::from(first.at != at);
        }
    }

    fn report_assumed(&mut self) {
        for ((_, _, fix), first) in std::mem::take(&mut self.assumed) {
            let what = match first.more {
                0 => first.what,
                more => format!("{}; and {more} more like it, marked ASSUMED", first.what),
            };
            self.sink.warning(first.at, first.path, what, fix);
        }
    }

    fn places(&mut self, draft: &Draft) {
        self.list("rooms", &draft.rooms, |page, room| {
            let mut fields = vec![("name", scalar(&room.name))];
            fields.extend(room.parent.iter().map(|parent| ("parent", scalar(parent))));
            page.text.item(&fields);
        });
        self.list("racks", &draft.racks, |page, rack| {
            page.remarks(&rack.remarks);
            let mut fields = vec![("name", scalar(&rack.name)), ("room", scalar(&rack.room))];
            fields.extend(rack.units.map(|units| ("units", units.to_string())));
            fields.extend(rack.weight_limit_kg.map(|kg| ("weight_limit_kg", kg.to_string())));
            page.text.item(&fields);
        });
    }

    fn domain(&mut self, domain: &Domain) {
        self.remarks(&domain.remarks);
        let mut fields: Fields = vec![("name", scalar(&domain.name)), ("kind", domain.kind.name().to_owned())];
        fields.extend(domain.parent.iter().map(|parent| ("parent", scalar(parent))));
        fields.extend(domain.feed.iter().map(|feed| ("feed", scalar(feed))));
        fields.extend(domain.rack.iter().map(|rack| ("rack", scalar(rack))));
        match domain.rating {
            Some(Rating::Electrical { volts, amps, phases }) => {
                let phases = match phases {
                    Phases::Single => "1",
                    Phases::Three => "3",
                };
                fields.push(("volts", volts.to_string()));
                fields.push(("amps", amps.to_string()));
                fields.push(("phases", phases.to_owned()));
            }
            Some(Rating::Watts(watts)) => fields.push(("watts", watts.to_string())),
            None => {}
        }
        fields.extend(domain.derate.map(|derate| ("derate", derate.to_string())));
        if domain.kind.has_outlets() {
            fields.push(("outlets", if domain.outlets.is_empty() { "[]" } else { "" }.to_owned()));
        }
        self.text.item(&fields);
        for outlet in &domain.outlets {
            self.outlet(outlet);
        }
    }

    fn outlet(&mut self, outlet: &Outlet) {
        let mut parts = vec![format!("name: {}", scalar(&outlet.name))];
        if outlet.phase != Phase::All {
            parts.push(format!("phase: {}", outlet.phase.name()));
        }
        parts.extend(outlet.amps.map(|amps| format!("amps: {amps}")));
        self.text.line(format!("  - {{{}}}", parts.join(", ")));
    }

    fn sku(&mut self, sku: &Sku) {
        self.remarks(&sku.remarks);
        let mut fields: Fields = vec![("name", scalar(&sku.name))];
        fields.extend(sku.max_watts.map(|watts| ("power", format!("{{max_watts: {watts}}}"))));
        fields.extend(sku.psus.map(|psus| {
            let (count, watts, needed) = (psus.count, psus.watts, psus.needed);
            ("psus", format!("{{count: {count}, watts: {watts}, needed: {needed}}}"))
        }));
        fields.extend(sku.height_units.map(|units| ("height_units", units.to_string())));
        fields.extend(sku.weight_kg.map(|kg| ("weight_kg", kg.to_string())));
        if !sku.hcas.is_empty() {
            let names: Vec<String> = sku.hcas.iter().map(|hca| scalar(hca)).collect();
            fields.push(("hcas", format!("[{}]", names.join(", "))));
        }
        fields.extend(sku.speed.map(|speed| ("hca_speed", speed.name().to_owned())));
        self.text.item(&fields);
    }

    fn node(&mut self, node: &Node) {
        self.remarks(&node.remarks);
        let mut fields: Fields = vec![("name", scalar(&node.name)), ("sku", scalar(&node.sku))];
        fields.extend(node.rack.iter().map(|rack| ("rack", scalar(rack))));
        fields.extend(node.unit.map(|unit| ("unit", unit.to_string())));
        fields.extend(node.bmc.iter().map(|bmc| ("bmc", scalar(bmc))));
        if let Some(psus) = &node.psus {
            fields.push(("psus", if psus.is_empty() { "[]" } else { "" }.to_owned()));
        }
        self.text.item(&fields);
        for psu in node.psus.iter().flatten() {
            let outlet = psu.as_deref().map_or_else(|| "~".to_owned(), scalar);
            self.text.line(format!("  - {outlet}"));
        }
        if !node.guids.is_empty() {
            self.text.line("  guids:");
        }
        for (hca, guid) in &node.guids {
            self.text.line(format!("    {}: {guid:#018x}", scalar(hca)));
        }
    }

    fn switch(&mut self, switch: &Switch) {
        self.remarks(&switch.remarks);
        let mut fields: Fields = vec![("name", scalar(&switch.name))];
        fields.extend(switch.role.map(|role| ("role", role.name().to_owned())));
        fields.push(("ports", switch.ports.to_string()));
        fields.extend(switch.speed.map(|speed| ("speed", speed.name().to_owned())));
        fields.extend(switch.rail.map(|rail| ("rail", rail.to_string())));
        fields.extend(switch.scalable_unit.map(|unit| ("scalable_unit", unit.to_string())));
        fields.extend(switch.pod.map(|pod| ("pod", pod.to_string())));
        fields.extend(switch.rack.iter().map(|rack| ("rack", scalar(rack))));
        fields.extend(switch.unit.map(|unit| ("unit", unit.to_string())));
        fields.extend(switch.height_units.map(|units| ("height_units", units.to_string())));
        fields.extend(switch.guid.map(|guid| ("guid", format!("{guid:#018x}"))));
        self.text.item(&fields);
    }
}
