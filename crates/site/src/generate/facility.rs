//! Generates rooms, racks, power, cooling, the SKU and its nodes.

use super::skus::Reference;
use super::{Request, digits, span, split, times};
use crate::text::Writer;

/// Number of racks in a row. One busway per feed runs along the row.
const ROW: usize = 8;

/// Number of racks on a liquid loop.
const LOOP: usize = 4;

/// Cooling capacity of a CRAH, in watts.
const CRAH_WATTS: usize = 100_000;

/// Sizes of breakers and busways, in amps.
const AMPS: [usize; 19] = [
    32, 63, 100, 160, 200, 250, 400, 630, 800, 1000, 1250, 1600, 2000, 2500, 3200, 4000, 5000, 6300, 8000,
];

/// The quantities of the site.
struct Facility<'a> {
    sku: &'a Reference,
    nodes: usize,
    racks: usize,
    rows: usize,
    rooms: usize,
    feeds: usize,
}

pub(super) fn write(text: &mut Writer, request: &Request, sku: &Reference) {
    let racks = request.nodes.div_ceil(sku.nodes_per_rack);
    let rows = racks.div_ceil(ROW);
    let facility = Facility {
        sku,
        nodes: request.nodes,
        racks,
        rows,
        rooms: rows.div_ceil(sku.rows_per_room),
        feeds: request.feeds,
    };
    facility.rooms_and_racks(text);
    facility.outlets(text);
    text.section("power");
    for feed in 0..facility.feeds {
        facility.feed(text, feed);
    }
    facility.cooling(text);
    facility.sku(text);
    facility.nodes(text, request.seed);
}

/// The smallest breaker or busway at 415 V that carries these watts at a derate of 0.8.
fn amps(watts: usize) -> usize {
    let needed = watts as f64 / (3_f64.sqrt() * 415.0 * 0.8);
    AMPS.iter()
        .copied()
        .find(|amps| *amps as f64 >= needed)
        .unwrap_or(needed.ceil() as usize)
}

fn letter(feed: usize) -> char {
    char::from(b'a' + feed as u8)
}

