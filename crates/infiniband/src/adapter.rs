//! Names of adapters, and the places in the machine that the names show.
//!
//! The kernel numbers adapters in the order in which it finds them: `mlx5_3`. rdma-core renames them by their place; the
//! forms are those of `Documentation/udev.md`, "Stable names", and of `kernel-boot/rdma-persistent-naming.rules` in
//! rdma-core. A prefix names the technology (`ib`, `roce`, `iw`, `opa`, `usnic`, or `rdma` if it is unknown), and one of
//! these follows: `o` with the index of an onboard device, `s` with a slot, `p` with a bus and `s` with a device, or `x`
//! with a GUID. udev names the network interfaces of the same adapters (`ib` and a place) by the table of
//! systemd.net-naming-scheme(7), which also has the domain (`P`), the function (`f`), the port (`n`, `d`), the virtual
//! function (`v`) and its representor (`r`). An adapter of several bonded ports is `mlx5_bond_0`.

use std::cmp::Ordering;

use super::name::natural;

/// How an adapter has got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// By the index that the firmware gives an onboard device: `ibo3`.
    Onboard,
    /// By the number of the slot: `ibs1`.
    Slot,
    /// By the PCI address: `ibp24s0`.
    Path,
    /// By the kernel, in the order of discovery: `mlx5_3`. The number of an adapter changes when another one is gone.
    Kernel,
    /// By the kernel, for bonded ports: `mlx5_bond_0`.
    Bond,
    /// By a GUID or a hardware address, which shows no place: `ibx0002c90300080e84`.
    Guid,
}

/// The place of an adapter as its name shows it. Places of one scheme are in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// How the adapter has got its name.
    pub scheme: Scheme,
    /// Domain, bus, slot or number, function, port, virtual function, representor, sub-function.
    numbers: [u32; 8],
}

impl Place {
    /// The number of an adapter that is numbered, or the slot or device number of the place.
    pub fn number(&self) -> u32 {
        self.numbers[2]
    }

    fn numbered(scheme: Scheme, number: u32) -> Self {
        Self {
            scheme,
            numbers: [0, 0, number, 0, 0, 0, 0, 0],
        }
    }
}

/// Beginnings of the kernel's names. A number follows. `HCA-1` is the name of the adapters' own firmware.
const KERNEL: [&str; 14] = [
    "mlx5_", "mlx4_", "mlx5_ib", "mlx4_ib", "mthca", "hfi1_", "qib", "ibp", "ib", "HCA-", "HCA ", "HCA", "hca-", "hca",
];
const BONDS: [&str; 2] = ["mlx5_bond_", "mlx4_bond_"];
const TECHNOLOGIES: [&str; 6] = ["usnic", "roce", "rdma", "opa", "iw", "ib"];

/// The place that an adapter's name shows. `None`: the name has none of the forms of the kernel, rdma-core and udev.
pub fn place(name: &str) -> Option<Place> {
    let after = |prefixes: &[&str]| prefixes.iter().find_map(|prefix| number(name.strip_prefix(prefix)?));
    if let Some(number) = after(&KERNEL) {
        return Some(Place::numbered(Scheme::Kernel, number));
    }
    if let Some(number) = after(&BONDS) {
        return Some(Place::numbered(Scheme::Bond, number));
    }
    TECHNOLOGIES
        .iter()
        .find_map(|technology| stable(name.strip_prefix(technology)?))
}

/// The order of adapters in a machine: by their places, and names without a place in natural order after them.
///
/// Different names are never equal.
pub fn in_order(a: &str, b: &str) -> Ordering {
    let places = match (place(a), place(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (None, None) => natural(a, b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    places.then_with(|| a.cmp(b))
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The part of a stable name after the technology.
fn stable(text: &str) -> Option<Place> {
    if let Some(index) = text.strip_prefix('o') {
        return number(index).map(|index| Place::numbered(Scheme::Onboard, index));
    }
    if let Some(guid) = text.strip_prefix('x') {
        let hex = matches!(guid.len(), 12 | 16) && guid.bytes().all(|byte| byte.is_ascii_hexdigit());
        return hex.then_some(Place::numbered(Scheme::Guid, 0));
    }
    let mut rest = Rest(text);
    let domain = rest.after(&["P"]).unwrap_or(0);
    let bus = rest.after(&["p"]);
    let slot = rest.after(&["s"])?;
    let mut optional = |letters: &[&str]| rest.after(letters).map_or(0, |number| number.saturating_add(1));
    let details = [
        optional(&["f"]),
        optional(&["np", "ns", "n", "d"]),
        optional(&["v"]),
        optional(&["r"]),
        optional(&["S"]),
    ];
    let [function, port, virtual_function, representor, sub_function] = details;
    rest.0.is_empty().then_some(Place {
        scheme: if bus.is_some() { Scheme::Path } else { Scheme::Slot },
        numbers: [
            domain,
            bus.unwrap_or(0),
            slot,
            function,
            port,
            virtual_function,
            representor,
            sub_function,
        ],
    })
}

/// The unread rest of a name.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// Reads one of these letters with the number after it. `None`: nothing is read.
    fn after(&mut self, letters: &[&str]) -> Option<u32> {
        let text = self.0;
        let (value, rest) = letters.iter().find_map(|letters| {
            let rest = text.strip_prefix(letters)?;
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, rest) = rest.split_at(end);
            Some((number(digits)?, rest))
        })?;
        self.0 = rest;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_kernel_rdma_core_and_udev_show_their_scheme() {
        for (name, scheme) in [
            ("mlx5_3", Scheme::Kernel),
            ("mlx5_ib3", Scheme::Kernel),
            ("HCA-3", Scheme::Kernel),
            ("HCA 3", Scheme::Kernel),
            ("hca3", Scheme::Kernel),
            ("ib0", Scheme::Kernel),
            ("mlx5_bond_0", Scheme::Bond),
            ("ibo3", Scheme::Onboard),
            ("opao3", Scheme::Onboard),
            ("ibs1", Scheme::Slot),
            ("ibs1f1", Scheme::Slot),
            ("ibp24s0", Scheme::Path),
            ("ibp0s12f4", Scheme::Path),
            ("ibP1p24s0", Scheme::Path),
            ("ibp193s0f0np0", Scheme::Path),
            ("ibp193s0f0d1", Scheme::Path),
            ("rocep193s0f0S88", Scheme::Path),
            ("rocep193s0f0v0S99", Scheme::Path),
            ("rocex525400c0fe123455", Scheme::Guid),
            ("ibx0002c9030008", Scheme::Guid),
        ] {
            assert_eq!(place(name).map(|place| place.scheme), Some(scheme), "{name}");
        }
        for name in [
            "",
            "ib",
            "mlx5_",
            "mlx5_x",
            "mlx5_99999999999",
            "ibp24s",
            "ibps0",
            "ibp24s0f",
            "ibp24s0q",
            "ibx0002",
            "ibxzzzzzzzzzzzz",
            "eth0",
            "ü",
        ] {
            assert_eq!(place(name), None, "{name}");
        }
    }

    #[test]
    fn adapters_are_in_the_order_of_their_places() {
        let order = [
            "ibo1",
            "ibs2",
            "ibs10",
            "ibp24s0",
            "ibp101s0f0",
            "ibp101s0f1",
            "ibP1p3s0",
            "mlx5_2",
            "mlx5_10",
            "mlx5_bond_0",
            "gpu-fabric-2",
            "gpu-fabric-10",
        ];
        let mut names = order;
        names.reverse();
        names.sort_by(|a, b| in_order(a, b));
        assert_eq!(names, order);
    }
}
