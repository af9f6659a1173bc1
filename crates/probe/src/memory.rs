//! Memory modules, by the kernel's counters of errors (EDAC).

use rackwright_health::facts::Row;

use crate::root::{Root, names, text};

pub(crate) fn rows(root: &Root) -> Vec<Row> {
    let mut rows = Vec::new();
    let controllers = root.names("sys/devices/system/edac/mc");
    for controller in controllers.iter().filter(|name| name.starts_with("mc")) {
        let folder = root.at("sys/devices/system/edac/mc").join(controller);
        let all = names(&folder);
        let modules = all
            .iter()
            .filter(|name| name.starts_with("dimm") || name.starts_with("rank"));
        for module in modules {
            let file = |name: &str| text(&folder.join(module).join(name));
            rows.push(
                Row::new("dimm")
                    .with("name", format!("{controller} {module}"))
                    .with_some("label", file("dimm_label"))
                    .with_some("ce", file("dimm_ce_count"))
                    .with_some("ue", file("dimm_ue_count")),
            );
        }
    }
    rows
}
