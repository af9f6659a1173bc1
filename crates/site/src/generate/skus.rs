//! The reference SKUs: figures from their data sheets, as far as a plan needs them.

use super::ReferenceSku;

/// A SKU and its arrangement in racks.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) name: &'static str,
    pub(super) typical_watts: usize,
    pub(super) max_watts: usize,
    pub(super) psus: usize,
    pub(super) psu_watts: usize,
    pub(super) psus_needed: usize,
    /// Share of heat to liquid, in thousandths.
    pub(super) liquid_share: usize,
    pub(super) height_units: usize,
    pub(super) weight_kg: usize,
    pub(super) gpus: usize,
    /// In the order of the rails.
    pub(super) hcas: &'static [&'static str],
    pub(super) inventory: &'static str,
    pub(super) nodes_per_rack: usize,
    /// The lowest unit of the first node in a rack.
    pub(super) first_unit: usize,
    pub(super) rack_weight_limit_kg: usize,
    pub(super) rack_air_limit_watts: usize,
    pub(super) rows_per_room: usize,
    /// Whether each PSU has its own power shelf, with a tap for each node. Otherwise each feed has a rack PDU.
    pub(super) shelves: bool,
}

pub(super) fn reference(sku: ReferenceSku) -> Reference {
    let eight = &[
        "mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11",
    ];
    let h100 = Reference {
        name: sku.name(),
        typical_watts: 5600,
        max_watts: 10_200,
        psus: 6,
        psu_watts: 3300,
        psus_needed: 4,
        liquid_share: 0,
        height_units: 8,
        weight_kg: 131,
        gpus: 8,
        hcas: eight,
        inventory: "{cpu: 2, gpu: 8, hca: 8, memory_gib: 2048, nvme: 10}",
        nodes_per_rack: 4,
        first_unit: 3,
        rack_weight_limit_kg: 1500,
        rack_air_limit_watts: 41_000,
        rows_per_room: 8,
        shelves: false,
    };
    match sku {
        ReferenceSku::DgxH100 => h100,
        ReferenceSku::DgxB200 => Reference {
            typical_watts: 10_000,
            max_watts: 14_300,
            psus_needed: 5,
            height_units: 10,
            weight_kg: 143,
            nodes_per_rack: 2,
            ..h100
        },
        // 18 trays share 8 shelves of 33 kW. Their figures include a part of the switch trays' power.
        ReferenceSku::Gb200Nvl72 => Reference {
            typical_watts: 6700,
            max_watts: 7300,
            psus: 8,
            psu_watts: 1833,
            psus_needed: 4,
            liquid_share: 850,
            height_units: 1,
            weight_kg: 76,
            gpus: 4,
            hcas: &["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"],
            inventory: "{cpu: 2, gpu: 4, hca: 4, memory_gib: 960, nvme: 8}",
            nodes_per_rack: 18,
            first_unit: 9,
            rack_weight_limit_kg: 1800,
            rack_air_limit_watts: 30_000,
            rows_per_room: 2,
            shelves: true,
            ..h100
        },
    }
}

impl Reference {
    /// Number of PSUs on a feed when they are assigned in turn.
    pub(super) fn psus_on(&self, feed: usize, feeds: usize) -> usize {
        (feed..self.psus).step_by(feeds).count()
    }

    /// Maximum load of one feed of a full rack, in watts: after the loss of the feed with the most PSUs, with all nodes
    /// still running.
    pub(super) fn feed_watts(&self, feed: usize, feeds: usize) -> usize {
        let lost = (0..feeds)
            .filter(|other| *other != feed)
            .map(|other| self.psus_on(other, feeds))
            .max();
        let live = self.psus - lost.unwrap_or(0);
        (self.rack_watts() * self.psus_on(feed, feeds)).div_ceil(live)
    }

    pub(super) fn rack_watts(&self) -> usize {
        self.max_watts * self.nodes_per_rack
    }
}
