//! Writes a draft as the text of a site file, in compact notation. Gaps become comments above the item and findings at its
//! line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::draft::{Domain, Draft, End, Gap, Node, Outlet, Rack, Rating, Remarks, Sku, Switch};
use rackwright_site::compact::{Field, Folder, Item, Row, Value, template};
use rackwright_site::finding::{Sink, Spot};
use rackwright_site::model::{Phase, Phases};
use rackwright_site::text::{Writer, comment, in_flow, scalar};

/// Column of the first field of an item, after `- `.
const COLUMN: u32 = 3;

/// How regular items are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As one item with patterns.
    Compact,
    /// As single items.
    #[cfg(test)]
    Single,
}

struct Page<'a> {
    text: Writer,
    sink: &'a mut Sink,
    /// Index of the written file in the sink.
    file: u32,
    form: Form,
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

/// Returns the text. Its gaps become findings in the file with this index.
pub(super) fn write(draft: &Draft, form: Form, file: u32, sink: &mut Sink) -> String {
    let mut page = Page {
        text: Writer::default(),
        sink,
        file,
        form,
        section: "",
        index: 0,
        assumed: BTreeMap::new(),
    };
    page.text.line(format!("# {}", comment(&draft.title)));
    page.text.line("site:");
    page.text.line(format!("  name: {}", scalar(&draft.name)));
    page.rooms(draft);
    page.list("racks", &draft.racks, rack);
    page.list("power", &draft.domains, domain);
    page.list("skus", &draft.skus, sku);
    page.list("nodes", &draft.nodes, node);
    page.list("switches", &draft.switches, switch);
    page.list("cables", &draft.cables, |cable| Row {
        comments: Vec::from_iter((!cable.note.is_empty()).then(|| comment(&cable.note))),
        fields: vec![
            Field::new("- label: ", Value::Name(cable.label.clone())),
            Field::new("  a: ", Value::Shared(end(draft, &cable.a))),
            Field::new("  b: ", Value::Shared(end(draft, &cable.b))),
        ],
        tag: Vec::new(),
    });
    page.report_assumed();
    page.text.finish()
}

fn end(draft: &Draft, end: &End) -> String {
    match end {
        End::Hca(node, hca) => {
            let name = draft.nodes.get(*node).map_or("", |node| node.name.as_str());
            format!("{name}/{hca}")
        }
        End::Port(switch, port) => {
            let name = draft.switches.get(*switch).map_or("", |switch| switch.name.as_str());
            format!("{name}/{port}")
        }
    }
}

/// An item with what its source does not say.
type Noted = Row<Vec<Gap>>;

