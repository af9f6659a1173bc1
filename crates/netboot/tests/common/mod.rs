//! A directory in memory that records its calls.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rackwright_netboot::tokens::TokenBook;
use rackwright_netboot::{
    Binding, BootDirectory, BootFile, BootIntent, BootPlan, Client, DirectoryError, Lookup, Mac, OneTimeToken, Refusal,
    Stage, StageDropped, StageReport,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::SecretString;
use tokio::sync::Notify;

pub struct Machine {
    pub address: Option<Ipv4Addr>,
    pub boot: BootIntent,
}

pub struct MemoryDirectory {
    pub machines: HashMap<Mac, Machine>,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    pub cmdline: String,
    /// Machines that the directory never answers for.
    unanswered: Mutex<HashSet<Mac>>,
    tokens: Mutex<TokenBook>,
    clients: Mutex<Vec<Client>>,
    seen: Mutex<Vec<StageReport>>,
    changed: Notify,
}

impl MemoryDirectory {
    pub fn new(machines: HashMap<Mac, Machine>, kernel: PathBuf, initrd: PathBuf, cmdline: &str) -> Self {
        Self {
            machines,
            kernel,
            initrd,
            cmdline: cmdline.to_owned(),
            unanswered: Mutex::default(),
            tokens: Mutex::new(TokenBook::new(Duration::from_secs(600), 100)),
            clients: Mutex::default(),
            seen: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// No later question about this machine gets an answer.
    #[allow(dead_code, reason = "not every test file uses it")]
    pub fn never_answer(&self, mac: Mac) {
        self.unanswered.lock().unwrap().insert(mac);
    }

    /// The stages of one machine so far.
    pub fn stages(&self, mac: Mac) -> Vec<StageReport> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .filter(|seen| seen.mac == Some(mac))
            .cloned()
            .collect()
    }

    /// Every stage so far as text, for failing tests.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        for seen in self.seen.lock().unwrap().iter() {
            writeln!(
                text,
                "{:?} {} {} from {}",
                seen.mac, seen.stage, seen.detail, seen.remote
            )
            .unwrap();
        }
        text
    }

    /// The clients that were looked up.
    #[allow(dead_code, reason = "not every test file uses it")]
    pub fn clients(&self) -> Vec<Client> {
        self.clients.lock().unwrap().clone()
    }

    /// Waits until `wanted` holds for a stage of this machine.
    pub async fn wait_for(
        &self,
        mac: Mac,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&StageReport) -> bool,
    ) -> StageReport {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if let Some(seen) = self.stages(mac).into_iter().find(|seen| wanted(seen)) {
                    return seen;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, wait)
            .await
            .unwrap_or_else(|_| panic!("no {what} within {} s; seen:\n{}", limit.as_secs(), self.trace()))
    }

    /// Waits for the first stage of this kind.
    #[allow(dead_code, reason = "not every test file uses it")]
    pub async fn wait_for_stage(&self, mac: Mac, stage: Stage, limit: Duration) -> StageReport {
        self.wait_for(mac, stage.name(), limit, |seen| seen.stage == stage)
            .await
    }
}

/// Returns 128 random bits in hex.
pub fn random_token() -> OneTimeToken {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).unwrap();
    let mut text = "rw1_".to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    OneTimeToken::new(text).unwrap()
}

#[async_trait]
impl BootDirectory for MemoryDirectory {
    async fn lookup(&self, client: &Client) -> Result<Lookup, DirectoryError> {
        self.clients.lock().unwrap().push(client.clone());
        if self.unanswered.lock().unwrap().contains(&client.mac) {
            return std::future::pending().await;
        }
        Ok(match self.machines.get(&client.mac) {
            Some(machine) => Lookup::Known {
                address: machine.address,
                hostname: Some("gpu-001".to_owned()),
                boot: machine.boot,
            },
            None => Lookup::Unknown {
                boot_allowed: false,
                address: None,
            },
        })
    }

    async fn mint(&self, binding: &Binding) -> Result<OneTimeToken, DirectoryError> {
        let token = random_token();
        self.tokens.lock().unwrap().issue(&token, *binding, Instant::now());
        Ok(token)
    }

    async fn redeem(&self, token: &OneTimeToken, mac: Mac, remote: IpAddr) -> Result<BootPlan, Refusal> {
        self.tokens.lock().unwrap().redeem(token, mac, remote, Instant::now())?;
        Ok(BootPlan {
            kernel: BootFile {
                name: "vmlinuz".to_owned(),
                path: self.kernel.clone(),
            },
            initrds: vec![BootFile {
                name: "initrd".to_owned(),
                path: self.initrd.clone(),
            }],
            cmdline: SecretString::from(self.cmdline.clone()),
        })
    }

    fn record(&self, seen: StageReport) -> Result<(), StageDropped> {
        self.seen.lock().unwrap().push(seen);
        self.changed.notify_waiters();
        Ok(())
    }
}
