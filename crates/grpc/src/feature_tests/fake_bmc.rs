//! A simulated BMC: its accounts, its lock, and lost messages.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use rackwright_ground::clock;
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_nodes::credentials::bmc_access::{AccountError, BmcAccess, BmcSession, ServiceRootFacts};
use rackwright_redfish::AccountPolicy;
use secrecy::{ExposeSecret as _, SecretString};

/// The accounts of one BMC.
#[derive(Debug, Clone)]
pub struct Accounts {
    /// Name, password, enabled.
    pub list: Vec<(String, String, bool)>,
    pub must_change: bool,
    pub threshold: u32,
    pub window_s: i64,
    /// Refused logins since the last good one, and the time of the last.
    pub refused: u32,
    pub refused_at: Timestamp,
    /// How often an account became locked.
    pub locked: u32,
    pub logins: u32,
    /// Whether the BMC refuses every new password.
    pub is_stubborn: bool,
    /// Number of messages with an answer so far.
    pub exchanges: usize,
    /// The number of the exchange in which a message is lost, from 0.
    pub lost: Option<(usize, Lost)>,
}

/// Which message of an exchange is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    Request,
    Answer,
}

impl Accounts {
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            list: vec![(user.into(), password.into(), true)],
            must_change: false,
            threshold: 3,
            window_s: 60,
            refused: 0,
            refused_at: Timestamp::default(),
            locked: 0,
            logins: 0,
            is_stubborn: false,
            exchanges: 0,
            lost: None,
        }
    }

    pub fn opens(&self, user: &str, password: &str) -> bool {
        let is_it = |(name, is, enabled): &(String, String, bool)| name == user && is == password && *enabled;
        self.list.iter().any(is_it)
    }

    fn log_in(&mut self, user: &str, password: &str) -> Result<(), AccountError> {
        let now = clock::now();
        self.logins += 1;
        if now >= self.refused_at.plus(seconds(self.window_s)) {
            self.refused = 0;
        }
        let is_locked = self.threshold > 0 && self.refused >= self.threshold;
        if !is_locked && self.opens(user, password) {
            self.refused = 0;
            return Ok(());
        }
        self.refused += 1;
        self.refused_at = now;
        if self.threshold > 0 && self.refused >= self.threshold {
            self.locked += 1;
        }
        Err(AccountError::Refused("user name or password refused".into()))
    }

    fn set(&mut self, user: &str, password: &str) -> Result<(), AccountError> {
        if self.is_stubborn {
            return Err(AccountError::Denied("the password was used before".into()));
        }
        self.must_change = false;
        match self.list.iter_mut().find(|(name, ..)| name == user) {
            Some(account) => password.clone_into(&mut account.1),
            None => self.list.push((user.into(), password.into(), true)),
        }
        Ok(())
    }
}

/// Access to a simulated BMC.
#[derive(Debug, Clone)]
pub struct FakeBmcAccess(pub Arc<Mutex<Accounts>>);

struct FakeBmcSession {
    bmc_access: FakeBmcAccess,
    user: String,
    must_change: bool,
}

impl FakeBmcAccess {
    pub fn new(accounts: Accounts) -> Self {
        Self(Arc::new(Mutex::new(accounts)))
    }

    pub fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap()
    }

    fn exchange<T>(&self, act: impl FnOnce(&mut Accounts) -> Result<T, AccountError>) -> Result<T, AccountError> {
        let mut accounts = self.accounts();
        let number = accounts.exchanges;
        accounts.exchanges += 1;
        match accounts.lost {
            Some((at, Lost::Request)) if at == number => Err(AccountError::Unreached("no answer".into())),
            Some((at, Lost::Answer)) if at == number => {
                let _ = act(&mut accounts);
                Err(AccountError::Unclear("the answer was lost".into()))
            }
            _ => act(&mut accounts),
        }
    }
}

#[async_trait]
impl BmcAccess for FakeBmcAccess {
    async fn facts(&self) -> Result<ServiceRootFacts, AccountError> {
        self.exchange(|_| {
            Ok(ServiceRootFacts {
                vendor: "Acme Corp.".into(),
                product: "BMC 9".into(),
            })
        })
    }

    async fn enter(&self, username: &str, password: &SecretString) -> Result<Box<dyn BmcSession>, AccountError> {
        let must_change = self.exchange(|accounts| {
            accounts.log_in(username, password.expose_secret())?;
            Ok(accounts.must_change)
        })?;
        Ok(Box::new(FakeBmcSession {
            bmc_access: self.clone(),
            user: username.to_owned(),
            must_change,
        }))
    }
}

#[async_trait]
impl BmcSession for FakeBmcSession {
    fn must_change(&self) -> bool {
        self.must_change
    }

    fn fingerprint(&self) -> Option<String> {
        Some(format!("sha256:{}", "ab".repeat(32)))
    }

    async fn policy(&self) -> Result<AccountPolicy, AccountError> {
        self.bmc_access.exchange(|accounts| {
            if accounts.must_change {
                return Err(AccountError::Denied("change the password first".into()));
            }
            Ok(AccountPolicy {
                min_length: Some(13),
                max_length: Some(20),
                lockout_threshold: Some(accounts.threshold.into()),
                lockout_s: Some(30),
                counter_reset_s: Some(accounts.window_s.unsigned_abs()),
                account_types: Vec::new(),
            })
        })
    }

    async fn set_own(&self, password: &SecretString) -> Result<(), AccountError> {
        self.bmc_access
            .exchange(|accounts| accounts.set(&self.user, password.expose_secret()))
    }

    async fn put(&self, username: &str, password: &SecretString) -> Result<(), AccountError> {
        self.bmc_access
            .exchange(|accounts| accounts.set(username, password.expose_secret()))
    }

    async fn disable(&self, username: &str) -> Result<(), AccountError> {
        self.bmc_access.exchange(|accounts| {
            let found = accounts.list.iter_mut().find(|(name, ..)| name == username);
            if let Some(account) = found {
                account.2 = false;
            }
            Ok(())
        })
    }

    async fn leave(&self) {}
}
