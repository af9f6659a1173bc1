//! Plans of regular fat-trees: leaves and spines, and pods and cores if spines do not suffice.
//!
//! The numbers of switches match NVIDIA's DGX SuperPOD reference architecture for the same number of nodes.

use super::guid::Guid;
use super::model::Role;
use super::plan::{PlannedCable, PlannedDevice};
use super::rate::{Speed, Width};

/// The parameters of a fat-tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatTree {
    /// Number of nodes.
    pub hosts: u32,
    /// Number of adapters per node.
    pub rails: u8,
    /// Whether adapter r of every node of a unit is on leaf r of the unit. Otherwise all adapters of a node are on one
    /// leaf.
    pub rail_optimised: bool,
    /// Number of ports of every switch: even, 4 to 128.
    pub radix: u8,
    /// Speed of every link, with four lanes.
    pub speed: Speed,
    /// Whether devices get invented GUIDs, in one of NVIDIA's ranges.
    pub with_guids: bool,
}

impl FatTree {
    /// A rail-optimised tree with eight adapters per node and 64-port switches at NDR.
    pub fn rail_optimised(hosts: u32) -> Self {
        Self {
            hosts,
            rails: 8,
            rail_optimised: true,
            radix: 64,
            speed: Speed::Ndr,
            with_guids: true,
        }
    }

    /// Devices and cables, leaves first. Names are `leaf-su01-r0`, `spine-01`, `core-g01-01` and `gpu0001 mlx5_0`.
    ///
    /// # Errors
    /// No such tree exists.
    pub fn plan(&self) -> Result<(Vec<PlannedDevice>, Vec<PlannedCable>), TreeError> {
        let half = u32::from(self.radix / 2);
        let rails = u32::from(self.rails);
        if self.hosts == 0 || rails == 0 || !(4..=128).contains(&self.radix) || !self.radix.is_multiple_of(2) {
            return Err(TreeError::Nonsense);
        }
        if !self.rail_optimised && rails > half {
            return Err(TreeError::TooManyRails { rails, most: half });
        }
        let mut maker = Maker::new(self);
        let down = maker.leaves_and_hosts();
        let leaves = maker.leaves;
        if leaves == 1 {
            return Ok(maker.done());
        }
        if leaves <= 2 * half {
            maker.spines(down);
        } else {
            maker.pods_and_cores()?;
        }
        Ok(maker.done())
    }
}

/// Why there is no such tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// There are no hosts or no rails, or the number of ports is invalid.
    #[error("a fat-tree needs at least one node, one rail, and switches with an even number of 4 to 128 ports")]
    Nonsense,
    /// A leaf cannot take one node.
    #[error("{rails} adapters of one node do not fit the {most} lower ports of a leaf")]
    TooManyRails {
        /// Adapters per node.
        rails: u32,
        /// Lower ports of a leaf.
        most: u32,
    },
    /// Three levels do not suffice.
    #[error("{pods} pods are more than the {most} that three levels of these switches connect")]
    TooLarge {
        /// Number of required pods.
        pods: u32,
        /// Maximum number of pods.
        most: u32,
    },
}

struct Maker<'a> {
    tree: &'a FatTree,
    half: u32,
    leaves: u32,
    devices: Vec<PlannedDevice>,
    cables: Vec<PlannedCable>,
}

impl<'a> Maker<'a> {
    fn new(tree: &'a FatTree) -> Self {
        Self {
            tree,
            half: u32::from(tree.radix / 2),
            leaves: 0,
            devices: Vec::new(),
            cables: Vec::new(),
        }
    }

    fn done(self) -> (Vec<PlannedDevice>, Vec<PlannedCable>) {
        (self.devices, self.cables)
    }

    fn switch(&mut self, name: String, role: Role, rail: Option<u32>) -> usize {
        let at = self.devices.len();
        let guid = Guid::new(0xfc6a_1c03_0000_0000 + at as u64 * 0x40);
        self.devices.push(PlannedDevice {
            guid: guid.filter(|_| self.tree.with_guids),
            rail: rail.and_then(|rail| u8::try_from(rail).ok()),
            ..PlannedDevice::switch(name, role, self.tree.radix)
        });
        at
    }

    /// Port numbers are at most the radix, which is a `u8`.
    fn cable(&mut self, a: (usize, u32), b: (usize, u32)) {
        let name = format!("{:04}", self.cables.len() + 1);
        let end = |(device, port): (usize, u32)| (device, port as u8);
        self.cables.push(PlannedCable {
            name,
            a: end(a),
            b: end(b),
            speed: Some(self.tree.speed),
            width: Some(Width::X4),
        });
    }

