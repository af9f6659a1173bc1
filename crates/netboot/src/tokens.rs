//! The rules of one-time tokens, for implementations of [`crate::BootDirectory`].

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::directory::{Binding, OneTimeToken, Refusal};
use crate::mac::Mac;

/// Issued tokens in memory. Each is valid once, for one MAC address, from one client address, for a limited time.
///
/// Bounded: the newest token replaces the oldest. Time is an argument. Tokens are lost when the process ends; the machine
/// then gets another token with its next DHCP request.
#[derive(Debug)]
pub struct TokenBook {
    issued: HashMap<String, Issued>,
    order: VecDeque<String>,
    lifetime: Duration,
    capacity: usize,
}

#[derive(Debug)]
struct Issued {
    binding: Binding,
    until: Instant,
    used: bool,
}

impl TokenBook {
    /// Tokens are valid for `lifetime`. At most `capacity` (at least 1) tokens are stored, used ones included.
    pub fn new(lifetime: Duration, capacity: usize) -> Self {
        Self {
            issued: HashMap::new(),
            order: VecDeque::new(),
            lifetime,
            capacity: capacity.max(1),
        }
    }

    /// Stores a newly issued token.
    pub fn issue(&mut self, token: &OneTimeToken, binding: Binding, now: Instant) {
        while self.order.front().is_some_and(|oldest| self.is_past(oldest, now)) || self.order.len() >= self.capacity {
            let Some(oldest) = self.order.pop_front() else { break };
            self.issued.remove(&oldest);
        }
        let issued = Issued {
            binding,
            until: now + self.lifetime,
            used: false,
        };
        self.issued.insert(token.expose().to_owned(), issued);
        self.order.push_back(token.expose().to_owned());
    }

    /// Redeems a token. A wrong MAC or client address leaves the token valid: otherwise a neighbour could spoil another
    /// machine's boot.
    pub fn redeem(&mut self, token: &OneTimeToken, mac: Mac, remote: IpAddr, now: Instant) -> Result<Binding, Refusal> {
        let issued = self.issued.get_mut(token.expose()).ok_or(Refusal::NoSuchToken)?;
        if issued.binding.mac != mac {
            return Err(Refusal::OtherMachine);
        }
        if issued
            .binding
            .address
            .is_some_and(|address| IpAddr::V4(address) != remote)
        {
            return Err(Refusal::OtherAddress);
        }
        if issued.used {
            return Err(Refusal::Used);
        }
        if now >= issued.until {
            return Err(Refusal::Expired);
        }
        issued.used = true;
        Ok(issued.binding)
    }

    fn is_past(&self, token: &str, now: Instant) -> bool {
        // A used or expired token stays for another lifetime, so that a late second use gets the precise reason.
        self.issued
            .get(token)
            .is_none_or(|issued| now >= issued.until + self.lifetime)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 2]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);

    fn token(text: &str) -> OneTimeToken {
        OneTimeToken::new(text.to_owned()).unwrap()
    }

    fn book(capacity: usize) -> (TokenBook, Instant) {
        (TokenBook::new(Duration::from_secs(60), capacity), Instant::now())
    }

    #[test]
    fn one_machine_one_use() {
        let (mut book, now) = book(8);
        let binding = Binding {
            mac: MAC,
            address: Some(ADDRESS),
        };
        book.issue(&token("a"), binding, now);
        assert_eq!(
            book.redeem(&token("b"), MAC, ADDRESS.into(), now),
            Err(Refusal::NoSuchToken)
        );
        assert_eq!(
            book.redeem(&token("a"), OTHER, ADDRESS.into(), now),
            Err(Refusal::OtherMachine)
        );
        let elsewhere = IpAddr::from([10, 77, 0, 11]);
        assert_eq!(
            book.redeem(&token("a"), MAC, elsewhere, now),
            Err(Refusal::OtherAddress)
        );
        assert_eq!(book.redeem(&token("a"), MAC, ADDRESS.into(), now), Ok(binding));
        assert_eq!(book.redeem(&token("a"), MAC, ADDRESS.into(), now), Err(Refusal::Used));
    }

    #[test]
    fn tokens_expire_and_the_book_stays_small() {
        let (mut book, now) = book(2);
        let binding = Binding {
            mac: MAC,
            address: None,
        };
        book.issue(&token("a"), binding, now);
        let late = now + Duration::from_secs(60);
        assert_eq!(
            book.redeem(&token("a"), MAC, ADDRESS.into(), late),
            Err(Refusal::Expired)
        );
        book.issue(&token("b"), binding, now);
        book.issue(&token("c"), binding, now);
        assert_eq!(
            book.redeem(&token("a"), MAC, ADDRESS.into(), now),
            Err(Refusal::NoSuchToken)
        );
        assert_eq!(book.redeem(&token("c"), MAC, ADDRESS.into(), now), Ok(binding));
        book.issue(&token("d"), binding, now + Duration::from_secs(1000));
        assert_eq!(book.issued.len(), 1);
    }

    #[test]
    fn a_token_must_fit_into_a_url() {
        for bad in ["", "a b", "a&b", "ä", &"x".repeat(129)] {
            assert!(OneTimeToken::new(bad.to_owned()).is_none(), "{bad}");
        }
        assert_eq!(format!("{:?}", token("secret")), "OneTimeToken(…)");
    }
}
