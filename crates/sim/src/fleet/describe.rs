//! A fleet's description for other programs.

use super::{Fleet, FleetError, SimNode};
use serde_json::json;
use std::io::{self, Write};

/// How a description is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Documents that `rackwright apply -f` takes
    Yaml,
    /// One JSON object that also names MAC addresses, UUIDs and serial numbers
    Json,
}

/// Why a description could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// A BMC's certificate could not be made.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The output could not be written.
    #[error("the description of the machines cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl Fleet {
    /// Describes all machines. With HTTPS this creates the missing certificates.
    ///
    /// # Errors
    /// [`DescribeError`].
    pub fn describe(&self, format: Format, sku: Option<&str>, out: &mut dyn Write) -> Result<(), DescribeError> {
        match format {
            Format::Yaml => self.yaml(sku, out)?,
            Format::Json => self.json(sku, out)?,
        }
        out.flush()?;
        Ok(())
    }

    fn yaml(&self, sku: Option<&str>, out: &mut dyn Write) -> Result<(), DescribeError> {
        for index in 0..self.nodes() {
            let node = self.node(index);
            let (id, address, user) = (node.name(), node.url(), node.user());
            let (password, fingerprint) = (node.password(), node.fingerprint()?);
            writeln!(out, "---\nkind: Node\nid: {id}\nbmc:\n  address: {address}")?;
            writeln!(out, "  username: {user}\n  password: \"{password}\"")?;
            if let Some(fingerprint) = fingerprint {
                writeln!(out, "  certificate_sha256: {fingerprint}")?;
            }
            if let Some(sku) = sku {
                writeln!(out, "sku: {}", json!(sku))?;
            }
        }
        Ok(())
    }

    fn json(&self, sku: Option<&str>, out: &mut dyn Write) -> Result<(), DescribeError> {
        let config = &self.shared.config;
        let (profile, network) = (config.profile.as_str(), config.network.to_string());
        write!(
            out,
            "{{\"format\":1,\"profile\":{},\"seed\":{},\"speed\":{},\"network\":{},\"port\":{},\"nodes\":[",
            json!(profile),
            config.seed,
            json!(config.speed),
            json!(network),
            self.port()
        )?;
        for index in 0..self.nodes() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\n{}", entry(&self.node(index), sku)?)?;
        }
        writeln!(out, "\n]}}")?;
        Ok(())
    }
}

fn entry(node: &SimNode, sku: Option<&str>) -> Result<serde_json::Value, FleetError> {
    Ok(json!({
        "id": node.name(),
        "bmc": {
            "address": node.url(),
            "username": node.user(),
            "password": node.password(),
            "certificate_sha256": node.fingerprint()?,
        },
        "sku": sku,
        "mac": node.mac(),
        "uuid": node.uuid(),
        "serial": node.serial(),
    }))
}