impl Facility<'_> {
    fn rack(&self, first: usize, count: usize) -> String {
        format!("r{}", span(first + 1, count, digits(self.racks)))
    }

    fn row(&self, first: usize, count: usize) -> String {
        span(first + 1, count, digits(self.rows))
    }

    fn room(&self, first: usize, count: usize) -> String {
        span(first + 1, count, digits(self.rooms))
    }

    fn racks_per_room(&self) -> usize {
        ROW * self.sku.rows_per_room
    }

    fn rooms_and_racks(&self, text: &mut Writer) {
        text.section("rooms");
        text.item(&[("name", format!("hall-{}", self.room(0, self.rooms)))]);
        text.section("racks");
        for (first, count) in split(self.racks, self.racks_per_room()) {
            let rooms = count.div_ceil(self.racks_per_room());
            let room = self.room(first / self.racks_per_room(), rooms);
            text.item(&[
                ("name", self.rack(first, count)),
                ("room", times(format!("hall-{room}"), count.min(self.racks_per_room()))),
                ("units", "48".to_owned()),
                ("weight_limit_kg", self.sku.rack_weight_limit_kg.to_string()),
                ("air_heat_limit_watts", self.sku.rack_air_limit_watts.to_string()),
                ("liquid", (self.sku.liquid_share > 0).to_string()),
            ]);
        }
    }

    fn outlets(&self, text: &mut Writer) {
        text.section("outlet_layouts");
        if self.sku.shelves {
            text.item(&[("name", "taps".to_owned()), ("outlets", String::new())]);
            text.line(format!("  - name: \"{}\"", span(1, self.sku.nodes_per_rack, 1)));
            return;
        }
        let mut sizes: Vec<usize> = (0..self.feeds).map(|feed| self.outlets_on(feed)).collect();
        sizes.dedup();
        for size in sizes {
            text.item(&[("name", format!("c19-{size}")), ("outlets", String::new())]);
            let phases = ["L1", "L2", "L3"];
            for (phase, name) in phases.iter().enumerate() {
                let numbers: Vec<String> = (phase + 1..=size).step_by(3).map(|number| number.to_string()).collect();
                if !numbers.is_empty() {
                    text.line(format!("  - name: \"[{}]\"", numbers.join(",")));
                    text.line(format!("    phase: {name}"));
                    text.line("    amps: 16");
                }
            }
        }
    }

    fn outlets_on(&self, feed: usize) -> usize {
        self.sku.nodes_per_rack * self.sku.psus_on(feed, self.feeds)
    }

    /// One feed, from the utility to the rack PDUs.
    fn feed(&self, text: &mut Writer, feed: usize) {
        let rack_watts = self.sku.feed_watts(feed, self.feeds);
        let f = letter(feed);
        text.item(&[
            ("name", format!("utility-{f}")),
            ("kind", "utility".to_owned()),
            ("feed", f.to_uppercase().to_string()),
            (
                "watts",
                format!("{} kW", (rack_watts * self.racks).div_ceil(100_000) * 100),
            ),
        ]);
        let item = |text: &mut Writer, name: String, kind: &str, parent: String, watts: usize| {
            text.item(&[
                ("name", name),
                ("kind", kind.to_owned()),
                ("parent", parent),
                ("volts", "415".to_owned()),
                ("amps", amps(watts).to_string()),
                ("phases", "3".to_owned()),
                ("derate", "0.8".to_owned()),
            ]);
        };
        let panels = format!("panel-{f}-{}", self.room(0, self.rooms));
        let room_racks = self.racks.min(self.racks_per_room());
        item(text, panels, "panel", format!("utility-{f}"), rack_watts * room_racks);
        for (first, count) in split(self.rows, self.sku.rows_per_room) {
            let each = self.sku.rows_per_room;
            let rooms = self.room(first / each, count.div_ceil(each));
            let name = format!("busway-{f}-{}", self.row(first, count));
            let parent = times(format!("panel-{f}-{rooms}"), count.min(each));
            item(text, name, "feed", parent, rack_watts * ROW);
        }
        for (first, count) in split(self.racks, ROW) {
            let rows = self.row(first / ROW, count.div_ceil(ROW));
            let parent = times(format!("busway-{f}-{rows}"), count.min(ROW));
            if !self.sku.shelves {
                let name = format!("circuit-{f}-{}", self.rack(first, count));
                item(text, name, "circuit", parent.clone(), rack_watts);
                continue;
            }
            for psu in (feed..self.sku.psus).step_by(self.feeds) {
                let name = format!("circuit-{}-{}", psu + 1, self.rack(first, count));
                item(text, name, "circuit", parent.clone(), self.shelf_watts());
            }
        }
        self.outlets_of_feed(text, feed);
    }

    /// Capacity of a power shelf: one PSU of each node.
    fn shelf_watts(&self) -> usize {
        (self.sku.psu_watts * self.sku.nodes_per_rack).div_ceil(1000) * 1000
    }

    fn outlets_of_feed(&self, text: &mut Writer, feed: usize) {
        let f = letter(feed);
        let racks = self.rack(0, self.racks);
        if !self.sku.shelves {
            text.item(&[
                ("name", format!("pdu-{f}-{racks}")),
                ("kind", "rack-pdu".to_owned()),
                ("parent", format!("circuit-{f}-{{rack}}")),
                ("rack", racks),
                ("volts", "415".to_owned()),
                ("amps", amps(self.sku.feed_watts(feed, self.feeds)).to_string()),
                ("phases", "3".to_owned()),
                ("derate", "0.8".to_owned()),
                ("outlets", format!("c19-{}", self.outlets_on(feed))),
            ]);
            return;
        }
        for psu in (feed..self.sku.psus).step_by(self.feeds) {
            text.item(&[
                ("name", format!("shelf-{}-{racks}", psu + 1)),
                ("kind", "power-shelf".to_owned()),
                ("parent", format!("circuit-{}-{{rack}}", psu + 1)),
                ("rack", racks.clone()),
                ("watts", self.shelf_watts().to_string()),
                ("outlets", "taps".to_owned()),
            ]);
        }
    }

    fn cooling(&self, text: &mut Writer) {
        let liquid_watts = self.sku.rack_watts() * self.sku.liquid_share / 1000;
        let air_watts = self.sku.rack_watts() - liquid_watts;
        text.section("cooling_units");
        // One more CRAH than the heat requires.
        let crahs = (air_watts * self.racks_per_room().min(self.racks)).div_ceil(CRAH_WATTS) + 1;
        let rooms = self.room(0, self.rooms);
        text.item(&[
            ("name", format!("crah-{rooms}-{}", span(1, crahs, digits(crahs)))),
            ("kind", "crah".to_owned()),
            ("room", times(format!("hall-{rooms}"), crahs)),
            ("watts", CRAH_WATTS.to_string()),
            ("supply_celsius", "22".to_owned()),
        ]);
        if liquid_watts == 0 {
            return;
        }
        let loops = self.racks.div_ceil(LOOP);
        let width = digits(loops);
        let room_loops = self.racks_per_room() / LOOP;
        for (first, count) in split(loops, room_loops) {
            let rooms = self.room(first / room_loops, count.div_ceil(room_loops));
            text.item(&[
                ("name", format!("cdu-{}-[1-2]", span(first + 1, count, width))),
                ("kind", "cdu".to_owned()),
                ("room", times(format!("hall-{rooms}"), 2 * count.min(room_loops))),
                ("watts", "500 kW".to_owned()),
                ("flow_lpm", "750".to_owned()),
                ("supply_celsius", "25".to_owned()),
            ]);
        }
        text.section("cooling_loops");
        for one in 0..loops {
            let racks = LOOP.min(self.racks - one * LOOP);
            text.item(&[
                ("name", format!("loop-{:0width$}", one + 1)),
                ("units", format!("cdu-{:0width$}-[1-2]", one + 1)),
                ("racks", self.rack(one * LOOP, racks)),
                ("flow_lpm", "1000".to_owned()),
            ]);
        }
    }

    fn sku(&self, text: &mut Writer) {
        let sku = self.sku;
        text.section("skus");
        text.item(&[
            ("name", sku.name.to_owned()),
            (
                "power",
                format!("{{typical_watts: {}, max_watts: {}}}", sku.typical_watts, sku.max_watts),
            ),
            (
                "psus",
                format!(
                    "{{count: {}, watts: {}, needed: {}}}",
                    sku.psus, sku.psu_watts, sku.psus_needed
                ),
            ),
            ("liquid_share", format!("{}", sku.liquid_share as f64 / 1000.0)),
            ("height_units", sku.height_units.to_string()),
            ("weight_kg", sku.weight_kg.to_string()),
            ("gpus", sku.gpus.to_string()),
            ("hcas", format!("[{}]", sku.hcas.join(", "))),
            ("hca_speed", "NDR".to_owned()),
            ("inventory", sku.inventory.to_owned()),
            ("validation_profile", sku.name.to_owned()),
        ]);
    }

    fn nodes(&self, text: &mut Writer, seed: u8) {
        let each = self.sku.nodes_per_rack;
        text.section("nodes");
        for (first, count) in split(self.nodes, each) {
            let racks = self.rack(first / each, count.div_ceil(each));
            let here = count.min(each);
            let units: Vec<String> = (0..here)
                .map(|i| (self.sku.first_unit + i * self.sku.height_units).to_string())
                .collect();
            text.item(&[
                ("name", node(self.nodes, first, count)),
                ("sku", self.sku.name.to_owned()),
                ("rack", times(racks, here)),
                ("unit", format!("[{}]", units.join(", "))),
                ("psus", String::new()),
            ]);
            for psu in 0..self.sku.psus {
                text.line(format!("  - {}", self.outlet(psu, here)));
            }
            text.line("  bmc: https://bmc-{name}");
            text.line("  guids:");
            for (rail, hca) in self.sku.hcas.iter().enumerate() {
                let guid = (0xa0_88c2 << 40) | (u64::from(seed) << 32) | (first as u64 * 0x100 + rail as u64 * 0x10);
                text.line(format!("    {hca}: {guid:#018x}+0x100"));
            }
        }
    }

    /// The outlets of a PSU for the nodes of a rack.
    fn outlet(&self, psu: usize, nodes: usize) -> String {
        if self.sku.shelves {
            return format!("shelf-{}-{{rack}}/{}", psu + 1, span(1, nodes, 1));
        }
        let feed = psu % self.feeds;
        let each = self.sku.psus_on(feed, self.feeds);
        let outlets: Vec<String> = (0..nodes)
            .map(|node| (node * each + psu / self.feeds + 1).to_string())
            .collect();
        format!("pdu-{}-{{rack}}/[{}]", letter(feed), outlets.join(","))
    }
}

/// Such as `gpu-[0001-1024]`.
pub(super) fn node(nodes: usize, first: usize, count: usize) -> String {
    format!("gpu-{}", span(first + 1, count, digits(nodes)))
}