impl Page<'_> {
    fn list<'d, T>(&mut self, section: &'static str, items: &'d [T], row: impl Fn(&'d T) -> Noted) {
        if items.is_empty() {
            return;
        }
        self.text.section(section);
        self.section = section;
        self.index = 0;
        let mut folder = Folder::default();
        for item in items {
            folder.push(row(item), |item| self.item(item));
            if self.form != Form::Compact {
                std::mem::take(&mut folder).finish(|item| self.item(item));
            }
        }
        folder.finish(|item| self.item(item));
    }

    fn item(&mut self, item: Item<Vec<Gap>>) {
        for line in &item.comments {
            self.text.line(format!("# {line}"));
        }
        self.gaps(&item.tag, item.count);
        for (lead, value) in &item.lines {
            self.text.line(format!("{lead}{value}"));
        }
        self.index += 1;
    }

    /// Adds findings about the next item, which stands for `count` objects.
    fn gaps(&mut self, gaps: &[Gap], count: usize) {
        let at = Spot {
            file: self.file,
            line: self.text.next_line(),
            column: COLUMN,
        };
        for gap in gaps {
            let path = format!("{}[{}].{}", self.section, self.index, gap.field);
            if gap.missing {
                self.sink.error(at, path, gap.what.as_str(), gap.fix.as_str());
                continue;
            }
            // The same assumption about thousands of objects is reported once. Each item has a comment.
            let like = (self.section, gap.field, gap.fix.clone());
            match self.assumed.get_mut(&like) {
                Some(first) if first.at == at => {}
                Some(first) => first.more += count,
                None => {
                    let (what, more) = (gap.what.clone(), count - 1);
                    self.assumed.insert(like, Assumed { at, path, what, more });
                }
            }
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

    fn rooms(&mut self, draft: &Draft) {
        if draft.rooms.is_empty() {
            return;
        }
        self.text.section("rooms");
        for room in &draft.rooms {
            let mut fields = vec![("name", scalar(&room.name))];
            fields.extend(room.parent.iter().map(|parent| ("parent", scalar(parent))));
            self.text.item(&fields);
        }
    }
}

/// The fields of an item after its name.
struct Fields(Vec<Field>);

impl Fields {
    fn named(name: &str) -> Self {
        Self(vec![Field::new("- name: ", Value::Name(name.to_owned()))])
    }

    fn add(&mut self, lead: impl Into<Cow<'static, str>>, value: Value) {
        self.0.push(Field::new(lead, value));
    }

    /// A value that all items of a group share.
    fn same(&mut self, lead: &'static str, value: Option<impl ToString>) {
        self.0
            .extend(value.map(|value| Field::new(lead, Value::Same(value.to_string()))));
    }

    /// A name of another object.
    fn other(&mut self, lead: &'static str, name: Option<&str>) {
        self.0
            .extend(name.map(|name| Field::new(lead, Value::Shared(name.to_owned()))));
    }

    fn number(&mut self, lead: &'static str, number: Option<impl Into<u64>>) {
        let value = number.map(Into::into).map(|number: u64| match u32::try_from(number) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Same(number.to_string()),
        });
        self.0.extend(value.map(|value| Field::new(lead, value)));
    }

    fn with(self, remarks: &Remarks) -> Noted {
        Row {
            comments: remarks.comments.iter().map(|line| comment(line)).collect(),
            fields: self.0,
            tag: remarks.gaps.clone(),
        }
    }
}

fn filled(text: &str, name: &str, rack: Option<&str>, is_own: bool) -> Value {
    Value::Filled {
        text: text.to_owned(),
        template: template(text, name, rack.unwrap_or_default()),
        is_own,
    }
}

fn rack(rack: &Rack) -> Noted {
    let mut fields = Fields::named(&rack.name);
    fields.other("  room: ", Some(&rack.room));
    fields.same("  units: ", rack.units);
    fields.same("  weight_limit_kg: ", rack.weight_limit_kg);
    fields.with(&rack.remarks)
}

fn domain(domain: &Domain) -> Noted {
    let (name, rack) = (domain.name.as_str(), domain.rack.as_deref());
    let mut fields = Fields::named(name);
    fields.same("  kind: ", Some(domain.kind.name()));
    if let Some(parent) = &domain.parent {
        fields.add("  parent: ", filled(parent, name, rack, false));
    }
    fields.same("  feed: ", domain.feed.as_deref().map(scalar));
    fields.other("  rack: ", rack);
    match domain.rating {
        Some(Rating::Electrical { volts, amps, phases }) => {
            let phases = match phases {
                Phases::Single => "1",
                Phases::Three => "3",
            };
            fields.same("  volts: ", Some(volts));
            fields.same("  amps: ", Some(amps));
            fields.same("  phases: ", Some(phases));
        }
        Some(Rating::Watts(watts)) => fields.same("  watts: ", Some(watts)),
        None => {}
    }
    fields.same("  derate: ", domain.derate);
    if domain.kind.has_outlets() {
        let is_empty = domain.outlets.is_empty();
        fields.same("  outlets:", Some(if is_empty { " []" } else { "" }));
    }
    for outlet in outlets(&domain.outlets) {
        fields.same("  - ", Some(outlet));
    }
    fields.with(&domain.remarks)
}

