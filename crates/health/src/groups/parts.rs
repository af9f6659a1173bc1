//! The components of a culprit: what a person can take out of the rack.

use super::Element;
use crate::component::{Component, Kind};

/// The parts of a node, by the indices of [`Element`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeParts {
    /// Serial numbers of the GPUs; empty text: unknown.
    pub gpus: Vec<String>,
    /// PCI addresses of the GPUs.
    pub slots: Vec<String>,
    /// The adapters.
    pub hcas: Vec<HcaParts>,
}

/// One adapter with its cable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HcaParts {
    /// GUID of its port; empty text: unknown.
    pub guid: String,
    /// Name on the node, such as `mlx5_0`.
    pub name: String,
    /// The cable's end, such as `c0584 at leaf-su3-r2 port 8`; empty text: unknown.
    pub cable: String,
}

/// The components of an element. One of them is at fault: a slow lane has the same symptom for a bad adapter and a bad
/// cable.
#[must_use]
pub fn components(parts: &NodeParts, element: Element) -> Vec<Component> {
    let filled = |kind: Kind, id: Option<&String>| {
        let id = id.filter(|id| !id.is_empty())?;
        Some(Component::new(kind, id.clone()))
    };
    match element {
        Element::Gpu(at) => {
            let at = usize::from(at);
            let gpu = filled(Kind::Gpu, parts.gpus.get(at)).or_else(|| filled(Kind::Slot, parts.slots.get(at)));
            vec![gpu.unwrap_or_else(|| Component::new(Kind::Gpu, format!("number {at}")))]
        }
        Element::Hca(at) => {
            let at = usize::from(at);
            let hca = parts.hcas.get(at);
            let id = hca.map(|hca| if hca.guid.is_empty() { &hca.name } else { &hca.guid });
            let adapter = filled(Kind::Hca, id).unwrap_or_else(|| Component::new(Kind::Hca, format!("number {at}")));
            let cable = filled(Kind::Cable, hca.map(|hca| &hca.cable));
            std::iter::once(adapter).chain(cable).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_have_the_best_known_id() {
        let hca = |guid: &str, cable: &str| HcaParts {
            guid: guid.into(),
            name: "mlx5_1".into(),
            cable: cable.into(),
        };
        let parts = NodeParts {
            gpus: vec!["1650523001234".into(), String::new()],
            slots: vec!["0000:1b:00.0".into(), "0000:43:00.0".into()],
            hcas: vec![hca("0xb83fd20300aa1c2e", "c0584 at leaf-2 port 8"), hca("", "")],
        };
        for (element, words) in [
            (Element::Gpu(0), "gpu 1650523001234"),
            (Element::Gpu(1), "slot 0000:43:00.0"),
            (Element::Gpu(7), "gpu number 7"),
            (Element::Hca(0), "hca 0xb83fd20300aa1c2e, cable c0584 at leaf-2 port 8"),
            (Element::Hca(1), "hca mlx5_1"),
            (Element::Hca(5), "hca number 5"),
        ] {
            let found: Vec<String> = components(&parts, element).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(", "), words);
        }
    }
}