    /// Returns the number of lower ports used on the fullest leaf.
    fn leaves_and_hosts(&mut self) -> u32 {
        let rails = u32::from(self.tree.rails);
        let per_unit = if self.tree.rail_optimised {
            self.half
        } else {
            self.half / rails
        };
        let units = self.tree.hosts.div_ceil(per_unit);
        let per_unit_leaves = if self.tree.rail_optimised { rails } else { 1 };
        for unit in 1..=units {
            for rail in 0..per_unit_leaves {
                let name = if self.tree.rail_optimised {
                    format!("leaf-su{unit:02}-r{rail}")
                } else {
                    format!("leaf-{unit:02}")
                };
                self.switch(name, Role::Leaf, self.tree.rail_optimised.then_some(rail));
            }
        }
        self.leaves = units * per_unit_leaves;
        for host in 0..self.tree.hosts {
            let (unit, place) = (host / per_unit, host % per_unit);
            for rail in 0..rails {
                let at = self.devices.len();
                let guid = Guid::new(0xa088_c203_0000_0000 + u64::from(host) * 0x100 + u64::from(rail) * 0x10);
                let rail_number = rail as u8;
                self.devices.push(PlannedDevice {
                    guid: guid.filter(|_| self.tree.with_guids),
                    ..PlannedDevice::adapter(format!("gpu{:04} mlx5_{rail}", host + 1), rail as u16, rail_number)
                });
                let (leaf, port) = if self.tree.rail_optimised {
                    (unit * rails + rail, place + 1)
                } else {
                    (unit, place * rails + rail + 1)
                };
                self.cable((leaf as usize, port), (at, 1));
            }
        }
        let used = self.tree.hosts.min(per_unit);
        if self.tree.rail_optimised { used } else { used * rails }
    }

    /// Two levels: as many uplinks per leaf as the fullest leaf has downlinks, evenly distributed over the spines.
    fn spines(&mut self, down: u32) {
        let (radix, leaves) = (2 * self.half, self.leaves);
        let mut spines = (leaves * down).div_ceil(radix).max(1);
        // Reduces links per pair and adds spines until the distribution is even. With `down` spines and one link per
        // pair it always is.
        while spines < down && (!down.is_multiple_of(spines) || leaves * (down / spines) > radix) {
            spines += 1;
        }
        let per_pair = (down / spines).max(1);
        for spine in 0..spines {
            let at = self.switch(format!("spine-{:02}", spine + 1), Role::Spine, None);
            for leaf in 0..leaves {
                for link in 0..per_pair {
                    let up = self.half + 1 + spine * per_pair + link;
                    self.cable((leaf as usize, up), (at, leaf * per_pair + link + 1));
                }
            }
        }
    }

    /// Three levels: pods with as many spines as leaves and one link per pair. The spines at position x of all pods
    /// connect to core group x.
    fn pods_and_cores(&mut self) -> Result<(), TreeError> {
        let (half, leaves) = (self.half, self.leaves);
        let pods = leaves.div_ceil(half);
        if pods > 2 * half {
            return Err(TreeError::TooLarge { pods, most: 2 * half });
        }
        let mut cores = (pods * half).div_ceil(2 * half);
        while !half.is_multiple_of(cores) || pods * (half / cores) > 2 * half {
            cores += 1;
        }
        let per_pair = half / cores;
        let mut spines = Vec::new();
        for pod in 0..pods {
            for x in 0..half {
                let at = self.switch(format!("spine-p{:02}-{:02}", pod + 1, x + 1), Role::Spine, None);
                spines.push(at);
                for leaf in (pod * half)..((pod + 1) * half).min(leaves) {
                    self.cable((leaf as usize, half + 1 + x), (at, leaf % half + 1));
                }
            }
        }
        for x in 0..half {
            for core in 0..cores {
                let at = self.switch(format!("core-g{:02}-{:02}", x + 1, core + 1), Role::Core, None);
                for pod in 0..pods {
                    let spine = spines[(pod * half + x) as usize];
                    for link in 0..per_pair {
                        let up = half + 1 + core * per_pair + link;
                        self.cable((spine, up), (at, pod * per_pair + link + 1));
                    }
                }
            }
        }
        Ok(())
    }
}
