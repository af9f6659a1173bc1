//! One login: root, by key, for the scripts of validation and hand-over.

use super::Running;
use super::answers::{self, Facts, Script};
use super::traffic::{self, Neighbours, Step};
use crate::fleet::dice::Purpose;
use crate::fleet::installed::Installed;
use crate::fleet::inventory::inventory;
use crate::fleet::node::Node;
use rackwright_api::v1::{Drive, Inventory};
use rackwright_sim_bmc::Host as _;
use russh::keys::{PublicKey, PublicKeyBase64 as _};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use std::collections::HashMap;
use std::sync::Arc;

/// Most bytes of a script; the largest has 10 kB.
const SCRIPT_BYTES: usize = 256 * 1024;
/// Most bytes of a file: an unstripped traffic program.
const FILE_BYTES: usize = 64 * 1024 * 1024;
/// Most open channels of a connection.
const CHANNELS: usize = 4;
/// A shell's exit status for an unknown command.
const UNKNOWN: u32 = 127;

/// The system's side of a connection.
pub(super) struct Login {
    node: Arc<Node>,
    running: Arc<Running>,
    neighbours: Neighbours,
    /// The input of the commands that were started.
    shells: HashMap<ChannelId, Input>,
    /// Digests of uploaded files, by folder.
    copied: HashMap<String, String>,
}

/// A command that reads its input.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// The folder of a file; none: the input is a script.
    folder: Option<String>,
}

/// The output of a script.
struct Output {
    status: u32,
    stdout: String,
    stderr: &'static str,
}

impl Login {
    pub(super) fn new(node: Arc<Node>, running: Arc<Running>, neighbours: Neighbours) -> Self {
        Self {
            node,
            running,
            neighbours,
            shells: HashMap::new(),
            copied: HashMap::new(),
        }
    }

    fn judge(&self, user: &str, key: &PublicKey) -> Auth {
        let key = key.public_key_base64();
        let admitted = self.on_drive().is_some_and(|installed| has_key(&installed, &key));
        if user == "root" && admitted {
            Auth::Accept
        } else {
            Auth::reject()
        }
    }

    /// The current installation. An installation written after the boot is a different one.
    fn on_drive(&self) -> Option<Arc<Installed>> {
        let booted = &self.running.system.installed.instance_id;
        self.node.installed().filter(|now| now.instance_id == *booted)
    }

    /// Removes a key from the installation; `false` if it is not there.
    fn remove_key(&self, key: &str) -> bool {
        let there = self.on_drive().is_some_and(|installed| has_key(&installed, key));
        let remove = |installed: &mut Installed| installed.authorized_keys.retain(|line| blob(line) != Some(key));
        there && self.node.change_installed(remove)
    }

    async fn answer(&mut self, input: Input) -> Output {
        let done = |stdout| Output {
            status: 0,
            stdout,
            stderr: "",
        };
        if let Some(folder) = input.folder {
            self.copied.insert(folder, traffic::sha256(&input.bytes));
            return done(String::new());
        }
        let input = &input.bytes;
        if let Some(step) = std::str::from_utf8(input).ok().and_then(Step::of) {
            let answer = traffic::answer(
                &step,
                &self.node,
                &self.running.system,
                &self.neighbours,
                &mut self.copied,
            );
            return match answer.await {
                Ok(stdout) => done(stdout),
                Err(stderr) => Output {
                    status: 5,
                    stdout: String::new(),
                    stderr,
                },
            };
        }
        let script = std::str::from_utf8(input).ok().and_then(Script::of);
        let stdout = match script {
            Some(Script::Probe { sample_mib }) => self.probe(sample_mib).await,
            Some(Script::Clock) => answers::clock(rackwright_sim_bmc::system_time()),
            Some(Script::HandOver { key }) => answers::hand_over(self.remove_key(key)),
            None => {
                let stderr = "a simulated system runs only the scripts of validation, network tests and hand-over\n";
                return Output {
                    status: UNKNOWN,
                    stdout: String::new(),
                    stderr,
                };
            }
        };
        done(stdout)
    }

    async fn probe(&self, sample_mib: u64) -> String {
        let (shared, index) = (&self.node.shared, self.node.index());
        let system = &self.running.system;
        let chance = shared.dice.fraction(index, Purpose::Probe, u64::from(system.boot));
        let lasts = shared.clock.lasts(shared.timing.probe(chance));
        if !lasts.is_zero() {
            tokio::time::sleep(lasts).await;
        }
        let slow = shared.config.faults.read_mb_per_s(self.node.moment());
        let facts = Facts {
            inventory: &present(&self.node),
            installed: &system.installed,
            boot_id: &system.boot_id,
            uptime_s: shared.clock.now_ms().saturating_sub(self.running.since_ms) as f64 / 1000.0,
            degraded: self.running.degraded,
            read_mb_per_s: slow.unwrap_or(shared.sku.read_mb_per_s),
        };
        answers::probe(&facts, sample_mib)
    }
}

fn has_key(installed: &Installed, key: &str) -> bool {
    installed.authorized_keys.iter().any(|line| blob(line) == Some(key))
}

/// The base64 part of a public key line.
fn blob(line: &str) -> Option<&str> {
    line.split(' ').nth(1)
}

/// The machine's current parts: a drive may have been lost since the agent's inventory.
fn present(node: &Node) -> Inventory {
    let mut found = inventory(node, &node.sim_drives());
    let listed = node.description().drives;
    let here = |drive: &Drive| listed.iter().any(|part| part.serial == drive.serial_number);
    found.drives.retain(here);
    found
}

impl Handler for Login {
    type Error = russh::Error;

    /// Refuses early, so that no signature is checked for a key without access.
    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(self.judge(user, offer.public_key))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(self.judge(user, key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        // Dropping the reply refuses it.
        if self.shells.len() < CHANNELS {
            reply.accept().await;
        }
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let folder = traffic::folder_of(command);
        if (command != b"sh -s" && folder.is_none()) || self.shells.len() >= CHANNELS {
            session.channel_failure(channel)?;
            return session.close(channel);
        }
        let bytes = Vec::new();
        self.shells.insert(channel, Input { bytes, folder });
        session.channel_success(channel)
    }

    /// There is no interactive shell.
    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        session.channel_failure(channel)?;
        session.close(channel)
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let Some(input) = self.shells.get_mut(&channel) else {
            return Ok(());
        };
        let most = if input.folder.is_some() {
            FILE_BYTES
        } else {
            SCRIPT_BYTES
        };
        if input.bytes.len() + data.len() > most {
            self.shells.remove(&channel);
            return session.close(channel);
        }
        input.bytes.extend_from_slice(data);
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        let Some(input) = self.shells.remove(&channel) else {
            return Ok(());
        };
        let output = self.answer(input).await;
        session.data(channel, output.stdout)?;
        if !output.stderr.is_empty() {
            session.extended_data(channel, 1, output.stderr)?;
        }
        session.exit_status_request(channel, output.status)?;
        session.eof(channel)?;
        session.close(channel)
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.shells.remove(&channel);
        Ok(())
    }
}
