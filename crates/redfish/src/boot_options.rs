//! Ethernet addresses in the boot options of a machine, for BMCs that report them nowhere else.

use rackwright_redfish_wire::error::RedfishError;

use crate::client::BmcClient;
use crate::inventory::{InventoryGap, Walk};
use crate::views::MacAddress;

/// Most resources that one reading takes; a machine with a dozen ports has about 50 boot options.
const MAX_RESOURCES: usize = 256;

impl BmcClient {
    /// The Ethernet addresses of the network cards in the machine's boot options, and the gaps of that reading. Firmware
    /// reports its boot options to the BMC at a start, so a BMC may list none before the first start.
    ///
    /// Left out are cards on USB, which include the link between a machine and its own BMC, and locally administered
    /// addresses, which several machines may share. Root on the machine can change boot options.
    ///
    /// # Errors
    /// Those of [`inventory`](Self::inventory).
    pub async fn boot_option_macs(&self) -> Result<(Vec<MacAddress>, Vec<InventoryGap>), RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::of_at_most(self, MAX_RESOURCES);
        let options = walk.members(system.resource().link(&["Boot", "BootOptions"])).await?;
        let mut macs: Vec<MacAddress> = Vec::new();
        for option in options {
            let found = option.text(&["UefiDevicePath"]).and_then(|path| card(&path));
            if let Some(mac) = found.filter(|mac| !macs.contains(mac)) {
                macs.push(mac);
            }
        }
        Ok((macs, walk.gaps))
    }
}

/// The address in a UEFI device path such as `PciRoot(0x0)/Pci(0x0,0x0)/MAC(58A2E1BBB10F,0x1)/IPv4(0.0.0.0)`. The nodes
/// are those of the UEFI specification 2.10, section 10.6.
fn card(path: &str) -> Option<MacAddress> {
    let mut found = None;
    for (name, arguments) in path.split('/').filter_map(|node| node.split_once('(')) {
        if name.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case("usb")) {
            return None;
        }
        if found.is_none() && name.eq_ignore_ascii_case("mac") {
            found = arguments.split([',', ')']).next()?.parse::<MacAddress>().ok();
        }
    }
    found.filter(|mac| mac.is_usable() && !mac.is_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_from_device_paths() {
        for (path, wanted) in [
            (
                "VenHw(1E5A432C-0466-4D31-B009-D4D9239271D3)/MemoryMapped(0xB,0x14080000,0x14081FFF)/PciRoot(0x0)/\
                 Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE570DD6,0x1)/IPv4(0.0.0.0)",
                Some("94:6d:ae:57:0d:d6"),
            ),
            (
                "PciRoot(0x0)/Pci(0x1,0x0)/mac(58a2e1bbb10f,0x1)/IPv4(0.0.0.0)/Uri()",
                Some("58:a2:e1:bb:b1:0f"),
            ),
            ("MAC(58A2E1BBB10F)", Some("58:a2:e1:bb:b1:0f")),
            // The card between the machine and its BMC.
            (
                "PciRoot(0x3)/Pci(0x0,0x0)/USB(0x1,0x0)/MAC(58A2E1BBB10F,0x1)/IPv4(0.0.0.0)",
                None,
            ),
            ("PciRoot(0x0)/MAC(0A2233445566,0x1)/IPv4(0.0.0.0)", None),
            ("PciRoot(0x0)/MAC(01005E000001,0x1)", None),
            ("PciRoot(0x0)/MAC(000000000000,0x1)", None),
            // InfiniBand's addresses have 20 bytes.
            (
                "PciRoot(0x0)/MAC(00001048FE800000000000009C63C0FFFE000001,0x20)/IPv4(0.0.0.0)",
                None,
            ),
            (
                r"HD(1,GPT,A04D0F1E-E02F-4725-9434-0699B52D8FF2,0x800,0x100000)/\EFI\ubuntu\shimaa64.efi",
                None,
            ),
            ("MAC(", None),
            ("", None),
        ] {
            assert_eq!(card(path).map(|mac| mac.to_string()).as_deref(), wanted, "{path}");
        }
    }
}
