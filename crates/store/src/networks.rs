//! Networks of nodes' switch ports, and the VLANs of clusters and customers.

use rackwright_lifecycle::{Network, NodeId, Timestamp};

use crate::error::corrupt;
use crate::sql::{Row, statement};
use crate::{Result, Store, WriteTx};

/// The network last requested for a node's ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNetwork {
    /// Id of the node.
    pub node: NodeId,
    pub network: Network,
    /// The network's VLAN at that time.
    pub vlan: u16,
    /// Grows with every request for the node.
    pub step: u64,
}

/// A VLAN and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanRow {
    /// VLAN number.
    pub vlan: u16,
    /// The cluster or customer that owns it.
    pub owner: String,
    /// When a port was last requested into it or out of it.
    pub changed_at: Timestamp,
}

const NETWORKS: &str = "SELECT node_id, network, vlan, step FROM node_networks";

fn vlan_number(row: &Row) -> Result<u16> {
    let vlan: i64 = row.try_get("vlan")?;
    u16::try_from(vlan).map_err(|e| corrupt("vlan", &vlan.to_string(), e))
}

fn network_row(row: &Row) -> Result<NodeNetwork> {
    let node: NodeId = row.id("node_id")?;
    let name: String = row.try_get("network")?;
    let known = [Network::Quarantine, Network::Provisioning, Network::Customer];
    let network = known.into_iter().find(|network| network.as_str() == name);
    Ok(NodeNetwork {
        network: network.ok_or_else(|| corrupt("node", node.as_str(), format!("unknown network {name:?}")))?,
        vlan: vlan_number(row)?,
        step: row.unsigned("step", "network of node", node.as_str())?,
        node,
    })
}

impl Store {
    /// The network last requested for a node's ports; none: never.
    pub async fn node_network(&self, node: &NodeId) -> Result<Option<NodeNetwork>> {
        let query = statement(format!("{NETWORKS} WHERE node_id = $1")).bind(node);
        let row = query.fetch_optional(&self.readers).await?;
        row.as_ref().map(network_row).transpose()
    }

    /// The networks of all nodes, by node.
    pub async fn node_networks(&self) -> Result<Vec<NodeNetwork>> {
        let query = statement(format!("{NETWORKS} ORDER BY node_id")).blocking();
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(network_row).collect()
    }

    /// The VLANs with an owner, by number.
    pub async fn vlans(&self) -> Result<Vec<VlanRow>> {
        let query = statement("SELECT vlan, owner, changed_at FROM vlans ORDER BY vlan");
        let rows = query.fetch_all(&self.readers).await?;
        let read = |row: &Row| {
            Ok(VlanRow {
                vlan: vlan_number(row)?,
                owner: row.try_get("owner")?,
                changed_at: Timestamp(row.try_get("changed_at")?),
            })
        };
        rows.iter().map(read).collect()
    }
}

impl WriteTx {
    /// The VLAN of an owner: the present one, or else the lowest free one of the range, which the owner gets. None: all are
    /// taken.
    pub async fn vlan_of(&mut self, owner: &str, (first, last): (u16, u16), now: Timestamp) -> Result<Option<u16>> {
        // Locks the hall: two owners cannot draw at the same time.
        self.hall().await?;
        let query = statement("SELECT vlan FROM vlans WHERE owner = $1").bind(owner);
        if let Some(row) = query.fetch_optional(&mut self.tx).await? {
            return vlan_number(&row).map(Some);
        }
        let rows = statement("SELECT vlan FROM vlans ORDER BY vlan")
            .fetch_all(&mut self.tx)
            .await?;
        let taken: Vec<u16> = rows.iter().map(vlan_number).collect::<Result<_>>()?;
        let Some(free) = (first..=last).find(|vlan| taken.binary_search(vlan).is_err()) else {
            return Ok(None);
        };
        let query = statement("INSERT INTO vlans (vlan, owner, changed_at) VALUES ($1, $2, $3)");
        let query = query.bind(i64::from(free)).bind(owner).bind(now.0);
        query.execute(&mut self.tx).await?;
        Ok(Some(free))
    }

    /// Stores the network to which a node's ports are moved next. Returns the step of the request.
    pub async fn request_network(&mut self, node: &NodeId, network: Network, vlan: u16, now: Timestamp) -> Result<u64> {
        let sql = "UPDATE vlans SET changed_at = $1 \
                   WHERE vlan = $2 OR vlan IN (SELECT vlan FROM node_networks WHERE node_id = $3)";
        let query = statement(sql).bind(now.0).bind(i64::from(vlan)).bind(node);
        query.execute(&mut self.tx).await?;
        let sql = "INSERT INTO node_networks (node_id, network, vlan, step) VALUES ($1, $2, $3, 1) \
                   ON CONFLICT (node_id) DO UPDATE SET network = excluded.network, vlan = excluded.vlan, \
                   step = node_networks.step + 1 RETURNING step";
        let query = statement(sql).bind(node).bind(network.as_str()).bind(i64::from(vlan));
        let row = query.fetch_one(&mut self.tx).await?;
        row.unsigned("step", "network of node", node.as_str())
    }

    /// Frees a VLAN, if no port is requested into it, and no port was requested into or out of it since `read_since`, when
    /// a reading began that found the VLAN on no port. Returns whether it is free now.
    pub async fn free_vlan(&mut self, vlan: u16, read_since: Timestamp) -> Result<bool> {
        let sql = "DELETE FROM vlans WHERE vlan = $1 AND changed_at < $2 \
                   AND NOT EXISTS (SELECT 1 FROM node_networks WHERE vlan = $1)";
        let query = statement(sql).bind(i64::from(vlan)).bind(read_since.0);
        Ok(query.execute(&mut self.tx).await? > 0)
    }
}
