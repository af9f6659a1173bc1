//! The messages in which the two ends describe themselves, and the route that both derive from them.

use serde::{Deserialize, Serialize};

use super::port::{Family, Gid, Pkey};

/// The kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Round trips of messages.
    Ping,
    /// The client writes into the server's memory.
    Push,
    /// The server writes into the client's memory.
    Pull,
}

/// The description of one end: its port, its queue pair and its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The link is Ethernet; false: InfiniBand.
    pub is_ethernet: bool,
    /// LID in an InfiniBand subnet.
    pub lid: u16,
    /// MTU code, 1 to 5: 256 to 4096 bytes.
    pub mtu: u32,
    /// Number of the queue pair.
    pub pair: u32,
    /// Sequence number of the queue pair's first packet.
    pub psn: u32,
    /// Address of the memory for the other end's writes.
    pub address: u64,
    /// Remote key of that memory.
    pub key: u32,
    /// The GIDs of the port, best first.
    pub gids: Vec<Gid>,
    /// The partition keys of the port, best first.
    pub pkeys: Vec<Pkey>,
}

/// The client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The server's lane; empty: the lane with the address of the TCP connection.
    pub lane: String,
    /// The kind of measurement.
    pub kind: Kind,
    /// The client's end.
    pub card: Card,
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Accepted; the server's end.
    Taken(Card),
    /// Refused, with the reason.
    Refused(String),
}

/// The route from one end to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Index of the partition in the port's own P_Key table.
    pub pkey: u16,
    /// Index of the address in the port's own GID table, and the other end's address; none: by LID.
    pub gids: Option<(u8, Gid)>,
    /// The smaller MTU code of both ends.
    pub mtu: u32,
}

/// The routes of both ends, the client's first. Both sides compute them from the same two cards.
///
/// # Errors
/// There is no common route, with the reason.
pub fn negotiate(client: &Card, server: &Card) -> Result<(Route, Route), String> {
    if client.is_ethernet != server.is_ethernet {
        return Err("one adapter's link is Ethernet, the other's InfiniBand".into());
    }
    let mtu = client.mtu.min(server.mtu);
    if !(1..=5).contains(&mtu) {
        return Err(format!("{mtu} is not a valid path MTU"));
    }
    let (here, there) = pkeys(client, server)?;
    let route = |pkey: &Pkey, gids| Route {
        pkey: pkey.index,
        gids,
        mtu,
    };
    if !client.is_ethernet {
        if client.lid == 0 || server.lid == 0 {
            return Err("a port has no LID: the subnet manager has not configured the port".into());
        }
        return Ok((route(&here, None), route(&there, None)));
    }
    let pair = client.gids.iter().find_map(|own| {
        let family = Family::of(own.address);
        let other = server.gids.iter().find(|gid| Family::of(gid.address) == family)?;
        Some((*own, *other))
    });
    let (own, other) = pair.ok_or("the ports have no RoCE v2 addresses of the same family")?;
    Ok((
        route(&here, Some((own.index, other))),
        route(&there, Some((other.index, own))),
    ))
}

/// The first common partition of which at least one end is a full member.
fn pkeys(client: &Card, server: &Card) -> Result<(Pkey, Pkey), String> {
    let found = client.pkeys.iter().find_map(|own| {
        let is_met = |other: &&Pkey| (own.key ^ other.key) & 0x7fff == 0 && (own.key | other.key) & 0x8000 != 0;
        Some((*own, *server.pkeys.iter().find(is_met)?))
    });
    let card_text = |card: &Card| {
        let keys: Vec<String> = card.pkeys.iter().take(8).map(|p| format!("{:#06x}", p.key)).collect();
        keys.join(", ")
    };
    found.ok_or_else(|| {
        format!(
            "the ports share no partition: {} here, {} there",
            card_text(client),
            card_text(server)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(is_ethernet: bool, gids: &[(u8, &str)], pkeys: &[(u16, u16)]) -> Card {
        Card {
            is_ethernet,
            lid: 7,
            mtu: 5,
            pair: 1,
            psn: 2,
            address: 3,
            key: 4,
            gids: gids
                .iter()
                .map(|(index, address)| Gid {
                    index: *index,
                    address: address.parse().unwrap(),
                })
                .collect(),
            pkeys: pkeys
                .iter()
                .map(|(index, key)| Pkey {
                    index: *index,
                    key: *key,
                })
                .collect(),
        }
    }

    #[test]
    fn both_take_addresses_of_one_family_and_the_smaller_mtu() {
        let client = card(true, &[(3, "::ffff:10.0.0.1"), (1, "fe80::1")], &[(0, 0xffff)]);
        let mut server = card(true, &[(5, "::ffff:10.0.0.2"), (0, "fe80::2")], &[(0, 0xffff)]);
        server.mtu = 3;
        let (here, there) = negotiate(&client, &server).unwrap();
        assert_eq!((here.mtu, there.mtu), (3, 3));
        assert_eq!(here.gids, Some((3, server.gids[0])));
        assert_eq!(there.gids, Some((5, client.gids[0])));
        server.gids.remove(0);
        assert_eq!(negotiate(&client, &server).unwrap().0.gids, Some((1, server.gids[0])));
        server.gids.clear();
        assert!(negotiate(&client, &server).unwrap_err().contains("RoCE v2"));
        server.is_ethernet = false;
        assert!(negotiate(&client, &server).unwrap_err().contains("Ethernet"));
    }

    #[test]
    fn a_partition_is_shared_where_one_is_a_full_member() {
        let client = card(false, &[], &[(2, 0x8012), (0, 0x7fff)]);
        let server = card(false, &[], &[(0, 0x7fff), (1, 0x0012)]);
        let (here, there) = negotiate(&client, &server).unwrap();
        assert_eq!((here.pkey, there.pkey, here.gids), (2, 1, None));
        let limited = card(false, &[], &[(0, 0x7fff), (1, 0x0013)]);
        let why = negotiate(&limited, &server).unwrap_err();
        assert!(
            why.contains("no partition: 0x7fff, 0x0013 here, 0x7fff, 0x0012 there"),
            "{why}"
        );
        let mut unseen = server;
        unseen.lid = 0;
        assert!(negotiate(&client, &unseen).unwrap_err().contains("LID"));
    }
}