/// The outlets as items on one line each.
fn outlets(outlets: &[Outlet]) -> Vec<String> {
    let mut folder = Folder::default();
    let mut lines = Vec::new();
    let mut line = |item: Item<()>| {
        let parts = item
            .lines
            .iter()
            .map(|(lead, value)| format!("{lead}{}", in_flow(value)));
        lines.push(format!("{{{}}}", parts.collect::<Vec<_>>().join(", ")));
    };
    for outlet in outlets {
        let mut fields = vec![Field::new("name: ", Value::Name(outlet.name.clone()))];
        if outlet.phase != Phase::All {
            fields.push(Field::new("phase: ", Value::Shared(outlet.phase.name().to_owned())));
        }
        let amps = outlet.amps.map(|amps| Value::Same(amps.to_string()));
        fields.extend(amps.map(|amps| Field::new("amps: ", amps)));
        let row = Row {
            comments: Vec::new(),
            fields,
            tag: (),
        };
        folder.push(row, &mut line);
    }
    folder.finish(&mut line);
    lines
}

fn sku(sku: &Sku) -> Noted {
    let mut fields = Fields(vec![Field::new("- name: ", Value::Same(scalar(&sku.name)))]);
    fields.same(
        "  power: ",
        sku.max_watts.map(|watts| format!("{{max_watts: {watts}}}")),
    );
    let psus = sku.psus.map(|psus| {
        let (count, watts, needed) = (psus.count, psus.watts, psus.needed);
        format!("{{count: {count}, watts: {watts}, needed: {needed}}}")
    });
    fields.same("  psus: ", psus);
    fields.same("  height_units: ", sku.height_units);
    fields.same("  weight_kg: ", sku.weight_kg);
    if !sku.hcas.is_empty() {
        let names: Vec<String> = sku.hcas.iter().map(|hca| scalar(hca)).collect();
        fields.same("  hcas: ", Some(format!("[{}]", names.join(", "))));
    }
    fields.same("  hca_speed: ", sku.speed.map(|speed| speed.name()));
    fields.with(&sku.remarks)
}

fn node(node: &Node) -> Noted {
    let (name, rack) = (node.name.as_str(), node.rack.as_deref());
    let mut fields = Fields::named(name);
    fields.same("  sku: ", Some(scalar(&node.sku)));
    fields.other("  rack: ", rack);
    fields.number("  unit: ", node.unit);
    if let Some(bmc) = &node.bmc {
        fields.add("  bmc: ", filled(bmc, name, rack, true));
    }
    if let Some(psus) = &node.psus {
        fields.same("  psus:", Some(if psus.is_empty() { " []" } else { "" }));
    }
    for psu in node.psus.iter().flatten() {
        let outlet = psu.as_deref().map(|outlet| filled(outlet, name, rack, false));
        fields.add("  - ", outlet.unwrap_or_else(|| Value::Same("~".to_owned())));
    }
    if !node.guids.is_empty() {
        fields.same("  guids:", Some(""));
    }
    for (hca, guid) in &node.guids {
        fields.add(format!("    {}: ", scalar(hca)), Value::Guid(*guid));
    }
    fields.with(&node.remarks)
}

fn switch(switch: &Switch) -> Noted {
    let mut fields = Fields::named(&switch.name);
    fields.same("  role: ", switch.role.map(|role| role.name()));
    fields.same("  ports: ", Some(switch.ports));
    fields.same("  speed: ", switch.speed.map(|speed| speed.name()));
    fields.number("  rail: ", switch.rail);
    fields.number("  scalable_unit: ", switch.scalable_unit.map(|unit| unit as u64));
    fields.number("  pod: ", switch.pod.map(|pod| pod as u64));
    fields.other("  rack: ", switch.rack.as_deref());
    fields.number("  unit: ", switch.unit);
    fields.same("  height_units: ", switch.height_units);
    if let Some(guid) = switch.guid {
        fields.add("  guid: ", Value::Guid(guid));
    }
    fields.with(&switch.remarks)
}
